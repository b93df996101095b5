/* cgroup_v2.c - the unified hierarchy: below the engine's own group where that is delegated to us (systemd's
 * Delegate=yes), else, as root, at the top.
 *
 * A group with processes cannot give controllers to its children (kernel's cgroup-v2, "no internal process"): in a
 * delegated group that holds only the engine, the engine moves into a leaf of its own first. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/cgroup.h"
#include "sandbox/mounts.h"

#define LEAF "demilune-engine"
#define PERIOD_US 100000
#define QUOTA_MIN_US 1000

static const char *const NAMES[DML_CGROUP_CONTROLLERS] = {"memory", "cpu", "pids"};

typedef struct hierarchy {
  char point[PATH_MAX], root[PATH_MAX];
  bool is_found;
} hierarchy;

static bool find_mount(const dml_mount *mount, void *ud) {
  hierarchy *h = ud;
  if (strcmp(mount->type, "cgroup2") != 0) return true;
  int point_len = snprintf(h->point, sizeof h->point, "%s", mount->point);
  int root_len = snprintf(h->root, sizeof h->root, "%s", mount->root);
  h->is_found = point_len < (int)sizeof h->point && root_len < (int)sizeof h->root;
  return false;
}

/* The engine's own group as a path of this mount: the line "0::/path" (cgroups(7)), less the mount's root. */
static bool own_dir(const hierarchy *h, char *out) {
  char text[2 * PATH_MAX];
  if (!dml_cgroup_read("/proc/self", "cgroup", text, sizeof text)) return false;
  char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
  if (!line) return false;
  char *path = strchr(line, '/');
  if (!path) return false;
  path[strcspn(path, "\n")] = '\0';
  size_t root_len = strcmp(h->root, "/") == 0 ? 0 : strlen(h->root);
  if (strncmp(path, h->root, root_len) != 0 || strstr(path, "/..")) return false;
  const char *rest = path + root_len;
  int n = snprintf(out, PATH_MAX, "%s%s", h->point, strcmp(rest, "/") == 0 ? "" : rest);
  return n > 0 && n < PATH_MAX;
}

static bool is_alone(const char *dir) {
  char text[64], me[32];
  snprintf(me, sizeof me, "%d\n", (int)getpid());
  return dml_cgroup_read(dir, "cgroup.procs", text, sizeof text) && strcmp(text, me) == 0;
}

static bool enable(const char *dir, const char *wanted) {
  return dml_cgroup_write(dir, NULL, "cgroup.subtree_control", "%s", wanted) == DML_OK;
}

/* Moves the engine into the leaf and gives controllers to the children; undone when that does not help. */
static bool enable_from_leaf(const char *dir, const char *wanted) {
  char leaf[PATH_MAX + sizeof LEAF + 1];
  if (!is_alone(dir)) return false;
  snprintf(leaf, sizeof leaf, "%s/" LEAF, dir);
  mkdir(leaf, 0755); /* may be there from an engine that ended */
  if (dml_cgroup_write(dir, LEAF, "cgroup.procs", "0") == DML_OK && enable(dir, wanted)) return true;
  dml_cgroup_write(dir, NULL, "cgroup.procs", "0");
  rmdir(leaf);
  return false;
}

/* Makes `dir` a place for groups: true with at[] filled in. */
static bool use_dir(dml_cgroups *groups, const char *dir) {
  char available[512], enabled[512], wanted[64] = "";
  size_t wanted_len = 0;
  bool has_any = false;
  if (access(dir, W_OK) != 0 || !dml_cgroup_read(dir, "cgroup.controllers", available, sizeof available) ||
      !dml_cgroup_read(dir, "cgroup.subtree_control", enabled, sizeof enabled))
    return false;
  for (int c = 0; c < DML_CGROUP_CONTROLLERS; c++) {
    if (!dml_cgroup_has_word(available, NAMES[c], " \n")) continue;
    has_any = true;
    groups->at[c] = 0;
    if (dml_cgroup_has_word(enabled, NAMES[c], " \n")) continue;
    wanted_len += (size_t)snprintf(wanted + wanted_len, sizeof wanted - wanted_len, "+%s ", NAMES[c]);
  }
  if (has_any && (wanted[0] == '\0' || enable(dir, wanted) || enable_from_leaf(dir, wanted))) {
    snprintf(groups->dirs[0], sizeof groups->dirs[0], "%s", dir);
    groups->dirs_count = 1;
    groups->freezer_at = 0;
    return true;
  }
  for (int c = 0; c < DML_CGROUP_CONTROLLERS; c++) groups->at[c] = -1;
  return false;
}

static bool detect(dml_cgroups *groups) {
  char own[PATH_MAX] = "";
  bool is_usable = false;
  hierarchy *h = calloc(1, sizeof *h);
  if (!h) return false;
  dml_mounts_each(find_mount, h);
  if (h->is_found) {
    is_usable = own_dir(h, own) && strcmp(own, h->point) != 0 && use_dir(groups, own);
    /* After a restart the engine sits in its leaf already: then the place is above it. */
    char *tail = is_usable ? NULL : strstr(own, "/" LEAF);
    if (tail && tail[strlen("/" LEAF)] == '\0') {
      *tail = '\0';
      is_usable = use_dir(groups, own);
    }
    if (!is_usable) is_usable = use_dir(groups, h->point);
  }
  free(h);
  return is_usable;
}

static dml_status limit_memory(const char *dir, const char *name, unsigned long long bytes) {
  dml_status status = dml_cgroup_write(dir, name, "memory.max", "%llu", bytes);
  if (status != DML_OK) return status;
  /* No swap: memory.max counts memory alone. The file is missing in kernels without swap. */
  status = dml_cgroup_write(dir, name, "memory.swap.max", "0");
  return status == DML_FILE_NOT_FOUND ? DML_OK : status;
}

static dml_status limit(const dml_cgroups *groups, const char *name, const dml_cgroup_limits *limits) {
  const char *dir = groups->dirs[0];
  dml_status status = DML_OK;
  if (groups->at[DML_CGROUP_MEMORY] >= 0 && limits->memory_bytes > 0)
    status = limit_memory(dir, name, (unsigned long long)limits->memory_bytes);
  if (status == DML_OK && groups->at[DML_CGROUP_CPU] >= 0 && limits->cpu_count > 0) {
    long long quota_us = (long long)(limits->cpu_count * PERIOD_US);
    if (quota_us < QUOTA_MIN_US) quota_us = QUOTA_MIN_US;
    status = dml_cgroup_write(dir, name, "cpu.max", "%lld %d", quota_us, PERIOD_US);
  }
  if (status == DML_OK && groups->at[DML_CGROUP_PIDS] >= 0 && limits->pids_count > 0)
    status = dml_cgroup_write(dir, name, "pids.max", "%u", limits->pids_count);
  return status;
}

static void read_account(const dml_cgroups *groups, const char *name, dml_cgroup_account *account) {
  const char *dir = groups->dirs[0];
  account->has_cpu = dml_cgroup_read_number(dir, name, "cpu.stat", "usage_usec", &account->cpu_us);
  account->has_memory = groups->at[DML_CGROUP_MEMORY] >= 0 &&
                        dml_cgroup_read_number(dir, name, "memory.current", NULL, &account->memory_bytes) &&
                        dml_cgroup_read_number(dir, name, "memory.stat", "file", &account->file_bytes);
}

const dml_cgroup_backend DML_CGROUP_V2 = {.kind = "cgroup2",
                                          .detect = detect,
                                          .limit = limit,
                                          .freezer = DML_FREEZER_LASTING,
                                          .freeze_file = "cgroup.freeze",
                                          .freeze_text = "1",
                                          .thaw_text = "0",
                                          .frozen_file = "cgroup.events",
                                          .frozen_word = "frozen 1",
                                          .read_account = read_account};
