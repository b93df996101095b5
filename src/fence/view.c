/* view.c - long strings as policy code sees them: looked at in place, copied only in small pieces. */
#include <lauxlib.h>
#include <sodium.h>
#include <string.h>

#include "fence/library.h"
#include "fence/pack.h"

static const dml_pack_view *check_view(lua_State *L) {
  const dml_pack_view *view = luaL_checkudata(L, 1, DML_PACK_VIEW_T);
  if (view->call != dml_policy_of(L)->call) luaL_error(L, "this view is of an earlier call, and its text is gone");
  return view;
}

static int l_len(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)check_view(L)->len);
  return 1;
}

/* A position as string.sub takes it, from 1; below the end it counts from there. */
static lua_Integer place_of(lua_Integer at, size_t len) {
  if (at >= 0) return at;
  return -at > (lua_Integer)len ? 0 : (lua_Integer)len + at + 1;
}

/* view:sub(i, j?) -> text of at most 64 KiB */
static int l_sub(lua_State *L) {
  const dml_pack_view *view = check_view(L);
  lua_Integer from = place_of(luaL_checkinteger(L, 2), view->len), to = place_of(luaL_optinteger(L, 3, -1), view->len);
  if (from < 1) from = 1;
  if (to > (lua_Integer)view->len) to = (lua_Integer)view->len;
  if (from > to) {
    lua_pushliteral(L, "");
    return 1;
  }
  if (to - from >= DML_PACK_SHORT_MAX_BYTES) return luaL_error(L, "sub takes at most 64 KiB of a view at a time");
  lua_pushlstring(L, view->data + from - 1, (size_t)(to - from + 1));
  return 1;
}

/* view:find_plain(text, init?) -> first, last | nil */
static int l_find_plain(lua_State *L) {
  const dml_pack_view *view = check_view(L);
  size_t len;
  const char *text = luaL_checklstring(L, 2, &len);
  lua_Integer init = place_of(luaL_optinteger(L, 3, 1), view->len);
  if (init < 1) init = 1;
  if (init > (lua_Integer)view->len + 1) {
    lua_pushnil(L);
    return 1;
  }
  const char *from = view->data + init - 1;
  const char *hit = memmem(from, view->len - (size_t)(init - 1), text, len);
  if (!hit) {
    lua_pushnil(L);
    return 1;
  }
  lua_pushinteger(L, (lua_Integer)(hit - view->data) + 1);
  lua_pushinteger(L, (lua_Integer)(hit - view->data) + (lua_Integer)len);
  return 2;
}

/* view:sha256() -> 64 hex digits */
static int l_sha256(lua_State *L) {
  const dml_pack_view *view = check_view(L);
  unsigned char hash[crypto_hash_sha256_BYTES];
  char hex[crypto_hash_sha256_BYTES * 2 + 1];
  crypto_hash_sha256(hash, (const unsigned char *)view->data, view->len);
  sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
  lua_pushstring(L, hex);
  return 1;
}

/* Upvalue 1 is the table of methods. */
static int l_index(lua_State *L) {
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : luaL_typename(L, 2);
  return luaL_error(L, "a text over 64 KiB is a view; it has #, sub, find_plain and sha256, and no %s", name);
}

void dml_view_open(lua_State *L) {
  static const luaL_Reg METHODS[] = {{"sub", l_sub}, {"find_plain", l_find_plain}, {"sha256", l_sha256}, {NULL, NULL}};
  luaL_newmetatable(L, DML_PACK_VIEW_T);
  luaL_newlib(L, METHODS);
  lua_pushcclosure(L, l_index, 1);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, l_len);
  lua_setfield(L, -2, "__len");
  lua_pop(L, 1);
}
