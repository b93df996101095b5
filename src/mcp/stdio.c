/* stdio.c - see stdio.h. */
#include "mcp/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dml_stdio {
  dml_loop *loop;
  int in_fd, out_fd;
  int in_flags, out_flags; /* as they were, to be put back */
  uv_poll_t *in_poll;
  uv_idle_t *in_idle; /* instead of in_poll for what cannot be polled */
  uv_poll_t *out_poll;
  uv_prepare_t *flusher;
  dml_buffer in, out;
  size_t written; /* bytes of `out` that are gone already */
  size_t line_max_bytes;
  size_t searched; /* bytes of `in` known to hold no line end */
  bool is_skipping;
  char *head; /* of the line that is skipped, DML_STDIO_HEAD_BYTES */
  size_t head_len;
  bool is_reading;
  bool is_held; /* not reading, because the client does not */
  bool is_waiting_to_write;
  bool has_ended;
  dml_stdio_events events;
  void *ud;
};

static void free_handle(uv_handle_t *handle) { free(handle); }

static void close_handle(void *handle) {
  if (handle) uv_close(handle, free_handle);
}

static void set_reading(dml_stdio *io, bool on);
static void split(dml_stdio *io);

static void end(dml_stdio *io, bool is_broken) {
  if (io->has_ended) return;
  io->has_ended = true;
  set_reading(io, false);
  io->events.on_end(io->ud, is_broken);
}

/* ---- output ---- */

static void on_writable(uv_poll_t *poll, int status, int events);

/* False when the descriptor cannot be waited for. */
static bool wait_to_write(dml_stdio *io) {
  if (io->is_waiting_to_write) return true;
  if (!io->out_poll) {
    io->out_poll = calloc(1, sizeof *io->out_poll);
    if (!io->out_poll || uv_poll_init(dml_loop_uv(io->loop), io->out_poll, io->out_fd) != 0) {
      free(io->out_poll);
      io->out_poll = NULL;
      return false;
    }
    io->out_poll->data = io;
  }
  io->is_waiting_to_write = true;
  return uv_poll_start(io->out_poll, UV_WRITABLE, on_writable) == 0;
}

static void stop_waiting_to_write(dml_stdio *io) {
  if (io->is_waiting_to_write) uv_poll_stop(io->out_poll);
  io->is_waiting_to_write = false;
}

static void drop_output(dml_stdio *io) {
  dml_buffer_reset(&io->out, DML_STDIO_READ_BYTES);
  io->written = 0;
  stop_waiting_to_write(io);
}

/* Writes what goes out now. False when nobody listens any more; the rest is dropped then. */
static bool write_some(dml_stdio *io) {
  while (io->written < io->out.len) {
    ssize_t n = write(io->out_fd, io->out.data + io->written, io->out.len - io->written);
    if (n >= 0) {
      io->written += (size_t)n;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_to_write(io)) break;
      /* Moved only when most is gone: a pipe takes 64 KiB at a time of what may be many megabytes. */
      if (io->written > io->out.len / 2) {
        dml_buffer_consume(&io->out, io->written);
        io->written = 0;
      }
      return true;
    } else if (errno != EINTR) {
      break;
    }
  }
  bool is_done = io->written == io->out.len;
  drop_output(io);
  return is_done;
}

/* The client reads again: what waits for room goes on, then the lines that were read before the hold. */
static void release(dml_stdio *io) {
  io->is_held = false;
  uv_unref((uv_handle_t *)io->flusher);
  io->events.on_drain(io->ud);
  if (io->has_ended || dml_stdio_is_full(io)) return;
  set_reading(io, true);
  split(io);
}

static void flush(dml_stdio *io) {
  if (!write_some(io)) end(io, true);
  else if (io->is_held && !dml_stdio_is_full(io)) release(io);
}

static void on_writable(uv_poll_t *poll, int status, int events) {
  (void)events;
  dml_stdio *io = poll->data;
  if (status < 0) {
    drop_output(io);
    end(io, true);
    return;
  }
  flush(io);
}

/* The output is all that the loop lives on then, and it may not have been tried yet. */
static void hold(dml_stdio *io) {
  io->is_held = true;
  set_reading(io, false);
  uv_ref((uv_handle_t *)io->flusher);
}

/* A flush may release what makes more output, and nothing of it may lie here while the loop sleeps. */
static void on_prepare(uv_prepare_t *handle) {
  dml_stdio *io = handle->data;
  do {
    if (dml_stdio_is_full(io)) hold(io);
    if (io->out.len > 0 && !io->is_waiting_to_write) flush(io);
  } while (io->out.len > 0 && !io->is_waiting_to_write);
}

/* ---- input ---- */

static void deliver(dml_stdio *io, char *line, size_t len) {
  if (len > 0 && line[len - 1] == '\r') len--;
  if (len >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) { /* a byte order mark */
    line += 3;
    len -= 3;
  }
  size_t blank = 0;
  while (blank < len && (line[blank] == ' ' || line[blank] == '\t')) blank++;
  if (blank < len) io->events.on_line(io->ud, line, len);
}

static size_t head_bytes(size_t len) { return len < DML_STDIO_HEAD_BYTES ? len : DML_STDIO_HEAD_BYTES; }

static void start_skipping(dml_stdio *io) {
  io->is_skipping = true;
  io->head_len = 0;
  if (!io->head) io->head = malloc(DML_STDIO_HEAD_BYTES);
  if (!io->head) return;
  io->head_len = head_bytes(io->in.len);
  memcpy(io->head, io->in.data, io->head_len);
}

/* Hands out the whole lines of `in`, as long as there is room for the answers. */
static void split(dml_stdio *io) {
  size_t start = 0;
  while (io->searched < io->in.len && !dml_stdio_is_full(io) && !io->has_ended) {
    char *newline = memchr(io->in.data + io->searched, '\n', io->in.len - io->searched);
    if (!newline) {
      io->searched = io->in.len;
      break;
    }
    size_t at = (size_t)(newline - io->in.data);
    if (io->is_skipping) io->events.on_oversize(io->ud, io->head, io->head_len);
    else if (at - start > io->line_max_bytes) io->events.on_oversize(io->ud, io->in.data + start, head_bytes(at - start));
    else deliver(io, io->in.data + start, at - start);
    io->is_skipping = false;
    start = io->searched = at + 1;
  }
  dml_buffer_consume(&io->in, start);
  io->searched -= start;
  if (io->searched < io->in.len) {
    hold(io);
    return;
  }
  if (io->in.len > io->line_max_bytes && !io->is_skipping) start_skipping(io);
  if (io->is_skipping) {
    dml_buffer_reset(&io->in, DML_STDIO_READ_BYTES);
    io->searched = 0;
  }
  if (io->in.len == 0) dml_buffer_reset(&io->in, DML_STDIO_READ_BYTES);
}

static void end_of_input(dml_stdio *io) {
  if (io->is_skipping) io->events.on_oversize(io->ud, io->head, io->head_len);
  else if (io->in.len > 0) deliver(io, io->in.data, io->in.len);
  end(io, false);
}

/* One read. False when there is nothing more for now. */
static bool read_some(dml_stdio *io) {
  dml_status status;
  char *place = dml_buffer_reserve(&io->in, DML_STDIO_READ_BYTES, &status);
  if (!place) {
    end(io, true);
    return false;
  }
  size_t room = io->in.capacity - io->in.len;
  ssize_t n = read(io->in_fd, place, room);
  if (n > 0) {
    dml_buffer_commit(&io->in, (size_t)n);
    split(io);
    return (size_t)n == room && io->is_reading && !dml_stdio_is_full(io);
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (n < 0) end(io, true);
  else end_of_input(io);
  return false;
}

static void read_all(dml_stdio *io) {
  for (int i = 0; i < DML_STDIO_READS_MAX && read_some(io); i++) continue;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
  (void)events;
  dml_stdio *io = poll->data;
  if (status < 0) end(io, true);
  else read_all(io);
}

static void on_idle(uv_idle_t *idle) { read_all(idle->data); }

static void set_reading(dml_stdio *io, bool on) {
  if (io->is_reading == on) return;
  io->is_reading = on;
  if (io->in_poll && on) uv_poll_start(io->in_poll, UV_READABLE, on_readable);
  else if (io->in_poll) uv_poll_stop(io->in_poll);
  else if (io->in_idle && on) uv_idle_start(io->in_idle, on_idle);
  else if (io->in_idle) uv_idle_stop(io->in_idle);
}

static dml_status open_input(dml_stdio *io) {
  uv_loop_t *uv = dml_loop_uv(io->loop);
  io->in_poll = calloc(1, sizeof *io->in_poll);
  if (!io->in_poll) return DML_INTERNAL;
  if (uv_poll_init(uv, io->in_poll, io->in_fd) == 0) {
    io->in_poll->data = io;
    return DML_OK;
  }
  free(io->in_poll);
  io->in_poll = NULL;
  io->in_idle = calloc(1, sizeof *io->in_idle);
  if (!io->in_idle) return DML_INTERNAL;
  uv_idle_init(uv, io->in_idle);
  io->in_idle->data = io;
  return DML_OK;
}

/* epoll watches a descriptor once, so a socket that is both needs a second number. */
static int own_output(int in_fd, int out_fd) {
  return in_fd == out_fd ? fcntl(in_fd, F_DUPFD_CLOEXEC, 0) : out_fd;
}

dml_status dml_stdio_new(dml_loop *loop, int in_fd, int out_fd, size_t line_max_bytes, const dml_stdio_events *events,
                         void *ud, dml_stdio **out) {
  *out = NULL;
  dml_stdio *io = calloc(1, sizeof *io);
  if (!io) return DML_INTERNAL;
  io->loop = loop;
  io->in_fd = in_fd;
  io->out_fd = own_output(in_fd, out_fd);
  io->in_flags = fcntl(in_fd, F_GETFL);
  io->out_flags = fcntl(io->out_fd, F_GETFL);
  io->line_max_bytes = line_max_bytes;
  io->events = *events;
  io->ud = ud;
  dml_buffer_init(&io->in, line_max_bytes + 2 * DML_STDIO_READ_BYTES);
  dml_buffer_init(&io->out, DML_STDIO_OUT_MAX_BYTES);
  io->flusher = calloc(1, sizeof *io->flusher);
  if (io->out_fd < 0 || !io->flusher || open_input(io) != DML_OK) {
    if (io->out_fd != out_fd && io->out_fd >= 0) close(io->out_fd);
    free(io->flusher);
    free(io);
    return DML_INTERNAL;
  }
  if (io->out_flags >= 0) fcntl(io->out_fd, F_SETFL, io->out_flags | O_NONBLOCK);
  uv_prepare_init(dml_loop_uv(loop), io->flusher);
  io->flusher->data = io;
  uv_prepare_start(io->flusher, on_prepare);
  uv_unref((uv_handle_t *)io->flusher);
  set_reading(io, true);
  *out = io;
  return DML_OK;
}

dml_buffer *dml_stdio_out(dml_stdio *io) { return &io->out; }

bool dml_stdio_is_full(const dml_stdio *io) { return dml_stdio_unsent(io) > DML_STDIO_OUT_HIGH_BYTES; }

size_t dml_stdio_unsent(const dml_stdio *io) { return io->out.len - io->written; }

void dml_stdio_stop_reading(dml_stdio *io) {
  io->has_ended = true;
  set_reading(io, false);
}

/* In the loop's next turn, since the free may have come from inside one of our events. */
static void free_all(uv_handle_t *flusher) {
  dml_stdio *io = flusher->data;
  free(io->head);
  dml_buffer_deinit(&io->in);
  dml_buffer_deinit(&io->out);
  free(io);
  free(flusher);
}

void dml_stdio_free(dml_stdio *io) {
  if (!io) return;
  io->has_ended = true;
  set_reading(io, false);
  while (io->written < io->out.len) {
    ssize_t n = write(io->out_fd, io->out.data + io->written, io->out.len - io->written);
    if (n >= 0) io->written += (size_t)n;
    else if (errno != EINTR) break;
  }
  drop_output(io);
  close_handle(io->in_poll);
  close_handle(io->in_idle);
  close_handle(io->out_poll);
  uv_close((uv_handle_t *)io->flusher, free_all);
  if (io->in_flags >= 0) fcntl(io->in_fd, F_SETFL, io->in_flags);
  if (io->out_flags >= 0) fcntl(io->out_fd, F_SETFL, io->out_flags);
  close(io->in_fd);
  close(io->out_fd);
}
