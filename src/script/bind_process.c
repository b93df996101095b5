/* bind_process.c - core.process: children of ours on the host (the engine, bubblewrap's checks), never of a sandbox. */
#include <lauxlib.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "loop/process.h"
#include "script/bind.h"
#include "script/task.h"

#define PROCESS_T "demilune.process"
#define STRINGS_MAX 4096

typedef struct process_face {
  dml_process *process;
  bool has_ended;
  int code, signal;
  dml_wait *wait;
  uv_timer_t *timer;
} process_face;

static process_face *check_process(lua_State *L) { return luaL_checkudata(L, 1, PROCESS_T); }

static void free_handle(uv_handle_t *handle) { free(handle); }

static void stop_timer(process_face *face) {
  if (!face->timer) return;
  uv_timer_stop(face->timer);
  uv_close((uv_handle_t *)face->timer, free_handle);
  face->timer = NULL;
}

/* {code=} or {signal=} */
static int push_end(lua_State *co, void *ud) {
  process_face *face = ud;
  lua_createtable(co, 0, 1);
  lua_pushinteger(co, face->signal ? face->signal : face->code);
  lua_setfield(co, -2, face->signal ? "signal" : "code");
  return 1;
}

static void wake(process_face *face, dml_wait_push push) {
  dml_wait *wait = face->wait;
  face->wait = NULL;
  stop_timer(face);
  if (wait) dml_wait_wake(wait, push, face);
}

static void on_exit_of(dml_process *process, int code, int signal, void *ud) {
  (void)process;
  process_face *face = ud;
  face->has_ended = true;
  face->code = code;
  face->signal = signal;
  wake(face, push_end);
}

static void on_timeout(uv_timer_t *timer) { wake(timer->data, dml_push_timeout); }

static void drop_wait(void *ud) {
  process_face *face = ud;
  face->wait = NULL;
  stop_timer(face);
}

/* A string that exec(3) takes as it is. [-0, +0] */
static const char *check_text(lua_State *L, int index, const char *name) {
  size_t len;
  const char *text = lua_tolstring(L, index, &len);
  if (!text || strlen(text) != len) luaL_error(L, "%s must hold strings without NUL", name);
  return text;
}

/* The strings of the list (or "K=V" of the map) in field `name` of table 1, NULL-terminated; NULL where the field is nil.
 * The array is a userdata left on the stack, the strings are kept by a table left below it. [-0, +2] */
static char **strings_of(lua_State *L, const char *name, bool is_map) {
  lua_newtable(L);
  int keep = lua_gettop(L);
  lua_getfield(L, 1, name);
  if (lua_isnil(L, -1)) return NULL;
  luaL_checktype(L, -1, LUA_TTABLE);
  int table = lua_gettop(L), n = 0;
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
    if (is_map) {
      /* no conversion of a number in its place: that would lose lua_next its key */
      if (lua_type(L, -2) != LUA_TSTRING) luaL_error(L, "a name in %s is no string", name);
      lua_pushfstring(L, "%s=%s", check_text(L, -2, name), check_text(L, -1, name));
    } else {
      lua_rawgeti(L, table, n + 1);
      check_text(L, -1, name);
    }
    lua_rawseti(L, keep, ++n);
    if (n >= STRINGS_MAX) luaL_error(L, "too many strings in %s", name);
  }
  lua_pop(L, 1);
  char **out = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *out, 0);
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, keep, i);
    out[i - 1] = (char *)lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  out[n] = NULL;
  return out;
}

static size_t fds_of(lua_State *L, dml_process_fd *out) {
  size_t n = 0;
  lua_getfield(L, 1, "fds");
  if (lua_istable(L, -1))
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
      if (n >= DML_PROCESS_FDS_MAX) luaL_error(L, "too many descriptors");
      out[n].child_fd = (int)luaL_checkinteger(L, -2);
      out[n++].parent_fd = (int)luaL_checkinteger(L, -1);
    }
  lua_pop(L, 1);
  return n;
}

static bool flag_of(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

/* process.start{ argv={path, ...}, env={K=V}|nil, fds={[child_fd]=fd}, group=bool, session=bool } -> child | nil, err.
 * argv[1] is an absolute path; descriptors that are not named are /dev/null (0, 1, 2) or closed. */
static int l_start(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  dml_process_fd fds[DML_PROCESS_FDS_MAX];
  dml_process_opts opts = {.fds = fds, .fd_count = fds_of(L, fds)};
  opts.is_group_leader = flag_of(L, "group");
  opts.is_session_leader = flag_of(L, "session");
  opts.argv = strings_of(L, "argv", false);
  luaL_argcheck(L, opts.argv && opts.argv[0], 1, "argv must name a program");
  opts.path = opts.argv[0];
  opts.env = strings_of(L, "env", true);
  process_face *face = lua_newuserdatauv(L, sizeof *face, 0);
  memset(face, 0, sizeof *face);
  luaL_setmetatable(L, PROCESS_T);
  dml_status status =
      dml_process_start(dml_script_loop(dml_script_of(L)), &opts, on_exit_of, face, &face->process);
  return status == DML_OK ? 1 : dml_push_error(L, status);
}

/* child:wait(timeout_ms?) -> {code=} | {signal=} | nil, "timeout" */
static int l_wait(lua_State *L) {
  process_face *face = check_process(L);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  if (face->has_ended) return push_end(L, face);
  if (face->wait) return luaL_error(L, "another task waits for this process");
  lua_settop(L, 1);
  face->wait = dml_wait_new(L, drop_wait, face);
  if (timeout_ms >= 0 && (face->timer = calloc(1, sizeof *face->timer))) {
    uv_timer_init(dml_loop_uv(dml_script_loop(dml_script_of(L))), face->timer);
    face->timer->data = face;
    dml_timer_start(face->timer, on_timeout, timeout_ms);
  }
  return dml_wait_yield(L);
}

/* child:kill(signal?) - SIGKILL without one */
static int l_kill(lua_State *L) {
  process_face *face = check_process(L);
  if (face->process) dml_process_signal(face->process, (int)luaL_optinteger(L, 2, SIGKILL));
  return 0;
}

/* child:pid() */
static int l_pid(lua_State *L) {
  process_face *face = check_process(L);
  lua_pushinteger(L, face->process ? dml_process_pid(face->process) : -1);
  return 1;
}

static int process_gc(lua_State *L) {
  process_face *face = lua_touserdata(L, 1);
  stop_timer(face);
  dml_process_free(face->process);
  face->process = NULL;
  face->has_ended = true;
  return 0;
}

static const luaL_Reg METHODS[] = {{"wait", l_wait}, {"kill", l_kill}, {"pid", l_pid}, {NULL, NULL}};
static const luaL_Reg FUNCTIONS[] = {{"start", l_start}, {NULL, NULL}};

int dml_open_process(lua_State *L) {
  if (luaL_newmetatable(L, PROCESS_T)) {
    luaL_newlib(L, METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, process_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
