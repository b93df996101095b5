/* bind_isolation.c - local sandboxes: isolation.preflight, isolation.open, and the objects `iso` and `box`.
 *
 * A box that nobody releases is killed and released when it is collected; the C object, not the Lua one, owns the
 * processes, so nothing outlives either. */
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/box.h"
#include "sandbox/isolation.h"
#include "sandbox/preflight.h"
#include "script/bind.h"
#include "script/core.h"
#include "script/task.h"

#define ISO_T "demilune.isolation"
#define BOX_T "demilune.box"
#define MIB (1024ull * 1024)
#define DISK_MB_MAX (1024.0 * 1024)
#define MEMORY_MB_MIN 16.0
#define MEMORY_MB_MAX (16.0 * 1024 * 1024)
#define CPU_MIN 0.01
#define CPU_MAX 4096.0
#define PIDS_MAX 4000000.0
#define WAIT_MAX_MS (366.0 * 86400 * 1000)

/* A task in box:wait. */
typedef struct waiter {
  dml_wait *wait;
  uv_timer_t *timer; /* NULL: no timeout */
  struct waiter *next, **back;
} waiter;

typedef struct box {
  dml_box *box; /* NULL once released */
  pid_t pid;
  waiter *waiters;
  double memory_mb, cpu; /* 0: no such limit holds */
} box;

/* ---- arguments ---- */

/* The number in field `name` of the table at `arg`, in [min, max]; `fallback` when it is absent (raises when that is
 * negative). */
static double number_field(lua_State *L, int arg, const char *name, double min, double max, double fallback) {
  lua_getfield(L, arg, name);
  double value = fallback;
  if (!lua_isnil(L, -1)) {
    int is_number;
    value = lua_tonumberx(L, -1, &is_number);
    if (!is_number || !(value >= min && value <= max))
      luaL_error(L, "%s must be a number from %f to %f", name, min, max);
  } else if (fallback < 0) {
    luaL_error(L, "%s is missing", name);
  }
  lua_pop(L, 1);
  return value;
}

/* The agent's path: field agent_path, or the program beside us; left on the stack. */
static const char *push_agent_path(lua_State *L, int arg) {
  if (lua_istable(L, arg)) {
    lua_getfield(L, arg, "agent_path");
    if (!lua_isnil(L, -1)) {
      if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "agent_path must be a string");
      return lua_tostring(L, -1);
    }
    lua_pop(L, 1);
  }
  return lua_pushfstring(L, "%s/demilune-agent", dml_script_dir(dml_script_of(L)));
}

/* ---- preflight ---- */

typedef struct flight {
  dml_preflight *preflight;
  const dml_preflight_report *report;
  dml_wait *wait;
} flight;

static void set_string(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

static void set_boolean(lua_State *L, const char *key, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, key);
}

static void push_checks(lua_State *L, const dml_preflight_report *report) {
  lua_createtable(L, DML_CHECK_COUNT, 0);
  for (int i = 0; i < DML_CHECK_COUNT; i++) {
    const dml_cause_row *row = dml_cause_peek(report->checks[i]);
    lua_createtable(L, 0, 4);
    set_string(L, "name", dml_check_name((dml_check)i));
    set_boolean(L, "ok", row == NULL);
    if (row) {
      set_string(L, "cause", row->text);
      set_string(L, "fix", row->fix);
    }
    lua_rawseti(L, -2, i + 1);
  }
}

static int push_report(lua_State *L, void *ud) {
  const dml_preflight_report *report = ((flight *)ud)->report;
  lua_createtable(L, 0, 4);
  set_boolean(L, "ok", report->is_ok);
  push_checks(L, report);
  lua_setfield(L, -2, "checks");
  lua_createtable(L, 0, 4);
  set_string(L, "kind", report->limits_kind);
  set_boolean(L, "memory", report->has_memory);
  set_boolean(L, "cpu", report->has_cpu);
  set_boolean(L, "pids", report->has_pids);
  lua_setfield(L, -2, "limits");
  set_string(L, "identity", report->is_range ? "range" : "caller");
  return 1;
}

static void on_report(const dml_preflight_report *report, void *ud) {
  flight *f = ud;
  f->report = report;
  dml_wait_wake(f->wait, push_report, f); /* resumes at once, so the report is still there */
  dml_preflight_free(f->preflight);
  free(f);
}

static void drop_flight(void *ud) {
  flight *f = ud;
  dml_preflight_free(f->preflight);
  free(f);
}

/* isolation.preflight{agent_path=} -> report; agent_path defaults to the program beside us */
static int l_preflight(lua_State *L) {
  if (!lua_isnoneornil(L, 1)) luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  const char *agent_path = push_agent_path(L, 1);
  dml_wait *wait = dml_wait_new(L, NULL, NULL);
  flight *f = calloc(1, sizeof *f);
  dml_status status = DML_INTERNAL;
  if (f) status = dml_preflight_start(dml_script_loop(dml_script_of(L)), agent_path, on_report, f, &f->preflight);
  if (status != DML_OK) {
    free(f);
    dml_wait_forget(wait);
    return dml_push_error(L, status);
  }
  f->wait = wait;
  dml_wait_bind(wait, drop_flight, f);
  return dml_wait_yield(L);
}

/* ---- iso ---- */

static int iso_gc(lua_State *L) {
  dml_isolation **iso = lua_touserdata(L, 1);
  dml_isolation_unref(*iso);
  *iso = NULL;
  return 0;
}

static dml_isolation *check_iso(lua_State *L) {
  dml_isolation **iso = luaL_checkudata(L, 1, ISO_T);
  luaL_argcheck(L, *iso != NULL, 1, "isolation is closed");
  return *iso;
}

/* isolation.open{state_dir=, agent_path=} -> iso | nil, err. The state folder is not needed: groups and uid locks have
 * places of the whole machine, so that engines with different folders keep apart too. */
static int l_open(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  const char *agent_path = push_agent_path(L, 1);
  dml_isolation **iso = lua_newuserdatauv(L, sizeof(dml_isolation *), 0);
  *iso = NULL;
  luaL_setmetatable(L, ISO_T);
  dml_status status = dml_isolation_new(dml_script_loop(dml_script_of(L)), agent_path, iso);
  if (status == DML_OK) return 1;
  /* What is wrong with this installation is not what is wrong with a call: the caller gets the one category that
   * `demilune doctor` explains. */
  return dml_push_error(L, status == DML_NO_CAPACITY ? status : DML_LOCAL_ISOLATION_UNAVAILABLE);
}

/* iso:limits() -> {kind=, memory=, cpu=, pids=, pause=}: which limits hold for sandboxes of this engine, and how they
 * are paused */
static int l_limits(lua_State *L) {
  const dml_cgroups *groups = &check_iso(L)->cgroups;
  lua_createtable(L, 0, 5);
  set_string(L, "kind", groups->backend ? groups->backend->kind : "none");
  set_boolean(L, "memory", dml_cgroups_holds(groups, DML_CGROUP_MEMORY));
  set_boolean(L, "cpu", dml_cgroups_holds(groups, DML_CGROUP_CPU));
  set_boolean(L, "pids", dml_cgroups_holds(groups, DML_CGROUP_PIDS));
  set_string(L, "pause", dml_cgroups_freezer(groups) == DML_FREEZER_LASTING ? "freezer" : "signals");
  return 1;
}

/* ---- waiting for a box ---- */

static void free_timer(uv_handle_t *handle) { free(handle); }

static void free_waiter(waiter *w) {
  *w->back = w->next;
  if (w->next) w->next->back = w->back;
  if (w->timer) uv_close((uv_handle_t *)w->timer, free_timer);
  free(w);
}

static void drop_waiter(void *ud) { free_waiter(ud); }

static void wake(waiter *w, dml_wait_push push) {
  dml_wait *wait = w->wait;
  free_waiter(w);
  dml_wait_wake(wait, push, NULL);
}

static void on_timer(uv_timer_t *timer) { wake(timer->data, dml_push_timeout); }

/* Tasks that wake here may release the box, but not collect it: whoever waits has it on its stack. The list is taken
 * first, so that a task which waits again is not woken twice. */
static void on_ended(dml_box *ended, void *ud) {
  (void)ended;
  box *b = ud;
  waiter *list = b->waiters;
  if (!list) return;
  b->waiters = NULL;
  list->back = &list;
  while (list) wake(list, dml_push_true);
}

static int start_waiting(lua_State *L, box *b, double timeout_ms) {
  dml_wait *wait = dml_wait_new(L, NULL, NULL);
  waiter *w = calloc(1, sizeof *w);
  uv_timer_t *timer = timeout_ms >= 0 ? calloc(1, sizeof *timer) : NULL;
  if (!w || (timeout_ms >= 0 && !timer)) {
    free(w);
    free(timer);
    dml_wait_forget(wait);
    return dml_push_error(L, DML_INTERNAL);
  }
  w->wait = wait;
  w->next = b->waiters;
  w->back = &b->waiters;
  if (w->next) w->next->back = &w->next;
  b->waiters = w;
  dml_wait_bind(wait, drop_waiter, w);
  if (timer) {
    w->timer = timer;
    uv_timer_init(dml_loop_uv(dml_script_loop(dml_script_of(L))), timer);
    timer->data = w;
    uv_update_time(timer->loop);
    uv_timer_start(timer, on_timer, (uint64_t)(timeout_ms < WAIT_MAX_MS ? timeout_ms : WAIT_MAX_MS), 0);
  }
  return dml_wait_yield(L);
}

/* ---- box ---- */

static box *check_box(lua_State *L) { return luaL_checkudata(L, 1, BOX_T); }

static void read_options(lua_State *L, dml_box_options *options) {
  luaL_checktype(L, 2, LUA_TTABLE);
  memset(options, 0, sizeof *options);
  options->stderr_fd = -1;
  options->disk_bytes = (uint64_t)number_field(L, 2, "disk_mb", 1, DISK_MB_MAX, -1) * MIB;
  options->limits.memory_bytes = (uint64_t)number_field(L, 2, "memory_mb", MEMORY_MB_MIN, MEMORY_MB_MAX, 0) * MIB;
  options->limits.cpu_count = number_field(L, 2, "cpu", CPU_MIN, CPU_MAX, 0);
  options->limits.pids_count = (uint32_t)number_field(L, 2, "pids", 1, PIDS_MAX, 0);
  size_t len;
  lua_getfield(L, 2, "name");
  options->name = luaL_checklstring(L, -1, &len);       /* stays on the stack, and so alive */
  if (strlen(options->name) != len) options->name = ""; /* no name at all, so it is refused */
}

/* iso:start{disk_mb=, memory_mb=, cpu=, pids=, name=} -> box | nil, err */
static int l_start(lua_State *L) {
  dml_isolation *iso = check_iso(L);
  dml_box_options options;
  read_options(L, &options);
  box *b = lua_newuserdatauv(L, sizeof *b, 0);
  memset(b, 0, sizeof *b);
  luaL_setmetatable(L, BOX_T);
  dml_status status = dml_box_start(iso, &options, on_ended, b, &b->box);
  if (status != DML_OK) return dml_push_error(L, status);
  b->pid = dml_box_pid(b->box);
  if (dml_cgroups_holds(&iso->cgroups, DML_CGROUP_MEMORY)) b->memory_mb = (double)(options.limits.memory_bytes / MIB);
  if (dml_cgroups_holds(&iso->cgroups, DML_CGROUP_CPU)) b->cpu = options.limits.cpu_count;
  return 1;
}

static int l_take_fd(lua_State *L) {
  box *b = check_box(L);
  int fd = b->box ? dml_box_take_channel(b->box) : -1;
  luaL_argcheck(L, fd >= 0, 1, "its descriptor is taken");
  lua_pushinteger(L, fd);
  return 1;
}

static int l_kill(lua_State *L) {
  box *b = check_box(L);
  if (b->box) dml_box_kill(b->box);
  return 0;
}

static int l_wait(lua_State *L) {
  box *b = check_box(L);
  double timeout_ms = luaL_optnumber(L, 2, -1);
  lua_settop(L, 1); /* keeps the box alive while the task waits */
  if (b->box && !dml_box_has_ended(b->box)) return start_waiting(L, b, timeout_ms);
  lua_pushboolean(L, 1);
  return 1;
}

/* box:release() -> true; on a box that still runs it kills and waits, blocking, some milliseconds */
static int l_release(lua_State *L) {
  box *b = check_box(L);
  dml_box *ended = b->box;
  b->box = NULL;
  if (ended && !dml_box_has_ended(ended)) {
    dml_box_free(ended);
    on_ended(NULL, b);
  } else {
    dml_box_free(ended);
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* box:pause() -> whether all of it stands (call again, some milliseconds later) | nil, err */
static int l_pause(lua_State *L) {
  box *b = check_box(L);
  bool is_done = false;
  dml_status status = b->box ? dml_box_pause(b->box, &is_done) : DML_CONFLICT;
  if (status != DML_OK) return dml_push_error(L, status);
  lua_pushboolean(L, is_done);
  return 1;
}

/* box:resume() -> true | nil, err */
static int l_resume(lua_State *L) {
  box *b = check_box(L);
  dml_status status = b->box ? dml_box_resume(b->box) : DML_CONFLICT;
  return status == DML_OK ? dml_push_true(L, NULL) : dml_push_error(L, status);
}

static void set_count(lua_State *L, const char *key, uint64_t value) {
  lua_pushinteger(L, value > LUA_MAXINTEGER ? LUA_MAXINTEGER : (lua_Integer)value);
  lua_setfield(L, -2, key);
}

/* box:usage() -> {cpu_ms=, memory_bytes=, …} | nil, err */
static int l_usage(lua_State *L) {
  box *b = check_box(L);
  dml_usage usage;
  dml_status status = b->box ? dml_box_usage(b->box, &usage) : DML_CONFLICT;
  if (status != DML_OK) return dml_push_error(L, status);
  long cpu_count = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  lua_createtable(L, 0, 9);
  set_count(L, "cpu_ms", usage.cpu_ms);
  set_count(L, "memory_bytes", usage.memory_bytes);
  set_count(L, "cache_bytes", usage.cache_bytes);
  set_count(L, "processes", usage.process_count);
  set_string(L, "source", usage.is_by_group ? "group" : "processes");
  set_count(L, "host_cpu_count", cpu_count > 0 ? (uint64_t)cpu_count : 1);
  set_count(L, "host_memory_bytes", pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0);
  if (!usage.has_disk) return 1;
  set_count(L, "disk_used_bytes", usage.disk_used_bytes);
  set_count(L, "disk_total_bytes", usage.disk_total_bytes);
  return 1;
}

static int box_gc(lua_State *L) {
  box *b = lua_touserdata(L, 1);
  /* Whoever still waits belongs to a coroutine that is collected with us. */
  while (b->waiters) {
    dml_wait_forget(b->waiters->wait);
    free_waiter(b->waiters);
  }
  dml_box_free(b->box);
  b->box = NULL;
  return 0;
}

static void push_number_or_nil(lua_State *L, double value) {
  if (value <= 0)
    lua_pushnil(L);
  else if (value == (double)(lua_Integer)value)
    lua_pushinteger(L, (lua_Integer)value);
  else
    lua_pushnumber(L, value);
}

/* The fields; upvalue 1 is the table of methods. */
static int box_index(lua_State *L) {
  box *b = check_box(L);
  const char *key = luaL_checkstring(L, 2);
  if (strcmp(key, "pid") == 0) {
    lua_pushinteger(L, b->pid);
  } else if (strcmp(key, "fd") == 0) {
    int fd = b->box ? dml_box_peek_channel(b->box) : -1;
    if (fd >= 0)
      lua_pushinteger(L, fd);
    else
      lua_pushnil(L);
  } else if (strcmp(key, "memory_mb") == 0) {
    push_number_or_nil(L, b->memory_mb);
  } else if (strcmp(key, "cpu") == 0) {
    push_number_or_nil(L, b->cpu);
  } else {
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
  }
  return 1;
}

static const luaL_Reg ISO_METHODS[] = {{"start", l_start}, {"limits", l_limits}, {NULL, NULL}};

static const luaL_Reg BOX_METHODS[] = {{"take_fd", l_take_fd}, {"kill", l_kill},   {"wait", l_wait},
                                       {"release", l_release}, {"pause", l_pause}, {"resume", l_resume},
                                       {"usage", l_usage},     {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {{"preflight", l_preflight}, {"open", l_open}, {NULL, NULL}};

static void set_finalizer(lua_State *L, lua_CFunction gc) {
  lua_pushcfunction(L, gc);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__gc");
  lua_setfield(L, -2, "__close");
}

int dml_open_isolation(lua_State *L) {
  if (luaL_newmetatable(L, ISO_T)) {
    luaL_newlib(L, ISO_METHODS);
    lua_setfield(L, -2, "__index");
    set_finalizer(L, iso_gc);
  }
  lua_pop(L, 1);
  if (luaL_newmetatable(L, BOX_T)) {
    luaL_newlib(L, BOX_METHODS);
    lua_pushcclosure(L, box_index, 1);
    lua_setfield(L, -2, "__index");
    set_finalizer(L, box_gc);
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
