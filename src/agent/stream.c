/* stream.c - see stream.h. */
#include "agent/stream.h"

#include "agent/agent.h"

static dml_stream **bucket(dml_stream_set *set, uint32_t id) { return &set->buckets[id % DML_STREAM_BUCKETS]; }

dml_stream *dml_stream_find(const dml_stream_set *set, uint32_t id) {
  dml_stream *stream = set->buckets[id % DML_STREAM_BUCKETS];
  while (stream && stream->id != id) stream = stream->next;
  return stream;
}

void dml_stream_open(dml_stream_set *set, dml_stream *stream, uint32_t id, const dml_stream_ops *ops) {
  dml_stream **head = bucket(set, id);
  stream->id = id;
  stream->ops = ops;
  stream->credit = stream->window = DML_FRAME_WINDOW;
  stream->next = *head;
  *head = stream;
  set->count++;
}

void dml_stream_close(dml_agent *agent, dml_stream *stream) {
  dml_stream **at = bucket(&agent->streams, stream->id);
  while (*at != stream) at = &(*at)->next;
  *at = stream->next;
  agent->streams.count--;
  dml_stream_rest(stream);
  stream->ops->drop(agent, stream);
}

void dml_stream_make_job(dml_stream_set *set, dml_stream *stream) {
  if (stream->back_job) return;
  stream->next_job = set->jobs;
  stream->back_job = &set->jobs;
  if (set->jobs) set->jobs->back_job = &stream->next_job;
  set->jobs = stream;
}

void dml_stream_rest(dml_stream *stream) {
  if (!stream->back_job) return;
  *stream->back_job = stream->next_job;
  if (stream->next_job) stream->next_job->back_job = stream->back_job;
  stream->back_job = NULL;
}

void dml_stream_rotate_jobs(dml_stream_set *set, dml_stream *first) {
  if (set->jobs == first) return;
  dml_stream *last = first;
  while (last->next_job) last = last->next_job;
  *first->back_job = NULL;
  last->next_job = set->jobs;
  set->jobs->back_job = &last->next_job;
  set->jobs = first;
  first->back_job = &set->jobs;
}

size_t dml_stream_allowance(const dml_stream *stream) {
  if (stream->credit <= DML_FRAME_COST) return 0;
  size_t len = stream->credit - DML_FRAME_COST;
  return len < DML_FRAME_DATA_MAX ? len : DML_FRAME_DATA_MAX;
}

void dml_stream_send_data(dml_agent *agent, dml_stream *stream, uint8_t flags, const uint8_t *bytes, size_t len) {
  stream->credit -= (uint32_t)len + DML_FRAME_COST;
  dml_channel_send(&agent->channel, DML_FRAME_DATA, flags, stream->id, bytes, len);
}

bool dml_stream_take_window(dml_stream *stream, size_t len) {
  if (len > DML_FRAME_DATA_MAX || len + DML_FRAME_COST > stream->window) return false;
  stream->window -= (uint32_t)len + DML_FRAME_COST;
  return true;
}

void dml_stream_give_window(dml_agent *agent, dml_stream *stream, uint32_t cost) {
  stream->window += cost;
  dml_channel_send_credit(&agent->channel, stream->id, cost);
}
