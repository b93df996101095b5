/* request.c - see request.h. The engine is trusted by and large, but a frame out of line means that the two programs do
 * not speak the same version, and then nothing either says can be relied on. */
#include "agent/request.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/file.h"
#include "agent/process.h"
#include "agent/spawn.h"
#include "agent/watcher.h"

/* The single fields of all requests but START; numbers -1 and text NULL when absent. */
typedef struct arguments {
  int64_t pid, signo, offset, length, append_at, depth, limit, recursive;
  const char *path, *to, *tag;
} arguments;

static bool parse(const dml_frame *frame, arguments *a) {
  dml_field_reader reader = {frame->payload, frame->len};
  dml_field field;
  int more;
  *a = (arguments){-1, -1, -1, -1, -1, -1, -1, -1, NULL, NULL, NULL};
  while ((more = dml_field_next(&reader, &field)) > 0) {
    int64_t *number = NULL;
    switch (field.tag) {
    case DML_FIELD_PID: number = &a->pid; break;
    case DML_FIELD_SIGNO: number = &a->signo; break;
    case DML_FIELD_OFFSET: number = &a->offset; break;
    case DML_FIELD_LENGTH: number = &a->length; break;
    case DML_FIELD_APPEND_AT: number = &a->append_at; break;
    case DML_FIELD_DEPTH: number = &a->depth; break;
    case DML_FIELD_LIMIT: number = &a->limit; break;
    case DML_FIELD_RECURSIVE: number = &a->recursive; break;
    case DML_FIELD_PATH: a->path = dml_field_text(&field, DML_FRAME_PATH_MAX); break;
    case DML_FIELD_TO: a->to = dml_field_text(&field, DML_FRAME_PATH_MAX); break;
    case DML_FIELD_TAG: a->tag = dml_field_text(&field, DML_FRAME_TAG_MAX); break;
    default: return false;
    }
    if (number && (!dml_field_int(&field, number) || *number < 0)) return false;
    if (field.tag == DML_FIELD_PATH && (!a->path || a->path[0] == '\0')) return false;
    if (field.tag == DML_FIELD_TO && (!a->to || a->to[0] == '\0')) return false;
    if (field.tag == DML_FIELD_TAG && !a->tag) return false;
  }
  return more == 0;
}

static void refuse(dml_agent *agent, uint32_t stream) {
  dml_channel_send_error(&agent->channel, stream, DML_FAULT_INVALID, 0);
}

/* Whether the fields that a file request must have are there and in range. */
static bool is_file_request(const dml_frame *frame, const arguments *a) {
  if (!a->path || (frame->type == DML_FRAME_MOVE && !a->to)) return false;
  if (frame->type != DML_FRAME_LIST) return true;
  return a->depth >= 1 && a->depth <= DML_FRAME_DEPTH_MAX && a->limit >= 1 && a->limit <= DML_FRAME_LIST_MAX;
}

static void serve_file(dml_agent *agent, const dml_frame *frame, const arguments *a) {
  uint32_t stream = frame->stream;
  if (!is_file_request(frame, a)) {
    refuse(agent, stream);
    return;
  }
  switch (frame->type) {
  case DML_FRAME_READ: dml_file_read(agent, stream, a->path, a->offset, a->length); break;
  case DML_FRAME_WRITE: dml_file_write(agent, stream, a->path, a->append_at); break;
  case DML_FRAME_STAT: dml_file_stat(agent, stream, a->path); break;
  case DML_FRAME_LIST: dml_file_list(agent, stream, a->path, a->depth, a->limit); break;
  case DML_FRAME_MKDIR: dml_file_mkdir(agent, stream, a->path); break;
  case DML_FRAME_MOVE: dml_file_move(agent, stream, a->path, a->to); break;
  case DML_FRAME_WATCH: dml_watcher_open(agent, stream, a->path, a->recursive > 0); break;
  default: dml_file_remove(agent, stream, a->path); break;
  }
}

static void serve_process(dml_agent *agent, const dml_frame *frame, const arguments *a) {
  uint32_t stream = frame->stream;
  pid_t pid = a->pid > 0 && a->pid <= INT32_MAX ? (pid_t)a->pid : 0;
  if (frame->type == DML_FRAME_PROCESSES) dml_process_list(agent, stream);
  else if (frame->type == DML_FRAME_CONNECT && (pid || a->tag)) dml_process_connect(agent, stream, pid, a->tag);
  else if (frame->type == DML_FRAME_SIGNAL && pid && a->signo > 0 && a->signo <= SIGRTMAX)
    dml_process_signal(agent, stream, pid, (int)a->signo);
  else refuse(agent, stream);
}

/* ---- START in parts ---- */

static bool add_start(dml_agent *agent, const dml_frame *frame) {
  if (agent->start_stream && agent->start_stream != frame->stream) return false;
  if (agent->start_len + frame->len > DML_FRAME_START_MAX) return false;
  agent->start_stream = frame->stream;
  if (frame->len == 0) return true;
  uint8_t *bytes = realloc(agent->start_bytes, agent->start_len + frame->len);
  if (!bytes) return false;
  memcpy(bytes + agent->start_len, frame->payload, frame->len);
  agent->start_bytes = bytes;
  agent->start_len += frame->len;
  return true;
}

static void serve_start(dml_agent *agent, uint32_t stream, const uint8_t *bytes, size_t len) {
  dml_start start;
  if (dml_start_parse(bytes, len, &start)) dml_process_start(agent, stream, &start);
  else refuse(agent, stream);
  dml_start_deinit(&start);
}

static bool finish_start(dml_agent *agent, const dml_frame *frame) {
  if (!agent->start_stream) { /* whole in one frame */
    serve_start(agent, frame->stream, frame->payload, frame->len);
    return true;
  }
  if (!add_start(agent, frame)) return false;
  serve_start(agent, frame->stream, agent->start_bytes, agent->start_len);
  free(agent->start_bytes);
  agent->start_bytes = NULL;
  agent->start_len = 0;
  agent->start_stream = 0;
  return true;
}

/* ---- frames ---- */

static bool serve_request(dml_agent *agent, const dml_frame *frame) {
  if (frame->flags || frame->stream == 0 || dml_stream_find(&agent->streams, frame->stream)) return false;
  if (agent->start_stream && frame->type > DML_FRAME_START) return false;
  if (frame->type == DML_FRAME_START_PART) return add_start(agent, frame);
  if (agent->streams.count >= DML_FRAME_STREAMS_MAX) {
    dml_channel_send_error(&agent->channel, frame->stream, DML_FAULT_EXHAUSTED, 0);
    return !agent->start_stream;
  }
  if (frame->type == DML_FRAME_START) return finish_start(agent, frame);
  arguments a;
  if (!parse(frame, &a)) refuse(agent, frame->stream);
  else if (frame->type == DML_FRAME_CONNECT || frame->type == DML_FRAME_SIGNAL || frame->type == DML_FRAME_PROCESSES)
    serve_process(agent, frame, &a);
  else serve_file(agent, frame, &a);
  return true;
}

static bool serve_data(dml_agent *agent, dml_stream *stream, const dml_frame *frame) {
  if (!stream->ops->data || !dml_stream_take_window(stream, frame->len)) return false;
  stream->ops->data(agent, stream, frame->payload, frame->len);
  return true;
}

static bool serve_credit(dml_agent *agent, dml_stream *stream, const dml_frame *frame) {
  if (frame->len != 4) return false;
  uint32_t more = dml_frame_get_u32(frame->payload);
  if (more > DML_FRAME_WINDOW - stream->credit) return false;
  stream->credit += more;
  if (stream->ops->credit) stream->ops->credit(agent, stream);
  return true;
}

static bool serve_end(dml_agent *agent, dml_stream *stream, const dml_frame *frame) {
  if (!stream->ops->end || frame->len) return false;
  stream->ops->end(agent, stream);
  return true;
}

bool dml_request_serve(dml_agent *agent, const dml_frame *frame) {
  if (frame->type >= DML_FRAME_START_PART && frame->type <= DML_FRAME_WATCH) return serve_request(agent, frame);
  if (frame->flags) return false;
  /* a stream that ended here while the frame was on its way is not there any more, and that is all right */
  dml_stream *stream = dml_stream_find(&agent->streams, frame->stream);
  switch (frame->type) {
  case DML_FRAME_DATA: return !stream || serve_data(agent, stream, frame);
  case DML_FRAME_CREDIT: return !stream || serve_credit(agent, stream, frame);
  case DML_FRAME_END: return !stream || serve_end(agent, stream, frame);
  case DML_FRAME_DROP:
    if (stream) dml_stream_close(agent, stream);
    return true;
  default: return false;
  }
}
