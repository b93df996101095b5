/* bind_agent_proc.c - core.agent: commands in the sandbox. channel:start, channel:connect, and the proc they give.
 *
 * proc.pid
 * proc:next(timeout_ms?) -> event | nil, "timeout" | nil, err
 *   {type="stdout"|"stderr", data}, {type="line", text}, {type="output", stdout={total, tail, path}, stderr={...}},
 *   {type="exit", code, signal, timed_out}
 * proc:write(bytes) -> true | nil, err       waits for credit
 * proc:close_stdin() -> true | nil, err
 * proc:detach()                              forgets it; the command runs on */
#include <stdlib.h>
#include <string.h>

#include "script/agent_face.h"

#define ARGS_MAX 65536
#define ERR_BUSY "another task writes to this process"

/* ---- frames ---- */

static bool take_tail(dml_agent_face *face, const dml_frame *frame) {
  if (!face->has_spool || (frame->flags != DML_FRAME_STDOUT && frame->flags != DML_FRAME_STDERR)) return false;
  dml_agent_tail *tail = &face->tails[frame->flags - 1];
  if (tail->is_whole || frame->len > tail->most - tail->len) return false;
  char *bytes = realloc(tail->bytes, tail->len + frame->len + 1);
  if (!bytes) return false;
  if (frame->len) memcpy(bytes + tail->len, frame->payload, frame->len);
  tail->bytes = bytes;
  tail->len += frame->len;
  return true;
}

static bool take_output(dml_agent_face *face, const dml_frame *frame) {
  if (!face->has_spool || (frame->flags != DML_FRAME_STDOUT && frame->flags != DML_FRAME_STDERR)) return false;
  dml_agent_tail *tail = &face->tails[frame->flags - 1];
  dml_field_reader reader = {frame->payload, frame->len};
  dml_field field;
  int more;
  if (tail->is_whole) return false;
  while ((more = dml_field_next(&reader, &field)) > 0) {
    if (field.tag == DML_FIELD_TOTAL) {
      if (!dml_field_int(&field, &tail->total) || tail->total < 0) return false;
    } else if (field.tag == DML_FIELD_PATH && !tail->path) {
      const char *path = dml_field_text(&field, DML_FRAME_PATH_MAX);
      if (!path || !(tail->path = strdup(path))) return false;
    } else {
      return false;
    }
  }
  tail->is_whole = true;
  return more == 0;
}

static bool take_line(dml_agent_face *face, const dml_frame *frame) {
  if (frame->len == 0 || frame->len > DML_FRAME_LINE_MAX) return false;
  memcpy(face->line, frame->payload, frame->len);
  face->line_len = frame->len;
  return true;
}

static bool take_exit(dml_agent_face *face, const dml_frame *frame) {
  face->has_exited = true;
  return dml_agent_face_take_numbers(face, frame);
}

static bool take_event(dml_agent_face *face, const dml_frame *frame) {
  if (!face->is_started) return false;
  switch (frame->type) {
  case DML_FRAME_DATA: return (frame->flags == DML_FRAME_STDOUT || frame->flags == DML_FRAME_STDERR) &&
                              dml_agent_face_take_chunk(face, frame);
  case DML_FRAME_LINE: return take_line(face, frame);
  case DML_FRAME_TAIL: return take_tail(face, frame);
  case DML_FRAME_OUTPUT: return take_output(face, frame);
  case DML_FRAME_EXIT: return take_exit(face, frame);
  default: return false;
  }
}

static bool on_frame(dml_agent_stream *stream, const dml_frame *frame) {
  dml_agent_face *face = (dml_agent_face *)stream;
  if (frame->type == DML_FRAME_STARTED || frame->type == DML_FRAME_ERROR) {
    if (face->is_started) return false;
    face->is_started = frame->type == DML_FRAME_STARTED;
    bool is_good = face->is_started ? dml_agent_face_take_numbers(face, frame) && face->pid > 0
                                    : dml_agent_face_take_error(face, frame);
    if (is_good) dml_agent_face_wake(&face->reading);
    return is_good;
  }
  if (!take_event(face, frame)) return false;
  /* TAIL and the first OUTPUT are only half of an event */
  if (frame->type == DML_FRAME_TAIL || frame->type == DML_FRAME_OUTPUT) return true;
  if (frame->type == DML_FRAME_EXIT) dml_agent_face_wake(&face->writing);
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

static const dml_agent_stream_ops PROC = {.frame = on_frame, .writable = on_writable, .closed = dml_agent_face_closed};

/* ---- events ---- */

static void set_type(lua_State *L, const char *type) {
  lua_pushstring(L, type);
  lua_setfield(L, -2, "type");
}

static int push_chunk(lua_State *L, dml_agent_face *face) {
  dml_agent_chunk *chunk = face->first;
  lua_createtable(L, 0, 2);
  set_type(L, chunk->flags == DML_FRAME_STDERR ? "stderr" : "stdout");
  lua_pushlstring(L, chunk->bytes, chunk->len);
  lua_setfield(L, -2, "data");
  dml_agent_face_pop(face);
  dml_agent_stream_consume(&face->stream, chunk->len);
  free(chunk);
  return 1;
}

static int push_line(lua_State *L, dml_agent_face *face) {
  lua_createtable(L, 0, 2);
  set_type(L, "line");
  lua_pushlstring(L, face->line, face->line_len);
  lua_setfield(L, -2, "text");
  face->line_len = 0;
  return 1;
}

static void push_tail(lua_State *L, const dml_agent_tail *tail) {
  lua_createtable(L, 0, 3);
  lua_pushinteger(L, tail->total);
  lua_setfield(L, -2, "total");
  lua_pushlstring(L, tail->bytes ? tail->bytes : "", tail->len);
  lua_setfield(L, -2, "tail");
  if (tail->path) {
    lua_pushstring(L, tail->path);
    lua_setfield(L, -2, "path");
  }
}

static int push_output(lua_State *L, dml_agent_face *face) {
  lua_createtable(L, 0, 3);
  set_type(L, "output");
  push_tail(L, &face->tails[0]);
  lua_setfield(L, -2, "stdout");
  push_tail(L, &face->tails[1]);
  lua_setfield(L, -2, "stderr");
  face->is_output_taken = true;
  return 1;
}

static int push_exit(lua_State *L, dml_agent_face *face) {
  lua_createtable(L, 0, 4);
  set_type(L, "exit");
  if (face->exit_code >= 0) {
    lua_pushinteger(L, face->exit_code);
    lua_setfield(L, -2, "code");
  } else if (face->exit_signal > 0) {
    lua_pushinteger(L, face->exit_signal);
    lua_setfield(L, -2, "signal");
  }
  lua_pushboolean(L, face->has_timed_out);
  lua_setfield(L, -2, "timed_out");
  face->is_exit_taken = true;
  return 1;
}

static bool has_output(const dml_agent_face *face) {
  return !face->is_output_taken && face->tails[0].is_whole && face->tails[1].is_whole;
}

static bool has_event(const dml_agent_face *face) {
  return face->first || face->line_len || (face->has_exited && !face->is_exit_taken);
}

/* What `next` gives now. */
static int push_next(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (face->first) return push_chunk(L, face);
  if (face->line_len) return push_line(L, face);
  if (face->has_exited && has_output(face)) return push_output(L, face);
  if (face->has_exited && !face->is_exit_taken) return push_exit(L, face);
  if (!face->stream.is_open) return dml_agent_push_fault(L, DML_FAULT_CLOSED, -1, 0);
  lua_pushnil(L);
  lua_pushliteral(L, "timeout");
  return 2;
}

static int l_next(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_PROC_T);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  if (face->reading.wait) return luaL_error(L, "another task waits for this process");
  face->reading.has_timed_out = false;
  if (has_event(face) || !face->stream.is_open) return push_next(L, face);
  dml_agent_face_begin_wait(L, face, &face->reading, push_next, timeout_ms);
  return dml_wait_yield(L);
}

/* ---- stdin ---- */

static int push_written(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  face->out = NULL;
  if (face->out_left || face->fault) {
    face->out_left = 0;
    return dml_agent_push_fault(L, face->writing.has_timed_out ? DML_FAULT_TIMEOUT : DML_FAULT_CLOSED, -1, 0);
  }
  lua_pushboolean(L, true);
  return 1;
}

static int l_write(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_PROC_T);
  size_t len;
  const char *bytes = luaL_checklstring(L, 2, &len);
  if (face->writing.wait || face->out_left) return luaL_error(L, ERR_BUSY);
  if (!face->stream.is_open || face->is_ending) return dml_agent_push_fault(L, DML_FAULT_CLOSED, -1, 0);
  size_t done = dml_agent_stream_write(&face->stream, bytes, len);
  if (done == len) {
    lua_pushboolean(L, true);
    return 1;
  }
  dml_agent_face_begin_wait(L, face, &face->writing, push_written, -1);
  face->out = bytes + done;
  face->out_left = len - done;
  return dml_wait_yield(L);
}

static int l_close_stdin(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_PROC_T);
  if (face->writing.wait) return luaL_error(L, ERR_BUSY);
  if (!face->stream.is_open) return dml_agent_push_fault(L, DML_FAULT_CLOSED, -1, 0);
  if (!face->is_ending) dml_agent_stream_end(&face->stream);
  face->is_ending = true;
  lua_pushboolean(L, true);
  return 1;
}

static int l_detach(lua_State *L) {
  dml_agent_face *face = dml_agent_check(L, DML_AGENT_PROC_T);
  dml_agent_face_release(face);
  dml_agent_face_closed(&face->stream);
  return 0;
}

static int proc_index(lua_State *L) {
  if (strcmp(luaL_checkstring(L, 2), "pid") != 0) return 0;
  lua_pushinteger(L, dml_agent_check(L, DML_AGENT_PROC_T)->pid);
  return 1;
}

/* ---- start, connect ---- */

/* The proc waits at index 2 of its task's stack: see new_proc. */
static int push_proc(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (!face->is_started || face->fault) return dml_agent_push_face_fault(L, face);
  lua_pushvalue(L, 2);
  return 1;
}

static bool put_text(lua_State *L, int table, const char *key, dml_fields *fields, dml_field_tag tag) {
  lua_getfield(L, table, key);
  bool is_there = !lua_isnil(L, -1);
  if (is_there) {
    size_t len;
    const char *text = luaL_checklstring(L, -1, &len);
    luaL_argcheck(L, strlen(text) == len, table, "a string has a NUL in it");
    dml_fields_put(fields, tag, text, len + 1);
  }
  lua_pop(L, 1);
  return is_there;
}

static void put_list(lua_State *L, int table, const char *key, dml_fields *fields, dml_field_tag tag) {
  lua_getfield(L, table, key);
  if (!lua_isnil(L, -1)) {
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
    luaL_argcheck(L, count <= ARGS_MAX, table, "too many strings");
    for (lua_Integer i = 1; i <= count; i++) {
      size_t len;
      lua_rawgeti(L, -1, i);
      luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, table, "args and envs must be lists of strings");
      const char *text = lua_tolstring(L, -1, &len);
      luaL_argcheck(L, strlen(text) == len, table, "a string has a NUL in it");
      dml_fields_put(fields, tag, text, len + 1);
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
}

static int64_t number_of(lua_State *L, int table, const char *key, lua_Integer absent, lua_Integer most) {
  lua_getfield(L, table, key);
  lua_Integer value = luaL_optinteger(L, -1, absent);
  luaL_argcheck(L, value >= 0 && value <= most, table, key);
  lua_pop(L, 1);
  return value;
}

static void put_flag(lua_State *L, int table, const char *key, dml_fields *fields, dml_field_tag tag) {
  lua_getfield(L, table, key);
  if (lua_toboolean(L, -1)) dml_fields_put_int(fields, tag, 1);
  lua_pop(L, 1);
}

/* spool = {stdout_live=, stdout_tail=, stdout_spool_at=?, stderr_...}; spool_at is live unless given. */
static void put_spool(lua_State *L, int table, dml_agent_face *face) {
  static const char *const KEYS[2][3] = {{"stdout_live", "stdout_tail", "stdout_spool_at"},
                                         {"stderr_live", "stderr_tail", "stderr_spool_at"}};
  lua_getfield(L, table, "spool");
  if (lua_istable(L, -1)) {
    int spool = lua_gettop(L);
    face->has_spool = true;
    for (int i = 0; i < 2; i++) {
      int64_t live = number_of(L, spool, KEYS[i][0], 0, DML_FRAME_KEEP_MAX);
      int64_t tail = number_of(L, spool, KEYS[i][1], 0, DML_FRAME_KEEP_MAX);
      int64_t spool_at = number_of(L, spool, KEYS[i][2], live, live + tail);
      face->tails[i].most = (size_t)tail;
      dml_fields_put_int(&face->fields, DML_FIELD_STREAM, i == 0 ? DML_FRAME_STDOUT : DML_FRAME_STDERR);
      dml_fields_put_int(&face->fields, DML_FIELD_LIVE, live);
      dml_fields_put_int(&face->fields, DML_FIELD_TAIL, tail);
      dml_fields_put_int(&face->fields, DML_FIELD_SPOOL_AT, spool_at);
    }
  }
  lua_pop(L, 1);
}

/* Leaves the proc at index 2 for push_proc. */
static dml_agent_face *new_proc(lua_State *L, dml_agent_channel *channel) {
  dml_agent_face *face = dml_agent_face_new(L, channel, DML_AGENT_PROC_T);
  lua_insert(L, 2);
  return face;
}

int dml_agent_start(lua_State *L, dml_agent_channel *channel) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  dml_agent_face *face = new_proc(L, channel);
  dml_fields *fields = &face->fields;
  luaL_argcheck(L, put_text(L, 3, "cmd", fields, DML_FIELD_CMD), 2, "cmd is missing");
  put_list(L, 3, "args", fields, DML_FIELD_ARG);
  put_list(L, 3, "envs", fields, DML_FIELD_ENV);
  put_text(L, 3, "cwd", fields, DML_FIELD_CWD);
  put_text(L, 3, "tag", fields, DML_FIELD_TAG);
  dml_fields_put_int(fields, DML_FIELD_TIMEOUT_MS, number_of(L, 3, "timeout_ms", 0, INT32_MAX));
  put_flag(L, 3, "stdin", fields, DML_FIELD_STDIN);
  put_flag(L, 3, "progress", fields, DML_FIELD_PROGRESS);
  put_spool(L, 3, face);
  return dml_agent_face_ask(L, face, &PROC, DML_FRAME_START, push_proc);
}

int dml_agent_connect(lua_State *L, dml_agent_channel *channel) {
  lua_settop(L, 2);
  dml_agent_face *face = new_proc(L, channel);
  if (lua_type(L, 3) == LUA_TNUMBER) dml_fields_put_int(&face->fields, DML_FIELD_PID, luaL_checkinteger(L, 3));
  else dml_fields_put_text(&face->fields, DML_FIELD_TAG, luaL_checkstring(L, 3));
  return dml_agent_face_ask(L, face, &PROC, DML_FRAME_CONNECT, push_proc);
}

static const luaL_Reg METHODS[] = {
    {"next", l_next}, {"write", l_write}, {"close_stdin", l_close_stdin}, {"detach", l_detach}, {NULL, NULL}};

void dml_open_agent_proc(lua_State *L) { dml_agent_class(L, DML_AGENT_PROC_T, METHODS, proc_index); }
