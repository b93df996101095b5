/* fence_reply.h - what a worker of the fence answered, checked, and as Lua gets it.
 *
 * An answer is checked in whole before anything is made of it; texts lose what could fool a terminal or a log. */
#ifndef DML_SCRIPT_FENCE_REPLY_H
#define DML_SCRIPT_FENCE_REPLY_H

#include <lua.h>

#include "base/log.h"
#include "fence/pack.h"
#include "fence/wire.h"
#include "script/fence_worker.h"

typedef struct dml_fence_fault {
  dml_wire_fault kind;
  dml_wire_limit limit;
  int64_t line;                   /* 0: unknown */
  char file[DML_WIRE_FILE_BYTES]; /* "": unknown */
  const char *text;               /* in the frame, or static */
  size_t len;
} dml_fence_fault;

typedef struct dml_fence_reply {
  dml_wire_kind kind; /* LOADED, RESULT or FAULT */
  dml_buffer frame;   /* what the pointers below lead into */
  int64_t instructions, cpu_us, memory_bytes;
  dml_fence_fault fault;
  dml_wire_decision decision;
  const char *reason; /* NULL: none */
  size_t reason_len;
  bool is_nothing;
  int64_t arg_count;
  dml_unpacker values;
} dml_fence_reply;

/* Takes a frame of kind LOADED, RESULT or FAULT apart and writes its log lines to `log`; the bytes are the reply's then.
 * `arg_count` and `view_count` are of what was asked. False when it is not what a worker says. */
bool dml_fence_reply_read(dml_fence_reply *reply, dml_wire_kind kind, dml_buffer *frame, int64_t arg_count,
                          uint32_t view_count, dml_log *log);
/* Makes it a fault of ours; `text` is static. */
void dml_fence_reply_fail(dml_fence_reply *reply, dml_wire_fault kind, dml_wire_limit limit, const char *text);
/* Makes it the fault that the end of a worker means. */
void dml_fence_reply_end(dml_fence_reply *reply, const dml_fence_end *end);
/* Pushes data, outcome, or nil and the fault. `longs` is the stack index of the long strings that were sent, or 0.
 * [-0, +1 or +2] */
int dml_fence_reply_push(lua_State *L, dml_fence_reply *reply, int longs);
/* Frees its bytes. */
void dml_fence_reply_deinit(dml_fence_reply *reply);
/* fence.FUNCTION: stands where the policy has a function. */
int dml_fence_function(lua_State *L);

#endif
