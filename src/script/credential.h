/* credential.h - secrets on their way from the vault into requests, and out of answers.
 *
 * A handle (a userdata that prints as `credential(NAME)`) says which secret goes into which header and where it may go;
 * no byte of the secret ever is a Lua value. Both functions below are the HTTP client's. */
#ifndef DML_SCRIPT_CREDENTIAL_H
#define DML_SCRIPT_CREDENTIAL_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "net/headers.h"

/* More handles in one request than this are refused. */
#define DML_CREDENTIALS_MAX 8

/* Adds the header of each credential in the Lua list at `index` (nil: none) to `headers`, for a request to `url`, or
 * over a unix socket when `is_unix`. The bytes are then in `headers`, which the caller wipes. Raises when the value is
 * no such list, or when a credential may not go there. [-0, +0] Errors: DML_AUTHENTICATION_FAILED (one is not loaded),
 * those of dml_headers_add. */
dml_status dml_credentials_add(lua_State *L, int index, dml_span url, bool is_unix, dml_headers *headers);

/* Decodes a JSON body; strings at the JSON pointers (RFC 6901; "*" stands for every element or member) that are the
 * keys of the Lua table at `index` become handles with the binding that is the value there. A null, or nothing at a
 * pointer, is left. Pushes the value, or nil and an error: invalid_response for what is no JSON or a token that is no
 * string of 8 to 8192 bytes without control characters, internal when the vault has no more room. Raises for a
 * malformed binding. The body is borrowed, and still holds the tokens: the caller wipes it. [-0, +1|+2] */
int dml_push_lifted(lua_State *L, int index, const char *body, size_t len);

#endif
