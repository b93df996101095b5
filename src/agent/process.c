/* process.c - the table of processes; see process.h. */
#include "agent/process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/fault.h"

#define SMALL_FIELDS_BYTES 512

/* ---- subscribers ---- */

static void rearm(dml_agent *agent, dml_process *process) {
  for (int i = 0; i < 2; i++) dml_output_rearm(agent, &process->outputs[i]);
}

static void subscriber_data(dml_agent *agent, dml_stream *stream, const uint8_t *bytes, size_t len) {
  dml_input_add(agent, &((dml_subscriber *)stream)->process->input, stream, bytes, len);
}

static void subscriber_end(dml_agent *agent, dml_stream *stream) {
  dml_input_end(agent, &((dml_subscriber *)stream)->process->input);
}

static void subscriber_credit(dml_agent *agent, dml_stream *stream) {
  rearm(agent, ((dml_subscriber *)stream)->process);
}

/* The starter leaves: nobody will ask for head and tail any more. */
static void stop_keeping(dml_agent *agent, dml_process *process) {
  for (int i = 0; i < 2; i++) {
    process->outputs[i].is_kept = false;
    dml_keep_deinit(agent, &process->outputs[i].keep, true);
  }
  process->newest_line = NULL;
}

static void subscriber_drop(dml_agent *agent, dml_stream *stream) {
  dml_subscriber *gone = (dml_subscriber *)stream;
  dml_process *process = gone->process;
  for (dml_subscriber **at = &process->subscribers; *at; at = &(*at)->next)
    if (*at == gone) {
      *at = gone->next;
      break;
    }
  if (gone->is_starter && process->state != DML_PROCESS_ENDED) stop_keeping(agent, process);
  if (process->state != DML_PROCESS_ENDED) rearm(agent, process);
  free(gone);
}

static const dml_stream_ops SUBSCRIBER = {
    .data = subscriber_data, .end = subscriber_end, .credit = subscriber_credit, .drop = subscriber_drop};

static dml_subscriber *subscribe(dml_agent *agent, dml_process *process, uint32_t id) {
  dml_subscriber *subscriber = calloc(1, sizeof *subscriber);
  if (!subscriber) return NULL;
  subscriber->process = process;
  subscriber->next = process->subscribers;
  process->subscribers = subscriber;
  dml_stream_open(&agent->streams, &subscriber->stream, id, &SUBSCRIBER);
  return subscriber;
}

static void send_started(dml_agent *agent, uint32_t stream, pid_t pid) {
  dml_fields fields;
  dml_fields_init(&fields, SMALL_FIELDS_BYTES);
  dml_fields_put_int(&fields, DML_FIELD_PID, pid);
  dml_channel_send_fields(&agent->channel, DML_FRAME_STARTED, 0, stream, &fields);
}

static void send_exit(dml_agent *agent, uint32_t stream, const dml_process *process) {
  dml_fields fields;
  dml_fields_init(&fields, SMALL_FIELDS_BYTES);
  if (WIFEXITED(process->wait_status)) dml_fields_put_int(&fields, DML_FIELD_CODE, WEXITSTATUS(process->wait_status));
  else dml_fields_put_int(&fields, DML_FIELD_SIGNO, WTERMSIG(process->wait_status));
  dml_fields_put_int(&fields, DML_FIELD_TIMED_OUT, process->has_timed_out);
  dml_channel_send_fields(&agent->channel, DML_FRAME_EXIT, 0, stream, &fields);
}

/* ---- the table ---- */

static void link_process(dml_agent *agent, dml_process *process) {
  process->next = agent->processes;
  process->back = &agent->processes;
  if (process->next) process->next->back = &process->next;
  agent->processes = process;
}

static bool is_leftover(const dml_process *process) {
  return process->outputs[0].watch.fd >= 0 || process->outputs[1].watch.fd >= 0;
}

/* Frees an ended process. No watch of it may be served after this in the same turn: the loop asks only once a turn, at
 * its end. */
static void forget(dml_agent *agent, dml_process *process) {
  *process->back = process->next;
  if (process->next) process->next->back = process->back;
  agent->ended_count--;
  for (int i = 0; i < 2; i++) {
    dml_agent_unwatch(agent, &process->outputs[i].watch);
    free(process->outputs[i].line);
  }
  free(process->tag);
  free(process->shown);
  free(process);
}

static dml_process *find(const dml_agent *agent, pid_t pid, const char *tag) {
  for (dml_process *p = agent->processes; p; p = p->next)
    if (tag ? p->tag && strcmp(p->tag, tag) == 0 : p->pid == pid) return p;
  return NULL;
}

/* ---- start ---- */

static bool describe(dml_process *process, const dml_start *start) {
  dml_fields fields;
  dml_fields_init(&fields, DML_AGENT_COMMAND_LINE_MAX);
  dml_fields_put_text(&fields, DML_FIELD_CMD, start->argv[0]);
  if (start->cwd) dml_fields_put_text(&fields, DML_FIELD_CWD, start->cwd);
  if (start->tag) dml_fields_put_text(&fields, DML_FIELD_TAG, start->tag);
  size_t whole = fields.len;
  for (size_t i = 1; i < start->argc && !fields.failed; i++) {
    whole = fields.len;
    dml_fields_put_text(&fields, DML_FIELD_ARG, start->argv[i]);
  }
  process->shown = fields.data;
  process->shown_len = fields.failed ? whole : fields.len; /* arguments over the limit are left out */
  if (start->tag) process->tag = strdup(start->tag);
  return process->shown && (process->tag || !start->tag);
}

static bool prepare_output(dml_output *output, const dml_start *start, int i) {
  const dml_start_output *wanted = &start->outputs[i];
  output->watch.fd = -1;
  output->is_kept = wanted->live >= 0;
  if (output->is_kept) {
    output->keep.live = (size_t)wanted->live;
    output->keep.tail = (size_t)wanted->tail;
    output->keep.spool_at = (size_t)wanted->spool_at;
  }
  if (start->wants_progress) output->line = calloc(1, sizeof *output->line);
  return output->line || !start->wants_progress;
}

static void discard(dml_process *process) {
  for (int i = 0; i < 2; i++) free(process->outputs[i].line);
  free(process->tag);
  free(process->shown);
  free(process);
}

void dml_process_start(dml_agent *agent, uint32_t stream, const dml_start *start) {
  dml_fault fault = DML_FAULT_EXHAUSTED;
  int which = 0;
  dml_spawned spawned = {.fds = {-1, -1, -1}};
  dml_process *process = agent->running_count < DML_AGENT_PROCESSES_MAX ? calloc(1, sizeof *process) : NULL;
  bool is_ready = process && prepare_output(&process->outputs[0], start, 0) &&
                  prepare_output(&process->outputs[1], start, 1) && describe(process, start);
  if (is_ready) fault = dml_spawn(agent, start, &spawned, &which);
  if (fault != DML_FAULT_NONE) {
    if (process) discard(process);
    dml_channel_send_error(&agent->channel, stream, fault, which);
    return;
  }
  process->pid = spawned.pid;
  if (start->timeout_ms) process->deadline_ms = dml_agent_now_ms() + start->timeout_ms;
  link_process(agent, process);
  agent->running_count++;
  send_started(agent, stream, process->pid);
  dml_subscriber *starter = subscribe(agent, process, stream);
  if (starter) starter->is_starter = true;
  else agent->channel.is_broken = true; /* out of memory after the fact: the sandbox is beyond help */
  dml_input_open(&process->input, process, spawned.fds[0]);
  for (int i = 0; i < 2; i++)
    dml_output_open(agent, &process->outputs[i], process, i == 0 ? DML_FRAME_STDOUT : DML_FRAME_STDERR,
                    spawned.fds[i + 1]);
}

/* ---- exit ---- */

void dml_process_reap(dml_agent *agent) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    dml_process *process = find(agent, pid, NULL);
    if (!process || process->state != DML_PROCESS_RUNNING) continue;
    process->state = DML_PROCESS_EXITED;
    process->wait_status = status;
    process->deadline_ms = 0;
    for (int i = 0; i < 2; i++) {
      dml_output_settle(&process->outputs[i]);
      dml_output_pump(agent, &process->outputs[i]);
    }
  }
}

/* All that counts is delivered: says so to everyone and keeps the entry. */
static void end_process(dml_agent *agent, dml_process *process, int64_t now_ms) {
  process->state = DML_PROCESS_ENDED;
  process->ended_ms = now_ms;
  agent->running_count--;
  agent->ended_count++;
  dml_input_close(agent, &process->input);
  while (process->subscribers) {
    dml_subscriber *s = process->subscribers;
    for (int i = 0; i < 2 && s->is_starter; i++)
      if (process->outputs[i].is_kept) dml_keep_send(agent, &process->outputs[i].keep, s->stream.id);
    send_exit(agent, s->stream.id, process);
    dml_stream_close(agent, &s->stream);
  }
  for (int i = 0; i < 2; i++) {
    dml_keep_deinit(agent, &process->outputs[i].keep, false);
    dml_output_rearm(agent, &process->outputs[i]);
  }
}

/* ---- requests ---- */

void dml_process_connect(dml_agent *agent, uint32_t stream, pid_t pid, const char *tag) {
  dml_process *process = find(agent, pid, tag);
  if (!process) {
    dml_channel_send_error(&agent->channel, stream, DML_FAULT_NOT_FOUND, 0);
    return;
  }
  size_t count = 0;
  for (dml_subscriber *s = process->subscribers; s; s = s->next) count++;
  bool has_ended = process->state == DML_PROCESS_ENDED;
  bool is_full = count >= DML_AGENT_SUBSCRIBERS_MAX || process->input.queued >= DML_AGENT_INPUT_MAX;
  if (!has_ended && (is_full || !subscribe(agent, process, stream))) {
    dml_channel_send_error(&agent->channel, stream, DML_FAULT_EXHAUSTED, 0);
    return;
  }
  send_started(agent, stream, process->pid);
  if (has_ended) send_exit(agent, stream, process);
}

void dml_process_signal(dml_agent *agent, uint32_t stream, pid_t pid, int signo) {
  const dml_process *process = find(agent, pid, NULL);
  if (!process || kill(-process->pid, signo) != 0)
    dml_channel_send_error(&agent->channel, stream, process ? dml_fault_from_errno(errno == ESRCH ? ENOENT : errno)
                                                            : DML_FAULT_NOT_FOUND, 0);
  else dml_channel_send_done(&agent->channel, stream);
}

void dml_process_list(dml_agent *agent, uint32_t stream) {
  for (const dml_process *p = agent->processes; p; p = p->next) {
    if (p->state == DML_PROCESS_ENDED) continue;
    dml_fields fields;
    dml_fields_init(&fields, DML_AGENT_COMMAND_LINE_MAX + SMALL_FIELDS_BYTES);
    dml_fields_put_int(&fields, DML_FIELD_PID, p->pid);
    size_t need = fields.len + p->shown_len;
    uint8_t *whole = fields.failed ? NULL : realloc(fields.data, need);
    if (whole) {
      memcpy(whole + fields.len, p->shown, p->shown_len);
      fields.data = whole;
      fields.len = fields.capacity = need;
    } else {
      fields.failed = true;
    }
    dml_channel_send_fields(&agent->channel, DML_FRAME_ENTRY, 0, stream, &fields);
  }
  dml_channel_send_done(&agent->channel, stream);
}

/* ---- time ---- */

static void earlier(int64_t *next_ms, int64_t at_ms) {
  if (*next_ms < 0 || at_ms < *next_ms) *next_ms = at_ms;
}

static void send_line(dml_agent *agent, dml_process *process, int64_t now_ms, int64_t *next_ms) {
  int64_t due_ms = process->line_sent_ms + DML_AGENT_LINE_INTERVAL_MS;
  if (now_ms < due_ms) {
    earlier(next_ms, due_ms);
    return;
  }
  for (const dml_subscriber *s = process->subscribers; s; s = s->next)
    if (s->is_starter)
      dml_channel_send(&agent->channel, DML_FRAME_LINE, 0, s->stream.id, process->newest_line->text,
                       process->newest_line->text_len);
  process->newest_line = NULL;
  process->line_sent_ms = now_ms;
}

static void check_deadline(dml_process *process, int64_t now_ms, int64_t *next_ms) {
  if (now_ms < process->deadline_ms) {
    earlier(next_ms, process->deadline_ms);
    return;
  }
  process->has_timed_out = true;
  process->deadline_ms = 0;
  kill(-process->pid, SIGKILL);
}

static void check_live(dml_agent *agent, dml_process *process, int64_t now_ms, int64_t *next_ms) {
  if (process->deadline_ms) check_deadline(process, now_ms, next_ms);
  if (dml_channel_is_full(&agent->channel)) return;
  if (process->newest_line) send_line(agent, process, now_ms, next_ms);
  if (process->state == DML_PROCESS_EXITED && process->outputs[0].pending == 0 && process->outputs[1].pending == 0)
    end_process(agent, process, now_ms);
}

/* Walks newest first, so what is over the bounds is the oldest. */
static void forget_old(dml_agent *agent, int64_t now_ms, int64_t *next_ms) {
  size_t plain = 0, leftovers = 0;
  for (dml_process *p = agent->processes, *next; p; p = next) {
    next = p->next;
    if (p->state != DML_PROCESS_ENDED) continue;
    bool is_over = is_leftover(p) ? ++leftovers > DML_AGENT_LEFTOVERS_MAX
                                  : ++plain > DML_AGENT_ENDED_MAX || now_ms - p->ended_ms >= DML_AGENT_ENDED_MS;
    if (is_over) forget(agent, p);
    else if (!is_leftover(p)) earlier(next_ms, p->ended_ms + DML_AGENT_ENDED_MS);
  }
}

int64_t dml_process_tick(dml_agent *agent, int64_t now_ms) {
  int64_t next_ms = -1;
  if (agent->running_count)
    for (dml_process *p = agent->processes; p; p = p->next)
      if (p->state != DML_PROCESS_ENDED) check_live(agent, p, now_ms, &next_ms);
  if (agent->ended_count) forget_old(agent, now_ms, &next_ms);
  return next_ms;
}

void dml_process_kill_all(dml_agent *agent) {
  for (const dml_process *p = agent->processes; p; p = p->next) kill(-p->pid, SIGKILL);
}
