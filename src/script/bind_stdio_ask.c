/* bind_stdio_ask.c - core.stdio, the other way round: what a call of a client asks that client (MCP up to 2025-11-25).
 *
 * An ask belongs to the call that it was made for: the call's cancel and its end take it back. What a client says in
 * an error is foreign and dropped. */
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script/convert.h"
#include "script/stdio_face.h"

/* What a question may hold, and how long an answer may take: people answer. */
#define PARAMS_MAX_BYTES (1024 * 1024)
#define TIMEOUT_MAX_MS (24 * 60 * 60 * 1000)

/* Lies on the stack of the task that waits. User value 1: the call. */
typedef struct stdio_ask {
  dml_ask ask; /* first: dml_ask and stdio_ask share the address */
  dml_stdio_call *call;
  dml_wait *wait;
  uv_timer_t *timer;
  json_t *result;
} stdio_ask;

static void free_timer(uv_handle_t *handle) { free(handle); }

/* Nothing comes for it any more. */
static void detach(stdio_ask *a) {
  dml_asks_remove(&a->call->face->asks, &a->ask);
  if (!a->timer) return;
  uv_timer_stop(a->timer);
  uv_close((uv_handle_t *)a->timer, free_timer);
  a->timer = NULL;
}

static void wake(stdio_ask *a, dml_wait_push push) {
  dml_wait *wait = a->wait;
  detach(a);
  dml_wait_wake(wait, push, a);
}

/* Tells the client that it need not answer (MCP 2025-11-25, basic/utilities/cancellation). */
static void take_back(stdio_ask *a) {
  dml_stdio_face *face = a->call->face;
  char params[DML_ASK_ID_BYTES + 32];
  if (!face->is_open || dml_stdio_is_full(face->io)) return;
  int n = snprintf(params, sizeof params, "{\"requestId\":\"%s\"}", a->ask.id);
  dml_buffer *out = dml_stdio_out(face->io);
  if (dml_rpc_append_notification(out, "notifications/cancelled", params, (size_t)n) == DML_OK) dml_stdio_end_line(face);
}

static void drop_ask(void *ud) {
  take_back(ud);
  detach(ud);
}

static int push_late(lua_State *co, void *ud) {
  (void)ud;
  return dml_push_error(co, DML_PROVIDER_TIMEOUT);
}

static int push_refused(lua_State *co, void *ud) {
  (void)ud;
  return dml_push_error(co, DML_PROVIDER_REJECTED);
}

static int push_bad(lua_State *co, void *ud) {
  (void)ud;
  return dml_push_error(co, DML_INVALID_RESPONSE);
}

static int push_too_large(lua_State *co, void *ud) {
  (void)ud;
  return dml_push_error(co, DML_TOO_LARGE);
}

static int push_gone(lua_State *co, void *ud) {
  (void)ud;
  return dml_push_error(co, DML_CONNECTION_FAILED);
}

static int push_result(lua_State *co, void *ud) {
  stdio_ask *a = ud;
  dml_push_json(co, a->result);
  json_decref(a->result);
  a->result = NULL;
  return 1;
}

static void on_timer(uv_timer_t *timer) {
  take_back(timer->data);
  wake(timer->data, push_late);
}

void dml_stdio_answer_ask(dml_stdio_face *face, const dml_rpc_message *message, bool is_large) {
  const json_t *id = message->id_string;
  dml_ask *found = dml_asks_find(&face->asks, json_string_value(id), json_string_length(id));
  if (!found) return;
  stdio_ask *a = found->ud;
  a->call->is_large = a->call->is_large || is_large;
  if (message->result) {
    a->result = json_incref((json_t *)(uintptr_t)message->result);
    wake(a, push_result);
  } else {
    wake(a, message->is_error ? push_refused : push_bad);
  }
}

bool dml_stdio_skip_ask(dml_stdio_face *face, const char *id, size_t id_len) {
  if (id_len < 2 || id[0] != '"') return false;
  dml_ask *found = dml_asks_find(&face->asks, id + 1, id_len - 2);
  if (found) wake(found->ud, push_too_large);
  return found != NULL;
}

/* Inside Lua a wake only queues, so the list is stable. */
void dml_stdio_end_asks(dml_stdio_face *face, const dml_stdio_call *call) {
  dml_ask *next;
  for (dml_ask *ask = face->asks.first; ask; ask = next) {
    stdio_ask *a = ask->ud;
    next = ask->next;
    if (call && a->call != call) continue;
    if (call) take_back(a);
    wake(a, push_gone);
  }
}

static stdio_ask *new_ask(lua_State *L, dml_stdio_call *call) {
  stdio_ask *a = lua_newuserdatauv(L, sizeof *a, 1);
  memset(a, 0, sizeof *a);
  a->call = call;
  luaL_setmetatable(L, DML_STDIO_ASK_T);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  return a;
}

/* Why the call cannot ask now, or DML_OK. */
static dml_status hindrance(const dml_stdio_call *call) {
  if (call->is_answered || call->is_cancelled) return DML_STOPPED;
  if (!call->face->is_open) return DML_CONNECTION_FAILED;
  return dml_stdio_is_full(call->face->io) ? DML_UNAVAILABLE : DML_OK;
}

/* Links the ask in and appends its line. The output is as before when that fails. */
static dml_status send_ask(stdio_ask *a, const char *method, const char *json, size_t len) {
  dml_stdio_face *face = a->call->face;
  dml_status status = dml_asks_add(&face->asks, &a->ask, a);
  if (status != DML_OK) return status;
  status = dml_rpc_append_request(dml_stdio_out(face->io), a->ask.id, method, json, len);
  if (status == DML_OK) dml_stdio_end_line(face);
  else dml_asks_remove(&face->asks, &a->ask);
  return status;
}

/* call:request(method, params_json, timeout_ms) -> result | nil, err */
int dml_stdio_l_request(lua_State *L) {
  dml_stdio_call *call = luaL_checkudata(L, 1, DML_STDIO_CALL_T);
  const char *method = luaL_checkstring(L, 2);
  size_t len;
  luaL_checklstring(L, 3, &len);
  luaL_argcheck(L, len <= PARAMS_MAX_BYTES, 3, "at most 1 MiB");
  lua_Number timeout_ms = luaL_checknumber(L, 4);
  luaL_argcheck(L, timeout_ms > 0 && timeout_ms <= TIMEOUT_MAX_MS, 4, "milliseconds of at most a day");
  dml_status status = hindrance(call);
  if (status != DML_OK) return dml_push_error(L, status);
  const char *json = dml_stdio_push_outgoing(L, 3, &len);
  if (!json) return dml_push_error(L, DML_INTERNAL);
  stdio_ask *a = new_ask(L, call);
  a->wait = dml_wait_new(L, drop_ask, a);
  a->timer = calloc(1, sizeof *a->timer);
  status = a->timer ? send_ask(a, method, json, len) : DML_INTERNAL;
  if (status != DML_OK) {
    free(a->timer);
    a->timer = NULL;
    dml_wait_forget(a->wait);
    return dml_push_error(L, status);
  }
  uv_timer_init(dml_loop_uv(dml_script_loop(call->face->script)), a->timer);
  a->timer->data = a;
  dml_timer_start(a->timer, on_timer, timeout_ms);
  return dml_wait_yield(L);
}

/* The task was ended hard, or its state: nobody waits. */
static int ask_gc(lua_State *L) {
  stdio_ask *a = lua_touserdata(L, 1);
  detach(a);
  json_decref(a->result);
  a->result = NULL;
  return 0;
}

void dml_stdio_make_asks(lua_State *L) {
  if (luaL_newmetatable(L, DML_STDIO_ASK_T)) {
    lua_pushcfunction(L, ask_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
}
