/* preflight.h - whether this machine can isolate a sandbox, and if not, why and what mends it.
 *
 * What can be read is read (is bubblewrap there, what do the sysctls say); the rest is known only by trying, so a real
 * sandbox with the full profile is started once, and bubblewrap's message, never shown, is translated into one of our
 * sentences. Fails closed: whatever is not understood is a failure. */
#ifndef DML_SANDBOX_PREFLIGHT_H
#define DML_SANDBOX_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "loop/loop.h"
#include "sandbox/cause.h"

/* The trial must be over after this. */
#define DML_PREFLIGHT_TRIAL_MS 10000

typedef struct dml_preflight_report {
  bool is_ok;
  dml_cause checks[DML_CHECK_COUNT]; /* by dml_check; DML_CAUSE_NONE where all is well */
  const char *limits_kind;           /* "cgroup2", "cgroup1", "none"; static */
  bool has_memory, has_cpu, has_pids;
  bool is_range; /* each sandbox has a host uid of its own; else the caller's */
} dml_preflight_report;

typedef struct dml_preflight dml_preflight;
/* `report` lives until the callback returns. Runs once, from the loop. */
typedef void (*dml_preflight_cb)(const dml_preflight_report *report, void *ud);

/* Starts the checks. `agent_path` NULL: the trial runs a plain program instead of the agent. Errors: DML_INTERNAL. */
dml_status dml_preflight_start(dml_loop *loop, const char *agent_path, dml_preflight_cb cb, void *ud,
                               dml_preflight **out);
/* Stops what is under way and frees; also the way to free it after the callback, or in it. NULL is fine. */
void dml_preflight_free(dml_preflight *preflight);

#endif
