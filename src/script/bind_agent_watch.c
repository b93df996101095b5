/* bind_agent_watch.c - core.agent: what happens in a folder of the sandbox. channel:watch, and the watcher it gives.
 *
 * watcher:next(timeout_ms?) -> {{type, name}, ...} | nil, "timeout" | nil (the end) | nil, err
 *   type: "create" | "write" | "remove" | "rename" | "chmod"
 * watcher:close() */
#include <stdlib.h>

#include "script/agent_face.h"

static const char *const EVENT_NAMES[DML_EVENT_COUNT] = {"create", "write", "remove", "rename", "chmod"};

static bool on_frame(dml_agent_stream *stream, const dml_frame *frame) {
  dml_agent_face *face = (dml_agent_face *)stream;
  bool is_good = false;
  switch (frame->type) {
  case DML_FRAME_OPENED:
    is_good = !face->is_started && frame->len == 0;
    face->is_started = true;
    break;
  case DML_FRAME_DATA:
    is_good = face->is_started && !frame->flags && frame->len && dml_agent_face_take_chunk(face, frame);
    break;
  case DML_FRAME_DONE: is_good = face->is_done = face->is_started && frame->len == 0; break;
  case DML_FRAME_ERROR: is_good = dml_agent_face_take_error(face, frame); break;
  default: break;
  }
  if (is_good) dml_agent_face_wake(&face->reading);
  return is_good;
}

static const dml_agent_stream_ops WATCHER = {.frame = on_frame, .closed = dml_agent_face_closed};

/* One event; false when the fields are none. [-0, +1] or [-0, +0] */
static bool push_event(lua_State *L, dml_field_reader *reader) {
  dml_field field;
  int64_t event;
  if (dml_field_next(reader, &field) != 1 || field.tag != DML_FIELD_EVENT || !dml_field_int(&field, &event)) return false;
  if (event < 0 || event >= DML_EVENT_COUNT) return false;
  if (dml_field_next(reader, &field) != 1 || field.tag != DML_FIELD_NAME) return false;
  const char *name = dml_field_text(&field, DML_FRAME_PATH_MAX);
  if (!name) return false;
  lua_createtable(L, 0, 2);
  lua_pushstring(L, EVENT_NAMES[event]);
  lua_setfield(L, -2, "type");
  lua_pushlstring(L, name, field.len - 1);
  lua_setfield(L, -2, "name");
  return true;
}

static int push_events(lua_State *L, dml_agent_face *face) {
  const dml_agent_chunk *chunk = face->first;
  dml_field_reader reader = {(const uint8_t *)chunk->bytes, chunk->len};
  lua_newtable(L);
  for (lua_Integer i = 1; reader.len; i++) {
    if (!push_event(L, &reader)) { /* an agent that is not ours */
      dml_agent_channel_shut(face->channel);
      return dml_agent_push_fault(L, DML_FAULT_CLOSED, -1, 0);
    }
    lua_rawseti(L, -2, i);
  }
  dml_agent_face_pop(face);
  dml_agent_stream_consume(&face->stream, chunk->len);
  free((void *)(uintptr_t)chunk);
  return 1;
}

static int push_next(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (face->first) return push_events(L, face);
  if (face->fault) return dml_agent_push_fault(L, face->fault, -1, 0);
  lua_pushnil(L);
  if (face->is_done) return 1;
  lua_pushliteral(L, "timeout");
  return 2;
}

static int l_next(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_WATCHER_T);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  if (face->reading.wait) return luaL_error(L, "another task waits for this watcher");
  if (face->first || !face->stream.is_open) return push_next(L, face);
  dml_agent_face_begin_wait(L, face, &face->reading, push_next, timeout_ms);
  return dml_wait_yield(L);
}

static int l_close(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_WATCHER_T);
  dml_agent_face_release(face);
  face->is_done = false;
  dml_agent_face_closed(&face->stream);
  return 0;
}

/* The watcher waits at index 2 of its task's stack. */
static int push_watcher(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (!face->is_started) return dml_agent_push_face_fault(L, face);
  lua_pushvalue(L, 2);
  return 1;
}

int dml_agent_watch(lua_State *L, dml_agent_channel *channel) {
  lua_settop(L, 3);
  dml_agent_face *face = dml_agent_face_new(L, channel, DML_AGENT_WATCHER_T);
  lua_insert(L, 2);
  if (!dml_agent_put_path(L, 3, DML_FIELD_PATH, &face->fields)) return dml_agent_push_fault(L, DML_FAULT_INVALID, -1, 0);
  if (!lua_isnil(L, 4)) {
    luaL_checktype(L, 4, LUA_TTABLE);
    lua_getfield(L, 4, "recursive");
    if (lua_toboolean(L, -1)) dml_fields_put_int(&face->fields, DML_FIELD_RECURSIVE, 1);
    lua_pop(L, 1);
  }
  return dml_agent_face_ask(L, face, &WATCHER, DML_FRAME_WATCH, push_watcher);
}

static const luaL_Reg METHODS[] = {{"next", l_next}, {"close", l_close}, {NULL, NULL}};

void dml_open_agent_watch(lua_State *L) { dml_agent_class(L, DML_AGENT_WATCHER_T, METHODS, NULL); }
