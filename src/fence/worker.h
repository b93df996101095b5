/* worker.h - loads the policy and runs its functions, one frame after the other. */
#ifndef DML_FENCE_WORKER_H
#define DML_FENCE_WORKER_H

#include "fence/policy.h"

/* Makes the Lua state and its libraries. False without memory. */
bool dml_worker_open(dml_policy *policy);
/* Answers frames until the channel ends; does not return. */
void dml_worker_run(dml_policy *policy);

#endif
