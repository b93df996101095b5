/* fence_reply.c - see fence_reply.h. */
#include "script/fence_reply.h"

#include <lauxlib.h>
#include <signal.h>
#include <string.h>

#include "base/utf8.h"

int dml_fence_function(lua_State *L) {
  return luaL_error(L, "this function of the policy runs in its worker: Fence:call(name, ...)");
}

/* ---- reading ---- */

static bool read_logs(dml_unpacker *u, dml_log *log) {
  int64_t count;
  if (!dml_unpack_integer(u, &count) || count < 0 || count > DML_WIRE_LOGS_MAX) return false;
  for (int64_t i = 0; i < count; i++) {
    const char *line;
    size_t len;
    if (!dml_unpack_string(u, &line, &len) || len > DML_WIRE_LOG_MAX_BYTES) return false;
    dml_log_printf(log, DML_LOG_INFO, "policy: %.*s", (int)len, line);
  }
  return true;
}

static bool read_counters(dml_fence_reply *r, dml_unpacker *u, dml_log *log) {
  return dml_unpack_integer(u, &r->instructions) && dml_unpack_integer(u, &r->cpu_us) &&
         dml_unpack_integer(u, &r->memory_bytes) && r->instructions >= 0 && r->cpu_us >= 0 && r->memory_bytes >= 0 &&
         read_logs(u, log);
}

static bool read_fault(dml_fence_reply *r, dml_unpacker *u) {
  int64_t kind, limit;
  const char *file;
  size_t file_len;
  dml_fence_fault *fault = &r->fault;
  if (!dml_unpack_integer(u, &kind) || !dml_unpack_integer(u, &limit) || !dml_unpack_integer(u, &fault->line) ||
      !dml_unpack_string(u, &file, &file_len) || !dml_unpack_string(u, &fault->text, &fault->len))
    return false;
  if (kind < 0 || kind >= DML_WIRE_CRASH || limit < 0 || limit >= DML_WIRE_WALL || fault->line < 0 ||
      fault->line > INT32_MAX || file_len >= sizeof fault->file || fault->len > DML_WIRE_TEXT_MAX_BYTES ||
      (kind == DML_WIRE_LIMIT) != (limit != DML_WIRE_NO_LIMIT) || memchr(file, '\0', file_len))
    return false;
  fault->kind = (dml_wire_fault)kind;
  fault->limit = (dml_wire_limit)limit;
  memcpy(fault->file, file, file_len);
  return u->at == u->end;
}

static bool read_result(dml_fence_reply *r, dml_unpacker *u, int64_t arg_count) {
  int64_t decision, has_reason, is_nothing;
  if (!dml_unpack_integer(u, &decision) || !dml_unpack_integer(u, &has_reason) ||
      !dml_unpack_string(u, &r->reason, &r->reason_len) || !dml_unpack_integer(u, &is_nothing) ||
      !dml_unpack_integer(u, &r->arg_count))
    return false;
  if (decision < DML_WIRE_NONE || decision > DML_WIRE_ASK || r->arg_count != arg_count ||
      r->reason_len > DML_WIRE_TEXT_MAX_BYTES)
    return false;
  if (!has_reason) r->reason = NULL;
  r->decision = (dml_wire_decision)decision;
  r->is_nothing = is_nothing != 0;
  return dml_unpack_check(u, 1 + (unsigned)arg_count);
}

static bool read_loaded(dml_unpacker *u) {
  u->allows_functions = true;
  u->function = dml_fence_function;
  return dml_unpack_check(u, 1) && u->at < u->end;
}

bool dml_fence_reply_read(dml_fence_reply *r, dml_wire_kind kind, dml_buffer *frame, int64_t arg_count,
                          uint32_t view_count, dml_log *log) {
  dml_fence_reply_deinit(r);
  *r = (dml_fence_reply){.kind = kind, .frame = *frame};
  dml_buffer_init(frame, frame->limit);
  dml_unpacker *u = &r->values;
  *u = (dml_unpacker){.at = r->frame.data + DML_WIRE_HEADER_BYTES, .end = r->frame.data + r->frame.len};
  u->view_count = view_count;
  if (!read_counters(r, u, log)) return false;
  if (kind == DML_WIRE_FAULT) return read_fault(r, u);
  if (kind == DML_WIRE_LOADED) return read_loaded(u);
  return kind == DML_WIRE_RESULT && read_result(r, u, arg_count);
}

void dml_fence_reply_fail(dml_fence_reply *r, dml_wire_fault kind, dml_wire_limit limit, const char *text) {
  dml_fence_reply_deinit(r);
  *r = (dml_fence_reply){.kind = DML_WIRE_FAULT, .fault = {.kind = kind, .limit = limit, .text = text, .len = strlen(text)}};
}

void dml_fence_reply_end(dml_fence_reply *r, const dml_fence_end *end) {
  static const char *const LIMITS[] = {NULL, "it ran too many instructions", "it used too much memory",
                                       "it took too much CPU time"};
  int limit = end->signal ? 0 : end->code - DML_WIRE_EXIT_LIMIT;
  if (end->is_late)
    dml_fence_reply_fail(r, DML_WIRE_LIMIT, DML_WIRE_WALL, "it took too long");
  else if (end->is_broken)
    dml_fence_reply_fail(r, DML_WIRE_CRASH, DML_WIRE_NO_LIMIT, "the policy's worker sent what it must not, and was ended");
  else if (limit > 0 && limit < DML_WIRE_WALL)
    dml_fence_reply_fail(r, DML_WIRE_LIMIT, (dml_wire_limit)limit, LIMITS[limit]);
  else if (end->signal == SIGSYS)
    dml_fence_reply_fail(r, DML_WIRE_CRASH, DML_WIRE_NO_LIMIT, "the policy's worker tried what the fence forbids");
  else if (!end->signal && end->code == DML_WIRE_EXIT_UNCONFINED)
    dml_fence_reply_fail(r, DML_WIRE_CRASH, DML_WIRE_NO_LIMIT,
                         "the policy's worker cannot confine itself on this system (it needs seccomp and Linux 5.9)");
  else
    dml_fence_reply_fail(r, DML_WIRE_CRASH, DML_WIRE_NO_LIMIT, "the policy's worker ended unexpectedly");
}

void dml_fence_reply_deinit(dml_fence_reply *r) { dml_buffer_deinit(&r->frame); }

/* ---- pushing ---- */

/* Without control characters; as UTF-8 with U+FFFD where it is none. */
static void push_text(lua_State *L, const char *s, size_t len) {
  dml_buffer mended;
  dml_buffer_init(&mended, len * 3 + 3);
  if (dml_utf8_append_mended(&mended, s, len) == DML_OK)
    for (size_t i = 0; i < mended.len; i++)
      if ((unsigned char)mended.data[i] < ' ' || mended.data[i] == 127) mended.data[i] = ' ';
  lua_pushlstring(L, mended.data ? mended.data : "", mended.len);
  dml_buffer_deinit(&mended);
}

static void set_integer(lua_State *L, const char *name, int64_t value) {
  lua_pushinteger(L, (lua_Integer)value);
  lua_setfield(L, -2, name);
}

static int push_fault(lua_State *L, const dml_fence_fault *fault) {
  static const char *const KINDS[] = {"syntax", "error", "limit", "value", "crash"};
  static const char *const LIMITS[] = {NULL, "instructions", "memory", "cpu", "wall"};
  lua_pushnil(L);
  lua_createtable(L, 0, 5);
  lua_pushstring(L, KINDS[fault->kind]);
  lua_setfield(L, -2, "kind");
  if (LIMITS[fault->limit]) {
    lua_pushstring(L, LIMITS[fault->limit]);
    lua_setfield(L, -2, "limit");
  }
  if (*fault->file) {
    push_text(L, fault->file, strlen(fault->file));
    lua_setfield(L, -2, "file");
  }
  if (fault->line > 0) set_integer(L, "line", fault->line);
  push_text(L, fault->text, fault->len);
  lua_setfield(L, -2, "text");
  return 2;
}

static int push_result(lua_State *L, dml_fence_reply *r) {
  static const char *const DECISIONS[] = {NULL, "allow", "deny", "ask"};
  lua_createtable(L, 0, 6);
  dml_unpack_value(L, &r->values);
  if (r->is_nothing || r->decision != DML_WIRE_NONE)
    lua_pop(L, 1);
  else
    lua_setfield(L, -2, "value");
  if (r->is_nothing) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "is_nothing");
  }
  if (DECISIONS[r->decision]) {
    lua_pushstring(L, DECISIONS[r->decision]);
    lua_setfield(L, -2, "decision");
  }
  if (r->decision != DML_WIRE_NONE && r->reason) {
    lua_pushlstring(L, r->reason, r->reason_len);
    lua_setfield(L, -2, "reason");
  }
  lua_createtable(L, (int)r->arg_count, 0);
  for (lua_Integer i = 1; i <= (lua_Integer)r->arg_count; i++) {
    dml_unpack_value(L, &r->values);
    lua_rawseti(L, -2, i);
  }
  lua_setfield(L, -2, "args");
  set_integer(L, "instructions", r->instructions);
  set_integer(L, "cpu_us", r->cpu_us);
  return 1;
}

int dml_fence_reply_push(lua_State *L, dml_fence_reply *r, int longs) {
  r->values.longs = longs;
  if (r->kind == DML_WIRE_FAULT) return push_fault(L, &r->fault);
  if (r->kind == DML_WIRE_RESULT) return push_result(L, r);
  dml_unpack_value(L, &r->values);
  return 1;
}
