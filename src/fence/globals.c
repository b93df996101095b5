/* globals.c - the environment of policy code: an empty table in front of the real one, so that every write to a global,
 * also to one that is there, comes to a function of ours. Library tables stand behind such a table too. */
#include <lauxlib.h>
#include <lualib.h>

#include "fence/library.h"

static const char *key_text(lua_State *L, int index) {
  return lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : luaL_typename(L, index);
}

static int refuse_library_write(lua_State *L) {
  return luaL_error(L, "the libraries are read-only: %s cannot be set", key_text(L, 2));
}

static int refuse_undefined(lua_State *L) {
  return luaL_error(L, "there is no global %s; is it misspelt, or was local left out?", key_text(L, 2));
}

/* Upvalue 1 is the real table. */
static int write_global(lua_State *L) {
  if (!dml_policy_of(L)->is_loading)
    return luaL_error(L, "globals are read-only once the policy is loaded: %s cannot be set; declare it with local",
                      key_text(L, 2));
  lua_settop(L, 3);
  lua_rawset(L, lua_upvalueindex(1));
  return 0;
}

/* Replaces the table on top by an empty one that reads through to it and hands its writes to the function `write`, which
 * gets the table as upvalue 1. [-0, +0] */
static void stand_before(lua_State *L, lua_CFunction write) {
  lua_newtable(L);
  lua_createtable(L, 0, 2);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "__index");
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, write, 1);
  lua_setfield(L, -2, "__newindex");
  lua_setmetatable(L, -2);
  lua_remove(L, -2);
}

/* The library on top becomes the global `name` of the table below. [-1, +0] */
static void add_library(lua_State *L, const char *name) {
  stand_before(L, refuse_library_write);
  lua_setfield(L, -2, name);
}

void dml_library_open(lua_State *L) {
  dml_library_push_base(L);
  dml_library_push_string(L);
  add_library(L, "string");
  dml_library_push_math(L);
  add_library(L, "math");
  dml_library_push_os(L);
  add_library(L, "os");
  dml_library_push_path(L);
  add_library(L, "path");
  luaL_requiref(L, LUA_TABLIBNAME, luaopen_table, 0);
  add_library(L, "table");
  luaL_requiref(L, LUA_UTF8LIBNAME, luaopen_utf8, 0);
  add_library(L, "utf8");
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, refuse_undefined);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  stand_before(L, write_global);
  lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushnil(L); /* what luaL_requiref kept: the tables before they were mended */
  lua_setfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  dml_view_open(L);
}
