/* box.c - see box.h. */
#include "sandbox/box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/args.h"
#include "sandbox/pause.h"
#include "sandbox/spawn.h"

#define INFO_MAX_BYTES 1024
#define FREE_WAIT_MS 1000
#define SETPRIV "/usr/bin/setpriv"
/* The processes of a group that are not the sandbox's own: bubblewrap's outer one and the agent. */
#define OVERHEAD_PIDS 2u
#define MIB (1024ull * 1024)

struct dml_box {
  dml_isolation *isolation;
  dml_box_ended_cb cb;
  void *ud;
  pid_t pid, inner_pid; /* the latter 0 when it is not known, or over */
  int pidfd;            /* bubblewrap; -1 when there is none or it is reaped */
  int inner_pidfd;
  int info_fd; /* bubblewrap tells the pid of the first process inside */
  uv_poll_t *pidfd_poll, *inner_poll, *info_poll;
  char info[INFO_MAX_BYTES];
  size_t info_len;
  int channel_fd;
  uid_t uid;
  int uid_lock_fd;
  dml_cgroup cgroup;
  dml_pause pause;
  int exit_code;
  bool has_ended;
};

/* ---- watching ---- */

static void free_handle(uv_handle_t *handle) { free(handle); }

static void unwatch(uv_poll_t **poll) {
  if (!*poll) return;
  uv_poll_stop(*poll);
  uv_close((uv_handle_t *)*poll, free_handle);
  *poll = NULL;
}

static bool watch(dml_box *box, int fd, uv_poll_cb cb, uv_poll_t **out) {
  uv_poll_t *poll = calloc(1, sizeof *poll);
  *out = NULL;
  if (!poll) return false;
  if (uv_poll_init(dml_loop_uv(box->isolation->loop), poll, fd) != 0) {
    free(poll);
    return false;
  }
  poll->data = box;
  *out = poll;
  return uv_poll_start(poll, UV_READABLE, cb) == 0;
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static bool is_readable(int fd, int timeout_ms) {
  struct pollfd pfd = {.fd = fd, .events = POLLIN};
  int n;
  do n = poll(&pfd, 1, timeout_ms);
  while (n < 0 && errno == EINTR);
  return n > 0;
}

static void send_kill(int pidfd) {
  if (pidfd >= 0) syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

/* ---- the first process inside ---- */

static const char *status_line(const char *text, const char *key) {
  const char *at = strstr(text, key);
  return at ? at + strlen(key) : NULL;
}

/* A pid may have changed hands before we held it: it is ours when it is the first of a nested pid namespace and has the
 * sandbox's kernel uid. */
static bool is_inner(const dml_box *box, pid_t pid) {
  char path[32], text[4096];
  unsigned uid;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = '\0';
  const char *line = status_line(text, "\nUid:");
  if (!line || sscanf(line, "%u", &uid) != 1 || uid != box->uid) return false;
  line = status_line(text, "\nNSpid:");
  if (!line) return false;
  int last = 0, count = 0, len = 0;
  while (sscanf(line, " %d%n", &last, &len) == 1) {
    if (memchr(line, '\n', (size_t)len)) break; /* the next line */
    count++;
    line += len;
  }
  return count > 1 && last == 1;
}

static void on_inner(uv_poll_t *poll, int status, int events);

static void hold_inner(dml_box *box) {
  static const char KEY[] = "\"child-pid\":";
  const char *at = strstr(box->info, KEY);
  long pid = at ? strtol(at + sizeof KEY - 1, NULL, 10) : 0;
  if (pid <= 1 || box->inner_pidfd >= 0) return;
  box->inner_pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
  if (box->inner_pidfd >= 0 && is_inner(box, (pid_t)pid) && watch(box, box->inner_pidfd, on_inner, &box->inner_poll)) {
    box->inner_pid = (pid_t)pid;
    return;
  }
  unwatch(&box->inner_poll);
  close_fd(&box->inner_pidfd);
}

static void read_info(dml_box *box) {
  while (box->info_fd >= 0) {
    ssize_t n = read(box->info_fd, box->info + box->info_len, sizeof box->info - 1 - box->info_len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n > 0) {
      box->info_len += (size_t)n;
      box->info[box->info_len] = '\0';
      if (!strchr(box->info, '}')) continue;
    }
    /* The pid is in, or will never be. */
    unwatch(&box->info_poll);
    close_fd(&box->info_fd);
    hold_inner(box);
  }
}

static void on_info(uv_poll_t *poll, int status, int events) {
  (void)status;
  (void)events;
  read_info(poll->data);
}

/* ---- the end ---- */

static void reap(dml_box *box) {
  siginfo_t info = {0};
  while (waitid(P_PIDFD, (id_t)box->pidfd, &info, WEXITED | WNOHANG) != 0 && errno == EINTR) continue;
  box->exit_code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  unwatch(&box->pidfd_poll);
  close_fd(&box->pidfd);
  /* A last look for the pid, in case bubblewrap was killed while it started. */
  read_info(box);
  unwatch(&box->info_poll);
  close_fd(&box->info_fd);
  send_kill(box->inner_pidfd);
}

static void end_if_over(dml_box *box) {
  if (box->pidfd >= 0 || box->inner_pidfd >= 0 || box->has_ended) return;
  box->has_ended = true;
  box->cb(box, box->ud); /* may free the box */
}

static void on_outer(uv_poll_t *poll, int status, int events) {
  (void)events;
  (void)status;
  dml_box *box = poll->data;
  if (!is_readable(box->pidfd, 0)) return;
  reap(box);
  end_if_over(box);
}

static void on_inner(uv_poll_t *poll, int status, int events) {
  (void)events;
  (void)status;
  dml_box *box = poll->data;
  if (!is_readable(box->inner_pidfd, 0)) return;
  unwatch(&box->inner_poll);
  close_fd(&box->inner_pidfd);
  box->inner_pid = 0;
  end_if_over(box);
}

void dml_box_kill(dml_box *box) {
  if (box->info_fd >= 0) read_info(box);
  send_kill(box->pidfd);
  send_kill(box->inner_pidfd);
}

/* ---- the start ---- */

static bool is_name(const char *name) {
  size_t len = strnlen(name, DML_BOX_NAME_MAX_BYTES + 1);
  if (len == 0 || len > DML_BOX_NAME_MAX_BYTES) return false;
  for (size_t i = 0; i < len; i++)
    if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9'))) return false;
  return true;
}

/* What runs before bubblewrap: it joins the groups, drops to the uid and ties itself to our life. */
static void add_launch(const dml_box *box, dml_spawn *spawn, dml_args *args) {
  dml_args_add(args, "demilune-agent", "launch", NULL);
  if (box->isolation->is_root) {
    dml_args_add(args, "--uid", NULL);
    dml_args_addf(args, "%u", (unsigned)box->uid);
    dml_args_add(args, "--gid", NULL);
    dml_args_addf(args, "%u", (unsigned)box->uid);
  }
  dml_args_add(args, "--parent", NULL);
  dml_args_addf(args, "%d", (int)getpid());
  for (size_t i = 0; i < box->cgroup.procs_count; i++) {
    dml_args_add(args, "--cgroup-procs", NULL);
    dml_args_addf(args, "%d", dml_spawn_lend(spawn, box->cgroup.procs_fds[i]));
  }
  dml_args_add(args, "--", NULL);
}

/* A trial without an agent: util-linux drops the uid, where there is one to drop. */
static void add_setpriv(const dml_box *box, dml_args *args) {
  if (!box->isolation->is_root) return;
  dml_args_add(args, SETPRIV, "--clear-groups", "--reuid", NULL);
  dml_args_addf(args, "%u", (unsigned)box->uid);
  dml_args_add(args, "--regid", NULL);
  dml_args_addf(args, "%u", (unsigned)box->uid);
  dml_args_add(args, "--", NULL);
}

static unsigned nofile(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max > DML_BOX_NOFILE) return DML_BOX_NOFILE;
  return (unsigned)limit.rlim_max;
}

/* A net below the group's limit, and all there is where no group holds. It counts for each process alone, so it is
 * generous where the whole is bounded. Not RLIMIT_AS: runtimes reserve far more addresses than memory. */
static unsigned long long data_bytes(const dml_box *box, const dml_cgroup_limits *limits) {
  unsigned long long wanted = limits->memory_bytes > 0 ? limits->memory_bytes : 2048 * MIB;
  if (!dml_cgroups_holds(&box->isolation->cgroups, DML_CGROUP_MEMORY)) return wanted;
  return wanted * 2 > 4096 * MIB ? wanted * 2 : 4096 * MIB;
}

static void add_agent(const dml_box *box, const dml_box_options *options, int agent_fd, int channel_fd,
                      dml_args *args) {
  dml_args_addf(args, "/proc/self/fd/%d", agent_fd);
  dml_args_add(args, "run", "--channel", NULL);
  dml_args_addf(args, "%d", channel_fd);
  if (options->limits.pids_count > 0) {
    dml_args_add(args, "--nproc", NULL);
    dml_args_addf(args, "%u", options->limits.pids_count);
  }
  dml_args_add(args, "--nofile", NULL);
  dml_args_addf(args, "%u", nofile());
  dml_args_add(args, "--data-bytes", NULL);
  dml_args_addf(args, "%llu", data_bytes(box, &options->limits));
  dml_args_add(args, "--fsize-bytes", NULL);
  dml_args_addf(args, "%llu",
                (unsigned long long)options->disk_bytes * 2); /* the tmpfs is full first: ENOSPC, not SIGXFSZ */
}

static dml_status spawn_box(dml_box *box, const dml_box_options *options, int channel_fd, int info_fd) {
  char *const *argv;
  char path[32];
  const dml_isolation *isolation = box->isolation;
  dml_spawn spawn;
  dml_args *args = malloc(sizeof *args);
  if (!args) return DML_INTERNAL;
  dml_spawn_init(&spawn);
  dml_args_init(args);
  dml_spawn_set_stderr(&spawn, options->stderr_fd);
  int agent_fd = isolation->agent_fd >= 0 ? dml_spawn_lend(&spawn, isolation->agent_fd) : -1;
  if (agent_fd >= 0)
    add_launch(box, &spawn, args);
  else
    add_setpriv(box, args);
  dml_bubblewrap_arguments(&isolation->bubblewrap, options->disk_bytes, dml_spawn_lend(&spawn, info_fd), &spawn, args);
  if (options->program)
    dml_args_add(args, options->program, NULL);
  else
    add_agent(box, options, agent_fd, dml_spawn_lend(&spawn, channel_fd), args);
  dml_status status = dml_args_finish(args, &argv);
  if (status == DML_OK) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", agent_fd);
    status = dml_spawn_run(&spawn, agent_fd >= 0 ? path : argv[0], argv, &box->pid, &box->pidfd);
  }
  dml_spawn_deinit(&spawn);
  free(args);
  return status;
}

static dml_status limit_box(dml_box *box, const dml_box_options *options) {
  dml_cgroup_limits limits = options->limits;
  if (limits.pids_count > 0) limits.pids_count += OVERHEAD_PIDS;
  /* Files lie in memory and cannot be taken back by ending a process: a full disk must leave room to run `rm`. */
  if (limits.memory_bytes > 0) limits.memory_bytes += dml_bubblewrap_writable_bytes(options->disk_bytes);
  return dml_cgroup_init(&box->cgroup, &box->isolation->cgroups, options->name, &limits);
}

static dml_status fill_box(dml_box *box, const dml_box_options *options, int sockets[2], int info[2]) {
  dml_status status = DML_OK;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 || pipe2(info, O_CLOEXEC) != 0)
    return errno == EMFILE || errno == ENFILE ? DML_NO_CAPACITY : DML_INTERNAL;
  if (box->isolation->is_root) status = dml_uid_range_take(&box->isolation->uids, &box->uid, &box->uid_lock_fd);
  if (status == DML_OK) status = limit_box(box, options);
  if (status == DML_OK) status = spawn_box(box, options, sockets[1], info[1]);
  dml_cgroup_close_procs(&box->cgroup);
  if (status != DML_OK) return status;
  box->channel_fd = sockets[0];
  box->info_fd = info[0];
  sockets[0] = info[0] = -1;
  fcntl(box->info_fd, F_SETFL, O_NONBLOCK);
  if (!watch(box, box->pidfd, on_outer, &box->pidfd_poll) || !watch(box, box->info_fd, on_info, &box->info_poll))
    return DML_INTERNAL;
  return DML_OK;
}

dml_status dml_box_start(dml_isolation *isolation, const dml_box_options *options, dml_box_ended_cb cb, void *ud,
                         dml_box **out) {
  int sockets[2] = {-1, -1}, info[2] = {-1, -1};
  *out = NULL;
  if (!is_name(options->name)) return DML_INVALID_ARGUMENT;
  if (isolation->agent_fd < 0 && !options->program) return DML_INTERNAL;
  dml_box *box = calloc(1, sizeof *box);
  if (!box) return DML_INTERNAL;
  box->isolation = isolation;
  dml_isolation_ref(isolation);
  box->cb = cb;
  box->ud = ud;
  box->uid = geteuid();
  box->pidfd = box->inner_pidfd = box->info_fd = box->channel_fd = box->uid_lock_fd = -1;
  box->exit_code = -1;
  dml_status status = fill_box(box, options, sockets, info);
  for (int i = 0; i < 2; i++) {
    close_fd(&sockets[i]);
    close_fd(&info[i]);
  }
  if (status != DML_OK) {
    dml_box_free(box);
    return status == DML_FILE_NOT_FOUND || status == DML_FILE_PERMISSION ? DML_LOCAL_ISOLATION_UNAVAILABLE : status;
  }
  *out = box;
  return DML_OK;
}

/* ---- the rest ---- */

pid_t dml_box_pid(const dml_box *box) { return box->pid; }

int dml_box_peek_channel(const dml_box *box) { return box->channel_fd; }

int dml_box_take_channel(dml_box *box) {
  int fd = box->channel_fd;
  box->channel_fd = -1;
  return fd;
}

bool dml_box_has_ended(const dml_box *box) { return box->has_ended; }

int dml_box_exit_code(const dml_box *box) { return box->exit_code; }

static dml_pause_subject pause_subject(const dml_box *box) {
  return (dml_pause_subject){.root = box->pid, .groups = &box->isolation->cgroups, .group = &box->cgroup};
}

dml_status dml_box_pause(dml_box *box, bool *is_done) {
  const dml_pause_subject subject = pause_subject(box);
  *is_done = false;
  return box->pidfd < 0 ? DML_CONFLICT : dml_pause_on(&box->pause, &subject, is_done);
}

dml_status dml_box_resume(dml_box *box) {
  const dml_pause_subject subject = pause_subject(box);
  return box->pidfd < 0 ? DML_CONFLICT : dml_pause_off(&box->pause, &subject);
}

dml_status dml_box_usage(const dml_box *box, dml_usage *usage) {
  if (box->pidfd < 0) return DML_CONFLICT;
  return dml_usage_read(usage, box->pid, box->inner_pid, &box->isolation->cgroups, &box->cgroup);
}

dml_status dml_box_release(dml_box *box) {
  if (box->pidfd >= 0 || box->inner_pidfd >= 0) return DML_CONFLICT;
  dml_pause_deinit(&box->pause);
  dml_cgroup_deinit(&box->cgroup, &box->isolation->cgroups);
  close_fd(&box->uid_lock_fd);
  return DML_OK;
}

/* Without the loop, for a box that nobody waits for any more. */
static void end_now(dml_box *box) {
  if (box->pidfd >= 0) {
    dml_box_kill(box);
    is_readable(box->pidfd, FREE_WAIT_MS);
    reap(box);
  }
  if (box->inner_pidfd >= 0) is_readable(box->inner_pidfd, FREE_WAIT_MS);
  unwatch(&box->inner_poll);
  close_fd(&box->inner_pidfd);
}

void dml_box_free(dml_box *box) {
  if (!box) return;
  end_now(box);
  dml_box_release(box);
  close_fd(&box->channel_fd);
  unwatch(&box->info_poll);
  close_fd(&box->info_fd);
  dml_isolation_unref(box->isolation);
  free(box);
}
