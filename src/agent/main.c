/* main.c - demilune-agent: the arguments of its two modes, `launch` on the host and `run` in the sandbox.
 *
 * Called by the engine alone, so a wrong argument is a bug: it says which and exits with 2. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/launch.h"

#define EXIT_USAGE 2

static int usage(const char *at) {
  const char *parts[] = {"demilune-agent ", DML_VERSION, ": bad argument: ", at ? at : "(none)", "\n"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (write(2, parts[i], strlen(parts[i])) < 0) break;
  return EXIT_USAGE;
}

static bool parse_number(const char *text, uint64_t most, uint64_t *out) {
  char *end;
  if (!text || text[0] < '0' || text[0] > '9') return false;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return errno == 0 && *end == '\0' && *out <= most;
}

/* One option of `launch` and its value. */
static bool take_launch_option(dml_launch_options *options, const char *name, uint64_t value) {
  if (strcmp(name, "--cgroup-procs") == 0) {
    if (options->cgroup_count == DML_LAUNCH_CGROUPS_MAX) return false;
    options->cgroups[options->cgroup_count++] = (int)value;
  } else if (strcmp(name, "--parent") == 0) options->parent = (pid_t)value;
  else if (strcmp(name, "--uid") == 0) options->uid = (uid_t)value;
  else if (strcmp(name, "--gid") == 0) options->gid = (gid_t)value;
  else return false;
  return true;
}

static int main_launch(char **args) {
  dml_launch_options options = {0};
  bool has_uid = false, has_gid = false;
  for (; *args && strcmp(*args, "--") != 0; args += 2) {
    uint64_t value;
    if (!parse_number(args[1], INT32_MAX, &value) || !take_launch_option(&options, args[0], value)) return usage(*args);
    has_uid |= strcmp(args[0], "--uid") == 0;
    has_gid |= strcmp(args[0], "--gid") == 0;
  }
  if (!*args || !args[1] || has_uid != has_gid) return usage(*args);
  options.has_ids = has_uid;
  options.argv = args + 1;
  return dml_launch(&options);
}

static bool take_run_option(dml_agent_options *options, const char *name, uint64_t value) {
  static const struct {
    const char *name;
    int resource;
  } LIMITS[] = {{"--nproc", RLIMIT_NPROC},
                {"--nofile", RLIMIT_NOFILE},
                {"--data-bytes", RLIMIT_DATA},
                {"--fsize-bytes", RLIMIT_FSIZE}};
  if (strcmp(name, "--channel") == 0) {
    options->channel_fd = value >= 3 && value <= INT32_MAX ? (int)value : -1;
    return true;
  }
  for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++)
    if (strcmp(name, LIMITS[i].name) == 0 && options->rlimit_count < DML_AGENT_RLIMITS_MAX) {
      options->rlimits[options->rlimit_count++] = (dml_rlimit){LIMITS[i].resource, {value, value}};
      return true;
    }
  return false;
}

static int main_run(char **args) {
  dml_agent_options options = {.channel_fd = -1};
  for (; *args; args += 2) {
    uint64_t value;
    if (!parse_number(args[1], INT64_MAX, &value) || !take_run_option(&options, args[0], value)) return usage(*args);
  }
  if (options.channel_fd < 0) return usage("--channel");
  return dml_agent_run(&options);
}

int main(int argc, char **argv) {
  if (argc >= 2 && strcmp(argv[1], "launch") == 0) return main_launch(argv + 2);
  if (argc >= 2 && strcmp(argv[1], "run") == 0) return main_run(argv + 2);
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    static const char TEXT[] = "demilune-agent " DML_VERSION "\n";
    return write(1, TEXT, sizeof TEXT - 1) < 0;
  }
  return usage(argc >= 2 ? argv[1] : NULL);
}
