/* bind_json.c - core.json: decode, encode, null, array. */
#include <lauxlib.h>

#include "base/json.h"
#include "script/bind.h"
#include "script/convert.h"
#include "script/task.h"

/* What one encoded text may hold: a 16 MiB message in base64, twice, with room. */
#define ENCODE_MAX_BYTES (96 * 1024 * 1024)

/* json.decode(text) -> value | nil, "syntax" | "out_of_range" | "over_limit" */
static int l_decode(lua_State *L) {
  static const char *const FAULTS[] = {"fine", "syntax", "out_of_range", "over_limit"};
  size_t len;
  const char *text = luaL_checklstring(L, 1, &len);
  json_t *value;
  dml_json_fault fault = dml_json_decode(text, len, NULL, &value);
  if (fault != DML_JSON_FINE) {
    lua_pushnil(L);
    lua_pushstring(L, FAULTS[fault]);
    return 2;
  }
  dml_push_json(L, value);
  json_decref(value);
  return 1;
}

/* json.encode(value) -> text; raises for what has no JSON form. */
static int l_encode(lua_State *L) {
  luaL_checkany(L, 1);
  const char *why;
  json_t *value = dml_to_json(L, 1, &why);
  if (!value) return luaL_error(L, "%s", why);
  dml_buffer out;
  dml_buffer_init(&out, ENCODE_MAX_BYTES);
  dml_status status = dml_json_append(&out, value);
  json_decref(value);
  if (status == DML_OK) lua_pushlstring(L, out.data, out.len);
  dml_buffer_deinit(&out);
  return status == DML_OK ? 1 : luaL_error(L, "a value is too large to be written as JSON");
}

/* json.array(t?) -> t, marked */
static int l_array(lua_State *L) {
  if (lua_isnoneornil(L, 1)) {
    lua_settop(L, 0);
    lua_newtable(L);
  }
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  dml_mark_array(L);
  return 1;
}

static const luaL_Reg FUNCTIONS[] = {{"decode", l_decode}, {"encode", l_encode}, {"array", l_array}, {NULL, NULL}};

int dml_open_json(lua_State *L) {
  luaL_newlib(L, FUNCTIONS);
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "null");
  return 1;
}
