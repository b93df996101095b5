/* policy.h - what the worker knows: its Lua state, the limits of the present call, the channel.
 *
 * One of these lives in main's frame for the whole process; the Lua state's extra space points to it, so that no C global
 * is needed, not even by the signal handler. */
#ifndef DML_FENCE_POLICY_H
#define DML_FENCE_POLICY_H

#include <lua.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buffer.h"
#include "fence/wire.h"

/* What one loading or one call may use. */
typedef struct dml_allowance {
  int64_t instructions;
  int64_t bytes; /* beyond what was live when it began */
  int64_t cpu_ms;
} dml_allowance;

typedef struct dml_limits {
  size_t used_bytes;    /* of the Lua state */
  size_t ceiling_bytes; /* no growth beyond it */
  size_t live_bytes;    /* after the last whole collection */
  unsigned refusals;    /* in this call */
  int refused_line;
  const char *refused_file; /* a name in `chunks`, or NULL */
  int64_t instructions, instructions_max;
  int64_t cpu_us, cpu_started_us;
  timer_t timer;
  volatile sig_atomic_t is_cpu_over;
} dml_limits;

typedef struct dml_fault {
  dml_wire_fault kind;
  dml_wire_limit limit;
  int line;         /* 0: unknown */
  const char *file; /* a name in `chunks`, or NULL */
  char text[DML_WIRE_TEXT_MAX_BYTES];
  size_t len;
} dml_fault;

typedef struct dml_chunk {
  char name[DML_WIRE_FILE_BYTES];
  bool is_compiled;
} dml_chunk;

typedef struct dml_policy {
  lua_State *L;
  dml_allowance of_load, of_call;
  dml_limits limits;
  dml_fault fault;
  dml_chunk chunks[DML_WIRE_MODULES_MAX + 1]; /* the first is the policy's own file */
  size_t chunk_count;
  bool is_loading;
  uint64_t call; /* counts calls; views of earlier ones are dead */
  dml_wire_decision made; /* the last deny or ask of the present call, returned or not */
  char logs[DML_WIRE_LOGS_MAX][DML_WIRE_LOG_MAX_BYTES];
  size_t log_lens[DML_WIRE_LOGS_MAX];
  size_t log_count;
  dml_buffer in, out;
  size_t in_taken; /* bytes of `in` that are of frames already taken */
} dml_policy;

/* The policy that a Lua state of the worker belongs to. [-0, +0] */
static inline dml_policy *dml_policy_of(lua_State *L) { return *(dml_policy **)lua_getextraspace(L); }

#endif
