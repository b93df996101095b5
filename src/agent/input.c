/* input.c - stdin of a process: chunks from the engine, written as the pipe takes them.
 *
 * Credit goes back as bytes leave. A reader that is gone swallows the rest, as a terminal would: the exit tells. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/process.h"

static void write_out(dml_agent *agent, dml_input *input);

static void on_ready(dml_agent *agent, dml_watch *watch) { write_out(agent, (dml_input *)watch); }

void dml_input_open(dml_input *input, dml_process *process, int fd) {
  input->watch = (dml_watch){.fd = fd, .ready = on_ready};
  input->process = process;
}

static void give_credit(dml_agent *agent, uint32_t id, size_t len) {
  dml_stream *stream = dml_stream_find(&agent->streams, id);
  if (stream) dml_stream_give_window(agent, stream, (uint32_t)len + DML_FRAME_COST);
}

static void pop_chunk(dml_agent *agent, dml_input *input) {
  dml_input_chunk *chunk = input->first;
  input->first = chunk->next;
  if (!input->first) input->last = NULL;
  input->queued -= chunk->len;
  give_credit(agent, chunk->stream, chunk->len);
  free(chunk);
}

void dml_input_close(dml_agent *agent, dml_input *input) {
  dml_agent_unwatch(agent, &input->watch);
  while (input->first) pop_chunk(agent, input);
}

static void write_out(dml_agent *agent, dml_input *input) {
  while (input->first) {
    dml_input_chunk *chunk = input->first;
    ssize_t put = write(input->watch.fd, chunk->bytes + chunk->at, chunk->len - chunk->at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      if (!dml_agent_watch(agent, &input->watch, EPOLLOUT)) dml_input_close(agent, input);
      return;
    }
    if (put < 0) {
      dml_input_close(agent, input);
      return;
    }
    chunk->at += (size_t)put;
    if (chunk->at == chunk->len) pop_chunk(agent, input);
  }
  if (input->has_ended) dml_input_close(agent, input);
  else dml_agent_watch(agent, &input->watch, 0);
}

void dml_input_add(dml_agent *agent, dml_input *input, dml_stream *from, const uint8_t *bytes, size_t len) {
  dml_input_chunk *chunk = NULL;
  if (input->watch.fd >= 0 && !input->has_ended && len) chunk = malloc(sizeof *chunk + len);
  if (!chunk) {
    give_credit(agent, from->id, len);
    return;
  }
  *chunk = (dml_input_chunk){.stream = from->id, .len = len};
  memcpy(chunk->bytes, bytes, len);
  bool was_empty = input->first == NULL;
  if (was_empty) input->first = chunk;
  else input->last->next = chunk;
  input->last = chunk;
  input->queued += len;
  if (was_empty) write_out(agent, input);
}

void dml_input_end(dml_agent *agent, dml_input *input) {
  input->has_ended = true;
  if (!input->first) dml_input_close(agent, input);
}
