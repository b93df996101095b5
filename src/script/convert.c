/* convert.c - see convert.h. */
#include "script/convert.h"

#include <lauxlib.h>
#include <math.h>

#include "base/json.h"
#include "base/utf8.h"

#define ARRAY_T "demilune.array"
#define EXACT_DOUBLE_MAX 9007199254740992.0 /* 2^53 */

void dml_mark_array(lua_State *L) {
  luaL_newmetatable(L, ARRAY_T);
  lua_setmetatable(L, -2);
}

static void push_object(lua_State *L, const json_t *value) {
  lua_createtable(L, 0, (int)json_object_size(value));
  json_t *object = (json_t *)value; /* jansson's iterator is not const */
  for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
    const char *key = json_object_iter_key(at);
    lua_pushstring(L, key); /* Jansson refuses NUL in keys */
    dml_push_json(L, json_object_iter_value(at));
    lua_rawset(L, -3);
  }
}

static void push_array(lua_State *L, const json_t *value) {
  size_t n = json_array_size(value);
  lua_createtable(L, (int)n, 0);
  dml_mark_array(L);
  for (size_t i = 0; i < n; i++) {
    dml_push_json(L, json_array_get(value, i));
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

void dml_push_json(lua_State *L, const json_t *value) {
  luaL_checkstack(L, 4, "JSON value");
  switch (json_typeof(value)) {
  case JSON_OBJECT: push_object(L, value); break;
  case JSON_ARRAY: push_array(L, value); break;
  case JSON_STRING: lua_pushlstring(L, json_string_value(value), json_string_length(value)); break;
  case JSON_INTEGER: lua_pushinteger(L, (lua_Integer)json_integer_value(value)); break;
  case JSON_REAL: lua_pushnumber(L, json_real_value(value)); break;
  case JSON_TRUE: lua_pushboolean(L, 1); break;
  case JSON_FALSE: lua_pushboolean(L, 0); break;
  case JSON_NULL: lua_pushlightuserdata(L, NULL); break;
  }
}

static json_t *to_json(lua_State *L, int index, int depth, const char **why);

static bool has_array_mark(lua_State *L, int index) {
  if (!lua_getmetatable(L, index)) return false;
  luaL_getmetatable(L, ARRAY_T);
  bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same;
}

static bool is_array(lua_State *L, int index) {
  if (has_array_mark(L, index)) return true;
  lua_Unsigned n = lua_rawlen(L, index);
  if (n == 0) return false;
  lua_Unsigned count = 0;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1))
    if (!lua_isinteger(L, -2) || ++count > n) {
      lua_pop(L, 2);
      return false;
    }
  return count == n;
}

static json_t *array_to_json(lua_State *L, int index, int depth, const char **why) {
  json_t *out = json_array();
  lua_Unsigned n = lua_rawlen(L, index);
  for (lua_Unsigned i = 1; out && i <= n; i++) {
    lua_rawgeti(L, index, (lua_Integer)i);
    json_t *item = to_json(L, lua_gettop(L), depth + 1, why);
    lua_pop(L, 1);
    if (!item || json_array_append_new(out, item) != 0) {
      json_decref(out);
      return NULL;
    }
  }
  return out;
}

static bool set_key(json_t *out, const char *key, size_t len, json_t *item) {
  if (dml_utf8_is_valid(key, len)) return json_object_setn_new_nocheck(out, key, len, item) == 0;
  json_t *mended = dml_json_string(key, len);
  bool ok = mended && json_object_set_new_nocheck(out, json_string_value(mended), item) == 0;
  if (!mended) json_decref(item);
  json_decref(mended);
  return ok;
}

static json_t *object_to_json(lua_State *L, int index, int depth, const char **why) {
  json_t *out = json_object();
  for (lua_pushnil(L); out && lua_next(L, index); lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) {
      *why = "a table for JSON has a key that is no string";
      lua_pop(L, 2);
      json_decref(out);
      return NULL;
    }
    json_t *item = to_json(L, lua_gettop(L), depth + 1, why);
    size_t len;
    const char *key = lua_tolstring(L, -2, &len);
    if (!item || !set_key(out, key, len, item)) {
      lua_pop(L, 2);
      json_decref(out);
      return NULL;
    }
  }
  return out;
}

static json_t *number_to_json(lua_State *L, int index, const char **why) {
  if (lua_isinteger(L, index)) return json_integer(lua_tointeger(L, index));
  double number = lua_tonumber(L, index);
  if (!isfinite(number)) {
    *why = "NaN and infinity have no JSON form";
    return NULL;
  }
  bool is_exact = number > -EXACT_DOUBLE_MAX && number < EXACT_DOUBLE_MAX;
  if (is_exact && (double)(json_int_t)number == number) return json_integer((json_int_t)number);
  return json_real(number);
}

static json_t *to_json(lua_State *L, int index, int depth, const char **why) {
  if (depth > DML_JSON_DEPTH_MAX || !lua_checkstack(L, 6)) {
    *why = "a table for JSON is nested too deeply, or holds itself";
    return NULL;
  }
  size_t len;
  const char *s;
  switch (lua_type(L, index)) {
  case LUA_TNIL: return json_null();
  case LUA_TBOOLEAN: return json_boolean(lua_toboolean(L, index));
  case LUA_TNUMBER: return number_to_json(L, index, why);
  case LUA_TSTRING: s = lua_tolstring(L, index, &len); return dml_json_string(s, len);
  case LUA_TTABLE: return is_array(L, index) ? array_to_json(L, index, depth, why) : object_to_json(L, index, depth, why);
  case LUA_TLIGHTUSERDATA:
    if (!lua_touserdata(L, index)) return json_null();
    break;
  default: break;
  }
  *why = "a value has no JSON form";
  return NULL;
}

json_t *dml_to_json(lua_State *L, int index, const char **why) {
  *why = "out of memory";
  return to_json(L, lua_absindex(L, index), 1, why);
}
