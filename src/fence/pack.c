/* pack.c - see pack.h. */
#include "fence/pack.h"

#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define EXACT_DOUBLE_MAX 9007199254740992.0 /* 2^53 */
#define STACK_NEED 8

/* ---- writing ---- */

static bool fail(dml_packer *p, const char *why) {
  p->why = why;
  return false;
}

static bool put(dml_packer *p, const void *bytes, size_t len) {
  dml_status status = dml_buffer_append(p->out, bytes, len);
  if (status == DML_OK) return true;
  p->is_too_large = status == DML_TOO_LARGE;
  return fail(p, p->is_too_large ? "is too large" : "does not fit into memory");
}

static bool put_tag(dml_packer *p, dml_pack_tag tag) {
  char byte = (char)tag;
  return put(p, &byte, 1);
}

static bool put_u32(dml_packer *p, size_t value) {
  uint32_t number = (uint32_t)value;
  return put(p, &number, sizeof number);
}

static bool put_bytes(dml_packer *p, const char *s, size_t len) { return put_u32(p, len) && put(p, s, len); }

static bool put_integer(dml_packer *p, int64_t value) { return put_tag(p, DML_PACK_INTEGER) && put(p, &value, sizeof value); }

dml_status dml_pack_integer(dml_buffer *out, int64_t value) {
  dml_packer p = {.out = out};
  if (put_integer(&p, value)) return DML_OK;
  return p.is_too_large ? DML_TOO_LARGE : DML_INTERNAL;
}

dml_status dml_pack_string(dml_buffer *out, const char *s, size_t len) {
  dml_packer p = {.out = out};
  if (put_tag(&p, DML_PACK_STRING) && put_bytes(&p, s, len)) return DML_OK;
  return p.is_too_large ? DML_TOO_LARGE : DML_INTERNAL;
}

static bool pack(lua_State *L, int index, dml_packer *p, int depth);

static bool pack_number(lua_State *L, int index, dml_packer *p) {
  if (lua_isinteger(L, index)) return put_integer(p, lua_tointeger(L, index));
  double number = lua_tonumber(L, index);
  if (!isfinite(number)) return fail(p, "is NaN or infinite, which is no data");
  bool is_exact = number > -EXACT_DOUBLE_MAX && number < EXACT_DOUBLE_MAX;
  if (is_exact && (double)(int64_t)number == number) return put_integer(p, (int64_t)number);
  return put_tag(p, DML_PACK_NUMBER) && put(p, &number, sizeof number);
}

static bool pack_string(lua_State *L, int index, dml_packer *p) {
  size_t len;
  const char *s = lua_tolstring(L, index, &len);
  if (len > UINT32_MAX) return fail(p, "is too large");
  if (p->longs && len > DML_PACK_SHORT_MAX_BYTES) {
    lua_pushvalue(L, index);
    lua_rawseti(L, p->longs, (lua_Integer)++p->long_count);
  }
  return put_tag(p, DML_PACK_STRING) && put_bytes(p, s, len);
}

static bool pack_userdata(lua_State *L, int index, dml_packer *p) {
  const dml_pack_view *view = luaL_testudata(L, index, DML_PACK_VIEW_T);
  if (!view) return fail(p, "is a value that only allow, deny or ask make, which is no data");
  if (view->call != p->call) return fail(p, "is a view of an earlier call");
  return put_tag(p, DML_PACK_VIEW) && put_u32(p, view->number);
}

/* Puts `own` in front of the place that the parts of a value have named. */
static void name_place(dml_packer *p, const char *own) {
  char inner[DML_PACK_PLACE_BYTES];
  memcpy(inner, p->place, sizeof inner);
  size_t len = strnlen(own, sizeof p->place - 1), rest = strnlen(inner, sizeof p->place - 1 - len);
  memcpy(p->place, own, len);
  memcpy(p->place + len, inner, rest);
  p->place[len + rest] = '\0';
}

static void name_index(dml_packer *p, lua_Integer index) {
  char own[32];
  snprintf(own, sizeof own, "[%lld]", (long long)index);
  name_place(p, own);
}

static void name_key(dml_packer *p, const char *key) {
  char own[DML_PACK_PLACE_BYTES];
  snprintf(own, sizeof own, ".%s", key);
  name_place(p, own);
}

static bool has_array_mark(lua_State *L, int index) {
  if (!lua_getmetatable(L, index)) return false;
  luaL_getmetatable(L, DML_PACK_ARRAY_T);
  bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same;
}

/* How many keys the table has, and whether all of them are strings or all are 1..n. */
static bool count_keys(lua_State *L, int index, dml_packer *p, size_t *count, bool *is_list) {
  lua_Unsigned n = lua_rawlen(L, index);
  size_t strings = 0, places = 0;
  bool is_good = true;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING)
      strings++;
    else if (lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 && (lua_Unsigned)lua_tointeger(L, -2) <= n)
      places++;
    else
      is_good = false;
  }
  *count = strings + places;
  *is_list = places > 0 || (strings == 0 && has_array_mark(L, index));
  if (is_good && (*is_list ? strings == 0 && places == n : true)) return true;
  return fail(p, "has keys that are neither all strings nor 1 to n");
}

static bool pack_list(lua_State *L, int index, dml_packer *p, size_t count, int depth) {
  if (!put_tag(p, DML_PACK_LIST) || !put_u32(p, count)) return false;
  for (lua_Integer i = 1; i <= (lua_Integer)count; i++) {
    lua_rawgeti(L, index, i);
    bool ok = pack(L, lua_gettop(L), p, depth + 1);
    lua_pop(L, 1);
    if (!ok) {
      name_index(p, i);
      return false;
    }
  }
  return true;
}

/* What was null in the map that came here, and is nil. Returns how many there were, -1 on failure. */
static int pack_nulls(lua_State *L, int index, dml_packer *p) {
  if (!p->nulls) return 0;
  int count = 0, top = lua_gettop(L);
  lua_pushvalue(L, index);
  if (lua_rawget(L, p->nulls) == LUA_TTABLE)
    for (lua_Integer i = 1; lua_rawgeti(L, top + 1, i) == LUA_TSTRING; i++) {
      size_t len;
      const char *key = lua_tolstring(L, -1, &len);
      lua_pushvalue(L, -1);
      bool is_nil = lua_rawget(L, index) == LUA_TNIL;
      if (is_nil && (!put_bytes(p, key, len) || !put_tag(p, DML_PACK_NULL))) count = -1;
      lua_settop(L, top + 1);
      if (count < 0) break;
      if (is_nil) count++;
    }
  lua_settop(L, top);
  return count;
}

static bool pack_map(lua_State *L, int index, dml_packer *p, size_t count, int depth) {
  if (!put_tag(p, DML_PACK_MAP)) return false;
  size_t count_at = p->out->len;
  if (!put_u32(p, count)) return false;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    size_t len;
    const char *key = lua_tolstring(L, -2, &len);
    if (!put_bytes(p, key, len) || !pack(L, lua_gettop(L), p, depth + 1)) {
      name_key(p, key);
      lua_pop(L, 2);
      return false;
    }
  }
  int nulls = pack_nulls(L, index, p);
  if (nulls < 0) return false;
  uint32_t all = (uint32_t)(count + (size_t)nulls);
  memcpy(p->out->data + count_at, &all, sizeof all);
  return true;
}

static bool pack_table(lua_State *L, int index, dml_packer *p, int depth) {
  size_t count;
  bool is_list;
  if (depth > DML_PACK_DEPTH_MAX || !lua_checkstack(L, STACK_NEED)) return fail(p, "is nested too deeply, or holds itself");
  if (!count_keys(L, index, p, &count, &is_list)) return false;
  if (count > DML_PACK_VALUES_MAX - p->values) return fail(p, "has too many values");
  return is_list ? pack_list(L, index, p, count, depth) : pack_map(L, index, p, count, depth);
}

static bool pack(lua_State *L, int index, dml_packer *p, int depth) {
  if (++p->values > DML_PACK_VALUES_MAX) return fail(p, "has too many values");
  switch (lua_type(L, index)) {
  case LUA_TNONE:
  case LUA_TNIL: return put_tag(p, DML_PACK_NULL);
  case LUA_TBOOLEAN: return put_tag(p, lua_toboolean(L, index) ? DML_PACK_TRUE : DML_PACK_FALSE);
  case LUA_TNUMBER: return pack_number(L, index, p);
  case LUA_TSTRING: return pack_string(L, index, p);
  case LUA_TTABLE: return pack_table(L, index, p, depth);
  case LUA_TLIGHTUSERDATA: return lua_touserdata(L, index) ? fail(p, "is no data") : put_tag(p, DML_PACK_NULL);
  case LUA_TUSERDATA: return pack_userdata(L, index, p);
  case LUA_TFUNCTION: return p->allows_functions ? put_tag(p, DML_PACK_FUNCTION) : fail(p, "is a function, which is no data");
  default: return fail(p, "is no data");
  }
}

bool dml_pack_value(lua_State *L, int index, dml_packer *packer) {
  packer->why = NULL;
  packer->place[0] = '\0';
  index = lua_absindex(L, index);
  if (!lua_checkstack(L, STACK_NEED)) return fail(packer, "does not fit into memory");
  return pack(L, index, packer, 1);
}

/* ---- reading ---- */

static bool take(dml_unpacker *u, void *out, size_t len) {
  if ((size_t)(u->end - u->at) < len) return false;
  memcpy(out, u->at, len);
  u->at += len;
  return true;
}

static bool take_bytes(dml_unpacker *u, const char **out, size_t *len) {
  uint32_t length;
  if (!take(u, &length, sizeof length) || (size_t)(u->end - u->at) < length) return false;
  *out = u->at;
  *len = length;
  u->at += length;
  return true;
}

static bool take_tag(dml_unpacker *u, dml_pack_tag *out) {
  unsigned char byte;
  if (!take(u, &byte, 1)) return false;
  *out = (dml_pack_tag)byte;
  return true;
}

bool dml_unpack_integer(dml_unpacker *u, int64_t *out) {
  dml_pack_tag tag;
  return take_tag(u, &tag) && tag == DML_PACK_INTEGER && take(u, out, sizeof *out);
}

bool dml_unpack_string(dml_unpacker *u, const char **out, size_t *len) {
  dml_pack_tag tag;
  return take_tag(u, &tag) && tag == DML_PACK_STRING && take_bytes(u, out, len);
}

static bool check(dml_unpacker *u, int depth, size_t *values);

static bool check_parts(dml_unpacker *u, bool has_keys, int depth, size_t *values) {
  uint32_t count;
  if (depth > DML_PACK_DEPTH_MAX || !take(u, &count, sizeof count)) return false;
  for (uint32_t i = 0; i < count; i++) {
    const char *key;
    size_t len;
    if (has_keys && !take_bytes(u, &key, &len)) return false;
    if (!check(u, depth + 1, values)) return false;
  }
  return true;
}

static bool check(dml_unpacker *u, int depth, size_t *values) {
  dml_pack_tag tag;
  if (++*values > DML_PACK_VALUES_MAX || !take_tag(u, &tag)) return false;
  const char *s;
  size_t len;
  int64_t integer;
  double number;
  uint32_t view;
  switch (tag) {
  case DML_PACK_NULL:
  case DML_PACK_FALSE:
  case DML_PACK_TRUE: return true;
  case DML_PACK_INTEGER: return take(u, &integer, sizeof integer);
  case DML_PACK_NUMBER: return take(u, &number, sizeof number) && isfinite(number);
  case DML_PACK_STRING: return take_bytes(u, &s, &len);
  case DML_PACK_VIEW: return take(u, &view, sizeof view) && view < u->view_count;
  case DML_PACK_FUNCTION: return u->allows_functions;
  case DML_PACK_LIST: return check_parts(u, false, depth, values);
  case DML_PACK_MAP: return check_parts(u, true, depth, values);
  }
  return false;
}

bool dml_unpack_check(const dml_unpacker *unpacker, unsigned count) {
  dml_unpacker u = *unpacker;
  size_t values = 0;
  for (unsigned i = 0; i < count; i++)
    if (!check(&u, 1, &values)) return false;
  return u.at == u.end;
}

static void push_string(lua_State *L, dml_unpacker *u) {
  const char *s = "";
  size_t len = 0;
  take_bytes(u, &s, &len);
  if (!u->makes_views || len <= DML_PACK_SHORT_MAX_BYTES) {
    lua_pushlstring(L, s, len);
    return;
  }
  dml_pack_view *view = lua_newuserdatauv(L, sizeof *view, 0);
  *view = (dml_pack_view){.data = s, .len = len, .number = u->long_count++, .call = u->call};
  luaL_setmetatable(L, DML_PACK_VIEW_T);
}

static void push_list(lua_State *L, dml_unpacker *u) {
  uint32_t count = 0;
  take(u, &count, sizeof count);
  lua_createtable(L, (int)count, 0);
  luaL_newmetatable(L, DML_PACK_ARRAY_T);
  lua_setmetatable(L, -2);
  for (uint32_t i = 1; i <= count; i++) {
    dml_unpack_value(L, u);
    lua_rawseti(L, -2, (lua_Integer)i);
  }
}

/* Keeps the key at -1 of the map at -2 among the nulls. [-1, +0] */
static void note_null(lua_State *L, dml_unpacker *u) {
  lua_pushvalue(L, -2);
  if (lua_rawget(L, u->nulls) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -3);
    lua_pushvalue(L, -2);
    lua_rawset(L, u->nulls);
  }
  lua_insert(L, -2);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  lua_pop(L, 1);
}

static void push_map(lua_State *L, dml_unpacker *u) {
  uint32_t count = 0;
  take(u, &count, sizeof count);
  lua_createtable(L, 0, (int)count);
  for (uint32_t i = 0; i < count; i++) {
    const char *key = "";
    size_t len = 0;
    take_bytes(u, &key, &len);
    lua_pushlstring(L, key, len);
    if (u->nulls && *u->at == DML_PACK_NULL) {
      u->at++;
      note_null(L, u);
      continue;
    }
    dml_unpack_value(L, u);
    lua_rawset(L, -3);
  }
}

void dml_unpack_value(lua_State *L, dml_unpacker *u) {
  luaL_checkstack(L, STACK_NEED, "values of the policy");
  dml_pack_tag tag = DML_PACK_NULL;
  take_tag(u, &tag);
  int64_t integer = 0;
  double number = 0;
  uint32_t view = 0;
  switch (tag) {
  case DML_PACK_NULL: lua_pushlightuserdata(L, NULL); break;
  case DML_PACK_FALSE: lua_pushboolean(L, 0); break;
  case DML_PACK_TRUE: lua_pushboolean(L, 1); break;
  case DML_PACK_INTEGER:
    take(u, &integer, sizeof integer);
    lua_pushinteger(L, (lua_Integer)integer);
    break;
  case DML_PACK_NUMBER:
    take(u, &number, sizeof number);
    lua_pushnumber(L, number);
    break;
  case DML_PACK_STRING: push_string(L, u); break;
  case DML_PACK_VIEW:
    take(u, &view, sizeof view);
    if (u->longs)
      lua_rawgeti(L, u->longs, (lua_Integer)view + 1);
    else
      lua_pushnil(L);
    break;
  case DML_PACK_FUNCTION: lua_pushcfunction(L, u->function); break;
  case DML_PACK_LIST: push_list(L, u); break;
  case DML_PACK_MAP: push_map(L, u); break;
  }
}
