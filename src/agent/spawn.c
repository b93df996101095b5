/* spawn.c - see spawn.h.
 *
 * The child is made by vfork: the agent is suspended until exec, so the child can leave its errno in shared memory and
 * no pipe is needed to learn why an exec failed. Between vfork and exec only system calls are made. */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/fault.h"

#define EXEC_PATH_BYTES (2 * DML_FRAME_PATH_MAX)
#define TEXT_MAX DML_FRAME_START_MAX

static const char *const DEFAULT_ENV[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home/user", "USER=user", "LOGNAME=user",
    "LANG=C.UTF-8"};
#define DEFAULT_ENV_COUNT (sizeof DEFAULT_ENV / sizeof *DEFAULT_ENV)

void dml_start_deinit(dml_start *start) {
  free(start->argv);
  free(start->envp);
  *start = (dml_start){0};
}

static bool is_same_name(const char *a, const char *b) {
  size_t len = strcspn(b, "=");
  return strncmp(a, b, len) == 0 && a[len] == '=';
}

static void add_default_env(dml_start *start, size_t given) {
  size_t count = given;
  for (size_t i = 0; i < DEFAULT_ENV_COUNT; i++) {
    bool is_given = false;
    for (size_t j = 0; j < given && !is_given; j++) is_given = is_same_name(start->envp[j], DEFAULT_ENV[i]);
    if (!is_given) start->envp[count++] = (char *)(uintptr_t)DEFAULT_ENV[i];
  }
  start->envp[count] = NULL;
}

static bool count_lists(dml_field_reader reader, size_t *args, size_t *envs) {
  dml_field field;
  int more;
  while ((more = dml_field_next(&reader, &field)) > 0) {
    *args += field.tag == DML_FIELD_ARG;
    *envs += field.tag == DML_FIELD_ENV;
  }
  return more == 0;
}

static bool parse_limit(const dml_field *field, int64_t most, int64_t *out) {
  return dml_field_int(field, out) && *out >= 0 && *out <= most;
}

static bool parse_flag(const dml_field *field, bool *out) {
  int64_t value;
  if (!parse_limit(field, 1, &value)) return false;
  *out = value == 1;
  return true;
}

/* The fields that come once. `output` is where STREAM pointed last. */
static bool parse_single(const dml_field *field, dml_start *start, dml_start_output **output) {
  int64_t value;
  switch (field->tag) {
  case DML_FIELD_CMD: return (start->argv[0] = (char *)(uintptr_t)dml_field_text(field, DML_FRAME_PATH_MAX)) != NULL;
  case DML_FIELD_CWD: return (start->cwd = dml_field_text(field, DML_FRAME_PATH_MAX)) != NULL;
  case DML_FIELD_TAG: return (start->tag = dml_field_text(field, DML_FRAME_TAG_MAX)) != NULL;
  case DML_FIELD_TIMEOUT_MS: return parse_limit(field, INT32_MAX, &start->timeout_ms);
  case DML_FIELD_STDIN: return parse_flag(field, &start->has_stdin);
  case DML_FIELD_PROGRESS: return parse_flag(field, &start->wants_progress);
  case DML_FIELD_STREAM:
    if (!parse_limit(field, DML_FRAME_STDERR, &value) || value == 0) return false;
    *output = &start->outputs[value - 1];
    return true;
  case DML_FIELD_LIVE: return *output && parse_limit(field, DML_FRAME_KEEP_MAX, &(*output)->live);
  case DML_FIELD_TAIL: return *output && parse_limit(field, DML_FRAME_KEEP_MAX, &(*output)->tail);
  case DML_FIELD_SPOOL_AT: return *output && parse_limit(field, 2 * DML_FRAME_KEEP_MAX, &(*output)->spool_at);
  default: return false;
  }
}

static bool check_outputs(const dml_start *start) {
  for (int i = 0; i < 2; i++) {
    const dml_start_output *output = &start->outputs[i];
    if (output->live >= 0 && output->spool_at > output->live + output->tail) return false;
  }
  return (start->outputs[0].live < 0) == (start->outputs[1].live < 0);
}

bool dml_start_parse(const uint8_t *bytes, size_t len, dml_start *out) {
  dml_field_reader reader = {bytes, len};
  size_t args = 0, envs = 0;
  *out = (dml_start){.outputs = {{.live = -1}, {.live = -1}}};
  if (!count_lists(reader, &args, &envs)) return false;
  out->argv = calloc(args + 2, sizeof *out->argv);
  out->envp = calloc(envs + DEFAULT_ENV_COUNT + 1, sizeof *out->envp);
  if (!out->argv || !out->envp) return false;
  dml_start_output *output = NULL;
  dml_field field;
  size_t env_at = 0;
  out->argc = 1;
  while (dml_field_next(&reader, &field) > 0) {
    char *text = NULL;
    if (field.tag == DML_FIELD_ARG || field.tag == DML_FIELD_ENV) {
      text = (char *)(uintptr_t)dml_field_text(&field, TEXT_MAX);
      if (!text) return false;
    }
    if (field.tag == DML_FIELD_ARG) out->argv[out->argc++] = text;
    else if (field.tag == DML_FIELD_ENV) {
      if (!strchr(text, '=') || text[0] == '=') return false;
      out->envp[env_at++] = text;
    } else if (!parse_single(&field, out, &output)) return false;
  }
  add_default_env(out, env_at);
  return out->argv[0] != NULL && check_outputs(out);
}

/* What parent and child share. */
typedef struct plan {
  const dml_agent *agent;
  const dml_start *start;
  const char *search; /* PATH of the new environment, or NULL when the command names a file */
  int fds[3];         /* the child's ends; fds[0] -1: keep /dev/null */
  int error;
  int which;
  char path[EXEC_PATH_BYTES];
} plan;

_Noreturn static void fail(plan *p, int which) {
  p->error = errno;
  p->which = which;
  _exit(127);
}

/* As execvp does: the first file that can be run; a refusal is remembered, a missing one is not. */
static int exec_search(plan *p) {
  const char *cmd = p->start->argv[0];
  size_t cmd_len = strlen(cmd);
  int error = ENOENT;
  for (const char *at = p->search;; at++) {
    size_t len = strcspn(at, ":");
    if (len + 1 + cmd_len < sizeof p->path) {
      memcpy(p->path, at, len);
      p->path[len] = '/';
      memcpy(p->path + len + (len > 0), cmd, cmd_len + 1);
      execve(p->path, p->start->argv, p->start->envp);
      if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) return errno;
      if (errno == EACCES) error = EACCES;
    }
    at += len;
    if (*at == '\0') return error;
  }
}

_Noreturn static void run_child(plan *p) {
  const dml_agent *agent = p->agent;
  setsid();
  for (int i = 0; i < 3; i++)
    if (p->fds[i] >= 0 && dup2(p->fds[i], i) < 0) fail(p, 0);
  if (!agent->is_init) prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (p->start->cwd && chdir(p->start->cwd) != 0) fail(p, DML_FIELD_CWD);
  for (size_t i = 0; i < agent->rlimit_count; i++)
    if (setrlimit(agent->rlimits[i].resource, &agent->rlimits[i].value) != 0) fail(p, 0);
  if (p->search) errno = exec_search(p);
  else execve(p->start->argv[0], p->start->argv, p->start->envp);
  fail(p, DML_FIELD_CMD);
}

static void close_pair(int pair[2]) {
  for (int i = 0; i < 2; i++)
    if (pair[i] >= 0) close(pair[i]);
}

static bool open_pipes(const dml_start *start, int pipes[3][2]) {
  for (int i = start->has_stdin ? 0 : 1; i < 3; i++) {
    if (pipe2(pipes[i], O_CLOEXEC) != 0) return false;
    int ours = pipes[i][i == 0 ? 1 : 0];
    fcntl(ours, F_SETFL, fcntl(ours, F_GETFL) | O_NONBLOCK);
  }
  return true;
}

static const char *search_path(const dml_start *start) {
  if (strchr(start->argv[0], '/')) return NULL;
  for (char **env = start->envp; *env; env++)
    if (is_same_name(*env, "PATH=")) return *env + 5;
  return NULL;
}

dml_fault dml_spawn(dml_agent *agent, const dml_start *start, dml_spawned *out, int *which) {
  int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
  plan *p = calloc(1, sizeof *p);
  int error = 0;
  *which = 0;
  if (!p || !open_pipes(start, pipes)) {
    error = p ? errno : ENOMEM;
    goto done;
  }
  if (start->argv[0][0] == '\0') {
    error = ENOENT;
    *which = DML_FIELD_CMD;
    goto done;
  }
  *p = (plan){.agent = agent, .start = start, .search = search_path(start)};
  for (int i = 0; i < 3; i++) p->fds[i] = pipes[i][i == 0 ? 0 : 1];
  out->pid = vfork();
  if (out->pid == 0) run_child(p);
  error = out->pid < 0 ? errno : p->error;
  *which = out->pid < 0 ? 0 : p->which;
  for (int i = 0; i < 3 && error == 0; i++) {
    int ours = i == 0 ? 1 : 0;
    out->fds[i] = pipes[i][ours];
    pipes[i][ours] = -1;
  }
done:
  for (int i = 0; i < 3; i++) close_pair(pipes[i]);
  free(p);
  return dml_fault_from_errno(error);
}
