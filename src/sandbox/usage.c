/* usage.c - see usage.h. */
#include "sandbox/usage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/members.h"

#define HOME "/home/user"

static dml_status add_processes(dml_usage *usage, pid_t root, const char *procs) {
  dml_members members;
  dml_status status = dml_members_init(&members, root, procs);
  long ticks = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < members.count; i++) {
    if (ticks > 0) usage->cpu_ms += members.list[i].cpu_ticks * 1000 / (uint64_t)ticks;
    if (page > 0) usage->memory_bytes += members.list[i].rss_pages * (uint64_t)page;
  }
  usage->process_count = members.count;
  dml_members_deinit(&members);
  return status;
}

/* Of the file system inside, through the root of a process there. It is a tmpfs of ours, or not looked at: what lies at
 * that path is the sandbox's to choose. */
static void add_disk(dml_usage *usage, pid_t inner) {
  char path[64];
  struct statfs fs;
  if (inner <= 0) return;
  snprintf(path, sizeof path, "/proc/%d/root" HOME, (int)inner);
  int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  if (fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC && fs.f_bsize > 0) {
    usage->has_disk = true;
    usage->disk_total_bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    usage->disk_used_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
  }
  close(fd);
}

dml_status dml_usage_read(dml_usage *usage, pid_t root, pid_t inner, const dml_cgroups *groups,
                          const dml_cgroup *group) {
  char procs[DML_CGROUP_PATH_BYTES];
  dml_cgroup_account account;
  memset(usage, 0, sizeof *usage);
  bool is_listed = dml_cgroup_procs_path(group, groups, procs);
  dml_status status = add_processes(usage, root, is_listed ? procs : NULL);
  if (status != DML_OK) return status;
  dml_cgroup_read_account(group, groups, &account);
  if (account.has_cpu) usage->cpu_ms = account.cpu_us / 1000;
  if (account.has_memory) {
    usage->is_by_group = true;
    usage->cache_bytes = account.file_bytes;
    usage->memory_bytes = account.memory_bytes > account.file_bytes ? account.memory_bytes - account.file_bytes : 0;
  }
  add_disk(usage, inner);
  return DML_OK;
}
