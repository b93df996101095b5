/* spool.c - see spool.h. */
#include "agent/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"

#define SPOOL_DIR "/tmp/.demilune/out"
#define OPEN_TRIES 8

/* One component, made when missing, ours alone. Closes `parent`. */
static int open_private(int parent, const char *name) {
  if (parent < 0) return -1;
  if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST) {
    close(parent);
    return -1;
  }
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  close(parent);
  struct stat st;
  if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != geteuid() || ((st.st_mode & 077) && fchmod(fd, 0700) != 0))) {
    close(fd);
    return -1;
  }
  return fd;
}

/* Opened anew each time, for the sandbox may have moved or removed it since. */
static int open_dir(void) {
  int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return open_private(open_private(fd, ".demilune"), "out");
}

static void unlink_file(const dml_spool *spool) {
  int dir = open_dir();
  if (dir < 0) return;
  unlinkat(dir, spool->name, 0);
  close(dir);
}

static void leave_set(dml_spool_set *set, dml_spool *spool) {
  for (dml_spool **at = &set->oldest; *at; at = &(*at)->next) {
    if (*at != spool) continue;
    *at = spool->next;
    set->total -= spool->size;
    set->count--;
    return;
  }
}

/* The file goes. A spool with a writer stays allocated until the writer lets go. */
static void lose(dml_agent *agent, dml_spool *spool) {
  leave_set(&agent->spools, spool);
  unlink_file(spool);
  if (spool->fd < 0) {
    free(spool);
    return;
  }
  close(spool->fd);
  spool->fd = -1;
  spool->is_lost = true;
}

dml_spool *dml_spool_open(dml_agent *agent, int which) {
  dml_spool_set *set = &agent->spools;
  while (set->count >= DML_SPOOL_SET_FILES) lose(agent, set->oldest);
  int dir = open_dir();
  dml_spool *spool = dir < 0 ? NULL : calloc(1, sizeof *spool);
  if (!spool) goto done;
  spool->fd = -1;
  for (int i = 0; i < OPEN_TRIES && spool->fd < 0; i++) {
    snprintf(spool->name, sizeof spool->name, "%llx-%u.%s", (unsigned long long)dml_agent_now_ms(),
             ++agent->name_counter, which == DML_FRAME_STDERR ? "stderr" : "stdout");
    spool->fd = openat(dir, spool->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (spool->fd < 0 && errno != EEXIST) break;
  }
  if (spool->fd < 0) {
    free(spool);
    spool = NULL;
    goto done;
  }
  dml_spool **at = &set->oldest;
  while (*at) at = &(*at)->next;
  *at = spool;
  set->count++;
done:
  if (dir >= 0) close(dir);
  return spool;
}

void dml_spool_write(dml_agent *agent, dml_spool *spool, const uint8_t *bytes, size_t len) {
  if (spool->is_lost) return;
  if (len > DML_SPOOL_FILE_BYTES - spool->size) len = (size_t)(DML_SPOOL_FILE_BYTES - spool->size);
  while (agent->spools.total + len > DML_SPOOL_SET_BYTES && !spool->is_lost) lose(agent, agent->spools.oldest);
  while (len && !spool->is_lost) {
    ssize_t put = write(spool->fd, bytes, len);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      lose(agent, spool);
      return;
    }
    spool->size += (uint64_t)put;
    agent->spools.total += (uint64_t)put;
    bytes += put;
    len -= (size_t)put;
  }
}

void dml_spool_path(const dml_spool *spool, char *out) {
  snprintf(out, DML_SPOOL_PATH_BYTES, SPOOL_DIR "/%s", spool->name);
}

void dml_spool_finish(dml_agent *agent, dml_spool *spool) {
  (void)agent;
  if (spool->is_lost) {
    free(spool);
    return;
  }
  close(spool->fd);
  spool->fd = -1;
}

void dml_spool_discard(dml_agent *agent, dml_spool *spool) {
  if (!spool->is_lost) lose(agent, spool);
  free(spool);
}
