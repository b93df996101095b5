/* spawn.c - see spawn.h. */
#include "sandbox/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_FD 3
/* Sources lie above all targets, so that no dup2 in the child overwrites one that is still needed. */
#define SOURCE_FLOOR (FIRST_FD + DML_SPAWN_FDS_MAX)

static dml_status from_errno(int err) {
  switch (err) {
  case EMFILE:
  case ENFILE:
  case EAGAIN:
  case ENOMEM: return DML_NO_CAPACITY;
  case ENOENT:
  case EACCES: return dml_status_from_errno(err);
  default: return DML_INTERNAL;
  }
}

void dml_spawn_init(dml_spawn *spawn) {
  spawn->count = 0;
  spawn->stderr_fd = -1;
  spawn->status = DML_OK;
}

void dml_spawn_deinit(dml_spawn *spawn) {
  for (size_t i = 0; i < spawn->count; i++)
    if (spawn->is_own[i]) close(spawn->fds[i]);
  spawn->count = 0;
}

static int add(dml_spawn *spawn, int fd, bool is_own) {
  if (spawn->count >= DML_SPAWN_FDS_MAX) {
    spawn->status = DML_INTERNAL;
    if (is_own) close(fd);
    return -1;
  }
  spawn->fds[spawn->count] = fd;
  spawn->is_own[spawn->count] = is_own;
  return FIRST_FD + (int)spawn->count++;
}

int dml_spawn_lend(dml_spawn *spawn, int fd) {
  if (fd >= SOURCE_FLOOR) return add(spawn, fd, false);
  int high = fcntl(fd, F_DUPFD_CLOEXEC, SOURCE_FLOOR);
  if (high < 0) {
    spawn->status = from_errno(errno);
    return -1;
  }
  return add(spawn, high, true);
}

int dml_spawn_take(dml_spawn *spawn, int fd) {
  if (fd < 0) {
    if (spawn->status == DML_OK) spawn->status = DML_NO_CAPACITY;
    return -1;
  }
  if (fd >= SOURCE_FLOOR) return add(spawn, fd, true);
  int number = dml_spawn_lend(spawn, fd);
  close(fd);
  return number;
}

void dml_spawn_set_stderr(dml_spawn *spawn, int fd) { spawn->stderr_fd = fd; }

static int add_actions(const dml_spawn *spawn, posix_spawn_file_actions_t *actions) {
  int err = posix_spawn_file_actions_addchdir_np(actions, "/");
  for (size_t i = 0; i < spawn->count && err == 0; i++)
    err = posix_spawn_file_actions_adddup2(actions, spawn->fds[i], FIRST_FD + (int)i);
  if (err == 0 && spawn->stderr_fd >= 0) err = posix_spawn_file_actions_adddup2(actions, spawn->stderr_fd, 2);
  for (int fd = 0; fd < 3 && err == 0; fd++)
    if (fd != 2 || spawn->stderr_fd < 0)
      err = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
  if (err == 0) err = posix_spawn_file_actions_addclosefrom_np(actions, FIRST_FD + (int)spawn->count);
  return err;
}

static int set_attributes(posix_spawnattr_t *attributes) {
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  int err = posix_spawnattr_setsigdefault(attributes, &all);
  if (err == 0) err = posix_spawnattr_setsigmask(attributes, &none);
  if (err == 0)
    err = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  return err;
}

/* A child that cannot be watched must not stay. */
static dml_status open_pidfd(pid_t pid, int *pidfd) {
  *pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* CLOEXEC by itself: pidfd_open(2) */
  if (*pidfd >= 0) return DML_OK;
  dml_status status = from_errno(errno);
  kill(pid, SIGKILL);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
  return status;
}

dml_status dml_spawn_run(dml_spawn *spawn, const char *path, char *const *argv, pid_t *pid, int *pidfd) {
  static char *const EMPTY[] = {NULL};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  *pidfd = -1;
  if (spawn->status != DML_OK) return spawn->status;
  if (posix_spawn_file_actions_init(&actions) != 0) return DML_NO_CAPACITY;
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&actions);
    return DML_NO_CAPACITY;
  }
  int err = add_actions(spawn, &actions);
  if (err == 0) err = set_attributes(&attributes);
  if (err == 0) err = posix_spawn(pid, path, &actions, &attributes, argv, EMPTY);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return err == 0 ? open_pidfd(*pid, pidfd) : from_errno(err);
}
