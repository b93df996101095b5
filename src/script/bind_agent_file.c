/* bind_agent_file.c - core.agent: contents of files in the sandbox. channel:open_read, channel:open_write.
 *
 * reader.size, reader.mode
 * reader:read() -> bytes | nil (the end) | nil, err
 * reader:close()
 * writer:write(bytes) -> true | nil, err     waits for credit
 * writer:commit() -> {size=} | nil, err      makes it so
 * writer:abort()                             leaves the old file; so does collecting or closing the writer */
#include <stdlib.h>
#include <string.h>

#include "script/agent_face.h"

/* ---- reading ---- */

static bool on_read_frame(dml_agent_stream *stream, const dml_frame *frame) {
  dml_agent_face *face = (dml_agent_face *)stream;
  bool is_good = false;
  switch (frame->type) {
  case DML_FRAME_OPENED:
    is_good = !face->is_started && dml_agent_face_take_numbers(face, frame);
    face->is_started = true;
    break;
  case DML_FRAME_DATA: is_good = face->is_started && !frame->flags && dml_agent_face_take_chunk(face, frame); break;
  case DML_FRAME_DONE: is_good = face->is_done = face->is_started; break;
  case DML_FRAME_ERROR: is_good = dml_agent_face_take_error(face, frame); break;
  default: break;
  }
  if (is_good) dml_agent_face_wake(&face->reading);
  return is_good;
}

static const dml_agent_stream_ops READER = {.frame = on_read_frame, .closed = dml_agent_face_closed};

static int push_read(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  dml_agent_chunk *chunk = face->first;
  if (chunk) {
    lua_pushlstring(L, chunk->bytes, chunk->len);
    dml_agent_face_pop(face);
    dml_agent_stream_consume(&face->stream, chunk->len);
    free(chunk);
    return 1;
  }
  if (!face->is_done) return dml_agent_push_face_fault(L, face);
  lua_pushnil(L);
  return 1;
}

static int l_read(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_READER_T);
  if (face->first || !face->stream.is_open) return push_read(L, face);
  dml_agent_face_begin_wait(L, face, &face->reading, push_read, DML_AGENT_REPLY_MS);
  return dml_wait_yield(L);
}

static int l_close(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_READER_T);
  dml_agent_face_release(face);
  face->is_done = false;
  dml_agent_face_closed(&face->stream);
  return 0;
}

static int reader_index(lua_State *L) {
  const dml_agent_face *face = dml_agent_check(L, DML_AGENT_READER_T);
  const char *name = luaL_checkstring(L, 2);
  if (strcmp(name, "size") == 0) lua_pushinteger(L, face->size);
  else if (strcmp(name, "mode") == 0) lua_pushinteger(L, face->mode);
  else return 0;
  return 1;
}

/* ---- writing ---- */

static bool on_write_frame(dml_agent_stream *stream, const dml_frame *frame) {
  dml_agent_face *face = (dml_agent_face *)stream;
  bool is_good = false;
  switch (frame->type) {
  case DML_FRAME_OPENED:
    is_good = !face->is_started && frame->len == 0;
    face->is_started = true;
    break;
  case DML_FRAME_DONE:
    is_good = face->is_done = face->is_ending && dml_agent_face_take_numbers(face, frame);
    break;
  case DML_FRAME_ERROR: is_good = dml_agent_face_take_error(face, frame); break;
  default: break;
  }
  if (!is_good) return false;
  dml_agent_face_wake(&face->writing);
  dml_agent_face_wake(&face->reading);
  return true;
}

static void on_writable(dml_agent_stream *stream) {
  dml_agent_face *face = (dml_agent_face *)stream;
  if (face->out_left == 0) return;
  size_t done = dml_agent_stream_write(stream, face->out, face->out_left);
  face->out += done;
  face->out_left -= done;
  if (face->out_left == 0) dml_agent_face_wake(&face->writing);
}

static const dml_agent_stream_ops WRITER = {
    .frame = on_write_frame, .writable = on_writable, .closed = dml_agent_face_closed};

static int push_written(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  bool is_whole = face->out_left == 0 && !face->fault;
  face->out = NULL;
  face->out_left = 0;
  if (!is_whole) return dml_agent_push_face_fault(L, face);
  lua_pushboolean(L, true);
  return 1;
}

static int l_write(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_WRITER_T);
  size_t len;
  const char *bytes = luaL_checklstring(L, 2, &len);
  if (face->writing.wait || face->out_left) return luaL_error(L, "another task writes to this file");
  if (!face->stream.is_open || face->is_ending) return dml_agent_push_face_fault(L, face);
  size_t done = dml_agent_stream_write(&face->stream, bytes, len);
  if (done == len) {
    lua_pushboolean(L, true);
    return 1;
  }
  dml_agent_face_begin_wait(L, face, &face->writing, push_written, DML_AGENT_REPLY_MS);
  face->out = bytes + done;
  face->out_left = len - done;
  return dml_wait_yield(L);
}

static int push_committed(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (!face->is_done) return dml_agent_push_face_fault(L, face);
  lua_createtable(L, 0, 1);
  lua_pushinteger(L, face->size);
  lua_setfield(L, -2, "size");
  return 1;
}

static int l_commit(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_WRITER_T);
  if (face->writing.wait || face->out_left) return luaL_error(L, "another task writes to this file");
  if (!face->stream.is_open || face->is_ending) return push_committed(L, face);
  dml_agent_face_begin_wait(L, face, &face->reading, push_committed, DML_AGENT_REPLY_MS);
  face->is_ending = true;
  dml_agent_stream_end(&face->stream);
  return dml_wait_yield(L);
}

static int l_abort(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_WRITER_T);
  dml_agent_face_release(face);
  dml_agent_face_closed(&face->stream);
  return 0;
}

/* ---- opening ---- */

/* The reader or writer waits at index 2 of its task's stack. */
static int push_opened(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (!face->is_started || face->fault) return dml_agent_push_face_fault(L, face);
  lua_pushvalue(L, 2);
  return 1;
}

static dml_agent_face *new_file(lua_State *L, dml_agent_channel *channel, const char *type) {
  dml_agent_face *face = dml_agent_face_new(L, channel, type);
  lua_insert(L, 2);
  return face;
}

int dml_agent_open_read(lua_State *L, dml_agent_channel *channel) {
  lua_settop(L, 4);
  dml_agent_face *face = new_file(L, channel, DML_AGENT_READER_T);
  lua_Integer offset = luaL_optinteger(L, 4, 0);
  luaL_argcheck(L, offset >= 0, 3, "offset must not be negative");
  if (!dml_agent_put_path(L, 3, DML_FIELD_PATH, &face->fields)) return dml_agent_push_fault(L, DML_FAULT_INVALID, -1, 0);
  dml_fields_put_int(&face->fields, DML_FIELD_OFFSET, offset);
  if (!lua_isnil(L, 5)) {
    lua_Integer length = luaL_checkinteger(L, 5);
    luaL_argcheck(L, length >= 0, 4, "length must not be negative");
    dml_fields_put_int(&face->fields, DML_FIELD_LENGTH, length);
  }
  return dml_agent_face_ask(L, face, &READER, DML_FRAME_READ, push_opened);
}

int dml_agent_open_write(lua_State *L, dml_agent_channel *channel) {
  lua_settop(L, 3);
  dml_agent_face *face = new_file(L, channel, DML_AGENT_WRITER_T);
  if (!dml_agent_put_path(L, 3, DML_FIELD_PATH, &face->fields)) return dml_agent_push_fault(L, DML_FAULT_INVALID, -1, 0);
  if (!lua_isnil(L, 4)) {
    luaL_checktype(L, 4, LUA_TTABLE);
    lua_getfield(L, 4, "append_at");
    lua_Integer append_at = luaL_optinteger(L, -1, -1);
    if (append_at >= 0) dml_fields_put_int(&face->fields, DML_FIELD_APPEND_AT, append_at);
    lua_pop(L, 1);
  }
  return dml_agent_face_ask(L, face, &WRITER, DML_FRAME_WRITE, push_opened);
}

static const luaL_Reg READER_METHODS[] = {{"read", l_read}, {"close", l_close}, {NULL, NULL}};
static const luaL_Reg WRITER_METHODS[] = {
    {"write", l_write}, {"commit", l_commit}, {"abort", l_abort}, {NULL, NULL}};

void dml_open_agent_file(lua_State *L) {
  dml_agent_class(L, DML_AGENT_READER_T, READER_METHODS, reader_index);
  dml_agent_class(L, DML_AGENT_WRITER_T, WRITER_METHODS, NULL);
}
