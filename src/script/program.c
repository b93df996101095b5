/* program.c - see program.h. */
#include "script/program.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "script/bind.h"
#include "script/task.h"
#include "script/vault_face.h"

#define PATH_BYTES 4096
#define EXIT_FAULT 70 /* sysexits.h: EX_SOFTWARE */

static bool is_at_least_as_new(const struct stat *a, const struct stat *b) {
  if (a->st_mtim.tv_sec != b->st_mtim.tv_sec) return a->st_mtim.tv_sec > b->st_mtim.tv_sec;
  return a->st_mtim.tv_nsec >= b->st_mtim.tv_nsec;
}

/* Loads `<luac_dir>/<name><tail>c` where it is no older than `<lua_dir>/<name><tail>`. [-0, +1 when true] */
static bool load_compiled(lua_State *L, const dml_program *program, const char *name, const char *tail) {
  char source[PATH_BYTES], compiled[PATH_BYTES];
  int n = snprintf(source, sizeof source, "%s/%s%s", program->lua_dir, name, tail);
  int m = snprintf(compiled, sizeof compiled, "%s/luac/%s%sc", program->library_dir, name, tail);
  if (n < 0 || m < 0 || (size_t)n >= sizeof source || (size_t)m >= sizeof compiled) return false;
  struct stat of_source, of_compiled;
  if (stat(source, &of_source) != 0 || stat(compiled, &of_compiled) != 0) return false;
  if (!is_at_least_as_new(&of_compiled, &of_source)) return false;
  if (luaL_loadfilex(L, compiled, "b") == LUA_OK) return true;
  lua_pop(L, 1); /* of another Lua: the source will do */
  return false;
}

/* A searcher of package.searchers (Lua manual, 6.3): bytecode of the build, while its source is not newer. */
static int search_compiled(lua_State *L) {
  const dml_program *program = lua_touserdata(L, lua_upvalueindex(1));
  const char *name = luaL_gsub(L, luaL_checkstring(L, 1), ".", "/");
  if (load_compiled(L, program, name, ".lua") || load_compiled(L, program, name, "/init.lua")) return 1;
  lua_pushliteral(L, "no bytecode of the build");
  return 1;
}

static void add_searcher(lua_State *L, const dml_program *program) {
  lua_getfield(L, -1, "searchers");
  for (int i = (int)lua_rawlen(L, -1); i >= 2; i--) {
    lua_rawgeti(L, -1, i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushlightuserdata(L, (void *)program);
  lua_pushcclosure(L, search_compiled, 1);
  lua_rawseti(L, -2, 2);
  lua_pop(L, 1);
}

/* Only our files, and the system's C modules (cjson): never what lies in the working directory or an environment variable
 * names. */
static void set_path(lua_State *L, const dml_program *program) {
  lua_getglobal(L, "package");
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua", program->lua_dir, program->lua_dir);
  lua_setfield(L, -2, "path");
  lua_getfield(L, -1, "cpath");
  luaL_gsub(L, lua_tostring(L, -1), ";./?.so", "");
  lua_setfield(L, -3, "cpath");
  lua_pop(L, 1);
  add_searcher(L, program);
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, luaopen_demilune_core);
  lua_setfield(L, -2, "demilune.core");
  lua_pop(L, 2);
}

/* run_program(program) -> exit status */
static int run_program(lua_State *L) {
  const dml_program *program = lua_touserdata(L, 1);
  lua_pushboolean(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV"); /* lua.c, option -E */
  lua_pushboolean(L, program->may_wipe_environment);
  lua_setfield(L, LUA_REGISTRYINDEX, DML_MAY_WIPE_FIELD);
  luaL_openlibs(L);
  set_path(L, program);
  luaL_requiref(L, "demilune.core", luaopen_demilune_core, 0);
  lua_getfield(L, -1, "task");
  lua_getfield(L, -1, "run");
  lua_getglobal(L, "require");
  lua_pushliteral(L, "demilune.cli");
  lua_call(L, 1, 1);
  lua_createtable(L, program->argc, 0);
  for (int i = 0; i < program->argc; i++) {
    lua_pushstring(L, program->argv[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_call(L, 2, 1);
  return 1;
}

int dml_program_run(const dml_program *program) {
  lua_State *L = luaL_newstate();
  if (!L) return EXIT_FAULT;
  dml_script *script;
  if (dml_script_open(L, program->loop, program->log, program->library_dir, &script) != DML_OK) {
    lua_close(L);
    return EXIT_FAULT;
  }
  lua_pushcfunction(L, run_program);
  lua_pushlightuserdata(L, (void *)program);
  int code = EXIT_FAULT;
  if (lua_pcall(L, 1, 1, 0) == LUA_OK) {
    code = (int)lua_tointeger(L, -1);
  } else {
    size_t len;
    const char *text = dml_push_error_text(L, -1, &len);
    dml_log_write(program->log, DML_LOG_ERROR, text, len);
  }
  dml_script_close(script);
  lua_close(L);
  return code;
}
