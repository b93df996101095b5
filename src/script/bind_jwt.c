/* bind_jwt.c - core.jwt: the keys of an issuer, and the tokens that they signed. */
#include <lauxlib.h>

#include "net/jwt.h"
#include "script/bind.h"
#include "script/convert.h"
#include "script/task.h"

#define KEYS_T "demilune.jwt.keys"
#define ALGS_MAX 16

static dml_jwt_keys *check_keys(lua_State *L) {
  dml_jwt_keys *keys = *(dml_jwt_keys **)luaL_checkudata(L, 1, KEYS_T);
  luaL_argcheck(L, keys, 1, "they were collected");
  return keys;
}

static int keys_gc(lua_State *L) {
  dml_jwt_keys **box = luaL_checkudata(L, 1, KEYS_T);
  dml_jwt_keys_free(*box);
  *box = NULL;
  return 0;
}

/* #keys: how many of the set can be used */
static int keys_len(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)check_keys(L)->count);
  return 1;
}

/* jwt.keys(json) -> Keys | nil, err */
static int l_keys(lua_State *L) {
  size_t len;
  const char *json = luaL_checklstring(L, 1, &len);
  dml_jwt_keys **box = lua_newuserdatauv(L, sizeof *box, 0);
  *box = NULL;
  luaL_setmetatable(L, KEYS_T);
  dml_status status = dml_jwt_keys_new(json, len, box);
  return status == DML_OK ? 1 : dml_push_error(L, status);
}

static unsigned read_algs(lua_State *L, int index) {
  unsigned algs = 0;
  luaL_checktype(L, index, LUA_TTABLE);
  for (lua_Integer i = 1; i <= ALGS_MAX && lua_rawgeti(L, index, i) == LUA_TSTRING; i++) {
    unsigned alg = dml_jwt_alg_from_name(lua_tostring(L, -1));
    if (alg == 0) luaL_error(L, "%s is no signature that can be checked here", lua_tostring(L, -1));
    algs |= alg;
    lua_pop(L, 1);
  }
  lua_settop(L, index);
  return algs;
}

typedef struct claims {
  json_t *json;
} claims;

static int push_claims(lua_State *L) {
  dml_push_json(L, ((claims *)lua_touserdata(L, 1))->json);
  return 1;
}

/* Keys:verify(token, algs) -> claims | nil, fault */
static int keys_verify(lua_State *L) {
  static const char *const FAULTS[] = {
      [DML_JWT_MALFORMED] = "malformed",     [DML_JWT_ALGORITHM] = "algorithm", [DML_JWT_CRITICAL] = "critical",
      [DML_JWT_UNKNOWN_KEY] = "unknown_key", [DML_JWT_SIGNATURE] = "signature", [DML_JWT_INTERNAL] = "internal",
  };
  size_t len;
  const dml_jwt_keys *keys = check_keys(L);
  const char *token = luaL_checklstring(L, 2, &len);
  unsigned algs = read_algs(L, 3);
  claims found = {NULL};
  dml_jwt_fault fault = dml_jwt_verify(dml_script_dir(dml_script_of(L)), keys, token, len, algs, &found.json);
  if (fault != DML_JWT_FINE) {
    lua_pushnil(L);
    lua_pushstring(L, FAULTS[fault]);
    return 2;
  }
  lua_pushcfunction(L, push_claims);
  lua_pushlightuserdata(L, &found);
  int rc = lua_pcall(L, 1, 1, 0);
  json_decref(found.json);
  return rc == LUA_OK ? 1 : lua_error(L);
}

static const luaL_Reg METHODS[] = {{"verify", keys_verify}, {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {{"keys", l_keys}, {NULL, NULL}};

int dml_open_jwt(lua_State *L) {
  if (luaL_newmetatable(L, KEYS_T)) {
    luaL_newlib(L, METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, keys_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, keys_len);
    lua_setfield(L, -2, "__len");
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
