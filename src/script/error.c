/* error.c - the one builder of errors that C hands to Lua, and the table of failures as Lua sees it. */
#include <lauxlib.h>

#include "script/bind.h"
#include "script/task.h"

#define ERROR_T "demilune.error"

/* "category: message" */
static int error_tostring(lua_State *L) {
  lua_getfield(L, 1, "category");
  lua_getfield(L, 1, "message");
  lua_pushfstring(L, "%s: %s", luaL_optstring(L, -2, "internal"), luaL_optstring(L, -1, ""));
  return 1;
}

static void set_error_metatable(lua_State *L) {
  if (luaL_newmetatable(L, ERROR_T)) {
    lua_pushcfunction(L, error_tostring);
    lua_setfield(L, -2, "__tostring");
  }
  lua_setmetatable(L, -2);
}

static void push_row(lua_State *L, dml_status status) {
  lua_createtable(L, 0, 4);
  lua_pushstring(L, dml_status_name(status));
  lua_setfield(L, -2, "category");
  lua_pushstring(L, dml_status_text(status));
  lua_setfield(L, -2, "message");
  lua_pushboolean(L, dml_status_is_retryable(status));
  lua_setfield(L, -2, "retryable");
  if (*dml_status_suggestion(status)) {
    lua_pushstring(L, dml_status_suggestion(status));
    lua_setfield(L, -2, "suggestion");
  }
  set_error_metatable(L);
}

int dml_push_error(lua_State *L, dml_status status) {
  lua_pushnil(L);
  push_row(L, status);
  return 2;
}

static int describe(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  return 1;
}

const char *dml_push_error_text(lua_State *L, int index, size_t *len) {
  index = lua_absindex(L, index);
  lua_pushcfunction(L, describe);
  lua_pushvalue(L, index);
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
    lua_pop(L, 1);
    lua_pushliteral(L, "an error whose __tostring fails");
  }
  return lua_tolstring(L, -1, len);
}

/* status.new(category) -> a fresh error of that row; raises for a category that the table lacks. */
static int l_new(lua_State *L) {
  dml_status status = dml_status_from_name(luaL_checkstring(L, 1));
  if (status == DML_STATUS_COUNT) return luaL_argerror(L, 1, "no such category in the table of failures");
  push_row(L, status);
  return 1;
}

/* status.from_http(code, is_create) -> category name */
static int l_from_http(lua_State *L) {
  lua_pushstring(L, dml_status_name(dml_status_from_http((int)luaL_checkinteger(L, 1), lua_toboolean(L, 2))));
  return 1;
}

/* status.from_code(family, code) -> category name or nil, whether the code is known. A code that is no string is unknown. */
static int l_from_code(lua_State *L) {
  dml_code_family family = dml_code_family_from_name(luaL_checkstring(L, 1));
  if (family == DML_CODE_FAMILY_COUNT) return luaL_argerror(L, 1, "no such family of codes");
  size_t len = 0;
  const char *code = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &len) : NULL;
  dml_status status = code ? dml_status_from_code(family, code, len) : DML_STATUS_COUNT;
  if (status == DML_STATUS_COUNT)
    lua_pushnil(L);
  else
    lua_pushstring(L, dml_status_name(status));
  lua_pushboolean(L, status != DML_STATUS_COUNT);
  return 2;
}

/* status.names() -> list of all categories but "ok" */
static int l_names(lua_State *L) {
  lua_createtable(L, DML_STATUS_COUNT, 0);
  for (int i = 1; i < DML_STATUS_COUNT; i++) {
    lua_pushstring(L, dml_status_name((dml_status)i));
    lua_rawseti(L, -2, i);
  }
  return 1;
}

static const luaL_Reg FUNCTIONS[] = {
    {"new", l_new}, {"from_http", l_from_http}, {"from_code", l_from_code}, {"names", l_names}, {NULL, NULL}};

int dml_open_status(lua_State *L) {
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
