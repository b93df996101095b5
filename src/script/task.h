/* task.h - Lua coroutines that wait for the loop.
 *
 * A C function that waits starts its operation, takes the wait record of its task and yields; a loop callback wakes the
 * record with results, or a cancel does, whichever comes first. Everything runs in the loop's one thread; coroutines are
 * always resumed from the main Lua thread, inside a protected call. A Lua author never sees a callback.
 *
 *   static int push_tick(lua_State *co, void *ud) { lua_pushboolean(co, 1); return 1; }
 *   static void on_tick(my_op *op) { dml_wait_wake(op->wait, push_tick, op); }      loop callback: last use of op->wait
 *   static void drop_tick(void *ud) { my_op_stop(ud); }                             the task was cancelled
 *   static int l_tick(lua_State *L) {
 *     my_op *op = ...;
 *     op->wait = dml_wait_new(L, drop_tick, op);      raises outside a task and in a cancelled one: nothing started yet
 *     ...start op; on failure: dml_wait_forget(op->wait); return dml_push_error(L, status);...
 *     return dml_wait_yield(L);
 *   }
 *
 * After wake, drop or forget the record is spent and the pointer must be forgotten. `ud` must stay valid until then. */
#ifndef DML_SCRIPT_TASK_H
#define DML_SCRIPT_TASK_H

#include <lua.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/status.h"
#include "loop/loop.h"

typedef struct dml_script dml_script;
typedef struct dml_task dml_task;
typedef struct dml_wait dml_wait;

/* How long a cancelled task may go on waiting in its clean-up before it is ended hard. */
#define DML_TASK_GRACE_MS 2000
/* Tasks resumed in a row before the loop looks at its descriptors again. */
#define DML_TASK_BURST_MAX 256

/* Pushes results onto the waiting coroutine and returns their number. Must not yield. */
typedef int (*dml_wait_push)(lua_State *co, void *ud);
/* The task was cancelled before the wake: stop the operation, keep no pointer to the wait. Must not enter Lua. */
typedef void (*dml_wait_drop)(void *ud);

/* Makes the script of a fresh Lua state. The loop and the log are borrowed and must outlive it; `dir` is where back ends
 * and the agent program lie, copied. Errors: DML_INTERNAL. */
dml_status dml_script_open(lua_State *L, dml_loop *loop, dml_log *log, const char *dir, dml_script **out);
/* Ends all tasks without running more Lua in them. Call before lua_close; frees the script. */
void dml_script_close(dml_script *script);

/* The script that this Lua state belongs to. Never NULL in a state of ours. [-0, +0] */
dml_script *dml_script_of(lua_State *L);
dml_loop *dml_script_loop(dml_script *script);
dml_log *dml_script_log(dml_script *script);
/* The folder of back ends and of the agent program. Borrowed. */
const char *dml_script_dir(dml_script *script);
/* The main thread: where loop callbacks may push values, inside dml_script_enter only. */
lua_State *dml_script_main(dml_script *script);

/* Runs `fn(L)` with `ud` as light userdata argument 1 inside a protected call on the main thread, then all tasks that
 * became ready. The way for any loop callback to get into Lua. A raise is logged. Returns whether fn ended without one.
 * [-0, +0] */
bool dml_script_enter(dml_script *script, lua_CFunction fn, void *ud);

/* Makes a task of the function below `nargs` arguments; it runs as soon as control is back at the loop. Leaves its handle
 * on the stack. The pointer is good while the handle is reachable or the task runs. [-(1 + nargs), +1] */
dml_task *dml_task_spawn(lua_State *L, int nargs);
/* Raises CANCELLED at the task's present or next wait; after DML_TASK_GRACE_MS it is ended hard. Once; safe on an ended
 * task. From loop callbacks: takes effect at once. */
void dml_task_cancel(dml_task *task);
/* The task that runs in L, or NULL. [-0, +0] */
dml_task *dml_task_current(lua_State *L);
/* `fn(ud)` runs when the task has ended, however; at once if it has. One a task. */
void dml_task_on_end(dml_task *task, void (*fn)(void *ud), void *ud);

/* Takes the wait record of the running task. Raises when L is no task, or when a cancel is pending. [-0, +0] */
dml_wait *dml_wait_new(lua_State *L, dml_wait_drop drop, void *ud);
/* Says later what to call on a cancel, for operations that can only be made once the record is there. */
void dml_wait_bind(dml_wait *wait, dml_wait_drop drop, void *ud);
/* Gives the record back without waiting. */
void dml_wait_forget(dml_wait *wait);
/* `return dml_wait_yield(L);` - yields; the values that wake pushed become the results of the C function. */
int dml_wait_yield(lua_State *L);
/* Wakes the task with what `push` pushes (NULL: nothing). From loop callbacks: resumes it at once, so that everything the
 * task does next happens inside this call. From inside Lua: queued, and `push` runs later, so `ud` must live until then. */
void dml_wait_wake(dml_wait *wait, dml_wait_push push, void *ud);

/* Starts a timer that counts from now, not from when the loop's turn began, which a long-running task may have made long
 * ago. Below 0 is 0; more than a year, infinity too, is a year. */
void dml_timer_start(uv_timer_t *timer, uv_timer_cb cb, lua_Number timeout_ms);

/* Two results that many waits end with: true; and nil, "timeout". Each is a dml_wait_push that needs no `ud`. */
int dml_push_true(lua_State *co, void *ud);
int dml_push_timeout(lua_State *co, void *ud);

/* nil, {category, message, retryable} with the metatable of errors. [-0, +2] */
int dml_push_error(lua_State *L, dml_status status);
/* Pushes a raised value as text for the log, whatever it is, and returns the text. Never raises, but without memory.
 * [-0, +1] */
const char *dml_push_error_text(lua_State *L, int index, size_t *len);

#endif
