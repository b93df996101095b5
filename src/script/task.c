/* task.c - see task.h. The script object lives here too: it is what all tasks of one Lua state share. */
#include "script/task.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "script/bind.h"

#define TASK_T "demilune.task"
#define GRACE_RETRY_MS 10
#define TIMER_MAX_MS (366.0 * 86400 * 1000)

struct dml_wait {
  dml_wait_drop drop;
  void *ud;
  bool is_pending;
};

typedef enum task_state { TASK_RUNNING, TASK_DONE, TASK_FAILED } task_state;
typedef enum ready_kind { READY_NOT, READY_START, READY_WAKE, READY_CANCEL } ready_kind;

/* User values of the handle: 1 the coroutine, 2 the table of results or the error. */
struct dml_task {
  dml_script *script;
  lua_State *co;
  task_state state;
  dml_wait wait;
  ready_kind ready;
  dml_wait_push push; /* of READY_WAKE */
  void *push_ud;
  int start_args; /* of READY_START */
  int result_count; /* of TASK_DONE: the table cannot tell, since nil is a result too */
  bool is_cancel_pending;
  bool was_cancelled;
  bool is_watched; /* whoever ran it gets its error, so it is not logged */
  uv_timer_t *grace;
  void (*on_end)(void *ud);
  void *on_end_ud;
  struct joiner *joiners;
  dml_task *next_ready;
  dml_task *next, **back; /* all live tasks */
};

/* One task that waits for the end of another. */
typedef struct joiner {
  dml_task *target;
  dml_wait *wait;
  uv_timer_t *timer;
  struct joiner *next;
} joiner;

struct dml_script {
  lua_State *main;
  dml_loop *loop;
  dml_log *log;
  char *dir;
  dml_task *ready_head, *ready_tail;
  dml_task *tasks;
  dml_task *running;
  int depth; /* > 0: inside Lua */
  uv_idle_t *more; /* goes on with the ready queue in the loop's next turn */
};

static const char SCRIPT_KEY = 0;
static const char CANCELLED_KEY = 0;

/* ---- script ---- */

static void free_handle(uv_handle_t *handle) { free(handle); }

void dml_timer_start(uv_timer_t *timer, uv_timer_cb cb, lua_Number timeout_ms) {
  if (!(timeout_ms > 0)) timeout_ms = 0;
  if (timeout_ms > TIMER_MAX_MS) timeout_ms = TIMER_MAX_MS;
  uv_update_time(timer->loop);
  uv_timer_start(timer, cb, (uint64_t)timeout_ms, 0);
}

dml_status dml_script_open(lua_State *L, dml_loop *loop, dml_log *log, const char *dir, dml_script **out) {
  *out = NULL;
  dml_script *script = calloc(1, sizeof *script);
  if (!script) return DML_INTERNAL;
  script->main = L;
  script->loop = loop;
  script->log = log;
  script->dir = strdup(dir);
  script->more = calloc(1, sizeof *script->more);
  if (!script->dir || !script->more) {
    free(script->dir);
    free(script->more);
    free(script);
    return DML_INTERNAL;
  }
  uv_idle_init(dml_loop_uv(loop), script->more);
  script->more->data = script;
  lua_pushlightuserdata(L, script);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &SCRIPT_KEY);
  *out = script;
  return DML_OK;
}

dml_script *dml_script_of(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &SCRIPT_KEY);
  dml_script *script = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return script;
}

dml_loop *dml_script_loop(dml_script *script) { return script->loop; }
dml_log *dml_script_log(dml_script *script) { return script->log; }
const char *dml_script_dir(dml_script *script) { return script->dir; }
lua_State *dml_script_main(dml_script *script) { return script->main; }

static void log_failure(dml_script *script, lua_State *L) {
  size_t len;
  const char *text = dml_push_error_text(L, -1, &len);
  dml_log_write(script->log, DML_LOG_ERROR, text, len);
  lua_pop(L, 1);
}

/* ---- the end of a task ---- */

static void stop_grace(dml_task *task) {
  if (!task->grace) return;
  uv_timer_stop(task->grace);
  uv_close((uv_handle_t *)task->grace, free_handle);
  task->grace = NULL;
}

/* The results of a task that is done, from the handle at `handle`; returns their number. */
static int push_results(lua_State *L, int handle, const dml_task *task) {
  luaL_checkstack(L, task->result_count + 1, "results of a task");
  lua_getiuservalue(L, handle, 2);
  int results = lua_gettop(L);
  for (int i = 1; i <= task->result_count; i++) lua_rawgeti(L, results, i);
  lua_remove(L, results);
  return task->result_count;
}

/* The handle is argument 1 of `wait`, on the stack of whoever waits. */
static int push_joined(lua_State *co, void *ud) {
  dml_task *target = ud;
  lua_pushboolean(co, target->state == TASK_DONE);
  if (target->state == TASK_DONE) return 1 + push_results(co, 1, target);
  lua_getiuservalue(co, 1, 2);
  return 2;
}

static void free_joiner(joiner *j) {
  if (j->timer) {
    uv_timer_stop(j->timer);
    uv_close((uv_handle_t *)j->timer, free_handle);
  }
  free(j);
}

static void unlink_joiner(joiner *j) {
  for (joiner **at = &j->target->joiners; *at; at = &(*at)->next)
    if (*at == j) {
      *at = j->next;
      break;
    }
}

static void wake_joiners(dml_task *task) {
  while (task->joiners) {
    joiner *j = task->joiners;
    task->joiners = j->next;
    dml_wait *wait = j->wait;
    free_joiner(j);
    dml_wait_wake(wait, push_joined, task);
  }
}

static void unlink_task(dml_task *task) {
  if (!task->back) return;
  *task->back = task->next;
  if (task->next) task->next->back = task->back;
  task->back = NULL;
}

/* The coroutine is over; its `n` results or its error (n = -1) are on its stack. Runs inside a protected call. */
static void finish(dml_task *task, int n) {
  lua_State *L = task->script->main;
  lua_rawgetp(L, LUA_REGISTRYINDEX, task);
  if (n >= 0) {
    lua_createtable(task->co, n, 0);
    lua_insert(task->co, -(n + 1));
    for (int i = n; i >= 1; i--) lua_rawseti(task->co, -(i + 1), i);
    lua_xmove(task->co, L, 1);
    task->result_count = n;
    task->state = TASK_DONE;
  } else {
    lua_xmove(task->co, L, 1);
    task->state = TASK_FAILED;
    if (!task->was_cancelled && !task->is_watched && !task->joiners) log_failure(task->script, L);
  }
  lua_setiuservalue(L, -2, 2);
  lua_pushnil(L);
  lua_setiuservalue(L, -2, 1);
  lua_pop(L, 1);
  task->co = NULL;
  stop_grace(task);
  unlink_task(task);
  if (task->on_end) {
    void (*fn)(void *) = task->on_end;
    task->on_end = NULL;
    fn(task->on_end_ud);
  }
  wake_joiners(task);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, task);
}

/* Ends a coroutine that is not to run any more: pending <close> variables run. */
static void end_hard(dml_task *task) {
  lua_resetthread(task->co);
  lua_settop(task->co, 0);
  lua_rawgetp(task->co, LUA_REGISTRYINDEX, &CANCELLED_KEY);
  finish(task, -1);
}

static void resume(dml_task *task, int nargs) {
  dml_script *script = task->script;
  lua_State *co = task->co;
  int nres = 0;
  dml_task *outer = script->running;
  script->running = task;
  int rc = lua_resume(co, script->main, nargs, &nres);
  script->running = outer;
  if (rc == LUA_OK) {
    finish(task, nres);
  } else if (rc == LUA_YIELD && (task->wait.is_pending || task->ready != READY_NOT)) {
    lua_pop(co, nres);
  } else if (rc == LUA_YIELD) {
    dml_log_printf(script->log, DML_LOG_ERROR, "a task yielded outside a wait and was ended");
    end_hard(task);
  } else {
    if (lua_type(co, -1) == LUA_TSTRING && lua_checkstack(co, LUA_MINSTACK)) luaL_traceback(co, co, lua_tostring(co, -1), 0);
    lua_resetthread(co); /* keeps the error on top */
    finish(task, -1);
  }
}

/* ---- the ready queue ---- */

static void enqueue(dml_task *task, ready_kind kind) {
  dml_script *script = task->script;
  task->ready = kind;
  task->next_ready = NULL;
  if (script->ready_tail) script->ready_tail->next_ready = task;
  else script->ready_head = task;
  script->ready_tail = task;
}

static dml_task *dequeue(dml_script *script) {
  dml_task *task = script->ready_head;
  if (!task) return NULL;
  script->ready_head = task->next_ready;
  if (!script->ready_head) script->ready_tail = NULL;
  return task;
}

static void push_cancelled(lua_State *co) { lua_rawgetp(co, LUA_REGISTRYINDEX, &CANCELLED_KEY); }

/* What the wait's continuation gets: true and the results, or false and the error. */
static void run_ready(dml_task *task) {
  ready_kind kind = task->ready;
  lua_State *co = task->co;
  task->ready = READY_NOT;
  if (kind == READY_START) {
    if (!task->is_cancel_pending) {
      resume(task, task->start_args);
      return;
    }
    lua_settop(co, 0);
    push_cancelled(co);
    finish(task, -1);
    return;
  }
  if (!lua_checkstack(co, LUA_MINSTACK)) {
    end_hard(task);
    return;
  }
  int before = lua_gettop(co);
  lua_pushboolean(co, kind == READY_WAKE);
  if (kind == READY_CANCEL) {
    task->is_cancel_pending = false;
    push_cancelled(co);
  } else if (task->push) {
    int n = task->push(co, task->push_ud);
    /* results are the top n; what a push left below them goes */
    int extra = lua_gettop(co) - before - 1 - n;
    for (; extra > 0; extra--) lua_remove(co, before + 2);
  }
  resume(task, lua_gettop(co) - before);
}

static void go_on(uv_idle_t *handle);

static int drain(lua_State *L) {
  dml_script *script = lua_touserdata(L, 1);
  for (int i = 0; i < DML_TASK_BURST_MAX; i++) {
    dml_task *task = dequeue(script);
    if (!task) return 0;
    run_ready(task);
  }
  uv_idle_start(script->more, go_on);
  return 0;
}

static bool call_protected(dml_script *script, lua_CFunction fn, void *ud) {
  lua_State *L = script->main;
  int top = lua_gettop(L);
  script->depth++;
  lua_pushcfunction(L, fn);
  lua_pushlightuserdata(L, ud);
  bool ok = lua_pcall(L, 1, 0, 0) == LUA_OK;
  if (!ok) log_failure(script, L);
  lua_settop(L, top);
  script->depth--;
  return ok;
}

static void drain_all(dml_script *script) {
  while (script->ready_head && !uv_is_active((uv_handle_t *)script->more))
    if (!call_protected(script, drain, script)) continue;
}

static void go_on(uv_idle_t *handle) {
  dml_script *script = handle->data;
  uv_idle_stop(handle);
  drain_all(script);
}

bool dml_script_enter(dml_script *script, lua_CFunction fn, void *ud) {
  bool ok = call_protected(script, fn, ud);
  if (script->depth == 0) drain_all(script);
  return ok;
}

/* Makes sure that what was queued from outside Lua runs. */
static void kick(dml_script *script) {
  if (script->depth == 0) drain_all(script);
}

/* ---- waits ---- */

dml_task *dml_task_current(lua_State *L) {
  dml_script *script = dml_script_of(L);
  return script->running && script->running->co == L ? script->running : NULL;
}

dml_wait *dml_wait_new(lua_State *L, dml_wait_drop drop, void *ud) {
  dml_task *task = dml_task_current(L);
  if (!task) luaL_error(L, "only a task can wait: use task.spawn or task.run");
  if (task->is_cancel_pending) {
    task->is_cancel_pending = false;
    push_cancelled(L);
    lua_error(L);
  }
  task->wait = (dml_wait){.drop = drop, .ud = ud, .is_pending = true};
  return &task->wait;
}

int dml_push_true(lua_State *co, void *ud) {
  (void)ud;
  lua_pushboolean(co, 1);
  return 1;
}

int dml_push_timeout(lua_State *co, void *ud) {
  (void)ud;
  lua_pushnil(co);
  lua_pushliteral(co, "timeout");
  return 2;
}

void dml_wait_bind(dml_wait *wait, dml_wait_drop drop, void *ud) {
  wait->drop = drop;
  wait->ud = ud;
}

void dml_wait_forget(dml_wait *wait) { wait->is_pending = false; }

static int wait_continue(lua_State *L, int status, lua_KContext before) {
  (void)status;
  int first = (int)before + 1;
  if (lua_toboolean(L, first)) return lua_gettop(L) - first;
  lua_settop(L, first + 1);
  return lua_error(L);
}

int dml_wait_yield(lua_State *L) { return lua_yieldk(L, 0, (lua_KContext)lua_gettop(L), wait_continue); }

static dml_task *task_of(dml_wait *wait) { return (dml_task *)((char *)wait - offsetof(dml_task, wait)); }

void dml_wait_wake(dml_wait *wait, dml_wait_push push, void *ud) {
  if (!wait->is_pending) return;
  dml_task *task = task_of(wait);
  wait->is_pending = false;
  task->push = push;
  task->push_ud = ud;
  enqueue(task, READY_WAKE);
  kick(task->script);
}

/* ---- cancel ---- */

static int end_overdue(lua_State *L) {
  dml_task *task = lua_touserdata(L, 1);
  if (task->wait.is_pending) {
    task->wait.is_pending = false;
    if (task->wait.drop) task->wait.drop(task->wait.ud);
  }
  end_hard(task);
  return 0;
}

static void on_grace_over(uv_timer_t *timer) {
  dml_task *task = timer->data;
  if (task->ready != READY_NOT) uv_timer_start(timer, on_grace_over, GRACE_RETRY_MS, 0);
  else if (task->state == TASK_RUNNING) dml_script_enter(task->script, end_overdue, task);
}

static void start_grace(dml_task *task) {
  if (task->grace) return;
  task->grace = calloc(1, sizeof *task->grace);
  if (!task->grace) return;
  uv_timer_init(dml_loop_uv(task->script->loop), task->grace);
  task->grace->data = task;
  dml_timer_start(task->grace, on_grace_over, DML_TASK_GRACE_MS);
}

void dml_task_cancel(dml_task *task) {
  if (task->state != TASK_RUNNING || task->was_cancelled) return;
  task->was_cancelled = true;
  task->is_cancel_pending = true;
  start_grace(task);
  if (!task->wait.is_pending) return;
  task->wait.is_pending = false;
  if (task->wait.drop) task->wait.drop(task->wait.ud);
  enqueue(task, READY_CANCEL);
  kick(task->script);
}

void dml_task_on_end(dml_task *task, void (*fn)(void *ud), void *ud) {
  if (task->state != TASK_RUNNING) {
    fn(ud);
    return;
  }
  task->on_end = fn;
  task->on_end_ud = ud;
}

/* ---- Lua face ---- */

dml_task *dml_task_spawn(lua_State *L, int nargs) {
  dml_script *script = dml_script_of(L);
  dml_task *task = lua_newuserdatauv(L, sizeof *task, 2);
  memset(task, 0, sizeof *task);
  luaL_setmetatable(L, TASK_T);
  task->script = script;
  lua_State *co = lua_newthread(L);
  lua_setiuservalue(L, -2, 1);
  lua_insert(L, -(nargs + 2));
  luaL_checkstack(co, nargs + 1, "arguments of a task");
  lua_xmove(L, co, nargs + 1);
  task->co = co;
  task->start_args = nargs;
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, task);
  task->next = script->tasks;
  task->back = &script->tasks;
  if (task->next) task->next->back = &task->next;
  script->tasks = task;
  enqueue(task, READY_START);
  return task;
}

static int l_spawn(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  dml_task_spawn(L, lua_gettop(L) - 1);
  dml_script *script = dml_script_of(L);
  if (script->depth == 0) uv_idle_start(script->more, go_on);
  return 1;
}

static dml_task *check_task(lua_State *L) { return luaL_checkudata(L, 1, TASK_T); }

static int l_cancel(lua_State *L) {
  dml_task_cancel(check_task(L));
  return 0;
}

static int l_status(lua_State *L) {
  static const char *const NAMES[] = {"running", "done", "failed"};
  lua_pushstring(L, NAMES[check_task(L)->state]);
  return 1;
}

static void drop_joiner(void *ud) {
  joiner *j = ud;
  unlink_joiner(j);
  free_joiner(j);
}

static void on_join_timeout(uv_timer_t *timer) {
  joiner *j = timer->data;
  dml_wait *wait = j->wait;
  drop_joiner(j);
  dml_wait_wake(wait, dml_push_timeout, NULL);
}

static joiner *joiner_new(dml_task *target, bool has_timeout) {
  joiner *j = calloc(1, sizeof *j);
  if (!j) return NULL;
  j->target = target;
  if (has_timeout && !(j->timer = calloc(1, sizeof *j->timer))) {
    free(j);
    return NULL;
  }
  if (j->timer) {
    uv_timer_init(dml_loop_uv(target->script->loop), j->timer);
    j->timer->data = j;
  }
  return j;
}

static int l_wait(lua_State *L) {
  dml_task *task = check_task(L);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  lua_settop(L, 1);
  if (task->state != TASK_RUNNING) return push_joined(L, task);
  if (task == dml_task_current(L)) return luaL_error(L, "a task cannot wait for its own end");
  dml_wait *wait = dml_wait_new(L, NULL, NULL);
  joiner *j = joiner_new(task, timeout_ms >= 0);
  if (!j) {
    dml_wait_forget(wait);
    return dml_push_error(L, DML_INTERNAL);
  }
  dml_wait_bind(wait, drop_joiner, j);
  j->wait = wait;
  j->next = task->joiners;
  task->joiners = j;
  if (j->timer) dml_timer_start(j->timer, on_join_timeout, timeout_ms);
  return dml_wait_yield(L);
}

static int task_gc(lua_State *L) {
  dml_task *task = lua_touserdata(L, 1);
  stop_grace(task);
  return 0;
}

static int l_current(lua_State *L) {
  dml_task *task = dml_task_current(L);
  if (!task) return 0;
  lua_rawgetp(L, LUA_REGISTRYINDEX, task);
  return 1;
}

/* task.run: turns the loop until the task is over. Not for tasks themselves. */
static int l_run(lua_State *L) {
  dml_script *script = dml_script_of(L);
  luaL_checktype(L, 1, LUA_TFUNCTION);
  if (script->running) return luaL_error(L, "task.run is for the main thread; a task just calls the function");
  if (script->depth > 0) return luaL_error(L, "task.run cannot be called from an event; use task.spawn");
  dml_task *task = dml_task_spawn(L, lua_gettop(L) - 1);
  task->is_watched = true;
  int handle = lua_gettop(L);
  drain_all(script);
  while (task->state == TASK_RUNNING) {
    int alive = uv_run(dml_loop_uv(script->loop), UV_RUN_ONCE);
    if (!alive && task->state == TASK_RUNNING && !script->ready_head)
      return luaL_error(L, "the task waits for something that can never come");
    drain_all(script);
  }
  if (task->state == TASK_DONE) return push_results(L, handle, task);
  lua_getiuservalue(L, handle, 2);
  return lua_error(L);
}

static int cancelled_tostring(lua_State *L) {
  lua_pushliteral(L, "cancelled");
  return 1;
}

static const luaL_Reg TASK_METHODS[] = {{"cancel", l_cancel}, {"status", l_status}, {"wait", l_wait}, {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {{"spawn", l_spawn}, {"run", l_run}, {"current", l_current}, {NULL, NULL}};

int dml_open_task(lua_State *L) {
  if (luaL_newmetatable(L, TASK_T)) {
    luaL_newlib(L, TASK_METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, task_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  lua_createtable(L, 0, 3);
  lua_pushliteral(L, "stopped");
  lua_setfield(L, -2, "category");
  lua_pushstring(L, dml_status_text(DML_STOPPED));
  lua_setfield(L, -2, "message");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "retryable");
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, cancelled_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_setmetatable(L, -2);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &CANCELLED_KEY);
  lua_setfield(L, -2, "CANCELLED");
  dml_open_time(L); /* sleep, event, now_ms join the same table [-0, +0] */
  return 1;
}

void dml_script_close(dml_script *script) {
  if (!script) return;
  while (script->tasks) {
    dml_task *task = script->tasks;
    unlink_task(task);
    if (task->wait.is_pending && task->wait.drop) {
      task->wait.is_pending = false;
      task->wait.drop(task->wait.ud);
    }
    task->state = TASK_FAILED;
    stop_grace(task);
  }
  script->ready_head = script->ready_tail = NULL;
  uv_idle_stop(script->more);
  uv_close((uv_handle_t *)script->more, free_handle);
  lua_pushnil(script->main);
  lua_rawsetp(script->main, LUA_REGISTRYINDEX, &SCRIPT_KEY);
  free(script->dir);
  free(script);
}
