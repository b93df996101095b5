/* bind_log.c - core.log: one record a call. Records hold words of ours and ids of ours only. */
#include <lauxlib.h>

#include "script/bind.h"
#include "script/task.h"

static int write_record(lua_State *L, dml_log_level level) {
  size_t len;
  const char *text = luaL_checklstring(L, 1, &len);
  dml_log_write(dml_script_log(dml_script_of(L)), level, text, len);
  return 0;
}

static int l_debug(lua_State *L) { return write_record(L, DML_LOG_DEBUG); }
static int l_info(lua_State *L) { return write_record(L, DML_LOG_INFO); }
static int l_warn(lua_State *L) { return write_record(L, DML_LOG_WARN); }
static int l_error(lua_State *L) { return write_record(L, DML_LOG_ERROR); }

/* log.open(path) -> true | nil, err */
static int l_open(lua_State *L) {
  dml_status status = dml_log_open(dml_script_log(dml_script_of(L)), luaL_checkstring(L, 1));
  if (status != DML_OK) return dml_push_error(L, status);
  lua_pushboolean(L, 1);
  return 1;
}

/* log.reopen(): after somebody moved the file */
static int l_reopen(lua_State *L) {
  (void)dml_log_reopen(dml_script_log(dml_script_of(L)));
  return 0;
}

/* log.set_level("debug" | "info" | "warn" | "error" | "off") */
static int l_set_level(lua_State *L) {
  int level = dml_log_level_from_name(luaL_checkstring(L, 1));
  luaL_argcheck(L, level >= 0, 1, "debug, info, warn, error or off");
  dml_script_log(dml_script_of(L))->level = (dml_log_level)level;
  return 0;
}

static const luaL_Reg FUNCTIONS[] = {{"debug", l_debug}, {"info", l_info},     {"warn", l_warn},           {"error", l_error},
                                     {"open", l_open},   {"reopen", l_reopen}, {"set_level", l_set_level}, {NULL, NULL}};

int dml_open_log(lua_State *L) {
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
