/* bind_http_options.h - what http.request is asked for, read from its table. */
#ifndef DML_SCRIPT_BIND_HTTP_OPTIONS_H
#define DML_SCRIPT_BIND_HTTP_OPTIONS_H

#include <lua.h>

#include "net/http_client.h"

/* Where the strings begin that reading leaves on the stack: the URL. */
#define DML_HTTP_URL_INDEX 3

/* Fills `options`, and `headers` with the request's fields and credentials, from the table at 1; `options` borrows the
 * strings that it leaves on the stack, from DML_HTTP_URL_INDEX on, where the top must be when it is called, and
 * `headers`, which the caller wipes whatever happens. Raises what is misuse. [-0, +many] Errors: DML_INVALID_ARGUMENT
 * (a header that HTTP does not allow), DML_AUTHENTICATION_FAILED (a credential is not loaded). */
dml_status dml_http_options_read(lua_State *L, dml_http_transfer_options *options, dml_headers *headers);

#endif
