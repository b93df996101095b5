/* bind_regex.c - core.regex: regular expressions and globs of operators. Both are objects that say whether they match. */
#include <lauxlib.h>
#include <stdlib.h>

#include "base/glob.h"
#include "base/regex.h"
#include "script/bind.h"

#define REGEX_T "demilune.regex"
#define GLOB_T "demilune.glob"
#define WHY_BYTES 256
/* A masked text is longer than what it was by no more than this factor for each byte of the mask. */
#define MASK_BYTES_MAX 64

/* Results of a compilation that failed: nil and why. */
static int push_why(lua_State *L, dml_status status, const char *why) {
  if (status == DML_INTERNAL) return luaL_error(L, "out of memory");
  lua_pushnil(L);
  lua_pushstring(L, why);
  return 2;
}

/* true, false, or nil and "limit" */
static int push_match(lua_State *L, int rc) {
  if (rc >= 0) {
    lua_pushboolean(L, rc);
    return 1;
  }
  lua_pushnil(L);
  lua_pushliteral(L, "limit");
  return 2;
}

/* regex.new(pattern) -> Regex | nil, why, offset (bytes before what is wrong) */
static int l_new(lua_State *L) {
  size_t len, offset = 0;
  const char *pattern = luaL_checklstring(L, 1, &len);
  char why[WHY_BYTES];
  dml_regex **box = lua_newuserdatauv(L, sizeof *box, 0);
  *box = NULL;
  luaL_setmetatable(L, REGEX_T);
  dml_status status = dml_regex_new(pattern, len, box, &offset, why, sizeof why);
  if (status == DML_OK) return 1;
  push_why(L, status, why);
  lua_pushinteger(L, (lua_Integer)offset);
  return 3;
}

/* regex.glob(pattern, { path = true }?) -> Glob | nil, why */
static int l_glob(lua_State *L) {
  size_t len;
  const char *pattern = luaL_checklstring(L, 1, &len);
  bool is_path = false;
  if (!lua_isnoneornil(L, 2)) {
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "path");
    is_path = lua_toboolean(L, -1);
  }
  char why[WHY_BYTES];
  dml_glob **box = lua_newuserdatauv(L, sizeof *box, 0);
  *box = NULL;
  luaL_setmetatable(L, GLOB_T);
  dml_status status = dml_glob_new(pattern, len, is_path, box, why, sizeof why);
  return status == DML_OK ? 1 : push_why(L, status, why);
}

/* Argument 1. Collected already is a misuse only finalizers can make. */
static void *check_self(lua_State *L, const char *type) {
  void *self = *(void **)luaL_checkudata(L, 1, type);
  luaL_argcheck(L, self, 1, "it was collected");
  return self;
}

/* Regex:matches(text) -> boolean | nil, "limit" */
static int regex_matches(lua_State *L) {
  size_t len;
  const dml_regex *regex = check_self(L, REGEX_T);
  const char *s = luaL_checklstring(L, 2, &len);
  return push_match(L, dml_regex_match(regex, s, len));
}

/* Glob:matches(text) -> boolean | nil, "limit" */
static int glob_matches(lua_State *L) {
  size_t len;
  const dml_glob *glob = check_self(L, GLOB_T);
  const char *s = luaL_checklstring(L, 2, &len);
  return push_match(L, dml_glob_match(glob, s, len));
}

/* Regex:mask(text, with) -> text, count | nil, "limit" */
static int regex_mask(lua_State *L) {
  size_t len, with_len, count;
  const dml_regex *regex = check_self(L, REGEX_T);
  const char *s = luaL_checklstring(L, 2, &len);
  const char *with = luaL_checklstring(L, 3, &with_len);
  luaL_argcheck(L, with_len <= MASK_BYTES_MAX, 3, "longer than 64 bytes");
  dml_buffer out;
  dml_buffer_init(&out, len * (3 + with_len) + MASK_BYTES_MAX);
  dml_status status = dml_regex_mask(regex, s, len, with, &out, &count);
  if (status == DML_OK && count > 0) lua_pushlstring(L, out.data, out.len);
  else if (status == DML_OK) lua_pushvalue(L, 2);
  dml_buffer_deinit(&out);
  if (status == DML_INTERNAL) return luaL_error(L, "out of memory");
  if (status != DML_OK) return push_match(L, -1);
  lua_pushinteger(L, (lua_Integer)count);
  return 2;
}

/* Regex:blank(text) -> text | nil, "limit" */
static int regex_blank(lua_State *L) {
  size_t len;
  const dml_regex *regex = check_self(L, REGEX_T);
  const char *s = luaL_checklstring(L, 2, &len);
  dml_buffer out;
  dml_buffer_init(&out, len + 1);
  dml_status status = dml_regex_blank(regex, s, len, &out);
  if (status == DML_OK) lua_pushlstring(L, out.data, out.len);
  dml_buffer_deinit(&out);
  if (status == DML_INTERNAL) return luaL_error(L, "out of memory");
  return status == DML_OK ? 1 : push_match(L, -1);
}

static int regex_gc(lua_State *L) {
  dml_regex **box = luaL_checkudata(L, 1, REGEX_T);
  dml_regex_free(*box);
  *box = NULL;
  return 0;
}

static int glob_gc(lua_State *L) {
  dml_glob **box = luaL_checkudata(L, 1, GLOB_T);
  dml_glob_free(*box);
  *box = NULL;
  return 0;
}

static void make_type(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc) {
  if (luaL_newmetatable(L, name)) {
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
}

static const luaL_Reg FUNCTIONS[] = {{"new", l_new}, {"glob", l_glob}, {NULL, NULL}};
static const luaL_Reg REGEX_METHODS[] = {{"matches", regex_matches}, {"mask", regex_mask}, {"blank", regex_blank}, {NULL, NULL}};
static const luaL_Reg GLOB_METHODS[] = {{"matches", glob_matches}, {NULL, NULL}};

int dml_open_regex(lua_State *L) {
  make_type(L, REGEX_T, REGEX_METHODS, regex_gc);
  make_type(L, GLOB_T, GLOB_METHODS, glob_gc);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
