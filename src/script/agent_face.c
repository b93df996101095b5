/* agent_face.c - see agent_face.h. */
#include "script/agent_face.h"

#include <stdlib.h>
#include <string.h>

#define ERROR_T "demilune.error"

/* ---- errors ---- */

static const char *fault_text(dml_fault fault) {
  switch (fault) {
  case DML_FAULT_NOT_FOUND: return "There is no such thing in the sandbox.";
  case DML_FAULT_PERMISSION: return "The sandbox's user may not do that.";
  case DML_FAULT_IS_DIRECTORY: return "It is a directory.";
  case DML_FAULT_NOT_A_DIRECTORY: return "It is not a directory.";
  case DML_FAULT_NO_SPACE: return "The sandbox's disk is full.";
  case DML_FAULT_EXISTS: return "It exists already.";
  case DML_FAULT_INVALID: return "An argument is not valid.";
  case DML_FAULT_UNSUPPORTED: return "It is no regular file.";
  case DML_FAULT_CONFLICT: return "The present state does not allow that.";
  case DML_FAULT_TOO_LARGE: return "That is larger than the limit.";
  case DML_FAULT_CLOSED: return "The sandbox or the stream has ended.";
  case DML_FAULT_TIMEOUT: return "The agent did not answer in time.";
  case DML_FAULT_CROSS_DEVICE: return "It lies on another file system.";
  case DML_FAULT_EXHAUSTED: return "No process, descriptor, stream or memory is left.";
  default: return "The sandbox's kernel refused.";
  }
}

int dml_agent_push_fault(lua_State *L, dml_fault fault, int64_t size, int64_t which) {
  lua_pushnil(L);
  lua_createtable(L, 0, 6);
  lua_pushliteral(L, "agent");
  lua_setfield(L, -2, "category");
  lua_pushstring(L, dml_fault_name(fault));
  lua_setfield(L, -2, "code");
  lua_pushstring(L, fault_text(fault));
  lua_setfield(L, -2, "message");
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "retryable");
  if (size >= 0) {
    lua_pushinteger(L, size);
    lua_setfield(L, -2, "size");
  }
  if (which == DML_FIELD_CWD || which == DML_FIELD_CMD) {
    lua_pushstring(L, which == DML_FIELD_CWD ? "cwd" : "cmd");
    lua_setfield(L, -2, "field");
  }
  luaL_setmetatable(L, ERROR_T);
  return 2;
}

int dml_agent_push_face_fault(lua_State *L, const dml_agent_face *face) {
  dml_fault fault = face->fault;
  if (!fault) fault = face->reading.has_timed_out || face->writing.has_timed_out ? DML_FAULT_TIMEOUT : DML_FAULT_CLOSED;
  return dml_agent_push_fault(L, fault, face->fault_size, face->fault_which);
}

/* ---- life ---- */

dml_agent_face *dml_agent_face_new(lua_State *L, dml_agent_channel *channel, const char *type) {
  dml_agent_face *face = lua_newuserdatauv(L, sizeof *face, 1);
  memset(face, 0, sizeof *face);
  face->channel = channel;
  face->reading.face = face->writing.face = face;
  face->fault_size = face->exit_code = face->exit_signal = -1;
  dml_fields_init(&face->fields, DML_FRAME_START_MAX);
  luaL_setmetatable(L, type);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  return face;
}

dml_agent_chunk *dml_agent_face_pop(dml_agent_face *face) {
  dml_agent_chunk *chunk = face->first;
  if (!chunk) return NULL;
  face->first = chunk->next;
  if (!face->first) face->last = NULL;
  return chunk;
}

void dml_agent_face_release(dml_agent_face *face) {
  dml_agent_stream_drop(&face->stream);
  for (dml_agent_chunk *chunk; (chunk = dml_agent_face_pop(face));) free(chunk);
  for (int i = 0; i < 2; i++) {
    free(face->tails[i].bytes);
    free(face->tails[i].path);
    face->tails[i].bytes = face->tails[i].path = NULL;
    face->tails[i].len = 0;
  }
  dml_fields_deinit(&face->fields);
}

int dml_agent_face_gc(lua_State *L) {
  dml_agent_face *face = lua_touserdata(L, 1);
  dml_agent_timer_stop(face->channel, &face->reading.timer);
  dml_agent_timer_stop(face->channel, &face->writing.timer);
  face->reading.wait = face->writing.wait = NULL;
  dml_agent_face_release(face);
  return 0;
}

/* ---- waiting ---- */

void dml_agent_face_wake(dml_agent_waiter *waiter) {
  dml_wait *wait = waiter->wait;
  dml_agent_timer_stop(waiter->face->channel, &waiter->timer);
  waiter->wait = NULL;
  if (wait) dml_wait_wake(wait, waiter->push, waiter->face);
}

static void on_timeout(dml_agent_timer *timer) {
  dml_agent_waiter *waiter = (dml_agent_waiter *)timer;
  waiter->has_timed_out = true;
  dml_agent_face_wake(waiter);
}

static void drop_wait(void *ud) {
  dml_agent_waiter *waiter = ud;
  waiter->wait = NULL;
  dml_agent_timer_stop(waiter->face->channel, &waiter->timer);
  if (waiter == &waiter->face->writing) waiter->face->out_left = 0;
}

static void drop_request(void *ud) {
  drop_wait(ud);
  dml_agent_face_release(((dml_agent_waiter *)ud)->face);
}

/* A request that is not answered in time is dropped, so that its late answer goes nowhere. */
static void on_reply_timeout(dml_agent_timer *timer) {
  dml_agent_stream_drop(&((dml_agent_waiter *)timer)->face->stream);
  on_timeout(timer);
}

void dml_agent_face_begin_wait(lua_State *L, dml_agent_face *face, dml_agent_waiter *waiter, dml_wait_push push,
                               double timeout_ms) {
  if (waiter->wait) luaL_error(L, "another task waits for this already");
  waiter->has_timed_out = false;
  waiter->push = push;
  waiter->wait = dml_wait_new(L, drop_wait, waiter);
  if (timeout_ms >= 0) {
    if (timeout_ms > INT32_MAX) timeout_ms = INT32_MAX;
    dml_agent_timer_start(face->channel, &waiter->timer, (uint64_t)timeout_ms, on_timeout);
  }
}

int dml_agent_face_ask(lua_State *L, dml_agent_face *face, const dml_agent_stream_ops *ops, dml_frame_type type,
                       dml_wait_push push) {
  dml_agent_waiter *waiter = &face->reading;
  dml_wait *wait = dml_wait_new(L, drop_request, waiter);
  dml_fault fault = dml_agent_stream_open(face->channel, &face->stream, ops, type, &face->fields);
  dml_fields_deinit(&face->fields);
  if (fault) {
    dml_wait_forget(wait);
    return dml_agent_push_fault(L, fault, -1, 0);
  }
  waiter->wait = wait;
  waiter->push = push;
  dml_agent_timer_start(face->channel, &waiter->timer, DML_AGENT_REPLY_MS, on_reply_timeout);
  return dml_wait_yield(L);
}

void dml_agent_face_closed(dml_agent_stream *stream) {
  dml_agent_face *face = (dml_agent_face *)stream;
  if (!face->fault) face->fault = DML_FAULT_CLOSED;
  dml_agent_face_wake(&face->writing);
  dml_agent_face_wake(&face->reading);
}

/* ---- frames ---- */

bool dml_agent_face_take_numbers(dml_agent_face *face, const dml_frame *frame) {
  dml_field_reader reader = {frame->payload, frame->len};
  dml_field field;
  int more;
  while ((more = dml_field_next(&reader, &field)) > 0) {
    int64_t value;
    if (!dml_field_int(&field, &value) || value < 0) return false;
    switch (field.tag) {
    case DML_FIELD_PID: face->pid = value; break;
    case DML_FIELD_SIZE: face->size = value; break;
    case DML_FIELD_MODE: face->mode = value & 07777; break;
    case DML_FIELD_TOTAL: face->total = value; break;
    case DML_FIELD_SIGNO: face->exit_signal = value; break;
    case DML_FIELD_CODE: face->exit_code = value; break;
    case DML_FIELD_TIMED_OUT: face->has_timed_out = value != 0; break;
    default: return false;
    }
  }
  return more == 0;
}

bool dml_agent_face_take_error(dml_agent_face *face, const dml_frame *frame) {
  dml_field_reader reader = {frame->payload, frame->len};
  dml_field field;
  int more;
  face->fault = DML_FAULT_FAILED;
  while ((more = dml_field_next(&reader, &field)) > 0) {
    int64_t value;
    if (!dml_field_int(&field, &value) || value < 0) return false;
    if (field.tag == DML_FIELD_CODE && value > 0 && value < DML_FAULT_COUNT) face->fault = (dml_fault)value;
    else if (field.tag == DML_FIELD_SIZE) face->fault_size = value;
    else if (field.tag == DML_FIELD_WHICH) face->fault_which = value;
    else return false;
  }
  return more == 0;
}

bool dml_agent_face_take_chunk(dml_agent_face *face, const dml_frame *frame) {
  dml_agent_chunk *chunk = malloc(sizeof *chunk + frame->len);
  if (!chunk) return false;
  chunk->next = NULL;
  chunk->flags = frame->flags;
  chunk->len = frame->len;
  if (frame->len) memcpy(chunk->bytes, frame->payload, frame->len);
  if (face->last) face->last->next = chunk;
  else face->first = chunk;
  face->last = chunk;
  return true;
}

/* ---- classes ---- */

dml_agent_face *dml_agent_check(lua_State *L, const char *type) { return luaL_checkudata(L, 1, type); }

/* Upvalues: the function that knows fields, the table of methods. */
static int look_up(lua_State *L) {
  lua_CFunction index = lua_tocfunction(L, lua_upvalueindex(1));
  lua_settop(L, 2);
  if (index && index(L) > 0) return 1;
  lua_settop(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  return 1;
}

void dml_agent_class(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction index) {
  static const luaL_Reg NONE[] = {{NULL, NULL}};
  if (luaL_newmetatable(L, type)) {
    if (index) lua_pushcfunction(L, index);
    else lua_pushnil(L);
    lua_newtable(L);
    luaL_setfuncs(L, methods ? methods : NONE, 0);
    lua_pushcclosure(L, look_up, 2);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, dml_agent_face_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, dml_agent_face_gc);
    lua_setfield(L, -2, "__close");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
  }
  lua_pop(L, 1);
}
