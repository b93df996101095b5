/* bind_stdio.c - core.stdio: each request of a client becomes a task that runs one Lua function.
 *
 * Faults of the message itself are answered here, without entering Lua; everything else is the function's. A call that
 * the client cancelled is never answered. */
#include <lauxlib.h>
#include <string.h>

#include "base/json.h"
#include "script/bind.h"
#include "script/convert.h"
#include "script/stdio_face.h"
#include "script/vault_face.h"

static dml_stdio_face *check_face(lua_State *L) { return luaL_checkudata(L, 1, DML_STDIO_IO_T); }

static dml_stdio_call *check_call(lua_State *L) { return luaL_checkudata(L, 1, DML_STDIO_CALL_T); }

void dml_stdio_end_line(dml_stdio_face *face) { (void)dml_buffer_append(dml_stdio_out(face->io), "\n", 1); }

/* What is in it was redacted value by value before, so this finds hardly anything; without a live secret it costs nothing. */
const char *dml_stdio_push_outgoing(lua_State *L, int index, size_t *len) {
  json_t *value;
  dml_push_redacted(L, index);
  const char *json = lua_tolstring(L, -1, len);
  if (lua_rawequal(L, -1, index)) return json;
  if (dml_json_decode(json, *len, NULL, &value) != DML_JSON_FINE) return NULL;
  json_decref(value);
  return json;
}

/* Not when the connection was closed by what an earlier event ran. */
static void write_fault(dml_stdio_face *face, const char *id, size_t id_len, int code, const char *text) {
  if (!face->is_open) return;
  if (dml_rpc_append_error(dml_stdio_out(face->io), id, id_len, code, text, NULL, 0) == DML_OK) dml_stdio_end_line(face);
}

/* Pushes handlers[name]; false (and nothing pushed) where there is none. */
static bool push_handler(lua_State *L, dml_stdio_face *face, const char *name) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, face);
  lua_getiuservalue(L, -1, 1);
  lua_getfield(L, -1, name);
  lua_replace(L, -3);
  lua_pop(L, 1);
  if (lua_isfunction(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

/* ---- calls ---- */

static void forget_call(dml_stdio_call *call) {
  dml_calls_remove(&call->face->calls, &call->call);
}

/* Runs inside Lua: the end of a task always does. */
static void on_task_end(void *ud) {
  dml_stdio_call *call = ud;
  lua_State *L = dml_script_main(call->face->script);
  call->task = NULL;
  if (!call->is_answered && !call->is_cancelled)
    write_fault(call->face, call->call.id, call->call.id_len, DML_RPC_INTERNAL_ERROR, "the request could not be answered");
  call->is_answered = true;
  dml_stdio_end_asks(call->face, call);
  forget_call(call);
  if (call->is_large) lua_gc(L, LUA_GCCOLLECT, 0);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, call);
}

typedef struct arrival {
  dml_stdio_face *face;
  const dml_rpc_message *message;
  bool is_large;
} arrival;

static void push_params(lua_State *L, const dml_rpc_message *message) {
  if (message->params) dml_push_json(L, message->params);
  else lua_newtable(L);
}

static int start_request(lua_State *L) {
  arrival *a = lua_touserdata(L, 1);
  if (!push_handler(L, a->face, "on_request")) return 0;
  dml_stdio_call *call = lua_newuserdatauv(L, sizeof *call, 1);
  memset(call, 0, sizeof *call);
  call->face = a->face;
  call->is_large = a->is_large;
  dml_status status = dml_calls_add(&a->face->calls, a->message, &call->call, call);
  if (status == DML_QUOTA_EXCEEDED) {
    write_fault(a->face, a->message->id, a->message->id_len, DML_RPC_INTERNAL_ERROR,
                "quota_exceeded: too many requests are in flight; wait for answers");
    return 0;
  }
  if (status != DML_OK) return luaL_error(L, "out of memory");
  luaL_setmetatable(L, DML_STDIO_CALL_T);
  lua_rawgetp(L, LUA_REGISTRYINDEX, a->face);
  lua_setiuservalue(L, -2, 1);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, call); /* until on_task_end: the handler may have dropped it by then */
  lua_pushstring(L, a->message->method);
  push_params(L, a->message);
  call->task = dml_task_spawn(L, 3);
  dml_task_on_end(call->task, on_task_end, call);
  return 0;
}

static int start_notification(lua_State *L) {
  arrival *a = lua_touserdata(L, 1);
  if (!push_handler(L, a->face, "on_notification")) return 0;
  lua_pushstring(L, a->message->method);
  push_params(L, a->message);
  dml_task_spawn(L, 2);
  return 0;
}

static void cancel_named(dml_stdio_face *face, const json_t *params) {
  dml_call *found = dml_calls_find_cancelled(&face->calls, params);
  if (!found) return;
  dml_stdio_call *call = found->ud;
  if (call->is_answered || !call->task) return;
  call->is_cancelled = true;
  dml_task_cancel(call->task);
}

static void on_line(void *ud, char *line, size_t len) {
  dml_stdio_face *face = ud;
  dml_rpc_message message;
  dml_rpc_read(line, len, &message);
  arrival a = {face, &message, len >= DML_STDIO_LARGE_BYTES};
  switch (message.kind) {
  case DML_RPC_REQUEST: dml_script_enter(face->script, start_request, &a); break;
  case DML_RPC_NOTIFICATION:
    if (strcmp(message.method, "notifications/cancelled") == 0) cancel_named(face, message.params);
    else dml_script_enter(face->script, start_notification, &a);
    break;
  case DML_RPC_INVALID: write_fault(face, message.id, message.id_len, message.error_code, message.error_text); break;
  case DML_RPC_RESPONSE: dml_stdio_answer_ask(face, &message, a.is_large); break;
  case DML_RPC_IGNORED: break;
  }
  dml_rpc_release(&message);
}

static void on_oversize(void *ud, const char *head, size_t len) {
  dml_rpc_message message;
  dml_rpc_read_id(head, len, &message);
  if (dml_stdio_skip_ask(ud, message.id, message.id_len)) return;
  write_fault(ud, message.id, message.id_len, DML_RPC_INVALID_REQUEST, "the message is longer than this server accepts");
}

static int tell_drain(lua_State *L) {
  if (push_handler(L, lua_touserdata(L, 1), "on_drain")) lua_call(L, 0, 0);
  return 0;
}

static void on_drain(void *ud) {
  dml_stdio_face *face = ud;
  dml_script_enter(face->script, tell_drain, face);
}

static int tell_end(lua_State *L) {
  dml_stdio_face *face = lua_touserdata(L, 1);
  dml_stdio_end_asks(face, NULL);
  if (!push_handler(L, face, "on_end")) return 0;
  dml_task_spawn(L, 0);
  return 0;
}

static void on_end(void *ud, bool is_broken) {
  (void)is_broken;
  dml_stdio_face *face = ud;
  dml_script_enter(face->script, tell_end, face);
}

/* ---- Lua face of a call ---- */

/* Takes the answer slot: false when the call was cancelled, answered, or the client is gone. */
static bool take_answer(dml_stdio_call *call) {
  if (call->is_answered || call->is_cancelled || !call->face->is_open) return false;
  call->is_answered = true;
  return true;
}

/* call:reply(json_text) */
static int l_reply(lua_State *L) {
  dml_stdio_call *call = check_call(L);
  size_t len;
  luaL_checklstring(L, 2, &len);
  if (!take_answer(call)) return 0;
  call->is_large = call->is_large || len >= DML_STDIO_LARGE_BYTES;
  const char *json = dml_stdio_push_outgoing(L, 2, &len);
  dml_buffer *out = dml_stdio_out(call->face->io);
  if (!json) write_fault(call->face, call->call.id, call->call.id_len, DML_RPC_INTERNAL_ERROR, "the answer held a secret");
  else if (dml_rpc_append_result(out, call->call.id, call->call.id_len, json, len) == DML_OK) dml_stdio_end_line(call->face);
  else write_fault(call->face, call->call.id, call->call.id_len, DML_RPC_INTERNAL_ERROR, "the answer is too large");
  return 0;
}

/* call:fail(code, message, data_json?) */
static int l_fail(lua_State *L) {
  dml_stdio_call *call = check_call(L);
  int code = (int)luaL_checkinteger(L, 2);
  size_t data_len = 0;
  luaL_checkstring(L, 3);
  bool has_data = luaL_optlstring(L, 4, NULL, &data_len) != NULL;
  if (!take_answer(call)) return 0;
  dml_push_redacted(L, 3);
  const char *text = lua_tostring(L, -1), *data = has_data ? dml_stdio_push_outgoing(L, 4, &data_len) : NULL;
  dml_buffer *out = dml_stdio_out(call->face->io);
  if (dml_rpc_append_error(out, call->call.id, call->call.id_len, code, text, data, data_len) == DML_OK)
    dml_stdio_end_line(call->face);
  return 0;
}

/* call:notify(method, params_json): only while the call is unanswered */
static int l_call_notify(lua_State *L) {
  dml_stdio_call *call = check_call(L);
  const char *method = luaL_checkstring(L, 2);
  size_t len;
  luaL_checklstring(L, 3, &len);
  if (call->is_answered || call->is_cancelled || !call->face->is_open) return 0;
  if (dml_stdio_is_full(call->face->io)) return 0;
  const char *json = dml_stdio_push_outgoing(L, 3, &len);
  dml_buffer *out = dml_stdio_out(call->face->io);
  if (json && dml_rpc_append_notification(out, method, json, len) == DML_OK) dml_stdio_end_line(call->face);
  return 0;
}

/* call:id() -> the id as JSON text */
static int l_call_id(lua_State *L) {
  dml_stdio_call *call = check_call(L);
  lua_pushlstring(L, call->call.id ? call->call.id : "null", call->call.id ? call->call.id_len : 4);
  return 1;
}

/* call:is_cancelled() -> whether the client took the call back */
static int l_is_cancelled(lua_State *L) {
  lua_pushboolean(L, check_call(L)->is_cancelled);
  return 1;
}

static int call_gc(lua_State *L) {
  forget_call(lua_touserdata(L, 1));
  return 0;
}

/* ---- Lua face of the connection ---- */

/* io:notify(method, params_json) */
static int l_notify(lua_State *L) {
  dml_stdio_face *face = check_face(L);
  const char *method = luaL_checkstring(L, 2);
  size_t len;
  luaL_checklstring(L, 3, &len);
  if (!face->is_open || dml_stdio_is_full(face->io)) return 0;
  const char *json = dml_stdio_push_outgoing(L, 3, &len);
  if (json && dml_rpc_append_notification(dml_stdio_out(face->io), method, json, len) == DML_OK) dml_stdio_end_line(face);
  return 0;
}

/* io:is_full() -> whether answers should wait for on_drain */
static int l_is_full(lua_State *L) {
  dml_stdio_face *face = check_face(L);
  lua_pushboolean(L, face->is_open && dml_stdio_is_full(face->io));
  return 1;
}

/* io:unsent() -> bytes of answers that the client has not taken yet */
static int l_unsent(lua_State *L) {
  dml_stdio_face *face = check_face(L);
  lua_pushinteger(L, face->is_open ? (lua_Integer)dml_stdio_unsent(face->io) : 0);
  return 1;
}

/* io:call_count() -> requests at work */
static int l_call_count(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)check_face(L)->calls.count);
  return 1;
}

/* io:stop_calls(): cancels the task of every call; they may still answer */
static int l_stop_calls(lua_State *L) {
  dml_stdio_face *face = check_face(L);
  for (size_t b = 0; b < DML_CALLS_BUCKETS; b++)
    for (dml_call *call = face->calls.buckets[b]; call; call = call->next) {
      dml_stdio_call *one = call->ud;
      if (one->task && one->task != dml_task_current(L)) dml_task_cancel(one->task);
    }
  return 0;
}

/* io:stop_reading() */
static int l_stop_reading(lua_State *L) {
  dml_stdio_face *face = check_face(L);
  if (face->is_open) dml_stdio_stop_reading(face->io);
  return 0;
}

/* io:close(): writes what is left without waiting */
static int l_close(lua_State *L) {
  dml_stdio_face *face = check_face(L);
  if (!face->is_open) return 0;
  face->is_open = false;
  dml_stdio_end_asks(face, NULL);
  dml_stdio_free(face->io);
  face->io = NULL;
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, face);
  return 0;
}

static int opt_integer(lua_State *L, const char *name, lua_Integer fallback) {
  lua_getfield(L, 1, name);
  lua_Integer n = luaL_optinteger(L, -1, fallback);
  lua_pop(L, 1);
  return (int)n;
}

/* stdio.serve{ in_fd=, out_fd=, line_max_bytes=, on_request=, on_notification=, on_drain=, on_end= } -> io | nil, err */
static int l_serve(lua_State *L) {
  static const dml_stdio_events EVENTS = {on_line, on_oversize, on_drain, on_end};
  luaL_checktype(L, 1, LUA_TTABLE);
  int in_fd = opt_integer(L, "in_fd", 0), out_fd = opt_integer(L, "out_fd", 1);
  int line_max_bytes = opt_integer(L, "line_max_bytes", 16 * 1024 * 1024);
  luaL_argcheck(L, line_max_bytes > 0, 1, "line_max_bytes must be positive");
  dml_stdio_face *face = lua_newuserdatauv(L, sizeof *face, 1);
  memset(face, 0, sizeof *face);
  face->script = dml_script_of(L);
  dml_calls_init(&face->calls);
  dml_asks_init(&face->asks);
  luaL_setmetatable(L, DML_STDIO_IO_T);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  dml_loop *loop = dml_script_loop(face->script);
  dml_status status = dml_stdio_new(loop, in_fd, out_fd, (size_t)line_max_bytes, &EVENTS, face, &face->io);
  if (status != DML_OK) return dml_push_error(L, status);
  face->is_open = true;
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, face);
  return 1;
}

static const luaL_Reg IO_METHODS[] = {{"notify", l_notify},
                                      {"is_full", l_is_full},
                                      {"unsent", l_unsent},
                                      {"call_count", l_call_count},
                                      {"stop_calls", l_stop_calls},
                                      {"stop_reading", l_stop_reading},
                                      {"close", l_close},
                                      {NULL, NULL}};

static const luaL_Reg CALL_METHODS[] = {{"reply", l_reply}, {"fail", l_fail}, {"notify", l_call_notify},
                                        {"id", l_call_id},  {"is_cancelled", l_is_cancelled}, {"request", dml_stdio_l_request},
                                        {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {{"serve", l_serve}, {NULL, NULL}};

static void make_class(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc) {
  if (luaL_newmetatable(L, name)) {
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
}

int dml_open_stdio(lua_State *L) {
  make_class(L, DML_STDIO_IO_T, IO_METHODS, l_close);
  make_class(L, DML_STDIO_CALL_T, CALL_METHODS, call_gc);
  dml_stdio_make_asks(L);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
