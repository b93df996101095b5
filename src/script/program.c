/* program.c - see program.h. */
#include "script/program.h"

#include <lauxlib.h>
#include <lualib.h>

#include "script/bind.h"
#include "script/task.h"

#define EXIT_FAULT 70 /* sysexits.h: EX_SOFTWARE */

/* Only our files, and the system's C modules (cjson): never what lies in the working directory or an environment variable
 * names. */
static void set_path(lua_State *L, const char *lua_dir) {
  lua_getglobal(L, "package");
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua", lua_dir, lua_dir);
  lua_setfield(L, -2, "path");
  lua_getfield(L, -1, "cpath");
  luaL_gsub(L, lua_tostring(L, -1), ";./?.so", "");
  lua_setfield(L, -3, "cpath");
  lua_pop(L, 1);
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
  luaL_openlibs(L);
  set_path(L, program->lua_dir);
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
