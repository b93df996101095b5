/* bind_headers.h - header fields between Lua tables and net's lists, for client and server alike. */
#ifndef DML_SCRIPT_BIND_HEADERS_H
#define DML_SCRIPT_BIND_HEADERS_H

#include <lua.h>

#include "net/headers.h"

/* {[lower-case name] = value}; values of a repeated name are joined with ", " (RFC 9110 §5.3). [-0, +1] */
void dml_push_headers(lua_State *L, const dml_headers *headers);
/* Adds the fields of the table at `index` (nil: none): names are strings, values strings, integers, or lists of
 * strings. Raises for other types; what HTTP does not allow is the world's failure: errors as for dml_headers_add. [-0,
 * +0] */
dml_status dml_to_headers(lua_State *L, int index, dml_headers *headers);

/* Overwrites what the fields hold, then as dml_headers_deinit. */
void dml_headers_wipe(dml_headers *headers);

#endif
