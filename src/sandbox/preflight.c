/* preflight.c - see preflight.h. */
#include "sandbox/preflight.h"

#include <stdlib.h>
#include <unistd.h>

#include "sandbox/box.h"
#include "sandbox/memfd.h"

#define MESSAGE_MAX_BYTES 4096
#define MIB (1024ull * 1024)
#define TRIAL_PROGRAM "/usr/bin/true"

struct dml_preflight {
  dml_loop *loop;
  dml_preflight_cb cb;
  void *ud;
  dml_isolation *isolation;
  dml_box *box;
  int message_fd; /* what bubblewrap said */
  bool has_agent, is_started;
  uv_timer_t *timer;
  uv_poll_t *hello; /* the agent's first byte */
  dml_preflight_report report;
};

static void free_handle(uv_handle_t *handle) { free(handle); }

static void stop(dml_preflight *preflight) {
  if (preflight->timer) uv_close((uv_handle_t *)preflight->timer, free_handle);
  if (preflight->hello) {
    uv_poll_stop(preflight->hello);
    uv_close((uv_handle_t *)preflight->hello, free_handle);
  }
  preflight->timer = NULL;
  preflight->hello = NULL;
  dml_box_free(preflight->box);
  preflight->box = NULL;
  if (preflight->message_fd >= 0) close(preflight->message_fd);
  preflight->message_fd = -1;
  dml_isolation_unref(preflight->isolation);
  preflight->isolation = NULL;
}

/* The first cause of a check stays. */
static void blame(dml_preflight *preflight, dml_cause cause) {
  const dml_cause_row *row = dml_cause_peek(cause);
  if (!row) return;
  preflight->report.is_ok = false;
  if (preflight->report.checks[row->check] == DML_CAUSE_NONE) preflight->report.checks[row->check] = cause;
}

static void blame_trial(dml_preflight *preflight, dml_cause cause) {
  blame(preflight, cause);
  blame(preflight, DML_CAUSE_TRIAL_FAILED); /* unless the cause is the trial's own */
}

static void finish(dml_preflight *preflight) {
  stop(preflight);
  preflight->cb(&preflight->report, preflight->ud); /* may free it */
}

/* ---- the trial ---- */

static void on_timer(uv_timer_t *timer) {
  dml_preflight *preflight = timer->data;
  if (preflight->is_started) blame(preflight, DML_CAUSE_TRIAL_TIMEOUT);
  finish(preflight);
}

static void on_hello(uv_poll_t *poll, int status, int events) {
  (void)status;
  (void)events;
  char byte;
  dml_preflight *preflight = poll->data;
  /* At its end without a byte the agent is dead; on_ended will say why. */
  uv_poll_stop(poll);
  if (read(dml_box_peek_channel(preflight->box), &byte, 1) == 1) finish(preflight);
}

static void on_ended(dml_box *box, void *ud) {
  dml_preflight *preflight = ud;
  char message[MESSAGE_MAX_BYTES];
  if (preflight->has_agent || dml_box_exit_code(box) != 0) {
    ssize_t n = pread(preflight->message_fd, message, sizeof message, 0);
    blame_trial(preflight, dml_cause_of_trial(message, n > 0 ? (size_t)n : 0));
  }
  finish(preflight);
}

static bool watch_hello(dml_preflight *preflight) {
  uv_poll_t *hello = calloc(1, sizeof *hello);
  if (!hello) return false;
  if (uv_poll_init(dml_loop_uv(preflight->loop), hello, dml_box_peek_channel(preflight->box)) != 0) {
    free(hello);
    return false;
  }
  hello->data = preflight;
  preflight->hello = hello;
  return uv_poll_start(hello, UV_READABLE, on_hello) == 0;
}

static dml_cause of_status(dml_status status) {
  return status == DML_NO_CAPACITY ? DML_CAUSE_NO_CAPACITY : DML_CAUSE_UNKNOWN;
}

static void start_trial(dml_preflight *preflight) {
  dml_box_options options = {
      .name = "preflight",
      .disk_bytes = 16 * MIB,
      .limits = {.memory_bytes = 256 * MIB, .cpu_count = 1, .pids_count = 32},
      .program = preflight->has_agent ? NULL : TRIAL_PROGRAM,
  };
  dml_status status = dml_memfd_fixed("message", MESSAGE_MAX_BYTES, &preflight->message_fd);
  options.stderr_fd = preflight->message_fd;
  if (status == DML_OK) status = dml_box_start(preflight->isolation, &options, on_ended, preflight, &preflight->box);
  if (status == DML_OK && preflight->has_agent && !watch_hello(preflight)) status = DML_INTERNAL;
  if (status == DML_OK)
    preflight->is_started = true;
  else
    blame(preflight, of_status(status));
}

/* ---- what can be seen ---- */

static void check_identity(dml_preflight *preflight) {
  dml_uid_range range;
  if (!preflight->report.is_range) return;
  dml_status status = dml_uid_range_open(&range);
  if (status == DML_UNSUPPORTED) blame(preflight, DML_CAUSE_UID_UNMAPPED);
  if (status == DML_FILE_PERMISSION) blame(preflight, DML_CAUSE_UID_LOCKS);
  dml_uid_range_close(&range);
}

static void check_limits(dml_preflight *preflight) {
  dml_preflight_report *report = &preflight->report;
  const dml_cgroups *groups = preflight->isolation ? &preflight->isolation->cgroups : NULL;
  if (!groups || !groups->backend) return;
  report->limits_kind = groups->backend->kind;
  report->has_memory = dml_cgroups_holds(groups, DML_CGROUP_MEMORY);
  report->has_cpu = dml_cgroups_holds(groups, DML_CGROUP_CPU);
  report->has_pids = dml_cgroups_holds(groups, DML_CGROUP_PIDS);
}

static void check(dml_preflight *preflight, const char *agent_path) {
  blame(preflight, dml_cause_of_bubblewrap(dml_bubblewrap_find()));
  preflight->report.limits_kind = "none";
  preflight->report.is_range = geteuid() == 0;
  if (access("/proc/self/status", R_OK) != 0) {
    blame(preflight, DML_CAUSE_PROC_ABSENT);
    return; /* all the rest is read from there */
  }
  blame(preflight, dml_cause_of_user_namespaces());
  check_identity(preflight);
  dml_status status = dml_isolation_new(preflight->loop, agent_path, &preflight->isolation);
  check_limits(preflight);
  if (status == DML_UNSUPPORTED) blame(preflight, DML_CAUSE_MEMFD_NOEXEC);
  if (status == DML_FILE_NOT_FOUND || status == DML_FILE_PERMISSION || status == DML_TOO_LARGE)
    blame(preflight, DML_CAUSE_AGENT_MISSING);
  else if (status != DML_OK && preflight->report.is_ok)
    blame(preflight, of_status(status));
}

dml_status dml_preflight_start(dml_loop *loop, const char *agent_path, dml_preflight_cb cb, void *ud,
                               dml_preflight **out) {
  *out = NULL;
  dml_preflight *preflight = calloc(1, sizeof *preflight);
  uv_timer_t *timer = calloc(1, sizeof *timer);
  if (!preflight || !timer) {
    free(preflight);
    free(timer);
    return DML_INTERNAL;
  }
  preflight->loop = loop;
  preflight->cb = cb;
  preflight->ud = ud;
  preflight->has_agent = agent_path != NULL;
  preflight->message_fd = -1;
  preflight->report.is_ok = true;
  uv_timer_init(dml_loop_uv(loop), timer);
  timer->data = preflight;
  preflight->timer = timer;

  check(preflight, agent_path);
  if (preflight->report.is_ok)
    start_trial(preflight);
  else
    blame(preflight, DML_CAUSE_TRIAL_SKIPPED);
  /* Without a trial the callback still comes from the loop. */
  uv_update_time(dml_loop_uv(loop));
  uv_timer_start(timer, on_timer, preflight->is_started ? DML_PREFLIGHT_TRIAL_MS : 0, 0);
  *out = preflight;
  return DML_OK;
}

void dml_preflight_free(dml_preflight *preflight) {
  if (!preflight) return;
  stop(preflight);
  free(preflight);
}
