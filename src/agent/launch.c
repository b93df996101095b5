/* launch.c - see launch.h.
 *
 * The environment is empty for bubblewrap's own sake: its pid 1 keeps what it was started with readable in
 * /proc/1/environ, in spite of --clearenv. */
#include "agent/launch.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXIT_LAUNCH 125
#define EXIT_EXEC 126

static int complain(const char *what, int code) {
  const char *why = strerror(errno);
  const char *parts[] = {"demilune-agent: ", what, ": ", why, "\n"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (write(2, parts[i], strlen(parts[i])) < 0) break;
  return code;
}

/* cgroups(7): "0" stands for the writer. */
static bool join_cgroups(const dml_launch_options *options) {
  for (size_t i = 0; i < options->cgroup_count; i++) {
    if (write(options->cgroups[i], "0", 1) != 1) return false;
    close(options->cgroups[i]);
  }
  return true;
}

/* No way back is left: real, effective and saved ids all change, and it is tried whether they did. */
static bool drop_ids(uid_t uid, gid_t gid) {
  if (uid == 0 || gid == 0) {
    errno = EPERM;
    return false;
  }
  if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0) return false;
  if (setresuid((uid_t)-1, 0, (uid_t)-1) == 0 || getuid() != uid || geteuid() != uid || getegid() != gid) {
    errno = EPERM;
    return false;
  }
  return true;
}

int dml_launch(const dml_launch_options *options) {
  char *const no_env[] = {NULL};
  if (!join_cgroups(options)) return complain("cannot enter the cgroup", EXIT_LAUNCH);
  if (options->has_ids && !drop_ids(options->uid, options->gid)) return complain("cannot change the user", EXIT_LAUNCH);
  /* a change of credentials clears it: prctl(2); and the parent may have died before it was set */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return complain("cannot bind to the parent", EXIT_LAUNCH);
  if (options->parent && getppid() != options->parent) {
    errno = ESRCH;
    return complain("the parent is gone", EXIT_LAUNCH);
  }
  execve(options->argv[0], options->argv, no_env);
  return complain("cannot execute", EXIT_EXEC);
}
