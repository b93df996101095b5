/* output.c - one output pipe of a process: from the pipe to whoever wants it, at the pace of the slowest. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/process.h"

static void on_ready(dml_agent *agent, dml_watch *watch) { dml_output_pump(agent, (dml_output *)watch); }

void dml_output_open(dml_agent *agent, dml_output *output, dml_process *process, int which, int fd) {
  output->watch = (dml_watch){.fd = fd, .ready = on_ready};
  output->process = process;
  output->which = which;
  output->keep.which = which;
  dml_output_rearm(agent, output);
}

static bool wants_part(const dml_output *output, const dml_subscriber *subscriber) {
  return subscriber->is_starter && output->is_kept;
}

/* How much may be read: what every subscriber has credit for. */
static size_t allowance(const dml_output *output) {
  const dml_process *process = output->process;
  size_t most = DML_FRAME_DATA_MAX;
  if (process->state == DML_PROCESS_ENDED) return most;
  for (const dml_subscriber *s = process->subscribers; s; s = s->next) {
    size_t credit = dml_stream_allowance(&s->stream);
    if (wants_part(output, s) && dml_keep_live_left(&output->keep) <= credit) continue;
    if (credit < most) most = credit;
  }
  if (process->state == DML_PROCESS_EXITED && output->pending < most) most = output->pending;
  return most;
}

void dml_output_rearm(dml_agent *agent, dml_output *output) {
  if (output->watch.fd < 0) return;
  uint32_t events = allowance(output) > 0 ? EPOLLIN : 0;
  if (events == output->watch.events) return;
  if (!dml_agent_watch(agent, &output->watch, events)) dml_agent_unwatch(agent, &output->watch);
}

static void deliver(dml_agent *agent, dml_output *output, const uint8_t *bytes, size_t len) {
  dml_process *process = output->process;
  if (process->state == DML_PROCESS_ENDED) return;
  size_t live = dml_keep_live_left(&output->keep);
  if (live > len) live = len;
  for (dml_subscriber *s = process->subscribers; s; s = s->next) {
    size_t part = wants_part(output, s) ? live : len;
    if (part) dml_stream_send_data(agent, &s->stream, (uint8_t)output->which, bytes, part);
  }
  if (output->is_kept) dml_keep_add(agent, &output->keep, bytes, len);
  if (!output->line) return;
  bool is_new = dml_line_add(output->line, bytes, len);
  if (is_new && output->is_kept && dml_keep_live_left(&output->keep) == 0) process->newest_line = output->line;
}

/* Returns whether it pays to read again. */
static bool read_once(dml_agent *agent, dml_output *output) {
  size_t most = allowance(output);
  uint8_t *scratch = most ? dml_agent_scratch(agent) : NULL;
  if (!scratch) return false;
  ssize_t got = read(output->watch.fd, scratch, most);
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) {
    output->pending = 0;
    return false;
  }
  if (got <= 0) {
    output->pending = 0;
    dml_agent_unwatch(agent, &output->watch);
    return false;
  }
  deliver(agent, output, scratch, (size_t)got);
  output->pending -= (size_t)got < output->pending ? (size_t)got : output->pending;
  return true;
}

void dml_output_pump(dml_agent *agent, dml_output *output) {
  bool go_on = output->watch.fd >= 0;
  while (go_on && !dml_channel_is_full(&agent->channel)) {
    go_on = read_once(agent, output) && output->process->state == DML_PROCESS_EXITED && output->pending > 0;
  }
  dml_output_rearm(agent, output);
}

void dml_output_settle(dml_output *output) {
  int waiting = 0;
  if (output->watch.fd < 0 || ioctl(output->watch.fd, FIONREAD, &waiting) != 0 || waiting < 0) waiting = 0;
  output->pending = waiting < DML_AGENT_EXIT_DRAIN_BYTES ? (size_t)waiting : DML_AGENT_EXIT_DRAIN_BYTES;
}
