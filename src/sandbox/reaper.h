/* reaper.h - ends the bubblewrap processes that a dead engine left.
 *
 * --die-with-parent holds from the moment when bubblewrap sets it; an engine that is killed in the fraction of a
 * millisecond before leaves a process that waits for ever (tried with 0.8.0). Such processes are known by the mark with
 * their engine's id in their command line; a program inside a sandbox that imitates it can only end itself. */
#ifndef DML_SANDBOX_REAPER_H
#define DML_SANDBOX_REAPER_H

#include "sandbox/engine_id.h"

/* Kills the marked processes of engines that have ended, as far as this user may. Looks at no more than 100,000
 * processes. Returns how many it killed. */
int dml_reaper_run(const dml_engine_id *self);

#endif
