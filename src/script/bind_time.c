/* bind_time.c - waiting for time and for each other: task.sleep, task.event, task.now_ms. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "script/bind.h"
#include "script/task.h"

#define EVENT_T "demilune.event"
#define ISO_MAX_MS 1e15 /* what int64 holds; the clock knows its own end */

/* A task that waits for an event, or, without one, for its timer alone. */
typedef struct waiter {
  dml_wait *wait;
  uv_timer_t *timer; /* NULL: no timeout */
  struct event *event;
  struct waiter *next, **back;
} waiter;

typedef struct event {
  bool is_set;
  waiter *waiters;
} event;

static void free_timer(uv_handle_t *handle) { free(handle); }

static void free_waiter(waiter *w) {
  if (w->back) {
    *w->back = w->next;
    if (w->next) w->next->back = w->back;
  }
  if (w->timer) {
    uv_timer_stop(w->timer);
    uv_close((uv_handle_t *)w->timer, free_timer);
  }
  free(w);
}

static void drop_waiter(void *ud) { free_waiter(ud); }

static void wake(waiter *w, dml_wait_push push) {
  dml_wait *wait = w->wait;
  free_waiter(w);
  dml_wait_wake(wait, push, NULL);
}

static void on_timer(uv_timer_t *timer) {
  waiter *w = timer->data;
  wake(w, w->event ? dml_push_timeout : dml_push_true);
}

/* Makes a waiter and yields; `timeout_ms` < 0: none. [-0, +0] */
static int start_waiting(lua_State *L, event *e, lua_Number timeout_ms) {
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
  w->event = e;
  dml_wait_bind(wait, drop_waiter, w);
  if (e) {
    w->next = e->waiters;
    w->back = &e->waiters;
    if (w->next) w->next->back = &w->next;
    e->waiters = w;
  }
  if (timer) {
    w->timer = timer;
    uv_timer_init(dml_loop_uv(dml_script_loop(dml_script_of(L))), timer);
    timer->data = w;
    dml_timer_start(timer, on_timer, timeout_ms);
  }
  return dml_wait_yield(L);
}

static int l_sleep(lua_State *L) {
  lua_Number ms = luaL_checknumber(L, 1);
  return start_waiting(L, NULL, ms > 0 ? ms : 0);
}

static int l_now_ms(lua_State *L) {
  lua_pushinteger(L, dml_clock_monotonic_ms());
  return 1;
}

static int l_epoch_ms(lua_State *L) {
  lua_pushinteger(L, dml_clock_epoch_ms());
  return 1;
}

static int l_iso(lua_State *L) {
  char stamp[DML_CLOCK_ISO_BYTES];
  lua_Number ms = luaL_checknumber(L, 1);
  dml_clock_iso(ms > 0 ? (int64_t)(ms < ISO_MAX_MS ? ms : ISO_MAX_MS) : 0, stamp);
  lua_pushstring(L, stamp);
  return 1;
}

static int l_event(lua_State *L) {
  event *e = lua_newuserdatauv(L, sizeof *e, 0);
  memset(e, 0, sizeof *e);
  luaL_setmetatable(L, EVENT_T);
  return 1;
}

static event *check_event(lua_State *L) { return luaL_checkudata(L, 1, EVENT_T); }

static int l_set(lua_State *L) {
  event *e = check_event(L);
  e->is_set = true;
  while (e->waiters) wake(e->waiters, dml_push_true);
  return 0;
}

static int l_clear(lua_State *L) {
  check_event(L)->is_set = false;
  return 0;
}

static int l_is_set(lua_State *L) {
  lua_pushboolean(L, check_event(L)->is_set);
  return 1;
}

static int l_event_wait(lua_State *L) {
  event *e = check_event(L);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  lua_settop(L, 1); /* keeps the event alive while the task waits */
  if (!e->is_set) return start_waiting(L, e, timeout_ms);
  lua_pushboolean(L, 1);
  return 1;
}

/* Only an event that no live coroutine holds is collected, so its waiters can never run again. */
static int event_gc(lua_State *L) {
  event *e = lua_touserdata(L, 1);
  while (e->waiters) {
    dml_wait_forget(e->waiters->wait);
    free_waiter(e->waiters);
  }
  return 0;
}

static const luaL_Reg EVENT_METHODS[] = {
    {"set", l_set}, {"clear", l_clear}, {"is_set", l_is_set}, {"wait", l_event_wait}, {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {
    {"sleep", l_sleep}, {"now_ms", l_now_ms}, {"epoch_ms", l_epoch_ms}, {"iso", l_iso}, {"event", l_event}, {NULL, NULL}};

void dml_open_time(lua_State *L) {
  if (luaL_newmetatable(L, EVENT_T)) {
    luaL_newlib(L, EVENT_METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, event_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  luaL_setfuncs(L, FUNCTIONS, 0);
}
