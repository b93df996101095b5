/* process.c - see process.h. */
#include "loop/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct dml_process {
  pid_t pid;
  int pidfd;
  bool has_ended;
  uv_poll_t *poll; /* on the heap of its own: closed asynchronously */
  dml_process_exit_cb cb;
  void *ud;
};

static void free_poll(uv_handle_t *handle) { free(handle); }

static void stop_watching(dml_process *process) {
  if (process->poll) {
    uv_poll_stop(process->poll);
    uv_close((uv_handle_t *)process->poll, free_poll);
    process->poll = NULL;
  }
  if (process->pidfd >= 0) close(process->pidfd);
  process->pidfd = -1;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
  (void)events;
  dml_process *process = poll->data;
  int wstatus = 0;
  pid_t got = waitpid(process->pid, &wstatus, WNOHANG);
  if (got == 0 && status == 0) return;
  process->has_ended = true;
  stop_watching(process);
  int code = got == process->pid && WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : -1;
  int signal = got == process->pid && WIFSIGNALED(wstatus) ? WTERMSIG(wstatus) : 0;
  process->cb(process, code, signal, process->ud);
}

/* Default signals, nothing blocked: what we ignore or block must not reach a child. */
static int set_attributes(posix_spawnattr_t *attr, const dml_process_opts *opts) {
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
  if (opts->is_session_leader) flags |= POSIX_SPAWN_SETSID;
  else if (opts->is_group_leader) flags |= POSIX_SPAWN_SETPGROUP;
  int rc = posix_spawnattr_setflags(attr, flags);
  if (!rc) rc = posix_spawnattr_setsigdefault(attr, &all);
  if (!rc) rc = posix_spawnattr_setsigmask(attr, &none);
  if (!rc) rc = posix_spawnattr_setpgroup(attr, 0);
  return rc;
}

/* What the child does not want: /dev/null for 0, 1, 2, the rest closed. Ours are CLOEXEC, but what whoever started us left
 * open is not. */
static int set_unnamed(posix_spawn_file_actions_t *actions, const bool *is_named) {
  int rc = 0;
  for (int fd = 0; fd < 3 && !rc; fd++)
    if (!is_named[fd]) rc = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
  int top = DML_PROCESS_CHILD_FD_MAX;
  while (top > 2 && !is_named[top]) top--;
  for (int fd = 3; fd < top && !rc; fd++)
    if (!is_named[fd]) rc = posix_spawn_file_actions_addclose(actions, fd);
  return rc ? rc : posix_spawn_file_actions_addclosefrom_np(actions, top + 1);
}

/* Our descriptors may have the very numbers the child wants. So each is first copied high above all of these, in the
 * parent (CLOEXEC), and dup2'ed down in the child. */
static int set_descriptors(posix_spawn_file_actions_t *actions, const dml_process_opts *opts, int *copies) {
  bool is_named[DML_PROCESS_CHILD_FD_MAX + 1] = {false};
  for (size_t i = 0; i < opts->fd_count; i++) {
    int child_fd = opts->fds[i].child_fd;
    if (child_fd < 0 || child_fd > DML_PROCESS_CHILD_FD_MAX) return EBADF;
    copies[i] = fcntl(opts->fds[i].parent_fd, F_DUPFD_CLOEXEC, DML_PROCESS_CHILD_FD_MAX + 1);
    if (copies[i] < 0) return errno;
    int rc = posix_spawn_file_actions_adddup2(actions, copies[i], child_fd);
    if (rc) return rc;
    is_named[child_fd] = true;
  }
  return set_unnamed(actions, is_named);
}

static int spawn(const dml_process_opts *opts, pid_t *pid) {
  int copies[DML_PROCESS_FDS_MAX];
  for (size_t i = 0; i < DML_PROCESS_FDS_MAX; i++) copies[i] = -1;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attr;
  int rc = posix_spawn_file_actions_init(&actions);
  if (rc) return rc;
  rc = posix_spawnattr_init(&attr);
  if (rc) {
    posix_spawn_file_actions_destroy(&actions);
    return rc;
  }
  rc = set_attributes(&attr, opts);
  if (!rc) rc = set_descriptors(&actions, opts, copies);
  if (!rc) rc = posix_spawn(pid, opts->path, &actions, &attr, opts->argv, opts->env ? opts->env : environ);
  for (size_t i = 0; i < DML_PROCESS_FDS_MAX; i++)
    if (copies[i] >= 0) close(copies[i]);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attr);
  return rc;
}

static void reap(pid_t pid) {
  kill(pid, SIGKILL);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

static dml_status watch(dml_loop *loop, dml_process *process) {
  /* glibc 2.36 declares pidfd_open, older ones do not: pidfd_open(2) */
  process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
  process->poll = calloc(1, sizeof *process->poll);
  if (process->pidfd < 0 || !process->poll) return DML_INTERNAL;
  if (uv_poll_init(dml_loop_uv(loop), process->poll, process->pidfd) != 0) {
    free(process->poll);
    process->poll = NULL;
    return DML_INTERNAL;
  }
  process->poll->data = process;
  uv_poll_start(process->poll, UV_READABLE, on_readable);
  return DML_OK;
}

dml_status dml_process_start(dml_loop *loop, const dml_process_opts *opts, dml_process_exit_cb cb, void *ud,
                             dml_process **out) {
  *out = NULL;
  if (opts->fd_count > DML_PROCESS_FDS_MAX) return DML_INTERNAL;
  dml_process *process = calloc(1, sizeof *process);
  if (!process) return DML_INTERNAL;
  process->cb = cb;
  process->ud = ud;
  process->pidfd = -1;
  int rc = spawn(opts, &process->pid);
  if (rc != 0) {
    free(process);
    return dml_status_from_errno(rc);
  }
  dml_status status = watch(loop, process);
  if (status != DML_OK) {
    reap(process->pid);
    if (process->pidfd >= 0) close(process->pidfd);
    free(process->poll);
    free(process);
    return status;
  }
  *out = process;
  return DML_OK;
}

pid_t dml_process_pid(const dml_process *process) { return process->pid; }

void dml_process_signal(dml_process *process, int signal) {
  if (process->has_ended) return;
  syscall(SYS_pidfd_send_signal, process->pidfd, signal, NULL, 0);
}

void dml_process_free(dml_process *process) {
  if (!process) return;
  if (!process->has_ended) reap(process->pid);
  stop_watching(process);
  free(process);
}
