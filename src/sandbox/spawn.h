/* spawn.h - starts one child that has exactly the descriptors it was given.
 *
 * The child gets 0, 1 and 2 on /dev/null (2 on request elsewhere), the added descriptors at 3, 4, … in the order in
 * which they were added, and no other, whatever the process that embeds us left open: bubblewrap closes nothing it
 * inherits. Empty environment, working directory /, a session of its own, default signals. Start it from the loop's
 * thread only: PR_SET_PDEATHSIG means the thread that forks (prctl(2)). */
#ifndef DML_SANDBOX_SPAWN_H
#define DML_SANDBOX_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

#define DML_SPAWN_FDS_MAX 40

/* Do not touch the fields. */
typedef struct dml_spawn {
  int fds[DML_SPAWN_FDS_MAX];
  bool is_own[DML_SPAWN_FDS_MAX];
  size_t count;
  int stderr_fd;
  dml_status status;
} dml_spawn;

/* No descriptors yet; 2 on /dev/null. */
void dml_spawn_init(dml_spawn *spawn);
/* Closes what was taken. */
void dml_spawn_deinit(dml_spawn *spawn);
/* Adds a borrowed descriptor, which must stay open until the run; returns its number in the child. Failure is sticky
 * and comes out of dml_spawn_run; the number is then meaningless. */
int dml_spawn_lend(dml_spawn *spawn, int fd);
/* The same, but `fd` becomes the spawn's, at failure too. -1 is a failure that the caller had before. */
int dml_spawn_take(dml_spawn *spawn, int fd);
/* Where the child's 2 goes, borrowed; -1 is /dev/null. */
void dml_spawn_set_stderr(dml_spawn *spawn, int fd);
/* Starts `path`. The process is the caller's to reap through *pidfd (waitid P_PIDFD), and *pidfd to close.
 * Errors: DML_NO_CAPACITY (descriptors, processes, memory), DML_FILE_NOT_FOUND, DML_FILE_PERMISSION, DML_INTERNAL;
 * then there is no child. */
dml_status dml_spawn_run(dml_spawn *spawn, const char *path, char *const *argv, pid_t *pid, int *pidfd);

#endif
