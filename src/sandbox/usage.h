/* usage.h - what a sandbox uses at this moment. */
#ifndef DML_SANDBOX_USAGE_H
#define DML_SANDBOX_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "sandbox/cgroup.h"

typedef struct dml_usage {
  uint64_t cpu_ms; /* since the start. By the group (v2), else of the processes there are, and those they waited for */
  uint64_t
      memory_bytes;     /* without files. By the group, else what the processes have resident, shared pages each time */
  uint64_t cache_bytes; /* files in memory, the sandbox's own too. 0 without a group */
  bool has_disk;        /* whether the following could be seen */
  uint64_t disk_used_bytes, disk_total_bytes; /* of the home folder */
  size_t process_count;                       /* bubblewrap and the agent among them */
  bool is_by_group;                           /* memory */
} dml_usage;

/* Reads it. `root` is bubblewrap's outer process, `inner` the first one inside or 0 when it is not known. Errors:
 * DML_NO_CAPACITY, DML_INTERNAL. */
dml_status dml_usage_read(dml_usage *usage, pid_t root, pid_t inner, const dml_cgroups *groups,
                          const dml_cgroup *group);

#endif
