/* module.c - chunks of text: the policy's own file, and what it requires, which the server finds. */
#include <lauxlib.h>
#include <string.h>

#include "fence/channel.h"
#include "fence/library.h"

#define MODULES_T "modules"

static bool is_name(const char *name, size_t len) {
  if (len == 0 || len > DML_WIRE_MODULE_NAME_MAX_BYTES || strlen(name) != len) return false;
  for (const char *at = name;; at++) {
    size_t word = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    at += word;
    if (word == 0 || (*at != '.' && *at != '\0')) return false;
    if (*at == '\0') return true;
  }
}

void dml_module_compile(lua_State *L, const char *name, const char *source, size_t len) {
  dml_policy *policy = dml_policy_of(L);
  dml_chunk *chunk = &policy->chunks[policy->chunk_count++];
  size_t name_len = strlen(name), skip = name_len < sizeof chunk->name ? 0 : name_len + 1 - sizeof chunk->name;
  memcpy(chunk->name, name + skip, name_len - skip + 1);
  const char *shown = lua_pushfstring(L, "=%s", chunk->name);
  if (luaL_loadbufferx(L, source, len, shown, "t") != LUA_OK) lua_error(L);
  chunk->is_compiled = true;
  lua_remove(L, -2);
}

/* Asks the server for the text; false when there is no such module. The text stays until the next frame. */
static bool fetch(dml_policy *policy, const char *name, size_t len, const char **source, size_t *source_len) {
  dml_channel_begin(policy, DML_WIRE_NEED);
  dml_channel_must(dml_pack_string(&policy->out, name, len));
  dml_channel_send(policy);
  dml_unpacker answer;
  int64_t is_there = 0;
  bool is_good = dml_channel_receive(policy, &answer) == DML_WIRE_MODULE && dml_unpack_integer(&answer, &is_there) &&
                 dml_unpack_string(&answer, source, source_len);
  dml_channel_must(is_good ? DML_OK : DML_INTERNAL);
  return is_there != 0;
}

/* The table of modules by name; false for one that is being loaded. [-0, +1] */
static void push_modules(lua_State *L) { luaL_getsubtable(L, LUA_REGISTRYINDEX, MODULES_T); }

int dml_module_require(lua_State *L) {
  dml_policy *policy = dml_policy_of(L);
  size_t len, source_len;
  const char *name = luaL_checklstring(L, 1, &len), *source;
  if (!is_name(name, len)) return luaL_error(L, "a module's name is letters, digits, _ and dots, and no longer than 48");
  lua_settop(L, 1);
  push_modules(L);
  lua_pushvalue(L, 1);
  int type = lua_rawget(L, 2);
  if (type == LUA_TBOOLEAN && !lua_toboolean(L, -1)) return luaL_error(L, "module %s requires itself", name);
  if (type != LUA_TNIL) return 1;
  if (!policy->is_loading) return luaL_error(L, "module %s must be required while the policy loads, not in a call", name);
  if (policy->chunk_count > DML_WIRE_MODULES_MAX)
    return luaL_error(L, "a policy requires at most %d modules", DML_WIRE_MODULES_MAX);
  if (!fetch(policy, name, len, &source, &source_len)) return luaL_error(L, "there is no module %s beside the policy", name);
  lua_pushvalue(L, 1);
  lua_pushboolean(L, 0);
  lua_rawset(L, 2);
  dml_module_compile(L, lua_pushfstring(L, "%s.lua", name), source, source_len);
  lua_call(L, 0, 1);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushboolean(L, 1);
  }
  lua_pushvalue(L, 1);
  lua_pushvalue(L, -2);
  lua_rawset(L, 2);
  return 1;
}
