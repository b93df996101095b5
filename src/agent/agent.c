/* agent.c - set-up and the loop; see agent.h.
 *
 * The channel and SIGCHLD are polled beside one epoll set that holds all else: while the channel is full, leaving that
 * one descriptor out of the poll stops every producer at once. */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/process.h"
#include "agent/request.h"

#define EVENTS_A_TURN 64
#define HELLO_BYTES 64
#define ORPHAN_ROUNDS 64
#define CHILDREN_BYTES 4096

int64_t dml_agent_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint8_t *dml_agent_scratch(dml_agent *agent) {
  if (!agent->scratch) agent->scratch = malloc(DML_FRAME_DATA_MAX);
  if (!agent->scratch) agent->channel.is_broken = true;
  return agent->scratch;
}

/* ---- watches ---- */

bool dml_agent_watch(dml_agent *agent, dml_watch *watch, uint32_t events) {
  if (watch->fd < 0 || watch->events == events) return true;
  struct epoll_event event = {.events = events, .data.ptr = watch};
  int op = !events ? EPOLL_CTL_DEL : watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(agent->epoll_fd, op, watch->fd, &event) != 0) return false;
  watch->events = events;
  return true;
}

void dml_agent_unwatch(dml_agent *agent, dml_watch *watch) {
  if (watch->fd < 0) return;
  dml_agent_watch(agent, watch, 0);
  close(watch->fd);
  watch->fd = -1;
  watch->events = 0;
}

static void serve_watches(dml_agent *agent) {
  struct epoll_event events[EVENTS_A_TURN];
  int count = epoll_wait(agent->epoll_fd, events, EVENTS_A_TURN, 0);
  for (int i = 0; i < count && !dml_channel_is_full(&agent->channel); i++) {
    dml_watch *watch = events[i].data.ptr;
    if (watch->events) watch->ready(agent, watch); /* not if an earlier one of this turn stopped it */
  }
}

/* ---- the end ---- */

/* Kills what was left to us as subreaper: proc(5), /proc/pid/task/tid/children. False when there is none. */
static bool kill_orphans(void) {
  char text[CHILDREN_BYTES + 1];
  int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, CHILDREN_BYTES) : 0;
  if (fd >= 0) close(fd);
  if (got <= 0) return false;
  text[got] = '\0';
  for (char *at = text, *end;; at = end) {
    long pid = strtol(at, &end, 10);
    if (end == at) break;
    /* the last number may have been cut off, and then is somebody else's */
    if (*end != '\0') kill((pid_t)pid, SIGKILL);
  }
  while (waitpid(-1, NULL, WNOHANG) > 0) continue;
  return true;
}

_Noreturn void dml_agent_die(dml_agent *agent) {
  if (agent->is_init) {
    kill(-1, SIGKILL);
    _exit(0);
  }
  dml_process_kill_all(agent);
  for (int i = 0; i < ORPHAN_ROUNDS && kill_orphans(); i++) {
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
  }
  _exit(0);
}

/* ---- a turn ---- */

static void serve_frames(dml_agent *agent) {
  dml_frame frame;
  while (!agent->channel.is_broken && !dml_channel_is_full(&agent->channel)) {
    dml_frame_result result = dml_inbox_next(&agent->channel.inbox, &frame);
    if (result == DML_FRAME_MORE) return;
    if (result == DML_FRAME_BAD || !dml_request_serve(agent, &frame)) agent->channel.is_broken = true;
  }
}

static void serve_channel(dml_agent *agent, short events, bool is_full) {
  bool has_frame = dml_inbox_has_frame(&agent->channel.inbox);
  if ((events & (POLLIN | POLLHUP | POLLERR)) && !is_full && !has_frame) dml_channel_receive(&agent->channel);
  else if (events & (POLLHUP | POLLERR)) agent->channel.is_broken = true;
  serve_frames(agent);
}

static void run_jobs(dml_agent *agent) {
  for (dml_stream *job = agent->streams.jobs, *next; job; job = next) {
    if (dml_channel_is_full(&agent->channel)) {
      dml_stream_rotate_jobs(&agent->streams, job);
      return;
    }
    next = job->next_job;
    uint32_t id = job->id;
    if (!job->ops->step(agent, job) && dml_stream_find(&agent->streams, id) == job) dml_stream_rest(job);
  }
}

static void read_signals(dml_agent *agent) {
  struct signalfd_siginfo info;
  while (read(agent->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
    if (info.ssi_signo != SIGCHLD) dml_agent_die(agent);
  dml_process_reap(agent);
}

static void trim(dml_agent *agent) {
  free(agent->scratch);
  agent->scratch = NULL;
  dml_channel_trim(&agent->channel);
  malloc_trim(0);
}

static int poll_timeout(const dml_agent *agent, int64_t next_ms, int64_t now_ms, bool is_trimmed) {
  bool has_work = agent->streams.jobs || dml_inbox_has_frame(&agent->channel.inbox);
  if (has_work && !dml_channel_is_full(&agent->channel)) return 0;
  int64_t wait_ms = next_ms < 0 ? INT32_MAX : next_ms > now_ms ? next_ms - now_ms : 0;
  if (!is_trimmed && wait_ms > DML_AGENT_IDLE_MS) wait_ms = DML_AGENT_IDLE_MS;
  if (wait_ms >= INT32_MAX) return next_ms < 0 ? -1 : INT32_MAX;
  return (int)wait_ms;
}

_Noreturn static void loop(dml_agent *agent) {
  int64_t next_ms = -1;
  bool is_trimmed = false;
  for (;;) {
    dml_channel_flush(&agent->channel);
    if (agent->channel.is_broken) dml_agent_die(agent);
    bool is_full = dml_channel_is_full(&agent->channel);
    struct pollfd fds[3] = {{.fd = agent->channel.fd, .events = is_full ? 0 : POLLIN},
                            {.fd = agent->signal_fd, .events = POLLIN},
                            {.fd = is_full ? -1 : agent->epoll_fd, .events = POLLIN}};
    if (dml_channel_has_output(&agent->channel)) fds[0].events |= POLLOUT;
    int64_t now_ms = dml_agent_now_ms();
    int ready = poll(fds, 3, poll_timeout(agent, next_ms, now_ms, is_trimmed));
    if (ready == 0 && !is_trimmed && !agent->streams.jobs) {
      trim(agent);
      is_trimmed = true;
    } else if (ready > 0) {
      is_trimmed = false;
    }
    if (fds[1].revents) read_signals(agent);
    serve_channel(agent, fds[0].revents, is_full);
    if (fds[2].revents) serve_watches(agent);
    run_jobs(agent);
    next_ms = dml_process_tick(agent, dml_agent_now_ms());
  }
}

/* ---- set-up ---- */

/* close_range(2) is younger than some kernels: then one by one. */
static void close_from(unsigned first, unsigned last) {
  if (first > last || close_range(first, last, 0) == 0) return;
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  for (unsigned fd = first; fd <= last && fd < limit.rlim_cur; fd++) close((int)fd);
}

static bool fence_descriptors(int channel) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || null == channel) return false;
  for (int i = 0; i < 3; i++)
    if (i == channel || dup2(null, i) < 0) return false;
  if (channel > 3) close_from(3, (unsigned)channel - 1);
  close_from((unsigned)channel + 1, ~0u);
  return fcntl(channel, F_SETFD, FD_CLOEXEC) == 0;
}

/* By the bare system call, since libc keeps two signals to itself, which may be ignored too when we are started. All
 * zeros is SIG_DFL without flags: sigaction(2). */
static void reset_signals(void) {
  static const uint64_t DEFAULT[8] = {0};
  for (int i = 1; i <= SIGRTMAX; i++) syscall(SYS_rt_sigaction, i, DEFAULT, NULL, sizeof(uint64_t));
}

/* All signals as a fresh program has them, whatever the engine was started with. */
static int open_signals(bool is_init) {
  reset_signals();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  /* pid 1 must not see these: any process of the sandbox could send them */
  if (!is_init) {
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP);
  }
  if (sigprocmask(SIG_SETMASK, &mask, NULL) != 0) return -1;
  return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A child may not ask for more than the sandbox as a whole was given. */
static void take_limits(dml_agent *agent, const dml_agent_options *options) {
  for (size_t i = 0; i < options->rlimit_count; i++) {
    struct rlimit now;
    dml_rlimit *limit = &agent->rlimits[agent->rlimit_count];
    *limit = options->rlimits[i];
    if (getrlimit(limit->resource, &now) != 0) continue;
    if (now.rlim_max < limit->value.rlim_max) limit->value.rlim_max = limit->value.rlim_cur = now.rlim_max;
    agent->rlimit_count++;
  }
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  bool is_set = false;
  for (size_t i = 0; i < agent->rlimit_count; i++) is_set |= agent->rlimits[i].resource == RLIMIT_NOFILE;
  if (!is_set && agent->rlimit_count < DML_AGENT_RLIMITS_MAX)
    agent->rlimits[agent->rlimit_count++] = (dml_rlimit){RLIMIT_NOFILE, files};
  files.rlim_cur = files.rlim_max < DML_AGENT_NOFILE ? files.rlim_max : DML_AGENT_NOFILE;
  setrlimit(RLIMIT_NOFILE, &files);
}

static void send_hello(dml_agent *agent) {
  dml_fields fields;
  dml_fields_init(&fields, HELLO_BYTES);
  dml_fields_put_int(&fields, DML_FIELD_VERSION, DML_FRAME_VERSION);
  dml_channel_send_fields(&agent->channel, DML_FRAME_HELLO, 0, 0, &fields);
}

int dml_agent_run(const dml_agent_options *options) {
  static const struct rlimit NO_CORE = {0, 0};
  if (!fence_descriptors(options->channel_fd)) return 1;
  dml_agent *agent = calloc(1, sizeof *agent);
  if (!agent) return 1;
  agent->is_init = getpid() == 1;
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  umask(022);
  setrlimit(RLIMIT_CORE, &NO_CORE);
  agent->signal_fd = open_signals(agent->is_init);
  agent->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (agent->signal_fd < 0 || agent->epoll_fd < 0) return 1;
  take_limits(agent, options);
  dml_channel_init(&agent->channel, options->channel_fd);
  send_hello(agent);
  loop(agent);
}
