/* members.h - the processes of a sandbox, as the host's /proc shows them.
 *
 * All that a sandbox starts stays below bubblewrap: an orphan inside becomes a child of the first process there. */
#ifndef DML_SANDBOX_MEMBERS_H
#define DML_SANDBOX_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* Processes of the host that are looked at. */
#define DML_MEMBERS_MAX 65536u

typedef struct dml_member {
  pid_t pid, parent;
  char state;         /* proc(5): R, S, D, T, t, Z, X, … */
  uint64_t start;     /* in clock ticks since boot: with the pid it names a process for good */
  uint64_t cpu_ticks; /* its own, and of its children that it has waited for */
  uint64_t rss_pages;
} dml_member;

/* Do not touch the fields from outside. */
typedef struct dml_members {
  dml_member *list; /* parents before their children */
  size_t count;
} dml_members;

/* Reads `root` and all below it. `procs` is the cgroup.procs file that lists them, NULL to search all of /proc. A
 * process that starts or ends meanwhile may or may not be among them. The caller deinits. Errors: DML_NO_CAPACITY
 * (memory, or more than DML_MEMBERS_MAX), DML_INTERNAL. */
dml_status dml_members_init(dml_members *members, pid_t root, const char *procs);
void dml_members_deinit(dml_members *members);
/* Reads one process; false when there is none of that pid. */
bool dml_member_read(dml_member *member, pid_t pid);
/* Whether it stands still: stopped, or over. */
bool dml_member_stands(const dml_member *member);
/* Sends it a signal; harmless when it is gone, whoever has its pid now. */
void dml_member_signal(const dml_member *member, int signo);

#endif
