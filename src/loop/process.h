/* process.h - children of ours: posix_spawn, a pidfd in the loop, no SIGCHLD.
 *
 * Not uv_spawn, which takes the host program's SIGCHLD (docs/architecture.md). */
#ifndef DML_LOOP_PROCESS_H
#define DML_LOOP_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"
#include "loop/loop.h"

typedef struct dml_process dml_process;

/* How a child ended: `code` when it exited (signal 0), else `signal`. Runs once. The process object is still there and is
 * the owner's to free. */
typedef void (*dml_process_exit_cb)(dml_process *process, int code, int signal, void *ud);

/* One descriptor of the child: `parent_fd` becomes `child_fd`. Borrowed. */
typedef struct dml_process_fd {
  int child_fd;
  int parent_fd;
} dml_process_fd;

#define DML_PROCESS_FDS_MAX 32
/* The largest number a descriptor may have in the child. */
#define DML_PROCESS_CHILD_FD_MAX 63

typedef struct dml_process_opts {
  const char *path;           /* absolute; no search */
  char *const *argv;          /* NULL-terminated */
  char *const *env;           /* NULL-terminated; NULL: inherit ours */
  const dml_process_fd *fds;  /* 0, 1, 2 that are not named are /dev/null; everything else is closed */
  size_t fd_count;            /* at most DML_PROCESS_FDS_MAX */
  bool is_group_leader;       /* a process group of its own */
  bool is_session_leader;     /* a session of its own */
} dml_process_opts;

/* Starts it. Errors: DML_FILE_NOT_FOUND, DML_FILE_PERMISSION, DML_INTERNAL; then the callback never runs. */
dml_status dml_process_start(dml_loop *loop, const dml_process_opts *opts, dml_process_exit_cb cb, void *ud,
                             dml_process **out);
pid_t dml_process_pid(const dml_process *process);
/* Sends a signal; nothing happens when it has ended (no pid is ever hit that is not the child's). */
void dml_process_signal(dml_process *process, int signal);
/* Stops watching and frees; the callback does not run any more. A child that still runs is killed and reaped first. NULL
 * is fine. */
void dml_process_free(dml_process *process);

#endif
