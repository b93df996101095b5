/* library.c - see library.h. Standard functions that are not replaced in here are Lua's own. */
#include "fence/library.h"

#include <lauxlib.h>
#include <lualib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "fence/limits.h"
#include "fence/pack.h"

/* ---- the base ---- */

const char *dml_library_type_text(lua_State *L, int index) {
  if (lua_islightuserdata(L, index)) return "null";
  if (lua_isuserdata(L, index)) return luaL_testudata(L, index, DML_PACK_VIEW_T) ? "view" : "decision";
  return luaL_typename(L, index);
}

static bool is_shown(lua_State *L, int index) {
  int type = lua_type(L, index);
  return type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING;
}

static int l_tostring(lua_State *L) {
  luaL_checkany(L, 1);
  if (is_shown(L, 1))
    luaL_tolstring(L, 1, NULL);
  else
    lua_pushstring(L, dml_library_type_text(L, 1));
  return 1;
}

static int l_type(lua_State *L) {
  luaL_checkany(L, 1);
  lua_pushstring(L, luaL_typename(L, 1));
  return 1;
}

/* Lua's, but what ran out of memory stays so. */
static int l_pcall(lua_State *L) {
  luaL_checkany(L, 1);
  lua_pushboolean(L, 1);
  lua_insert(L, 1);
  int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  if (dml_limits_is_memory(L, status)) dml_limits_hit(dml_policy_of(L), DML_WIRE_MEMORY);
  if (status == LUA_OK) return lua_gettop(L);
  lua_pushboolean(L, 0);
  lua_insert(L, -2);
  return 2;
}

/* Bytes of `s`, at most `max`, without a character cut in two. */
static size_t cut(const char *s, size_t len, size_t max) {
  if (len <= max) return len;
  size_t at = max;
  while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80 && max - at < 4) at--;
  return at;
}

/* log(...): what it does not take any more it drops, so that a policy that logs too much still decides. */
static int l_log(lua_State *L) {
  dml_policy *policy = dml_policy_of(L);
  int n = lua_gettop(L);
  if (policy->log_count >= DML_WIRE_LOGS_MAX) return 0;
  luaL_Buffer text;
  luaL_buffinit(L, &text);
  for (int i = 1; i <= n; i++) {
    if (i > 1) luaL_addchar(&text, ' ');
    if (is_shown(L, i))
      luaL_tolstring(L, i, NULL);
    else
      lua_pushstring(L, dml_library_type_text(L, i));
    luaL_addvalue(&text);
  }
  luaL_pushresult(&text);
  size_t len;
  const char *s = lua_tolstring(L, -1, &len);
  size_t kept = cut(s, len, DML_WIRE_LOG_MAX_BYTES);
  memcpy(policy->logs[policy->log_count], s, kept);
  policy->log_lens[policy->log_count++] = kept;
  return 0;
}

static int push_decision(lua_State *L, dml_wire_decision kind, int reason) {
  lua_settop(L, 1);
  dml_decision *decision = lua_newuserdatauv(L, sizeof *decision, 1);
  decision->kind = kind;
  if (kind != DML_WIRE_ALLOW) dml_policy_of(L)->made = kind;
  luaL_setmetatable(L, DML_DECISION_T);
  if (reason && !lua_isnoneornil(L, reason)) {
    size_t len;
    const char *s = luaL_checklstring(L, reason, &len);
    lua_pushlstring(L, s, cut(s, len, DML_DECISION_REASON_MAX_BYTES));
    lua_setiuservalue(L, -2, 1);
  }
  return 1;
}

static int l_allow(lua_State *L) { return push_decision(L, DML_WIRE_ALLOW, 0); }
static int l_deny(lua_State *L) { return push_decision(L, DML_WIRE_DENY, 1); }

static int l_ask(lua_State *L) {
  luaL_checkstring(L, 1);
  return push_decision(L, DML_WIRE_ASK, 1);
}

void dml_library_push_base(lua_State *L) {
  static const luaL_Reg FUNCTIONS[] = {{"tostring", l_tostring}, {"type", l_type},   {"pcall", l_pcall},
                                       {"log", l_log},           {"allow", l_allow}, {"deny", l_deny},
                                       {"ask", l_ask},           {"glob", dml_library_glob},
                                       {"require", dml_module_require}, {NULL, NULL}};
  static const char *const OF_LUA[] = {"select", "ipairs", "pairs", "next", "tonumber", "assert", "error"};
  luaL_newmetatable(L, DML_DECISION_T);
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  luaL_requiref(L, LUA_GNAME, luaopen_base, 0);
  for (size_t i = 0; i < sizeof OF_LUA / sizeof *OF_LUA; i++) {
    lua_getfield(L, -1, OF_LUA[i]);
    lua_setfield(L, -3, OF_LUA[i]);
  }
  lua_pop(L, 1);
}

/* ---- string ---- */

/* Behind the conversion that begins at `at` ("%5.1f"), and its letter; the format may end first. */
static const char *skip_conversion(const char *at, const char *end, char *letter) {
  at++;
  while (at < end && strchr("-+ #0123456789.", *at)) at++;
  *letter = at < end ? *at++ : '\0';
  return at;
}

/* Lua's, but without addresses: none by %p, and for %s the type's name. */
static int l_format(lua_State *L) {
  size_t len;
  const char *format = luaL_checklstring(L, 1, &len);
  int arg = 1;
  for (const char *at = format, *end = format + len; at && at < end;) {
    at = memchr(at, '%', (size_t)(end - at));
    if (!at) break;
    char letter;
    at = skip_conversion(at, end, &letter);
    if (letter == '%') continue;
    arg++;
    if (letter == 'p') return luaL_error(L, "format has no %%p here");
    if (letter == 's' && arg <= lua_gettop(L) && !is_shown(L, arg)) {
      lua_pushstring(L, dml_library_type_text(L, arg));
      lua_replace(L, arg);
    }
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

/* The very table that ("x"):upper() goes to. */
void dml_library_push_string(lua_State *L) {
  luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 0);
  lua_pushnil(L);
  lua_setfield(L, -2, "dump");
  lua_getfield(L, -1, "format");
  lua_pushcclosure(L, l_format, 1);
  lua_setfield(L, -2, "format");
}

/* ---- math ---- */

/* Lua's without arguments takes an address for a seed, and it returns the seed. */
static int l_randomseed(lua_State *L) {
  luaL_checknumber(L, 1);
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 2, 0);
  return 0;
}

void dml_library_push_math(lua_State *L) {
  luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 0);
  lua_getfield(L, -1, "randomseed");
  lua_pushcclosure(L, l_randomseed, 1);
  lua_setfield(L, -2, "randomseed");
}

/* ---- os ---- */

/* os.date(format?, time?): UTC, with and without its "!". */
static int l_date(lua_State *L) {
  const char *format = luaL_optstring(L, 1, "%c");
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushfstring(L, "!%s", *format == '!' ? format + 1 : format);
  if (lua_isnil(L, 2))
    lua_pushinteger(L, (lua_Integer)time(NULL));
  else
    lua_pushvalue(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

void dml_library_push_os(lua_State *L) {
  lua_createtable(L, 0, 2);
  luaL_requiref(L, LUA_OSLIBNAME, luaopen_os, 0);
  lua_getfield(L, -1, "time"); /* UTC too: main has set the zone */
  lua_setfield(L, -3, "time");
  lua_getfield(L, -1, "date");
  lua_pushcclosure(L, l_date, 1);
  lua_setfield(L, -3, "date");
  lua_pop(L, 1);
}
