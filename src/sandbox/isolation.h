/* isolation.h - what all sandboxes of one engine share: the agent, the filter, the limits, the uids.
 *
 * Reference counted: each box holds one, so that the last box may outlive the engine's handle. One thread, the loop's. */
#ifndef DML_SANDBOX_ISOLATION_H
#define DML_SANDBOX_ISOLATION_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"
#include "loop/loop.h"
#include "sandbox/bubblewrap.h"
#include "sandbox/cgroup.h"
#include "sandbox/engine_id.h"
#include "sandbox/uid_range.h"

/* Readable by box.c and preflight.c; nobody changes it. */
typedef struct dml_isolation {
  int refs;
  dml_loop *loop;
  dml_engine_id self;
  dml_bubblewrap bubblewrap;
  dml_cgroups cgroups;
  dml_uid_range uids;
  bool is_root; /* a uid of its own for each sandbox; else they have the caller's */
  int agent_fd; /* sealed program, -1 without */
} dml_isolation;

/* Sets everything up and reaps what a dead engine left. `agent_path` NULL: without an agent (preflight's trial runs).
 * Errors: DML_LOCAL_ISOLATION_UNAVAILABLE (no bubblewrap, no uid to give; dml_preflight_start says what),
 * DML_FILE_NOT_FOUND, DML_FILE_PERMISSION, DML_TOO_LARGE (the agent), DML_UNSUPPORTED (memory files may not be run),
 * DML_NO_CAPACITY, DML_INTERNAL. */
dml_status dml_isolation_new(dml_loop *loop, const char *agent_path, dml_isolation **out);
void dml_isolation_ref(dml_isolation *isolation);
void dml_isolation_unref(dml_isolation *isolation); /* NULL is fine */

#endif
