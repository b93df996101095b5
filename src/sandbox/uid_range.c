/* uid_range.c - see uid_range.h. */
#include "sandbox/uid_range.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* In this order: above systemd's container range (it ends at 1,879,048,191) and shadow's subordinate ids; 200000+;
 * then inside the 65,536 ids that a container usually has, between people and systemd's dynamic users (61,184+). */
static const uid_t WINDOWS[] = {1900000000u, 200000u, 52000u, 40000u, 30000u};
#define WINDOWS_COUNT (sizeof WINDOWS / sizeof *WINDOWS)

/* /run is cleared at boot, like the locks; the second is for containers without a writable /run. */
static const char *const LOCK_PARENTS[] = {"/run", "/var/lib"};
#define LOCK_DIR "demilune-uids"

/* Files of this many lines are read at most. */
#define LINES_MAX 100000

typedef void (*line_cb)(const char *line, void *ud);

static bool each_line(const char *path, line_cb cb, void *ud) {
  FILE *file = fopen(path, "re");
  if (!file) return false;
  char line[1024];
  for (int i = 0; i < LINES_MAX && fgets(line, sizeof line, file); i++) cb(line, ud);
  fclose(file);
  return true;
}

/* ---- which ids this user namespace can map ---- */

typedef struct mapped {
  uid_t base;
  bool is_found;
} mapped;

static void check_map(const char *line, void *ud) {
  mapped *m = ud;
  unsigned long long inside, outside, count;
  if (sscanf(line, "%llu %llu %llu", &inside, &outside, &count) != 3) return;
  if (m->base >= inside && (unsigned long long)m->base + DML_UID_WINDOW_COUNT <= inside + count) m->is_found = true;
}

static bool is_mapped(uid_t base) {
  static const char *const MAPS[] = {"/proc/self/uid_map", "/proc/self/gid_map"};
  for (size_t i = 0; i < 2; i++) {
    mapped m = {.base = base};
    if (!each_line(MAPS[i], check_map, &m) || !m.is_found) return false;
  }
  return true;
}

/* ---- which ids belong to somebody ---- */

static void mark(dml_uid_range *range, unsigned long long first, unsigned long long count) {
  for (uint32_t i = 0; i < DML_UID_WINDOW_COUNT; i++) {
    unsigned long long id = (unsigned long long)range->base + i;
    if (id >= first && id - first < count) range->is_assigned[i] = 1;
  }
}

static const char *field(const char *line, int n) {
  while (line && n-- > 0) {
    line = strchr(line, ':');
    if (line) line++;
  }
  return line;
}

/* passwd(5), group(5): the third field is the id. */
static void mark_account(const char *line, void *ud) {
  const char *id = field(line, 2);
  if (id && *id >= '0' && *id <= '9') mark(ud, strtoull(id, NULL, 10), 1);
}

/* subuid(5): NAME:FIRST:COUNT. */
static void mark_subordinate(const char *line, void *ud) {
  const char *first = field(line, 1), *count = field(line, 2);
  if (first && count) mark(ud, strtoull(first, NULL, 10), strtoull(count, NULL, 10));
}

static bool has_free(const dml_uid_range *range) {
  return memchr(range->is_assigned, 0, sizeof range->is_assigned) != NULL;
}

static bool choose_window(dml_uid_range *range) {
  for (size_t i = 0; i < WINDOWS_COUNT; i++) {
    if (!is_mapped(WINDOWS[i])) continue;
    range->base = WINDOWS[i];
    memset(range->is_assigned, 0, sizeof range->is_assigned);
    each_line("/etc/passwd", mark_account, range);
    each_line("/etc/group", mark_account, range);
    each_line("/etc/subuid", mark_subordinate, range);
    each_line("/etc/subgid", mark_subordinate, range);
    if (has_free(range)) return true;
  }
  return false;
}

/* ---- locks ---- */

/* Others must not be able to plant or hold lock files. */
static int open_lock_dir(void) {
  for (size_t i = 0; i < sizeof LOCK_PARENTS / sizeof *LOCK_PARENTS; i++) {
    struct stat st;
    char path[64];
    snprintf(path, sizeof path, "%s/" LOCK_DIR, LOCK_PARENTS[i]);
    if (mkdir(path, 0700) != 0 && errno != EEXIST) continue;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0) return fd;
    close(fd);
  }
  return -1;
}

dml_status dml_uid_range_open(dml_uid_range *range) {
  range->dir_fd = -1;
  if (!choose_window(range)) return DML_UNSUPPORTED;
  range->dir_fd = open_lock_dir();
  if (range->dir_fd < 0) return DML_FILE_PERMISSION;
  /* Containers may share the ids of a host without sharing its /run: begin at different places. */
  if (getrandom(&range->next, sizeof range->next, GRND_NONBLOCK) != (ssize_t)sizeof range->next)
    range->next = (uint32_t)getpid();
  return DML_OK;
}

void dml_uid_range_close(dml_uid_range *range) {
  if (range->dir_fd >= 0) close(range->dir_fd);
  range->dir_fd = -1;
}

static int try_lock(const dml_uid_range *range, uid_t uid) {
  char name[16];
  snprintf(name, sizeof name, "%u", (unsigned)uid);
  int fd = openat(range->dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return -1;
}

dml_status dml_uid_range_take(dml_uid_range *range, uid_t *uid, int *lock_fd) {
  for (uint32_t tries = 0; tries < DML_UID_WINDOW_COUNT; tries++) {
    uint32_t at = range->next++ % DML_UID_WINDOW_COUNT;
    if (range->is_assigned[at]) continue;
    *uid = range->base + at;
    *lock_fd = try_lock(range, *uid);
    if (*lock_fd >= 0) return DML_OK;
    if (errno == EMFILE || errno == ENFILE) break;
  }
  return DML_NO_CAPACITY;
}
