/* reaper.c - see reaper.h. */
#include "sandbox/reaper.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/bubblewrap.h"

#define PROCESSES_MAX 100000
/* The mark is among the first arguments. */
#define CMDLINE_BYTES 512

/* Finds "--setenv" MARK ID in `text`, whose words end with a zero byte. */
static bool find_mark(const char *text, size_t len, dml_engine_id *id) {
  static const char MARK[] = "--setenv\0" DML_BUBBLEWRAP_MARK;
  const char *at = memmem(text, len, MARK, sizeof MARK);
  if (!at) return false;
  const char *end = dml_engine_id_parse(at + sizeof MARK, id);
  return end && *end == '\0';
}

static bool is_left_over(int dir_fd, const char *pid, const dml_engine_id *self) {
  char path[64], text[CMDLINE_BYTES];
  dml_engine_id id;
  snprintf(path, sizeof path, "%s/cmdline", pid);
  int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = '\0';
  return find_mark(text, (size_t)n, &id) && dml_engine_id_is_dead(&id, self);
}

/* By pidfd, looked at again once it is held: a pid may have changed hands. */
static bool end_process(int dir_fd, const char *pid, const dml_engine_id *self) {
  int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)strtol(pid, NULL, 10), 0);
  if (pidfd < 0) return false;
  bool is_ended = is_left_over(dir_fd, pid, self) && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0;
  close(pidfd);
  return is_ended;
}

int dml_reaper_run(const dml_engine_id *self) {
  int ended = 0;
  DIR *dir = opendir("/proc");
  if (!dir) return 0;
  const struct dirent *entry;
  for (int left = PROCESSES_MAX; left > 0 && (entry = readdir(dir));) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    left--;
    if (is_left_over(dirfd(dir), entry->d_name, self) && end_process(dirfd(dir), entry->d_name, self)) ended++;
  }
  closedir(dir);
  return ended;
}
