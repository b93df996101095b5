/* bind_headers.c - see bind_headers.h. */
#include "script/bind_headers.h"

#include <lauxlib.h>
#include <string.h>

void dml_push_headers(lua_State *L, const dml_headers *headers) {
  lua_createtable(L, 0, (int)headers->count);
  for (size_t i = 0; i < headers->count; i++) {
    dml_span name, value;
    dml_headers_at(headers, i, &name, &value);
    lua_pushlstring(L, name.data, name.len);
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) == LUA_TNIL) {
      lua_pop(L, 1);
      lua_pushlstring(L, value.data, value.len);
    } else {
      lua_pushliteral(L, ", ");
      lua_pushlstring(L, value.data, value.len);
      lua_concat(L, 3);
    }
    lua_rawset(L, -3);
  }
}

static dml_span to_span(lua_State *L, int index) {
  dml_span span;
  span.data = lua_tolstring(L, index, &span.len);
  return span;
}

/* The value, or list of values, on top of the stack. [-0, +0] */
static dml_status add_values(lua_State *L, dml_headers *headers, dml_span name) {
  if (lua_isstring(L, -1)) return dml_headers_add(headers, name, to_span(L, -1));
  if (!lua_istable(L, -1)) luaL_error(L, "values of headers are strings, numbers or lists of them");
  dml_status status = DML_OK;
  lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
  for (lua_Integer i = 1; i <= count && status == DML_OK; i++) {
    lua_rawgeti(L, -1, i);
    if (!lua_isstring(L, -1)) luaL_error(L, "values of headers are strings, numbers or lists of them");
    status = dml_headers_add(headers, name, to_span(L, -1));
    lua_pop(L, 1);
  }
  return status;
}

dml_status dml_to_headers(lua_State *L, int index, dml_headers *headers) {
  index = lua_absindex(L, index);
  if (lua_isnil(L, index)) return DML_OK;
  luaL_argcheck(L, lua_istable(L, index), index, "headers are a table");
  dml_status status = DML_OK;
  lua_pushnil(L);
  while (status == DML_OK && lua_next(L, index)) {
    if (lua_type(L, -2) != LUA_TSTRING) luaL_error(L, "names of headers are strings");
    status = add_values(L, headers, to_span(L, -2));
    lua_pop(L, 1);
  }
  if (status != DML_OK) lua_pop(L, 1);
  return status;
}

void dml_headers_wipe(dml_headers *headers) {
  if (headers->bytes.data) explicit_bzero(headers->bytes.data, headers->bytes.capacity);
  dml_headers_deinit(headers);
}
