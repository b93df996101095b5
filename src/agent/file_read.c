/* file_read.c - READ: a regular file in pieces, at the pace of the engine's credit. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/fault.h"
#include "agent/file.h"

#define OPENED_BYTES 64

typedef struct reading {
  dml_stream stream;
  int fd;
  int64_t left; /* < 0: to the end */
} reading;

static bool read_step(dml_agent *agent, dml_stream *stream) {
  reading *r = (reading *)stream;
  size_t most = dml_stream_allowance(stream);
  uint8_t *scratch = most ? dml_agent_scratch(agent) : NULL;
  if (!scratch) return false;
  if (r->left >= 0 && (uint64_t)r->left < most) most = (size_t)r->left;
  ssize_t got = most ? read(r->fd, scratch, most) : 0;
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) {
    if (got == 0) dml_channel_send_done(&agent->channel, stream->id);
    else dml_channel_send_error(&agent->channel, stream->id, dml_fault_from_errno(errno), 0);
    dml_stream_close(agent, stream);
    return false;
  }
  if (r->left >= 0) r->left -= got;
  dml_stream_send_data(agent, stream, 0, scratch, (size_t)got);
  return true;
}

static void read_credit(dml_agent *agent, dml_stream *stream) { dml_stream_make_job(&agent->streams, stream); }

static void read_drop(dml_agent *agent, dml_stream *stream) {
  (void)agent;
  close(((reading *)stream)->fd);
  free(stream);
}

static const dml_stream_ops READING = {.credit = read_credit, .step = read_step, .drop = read_drop};

/* A device is not even opened: that alone may do something. O_NONBLOCK for the fifo that appears in between. */
static int open_regular(const char *path, struct stat *st, dml_fault *fault) {
  int fd = -1;
  *fault = DML_FAULT_NONE;
  if (stat(path, st) == 0 && (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))) {
    fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) != 0) *fault = dml_fault_from_errno(errno);
    else if (S_ISDIR(st->st_mode)) *fault = DML_FAULT_IS_DIRECTORY;
    else if (!S_ISREG(st->st_mode)) *fault = DML_FAULT_UNSUPPORTED;
  } else {
    *fault = stat(path, st) == 0 ? DML_FAULT_UNSUPPORTED : dml_fault_from_errno(errno);
  }
  if (*fault != DML_FAULT_NONE && fd >= 0) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static void send_opened(dml_agent *agent, uint32_t stream, const struct stat *st) {
  dml_fields fields;
  dml_fields_init(&fields, OPENED_BYTES);
  dml_fields_put_int(&fields, DML_FIELD_SIZE, st->st_size);
  dml_fields_put_int(&fields, DML_FIELD_MODE, st->st_mode & 07777);
  dml_channel_send_fields(&agent->channel, DML_FRAME_OPENED, 0, stream, &fields);
}

void dml_file_read(dml_agent *agent, uint32_t stream, const char *path, int64_t offset, int64_t length) {
  struct stat st;
  dml_fault fault;
  reading *r = NULL;
  int fd = open_regular(path, &st, &fault);
  if (fd >= 0 && offset > 0 && lseek(fd, offset, SEEK_SET) < 0) fault = dml_fault_from_errno(errno);
  if (fault == DML_FAULT_NONE && !(r = calloc(1, sizeof *r))) fault = DML_FAULT_EXHAUSTED;
  if (fault != DML_FAULT_NONE) {
    if (fd >= 0) close(fd);
    dml_channel_send_error(&agent->channel, stream, fault, 0);
    return;
  }
  r->fd = fd;
  r->left = length;
  dml_stream_open(&agent->streams, &r->stream, stream, &READING);
  send_opened(agent, stream, &st);
  dml_stream_make_job(&agent->streams, &r->stream);
}
