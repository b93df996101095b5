/* launch.h - the last step on the host before bubblewrap: into the cgroups, down to the sandbox's uid. */
#ifndef DML_AGENT_LAUNCH_H
#define DML_AGENT_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DML_LAUNCH_CGROUPS_MAX 8

typedef struct dml_launch_options {
  bool has_ids; /* uid and gid are to be taken */
  uid_t uid;
  gid_t gid;
  pid_t parent; /* who must still be the parent; 0: whoever */
  int cgroups[DML_LAUNCH_CGROUPS_MAX]; /* open cgroup.procs files; closed here */
  size_t cgroup_count;
  char **argv; /* argv[0] is the path of the program */
} dml_launch_options;

/* Does not return unless it fails; then a line on stderr says why, and the exit code comes back. */
int dml_launch(const dml_launch_options *options);

#endif
