/* cgroup.c - see cgroup.h: what both back ends share. */
#include "sandbox/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "demilune-"
/* How often killing and removing is tried, 1 ms apart. */
#define TRIES_MAX 50
#define PATH_BYTES DML_CGROUP_PATH_BYTES
#define NUMBERS_MAX_BYTES 4096

static const dml_cgroup_backend *const BACKENDS[] = {&DML_CGROUP_V2, &DML_CGROUP_V1};

static void pause_briefly(void) {
  const struct timespec ms = {.tv_nsec = 1000000};
  nanosleep(&ms, NULL);
}

/* ---- files ---- */

static bool join_path(char *out, const char *dir, const char *name, const char *file) {
  int n = snprintf(out, PATH_BYTES, "%s%s%s%s%s", dir, name ? "/" : "", name ? name : "", file ? "/" : "",
                   file ? file : "");
  return n > 0 && n < PATH_BYTES;
}

dml_status dml_cgroup_write(const char *dir, const char *name, const char *file, const char *format, ...) {
  char path[PATH_BYTES], text[128];
  va_list list;
  va_start(list, format);
  int len = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (len < 0 || (size_t)len >= sizeof text || !join_path(path, dir, name, file)) return DML_INTERNAL;
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? DML_FILE_NOT_FOUND : DML_INTERNAL;
  ssize_t n = write(fd, text, (size_t)len);
  close(fd);
  return n == len ? DML_OK : DML_INTERNAL;
}

bool dml_cgroup_read(const char *dir, const char *file, char *out, size_t out_bytes) {
  char path[PATH_BYTES];
  if (!join_path(path, dir, NULL, file)) return false;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, out, out_bytes - 1);
  close(fd);
  if (n < 0) return false;
  out[n] = '\0';
  return true;
}

bool dml_cgroup_has_word(const char *list, const char *word, const char *separators) {
  size_t word_len = strlen(word);
  while (*list) {
    list += strspn(list, separators);
    size_t len = strcspn(list, separators);
    if (len == word_len && memcmp(list, word, len) == 0) return true;
    list += len;
  }
  return false;
}

bool dml_cgroup_read_number(const char *dir, const char *name, const char *file, const char *key, uint64_t *out) {
  char place[PATH_BYTES], text[NUMBERS_MAX_BYTES];
  if (!join_path(place, dir, name, NULL) || !dml_cgroup_read(place, file, text, sizeof text)) return false;
  const char *at = text;
  size_t key_len = key ? strlen(key) : 0;
  while (key && !(strncmp(at, key, key_len) == 0 && at[key_len] == ' ')) {
    at = strchr(at, '\n');
    if (!at) return false;
    at++;
  }
  char *end;
  errno = 0;
  at += key ? key_len + 1 : 0;
  unsigned long long number = strtoull(at, &end, 10);
  if (end == at || errno != 0) return false;
  *out = number;
  return true;
}

/* ---- the end of a group ---- */

/* Returns whether there was anything to kill. */
static bool kill_each(const char *path) {
  FILE *file = fopen(path, "re");
  if (!file) return false;
  char line[32];
  bool any = false;
  while (fgets(line, sizeof line, file)) {
    long pid = strtol(line, NULL, 10);
    if (pid > 0) kill((pid_t)pid, SIGKILL);
    any = true;
  }
  fclose(file);
  return any;
}

static void kill_members(const char *dir, const char *name) {
  char procs[PATH_BYTES];
  if (!join_path(procs, dir, name, "cgroup.procs")) return;
  for (int i = 0; i < TRIES_MAX; i++) {
    /* cgroup.kill (Linux 5.14, v2) also gets what forks meanwhile. */
    dml_cgroup_write(dir, name, "cgroup.kill", "1");
    if (!kill_each(procs)) return;
    pause_briefly();
  }
}

static void remove_dir(const char *dir, const char *name) {
  char path[PATH_BYTES];
  if (!join_path(path, dir, name, NULL)) return;
  for (int i = 0; i < TRIES_MAX && rmdir(path) != 0 && errno == EBUSY; i++) {
    kill_members(dir, name);
    pause_briefly();
  }
}

/* ---- engine-wide ---- */

/* v1 lets nothing die that is frozen, in whatever hierarchy it is killed. */
static void thaw(const dml_cgroups *groups, const char *name) {
  if (groups->freezer_at < 0) return;
  dml_cgroup_write(groups->dirs[groups->freezer_at], name, groups->backend->freeze_file, "%s",
                   groups->backend->thaw_text);
}

static bool is_dead_group(const char *name, const dml_engine_id *self) {
  dml_engine_id id;
  if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) return false;
  const char *rest = dml_engine_id_parse(name + strlen(PREFIX), &id);
  return rest && *rest == '-' && dml_engine_id_is_dead(&id, self);
}

static void reap(const dml_cgroups *groups) {
  for (size_t i = 0; i < groups->dirs_count; i++) {
    DIR *dir = opendir(groups->dirs[i]);
    if (!dir) continue;
    const struct dirent *entry;
    for (int left = DML_CGROUP_REAP_MAX; left > 0 && (entry = readdir(dir));) {
      if (!is_dead_group(entry->d_name, &groups->self)) continue;
      thaw(groups, entry->d_name);
      kill_members(groups->dirs[i], entry->d_name);
      remove_dir(groups->dirs[i], entry->d_name);
      left--;
    }
    closedir(dir);
  }
}

static void forget(dml_cgroups *groups) {
  groups->backend = NULL;
  groups->dirs_count = 0;
  groups->freezer_at = -1;
  for (int i = 0; i < DML_CGROUP_CONTROLLERS; i++) groups->at[i] = -1;
}

/* Writable files promise little (a read-only controller, a hierarchy without its limits): make a group and see. */
static bool works(const dml_cgroups *groups) {
  const dml_cgroup_limits limits = {.memory_bytes = 64u * 1024 * 1024, .cpu_count = 1, .pids_count = 16};
  dml_cgroup probe;
  if (dml_cgroup_init(&probe, groups, "probe", &limits) != DML_OK) return false;
  dml_cgroup_deinit(&probe, groups);
  return true;
}

/* The same without a freezer that spoils it. */
static bool works_without_freezer(dml_cgroups *groups) {
  int last = (int)groups->dirs_count - 1;
  if (groups->freezer_at < 0 || groups->freezer_at != last) return false;
  for (int c = 0; c < DML_CGROUP_CONTROLLERS; c++)
    if (groups->at[c] == last) return false;
  groups->freezer_at = -1;
  groups->dirs_count--;
  return works(groups);
}

/* Kernels before 5.2 have no freezer in v2, and it takes a group to see. */
static void check_freezer(dml_cgroups *groups) {
  const dml_cgroup_limits limits = {0};
  dml_cgroup probe;
  if (groups->freezer_at < 0 || dml_cgroup_init(&probe, groups, "probe", &limits) != DML_OK) return;
  if (dml_cgroup_freeze(&probe, groups, false) != DML_OK) groups->freezer_at = -1;
  dml_cgroup_deinit(&probe, groups);
}

void dml_cgroups_open(dml_cgroups *groups, const dml_engine_id *self) {
  groups->self = *self;
  for (size_t i = 0; i < sizeof BACKENDS / sizeof *BACKENDS; i++) {
    forget(groups);
    groups->backend = BACKENDS[i];
    if (!BACKENDS[i]->detect(groups)) continue;
    reap(groups);
    if (!works(groups) && !works_without_freezer(groups)) continue;
    check_freezer(groups);
    return;
  }
  forget(groups);
}

bool dml_cgroups_holds(const dml_cgroups *groups, dml_cgroup_controller controller) {
  return groups->backend && groups->at[controller] >= 0;
}

/* ---- one group ---- */

static dml_status from_errno(int err) {
  switch (err) {
  case EMFILE:
  case ENFILE:
  case ENOMEM:
  case ENOSPC:
  case EAGAIN: return DML_NO_CAPACITY;
  case EEXIST: return DML_CONFLICT;
  default: return DML_INTERNAL;
  }
}

static dml_status make_dir(dml_cgroup *group, const char *dir) {
  char path[PATH_BYTES];
  if (!join_path(path, dir, group->name, NULL)) return DML_INTERNAL;
  if (mkdir(path, 0755) != 0) return from_errno(errno);
  dml_status status = DML_INTERNAL;
  int fd = -1;
  if (join_path(path, dir, group->name, "cgroup.procs")) {
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) status = from_errno(errno);
  }
  if (fd < 0) {
    remove_dir(dir, group->name);
    return status;
  }
  group->procs_fds[group->procs_count++] = fd;
  return DML_OK;
}

dml_status dml_cgroup_init(dml_cgroup *group, const dml_cgroups *groups, const char *name,
                           const dml_cgroup_limits *limits) {
  char id[DML_ENGINE_ID_TEXT_BYTES];
  group->procs_count = 0;
  group->name[0] = '\0';
  if (!groups->backend) return DML_OK;
  dml_engine_id_format(&groups->self, id);
  int n = snprintf(group->name, sizeof group->name, PREFIX "%s-%s", id, name);
  if (n < 0 || (size_t)n >= sizeof group->name) return DML_INTERNAL;
  dml_status status = DML_OK;
  size_t made = 0;
  for (; made < groups->dirs_count && status == DML_OK; made++) status = make_dir(group, groups->dirs[made]);
  if (status == DML_OK) status = groups->backend->limit(groups, group->name, limits);
  if (status == DML_OK) return DML_OK;
  dml_cgroup_close_procs(group);
  /* Only what was made here: with DML_CONFLICT the last one is somebody else's. */
  for (size_t i = 0; i < made; i++)
    if (!(status == DML_CONFLICT && i + 1 == made)) remove_dir(groups->dirs[i], group->name);
  group->name[0] = '\0';
  return status;
}

void dml_cgroup_close_procs(dml_cgroup *group) {
  for (size_t i = 0; i < group->procs_count; i++) close(group->procs_fds[i]);
  group->procs_count = 0;
}

void dml_cgroup_deinit(dml_cgroup *group, const dml_cgroups *groups) {
  dml_cgroup_close_procs(group);
  if (group->name[0] == '\0') return;
  thaw(groups, group->name);
  for (size_t i = 0; i < groups->dirs_count; i++) remove_dir(groups->dirs[i], group->name);
  group->name[0] = '\0';
}

/* ---- standing still, and accounts ---- */

dml_cgroup_freezer dml_cgroups_freezer(const dml_cgroups *groups) {
  return groups->backend && groups->freezer_at >= 0 ? groups->backend->freezer : DML_FREEZER_NONE;
}

dml_status dml_cgroup_freeze(const dml_cgroup *group, const dml_cgroups *groups, bool is_frozen) {
  const dml_cgroup_backend *backend = groups->backend;
  if (dml_cgroups_freezer(groups) == DML_FREEZER_NONE || group->name[0] == '\0') return DML_FILE_NOT_FOUND;
  return dml_cgroup_write(groups->dirs[groups->freezer_at], group->name, backend->freeze_file, "%s",
                          is_frozen ? backend->freeze_text : backend->thaw_text);
}

bool dml_cgroup_is_frozen(const dml_cgroup *group, const dml_cgroups *groups) {
  char place[PATH_BYTES], text[NUMBERS_MAX_BYTES];
  if (dml_cgroups_freezer(groups) == DML_FREEZER_NONE || group->name[0] == '\0') return false;
  return join_path(place, groups->dirs[groups->freezer_at], group->name, NULL) &&
         dml_cgroup_read(place, groups->backend->frozen_file, text, sizeof text) &&
         dml_cgroup_has_word(text, groups->backend->frozen_word, "\n");
}

bool dml_cgroup_procs_path(const dml_cgroup *group, const dml_cgroups *groups, char *out) {
  if (!groups->backend || group->name[0] == '\0') return false;
  return join_path(out, groups->dirs[0], group->name, "cgroup.procs");
}

void dml_cgroup_read_account(const dml_cgroup *group, const dml_cgroups *groups, dml_cgroup_account *account) {
  *account = (dml_cgroup_account){0};
  if (groups->backend && group->name[0] != '\0') groups->backend->read_account(groups, group->name, account);
}
