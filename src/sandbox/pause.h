/* pause.h - a sandbox stands still and goes on.
 *
 * Three ways. The freezer of cgroup v2 holds it for as long as wanted, and what it froze can still be killed. That of
 * v1 cannot (SIGKILL waits for the thaw), so a killed engine would leave frozen sandboxes behind; it holds a sandbox
 * only for the moment in which every process gets its SIGSTOP, so that none can fork away from it. Without a freezer
 * the signals are sent again until two looks in a row find all standing; code that forks and ends without pause can
 * escape that, no further than to go on running.
 *
 * What stood before (a stopped job) stands afterwards. */
#ifndef DML_SANDBOX_PAUSE_H
#define DML_SANDBOX_PAUSE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"
#include "sandbox/cgroup.h"
#include "sandbox/members.h"

/* Zeroed is a sandbox that runs. Do not touch the fields. */
typedef struct dml_pause {
  bool is_on;
  int clean_looks;
  dml_members before; /* of signals: those that stood already */
} dml_pause;

typedef struct dml_pause_subject {
  pid_t root; /* bubblewrap's outer process */
  const dml_cgroups *groups;
  const dml_cgroup *group;
} dml_pause_subject;

/* One step towards standing still; `*is_done` says whether all of it stands. Call again, some milliseconds later, until
 * it does; or give up with dml_pause_off. Never waits longer than 20 ms. Errors: DML_NO_CAPACITY, DML_INTERNAL. */
dml_status dml_pause_on(dml_pause *pause, const dml_pause_subject *subject, bool *is_done);
/* It goes on. Harmless when it runs. Errors: as above; then some of it may still stand. */
dml_status dml_pause_off(dml_pause *pause, const dml_pause_subject *subject);
/* Forgets a sandbox that is over. */
void dml_pause_deinit(dml_pause *pause);

#endif
