/* core.c - `demilune.core`: the table of all C modules, and what keeps loop, log and tasks alive behind it.
 *
 * In the program the runtime has made the script before; in a plain Lua (specs, a host) the first require makes one with
 * a loop of its own, which ends when the state closes. */
#include <dlfcn.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "script/bind.h"
#include "script/core.h"
#include "script/task.h"

#define HOLDER_T "demilune.holder"

typedef struct holder {
  dml_script *script;
  dml_loop *loop;
  dml_log log;
} holder;

static const struct {
  const char *name;
  lua_CFunction open;
} MODULES[] = {
    {"jwt", dml_open_jwt},
    {"json", dml_open_json},     {"task", dml_open_task},     {"text", dml_open_text},   {"crypto", dml_open_crypto},
    {"fs", dml_open_fs},         {"log", dml_open_log},       {"sys", dml_open_sys},     {"process", dml_open_process},
    {"stdio", dml_open_stdio},   {"status", dml_open_status}, {"http", dml_open_http},   {"httpd", dml_open_httpd},
    {"agent", dml_open_agent},   {"isolation", dml_open_isolation}, {"vault", dml_open_vault},
    {"regex", dml_open_regex},   {"fence", dml_open_fence},   {"rpc", dml_open_rpc},
};

static bool has_file(const char *dir, const char *name) {
  char path[DML_CORE_PATH_MAX];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) return false;
  return access(path, R_OK) == 0;
}

/* Drops the last component; false at the root. */
static bool go_up(char *path) {
  char *slash = strrchr(path, '/');
  if (!slash || slash == path) return false;
  *slash = '\0';
  return true;
}

bool dml_core_find_dir(char *out) {
  Dl_info info;
  char *self = NULL;
  if (dladdr((void *)(uintptr_t)&dml_core_find_dir, &info) && info.dli_fname && strchr(info.dli_fname, '/'))
    self = realpath(info.dli_fname, NULL);
  if (!self) self = realpath("/proc/self/exe", NULL);
  if (!self) return false;
  bool found = false;
  for (int up = 0; up < 3 && !found && go_up(self); up++) {
    static const char *const PLACES[] = {"", "/lib/demilune", "/lib/x86_64-linux-gnu/demilune", "/lib/aarch64-linux-gnu/demilune"};
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES && !found; i++) {
      if ((size_t)snprintf(out, DML_CORE_PATH_MAX, "%s%s", self, PLACES[i]) >= DML_CORE_PATH_MAX) continue;
      found = has_file(out, "demilune-agent");
    }
  }
  free(self);
  return found;
}

static int holder_gc(lua_State *L) {
  holder *h = lua_touserdata(L, 1);
  dml_script_close(h->script);
  dml_loop_free(h->loop);
  dml_log_deinit(&h->log);
  *h = (holder){0};
  return 0;
}

static void make_script(lua_State *L) {
  holder *h = lua_newuserdatauv(L, sizeof *h, 0);
  memset(h, 0, sizeof *h);
  dml_log_init(&h->log, DML_LOG_WARN);
  if (luaL_newmetatable(L, HOLDER_T)) {
    lua_pushcfunction(L, holder_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, HOLDER_T);
  char dir[DML_CORE_PATH_MAX];
  if (!dml_core_find_dir(dir)) snprintf(dir, sizeof dir, ".");
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  lua_State *main = lua_tothread(L, -1);
  lua_pop(L, 1);
  if (dml_loop_new(NULL, &h->loop) != DML_OK || dml_script_open(main, h->loop, &h->log, dir, &h->script) != DML_OK)
    luaL_error(L, "the event loop could not be made");
}

DML_EXPORT int luaopen_demilune_core(lua_State *L) {
  if (!dml_script_of(L)) make_script(L);
  size_t count = sizeof MODULES / sizeof *MODULES;
  lua_createtable(L, 0, (int)count);
  for (size_t i = 0; i < count; i++) {
    MODULES[i].open(L);
    lua_setfield(L, -2, MODULES[i].name);
  }
  return 1;
}
