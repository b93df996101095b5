/* box.h - one running sandbox: a bubblewrap process, the first process inside, a group, a uid, a channel.
 *
 * Two processes are watched. bubblewrap's outer one is our child; the first one inside (the agent) ends the pid
 * namespace with it, and only when the kernel reports it ended are all processes of the sandbox gone, so only then may
 * its uid be given to another. Killing the outer one alone is not enough either: bubblewrap asks to die with its parent
 * late in its start. */
#ifndef DML_SANDBOX_BOX_H
#define DML_SANDBOX_BOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "sandbox/isolation.h"
#include "sandbox/usage.h"

#define DML_BOX_NAME_MAX_BYTES 64
/* Descriptors that a process inside may have at most (less where the engine's own hard limit is lower). */
#define DML_BOX_NOFILE 16384u

typedef struct dml_box dml_box;

typedef struct dml_box_options {
  const char *name;         /* [a-z0-9]{1,64} */
  uint64_t disk_bytes;      /* size of the home folder, and of /tmp */
  dml_cgroup_limits limits; /* those that do not hold here are ignored: ask dml_cgroups_holds */
  const char *program;      /* run this instead of the agent, as a trial; NULL in earnest */
  int stderr_fd;            /* where bubblewrap's messages go; -1 for /dev/null */
} dml_box_options;

/* All processes of the sandbox have ended. Runs once, never from within a call to this module. */
typedef void (*dml_box_ended_cb)(dml_box *box, void *ud);

/* Starts it; what happens inside comes over the channel. Errors: DML_INVALID_ARGUMENT (the name), DML_NO_CAPACITY
 * (uids, descriptors, processes, memory), DML_CONFLICT (the name is in use), DML_LOCAL_ISOLATION_UNAVAILABLE,
 * DML_INTERNAL; then nothing is left of it and the callback never runs. */
dml_status dml_box_start(dml_isolation *isolation, const dml_box_options *options, dml_box_ended_cb cb, void *ud,
                         dml_box **out);
pid_t dml_box_pid(const dml_box *box);
/* Our end of the stream socket to the agent, borrowed; -1 once taken. */
int dml_box_peek_channel(const dml_box *box);
int dml_box_take_channel(dml_box *box);
bool dml_box_has_ended(const dml_box *box);
/* The exit code of bubblewrap, which is that of the program inside (128 + n for a signal); -1 before the end. */
int dml_box_exit_code(const dml_box *box);
/* Ends the whole sandbox; the callback follows. Fine to repeat. */
void dml_box_kill(dml_box *box);
/* One step towards standing still; see dml_pause_on. Errors: DML_CONFLICT (it has ended), and those of dml_pause_on. */
dml_status dml_box_pause(dml_box *box, bool *is_done);
/* It goes on; fine when it runs. Errors: as above. */
dml_status dml_box_resume(dml_box *box);
/* What it uses now. Errors: DML_CONFLICT (it has ended), and those of dml_usage_read. */
dml_status dml_box_usage(const dml_box *box, dml_usage *usage);
/* Gives back group and uid. Errors: DML_CONFLICT while it runs. Fine to repeat. */
dml_status dml_box_release(dml_box *box);
/* Kills it if it runs, waits for its end (blocking, some milliseconds, at most 2 s), releases and frees. The callback
 * does not run any more. NULL is fine. */
void dml_box_free(dml_box *box);

#endif
