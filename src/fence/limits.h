/* limits.h - what bounds policy code: memory by the allocator, instructions by the count hook, C functions by a timer.
 *
 * A limit that is hit is final: the process says which and exits, so no pcall of the policy's can go on after it. */
#ifndef DML_FENCE_LIMITS_H
#define DML_FENCE_LIMITS_H

#include <stdnoreturn.h>

#include "fence/policy.h"

/* The Lua state can never hold more, whatever the limits are. */
#define DML_LIMITS_STATE_MAX_BYTES ((size_t)320 * 1024 * 1024)

/* Makes the Lua state, without libraries, and the timer; before the process is confined. False without memory. */
bool dml_limits_open(dml_policy *policy);
/* Counts from here on. */
void dml_limits_begin(dml_policy *policy, const dml_allowance *allowance);
/* Notes the CPU time since then in `limits`, where the instructions stand. */
void dml_limits_measure(dml_policy *policy);
/* Stops counting. */
void dml_limits_end(dml_policy *policy);
/* Collects garbage where there is much, so that the next call does not pay for it. */
void dml_limits_tidy(dml_policy *policy);
/* Says that a limit was hit, and exits. */
noreturn void dml_limits_hit(dml_policy *policy, dml_wire_limit limit);
/* Whether the protected call that ended with `status`, its error value at -1, ran out of memory. Lua's buffers
 * raise that as a plain string. */
bool dml_limits_is_memory(lua_State *L, int status);

#endif
