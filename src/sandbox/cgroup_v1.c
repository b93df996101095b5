/* cgroup_v1.c - one hierarchy per controller, as on hosts of the older kind; root only in practice.
 *
 * Groups are made at the top of each mount, not below the engine's own group: its place changes from start to start,
 * and the next engine must find what this one left. In a container the top is the container's own group. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/cgroup.h"
#include "sandbox/mounts.h"

#define PERIOD_US 100000
#define QUOTA_MIN_US 1000

static const char *const NAMES[DML_CGROUP_CONTROLLERS] = {"memory", "cpu", "pids"};

/* Controllers may share a hierarchy ("cpu,cpuacct"). */
static int use_dir(dml_cgroups *groups, const char *path) {
  for (size_t i = 0; i < groups->dirs_count; i++)
    if (strcmp(groups->dirs[i], path) == 0) return (int)i;
  size_t len = strlen(path);
  if (groups->dirs_count >= DML_CGROUP_DIRS_MAX || len >= sizeof groups->dirs[0]) return -1;
  memcpy(groups->dirs[groups->dirs_count], path, len + 1);
  return (int)groups->dirs_count++;
}

static bool consider(const dml_mount *mount, void *ud) {
  dml_cgroups *groups = ud;
  if (strcmp(mount->type, "cgroup") != 0) return true;
  for (int c = 0; c < DML_CGROUP_CONTROLLERS; c++) {
    if (groups->at[c] >= 0 || !dml_cgroup_has_word(mount->super_options, NAMES[c], ",")) continue;
    if (access(mount->point, W_OK) == 0) groups->at[c] = use_dir(groups, mount->point);
  }
  return true;
}

static bool consider_freezer(const dml_mount *mount, void *ud) {
  dml_cgroups *groups = ud;
  if (strcmp(mount->type, "cgroup") != 0 || !dml_cgroup_has_word(mount->super_options, "freezer", ",")) return true;
  if (access(mount->point, W_OK) == 0) groups->freezer_at = use_dir(groups, mount->point);
  return groups->freezer_at < 0;
}

static bool detect(dml_cgroups *groups) {
  dml_mounts_each(consider, groups);
  if (groups->dirs_count == 0) return false;
  dml_mounts_each(consider_freezer, groups);
  return true;
}

static dml_status limit_memory(const char *dir, const char *name, unsigned long long bytes) {
  dml_status status = dml_cgroup_write(dir, name, "memory.limit_in_bytes", "%llu", bytes);
  if (status != DML_OK) return status;
  /* Memory and swap together; the file is there only with swap accounting, and must not be below the former. */
  status = dml_cgroup_write(dir, name, "memory.memsw.limit_in_bytes", "%llu", bytes);
  if (status != DML_FILE_NOT_FOUND) return status;
  /* Without accounting at least nothing of the group is swapped out by choice. */
  dml_cgroup_write(dir, name, "memory.swappiness", "0");
  return DML_OK;
}

static dml_status limit_cpu(const char *dir, const char *name, double count) {
  long long quota_us = (long long)(count * PERIOD_US);
  if (quota_us < QUOTA_MIN_US) quota_us = QUOTA_MIN_US;
  dml_status status = dml_cgroup_write(dir, name, "cpu.cfs_period_us", "%d", PERIOD_US);
  return status == DML_OK ? dml_cgroup_write(dir, name, "cpu.cfs_quota_us", "%lld", quota_us) : status;
}

static dml_status limit(const dml_cgroups *groups, const char *name, const dml_cgroup_limits *limits) {
  dml_status status = DML_OK;
  int memory = groups->at[DML_CGROUP_MEMORY], cpu = groups->at[DML_CGROUP_CPU], pids = groups->at[DML_CGROUP_PIDS];
  if (memory >= 0 && limits->memory_bytes > 0)
    status = limit_memory(groups->dirs[memory], name, (unsigned long long)limits->memory_bytes);
  if (status == DML_OK && cpu >= 0 && limits->cpu_count > 0)
    status = limit_cpu(groups->dirs[cpu], name, limits->cpu_count);
  if (status == DML_OK && pids >= 0 && limits->pids_count > 0)
    status = dml_cgroup_write(groups->dirs[pids], name, "pids.max", "%u", limits->pids_count);
  return status;
}

/* Processor time is the cpuacct controller's, which may be elsewhere: not here. */
static void read_account(const dml_cgroups *groups, const char *name, dml_cgroup_account *account) {
  int memory = groups->at[DML_CGROUP_MEMORY];
  if (memory < 0) return;
  const char *dir = groups->dirs[memory];
  account->has_memory = dml_cgroup_read_number(dir, name, "memory.usage_in_bytes", NULL, &account->memory_bytes) &&
                        dml_cgroup_read_number(dir, name, "memory.stat", "total_cache", &account->file_bytes);
}

const dml_cgroup_backend DML_CGROUP_V1 = {.kind = "cgroup1",
                                          .detect = detect,
                                          .limit = limit,
                                          .freezer = DML_FREEZER_BRIEF,
                                          .freeze_file = "freezer.state",
                                          .freeze_text = "FROZEN",
                                          .thaw_text = "THAWED",
                                          .frozen_file = "freezer.state",
                                          .frozen_word = "FROZEN",
                                          .read_account = read_account};
