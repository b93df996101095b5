/* fence_worker.c - see fence_worker.h. */
#include "script/fence_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/process.h"

#define READ_BYTES ((size_t)16 * 1024)
#define BULK_BYTES ((size_t)256 * 1024)

struct dml_fence_worker {
  dml_fence_worker_ops ops;
  void *ud;
  dml_process *process;
  int fd;
  uv_poll_t *poll; /* with the timer on the heap of their own: closed asynchronously */
  uv_timer_t *timer;
  bool wants_write, is_waited_for, has_hung_up;
  bool is_over; /* the process has ended, `end` says how */
  dml_fence_end end;
  dml_buffer in, out;
  size_t out_at;
};

static void free_handle(uv_handle_t *handle) { free(handle); }

static void close_handle(uv_handle_t *handle) {
  if (handle && handle->type != UV_UNKNOWN_HANDLE)
    uv_close(handle, free_handle);
  else
    free(handle);
}

/* Its end comes by on_exit_of. */
static void end(dml_fence_worker *w) { dml_process_signal(w->process, SIGKILL); }

static void break_off(dml_fence_worker *w) {
  w->end.is_broken = true;
  end(w);
}

/* ---- what it sends ---- */

/* The bytes that the frame at the front has or lacks in all; 0 for a length that no frame has. */
static size_t frame_size(const dml_buffer *in) {
  if (in->len < DML_WIRE_HEADER_BYTES) return DML_WIRE_HEADER_BYTES;
  uint32_t len;
  memcpy(&len, in->data, sizeof len);
  return len > DML_WIRE_FRAME_MAX_BYTES ? 0 : DML_WIRE_HEADER_BYTES + (size_t)len;
}

static bool has_frame(const dml_fence_worker *w) {
  return w->in.len >= DML_WIRE_HEADER_BYTES && w->in.len == frame_size(&w->in);
}

/* Whether what has come can still be, or become, one frame. */
static bool is_good(const dml_fence_worker *w) {
  size_t whole = frame_size(&w->in);
  return whole > 0 && w->in.len <= whole;
}

/* Room to read to: for the rest of a frame, and for more than that, so that bytes behind it show. NULL without memory. */
static char *reserve(dml_fence_worker *w, size_t *room) {
  size_t missing = frame_size(&w->in) - w->in.len;
  *room = missing < READ_BYTES ? READ_BYTES : missing < BULK_BYTES ? missing : BULK_BYTES;
  dml_status status;
  return dml_buffer_reserve(&w->in, *room, &status);
}

/* Reads what is there. False when nothing more will come, or nothing more is wanted. */
static bool read_some(dml_fence_worker *w) {
  for (;;) {
    size_t room;
    char *place = reserve(w, &room);
    ssize_t got = place ? recv(w->fd, place, room, MSG_DONTWAIT) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    dml_buffer_commit(&w->in, (size_t)got);
    if (!is_good(w)) {
      break_off(w);
      return false;
    }
    if ((size_t)got < room) return true;
  }
}

/* Hands over the frame that is there. The worker may be gone then. */
static void hand_over(dml_fence_worker *w) {
  if (!w->is_waited_for) {
    break_off(w);
    return;
  }
  w->is_waited_for = false;
  uv_timer_stop(w->timer);
  dml_buffer frame = w->in;
  dml_buffer_init(&w->in, frame.limit);
  w->ops.on_frame(w->ud, (dml_wire_kind)(unsigned char)frame.data[4], &frame);
}

/* ---- what it is sent ---- */

static void on_ready(uv_poll_t *poll, int status, int events);

static void watch(dml_fence_worker *w, bool wants_write) {
  w->wants_write = wants_write;
  int events = (w->has_hung_up ? 0 : UV_READABLE) | (wants_write ? UV_WRITABLE : 0);
  if (events)
    uv_poll_start(w->poll, events, on_ready);
  else
    uv_poll_stop(w->poll);
}

static void write_some(dml_fence_worker *w) {
  while (w->out_at < w->out.len) {
    ssize_t put = send(w->fd, w->out.data + w->out_at, w->out.len - w->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      if (!w->wants_write) watch(w, true);
      return;
    }
    if (put < 0) break; /* its end comes by on_exit_of */
    w->out_at += (size_t)put;
  }
  dml_buffer_deinit(&w->out);
  w->out_at = 0;
  if (w->wants_write) watch(w, false);
}

static void on_ready(uv_poll_t *poll, int status, int events) {
  dml_fence_worker *w = poll->data;
  if (status < 0) {
    end(w);
    return;
  }
  if (events & UV_WRITABLE) write_some(w);
  if (!(events & UV_READABLE)) return;
  if (!read_some(w)) {
    w->has_hung_up = true;
    watch(w, false);
    end(w);
  }
  if (has_frame(w)) hand_over(w);
}

static void on_exit_of(dml_process *process, int code, int signal, void *ud) {
  (void)process;
  dml_fence_worker *w = ud;
  w->is_over = true;
  w->end.code = code;
  w->end.signal = signal;
  if (!w->has_hung_up) read_some(w); /* its last words may still lie there */
  w->has_hung_up = true;
  uv_poll_stop(w->poll);
  uv_timer_stop(w->timer);
  if (w->is_waited_for && has_frame(w) && !w->end.is_late)
    hand_over(w);
  else
    w->ops.on_end(w->ud, &w->end);
}

static void on_timeout(uv_timer_t *timer) {
  dml_fence_worker *w = timer->data;
  w->end.is_late = true;
  end(w);
}

void dml_fence_worker_send(dml_fence_worker *w, dml_buffer *frame, uint64_t timeout_ms) {
  if (frame->len < DML_WIRE_HEADER_BYTES) { /* there was no memory to begin one */
    end(w);
    return;
  }
  uint32_t len = (uint32_t)(frame->len - DML_WIRE_HEADER_BYTES);
  memcpy(frame->data, &len, sizeof len);
  dml_buffer_deinit(&w->out);
  w->out = *frame;
  w->out_at = 0;
  dml_buffer_init(frame, frame->limit);
  w->is_waited_for = true;
  uv_update_time(w->timer->loop);
  uv_timer_start(w->timer, on_timeout, timeout_ms, 0);
  write_some(w);
}

/* ---- life ---- */

static bool make_handles(dml_fence_worker *w, dml_loop *loop) {
  w->poll = calloc(1, sizeof *w->poll);
  w->timer = calloc(1, sizeof *w->timer);
  if (!w->poll || !w->timer) return false;
  uv_timer_init(dml_loop_uv(loop), w->timer);
  if (uv_poll_init(dml_loop_uv(loop), w->poll, w->fd) != 0) {
    w->poll->type = UV_UNKNOWN_HANDLE;
    return false;
  }
  w->poll->data = w->timer->data = w;
  return uv_poll_start(w->poll, UV_READABLE, on_ready) == 0;
}

static dml_status start_process(dml_fence_worker *w, dml_loop *loop, const char *path, int child_end) {
  char name[] = "demilune-fence", zone[] = "TZ=UTC0";
  char *argv[] = {name, NULL}, *env[] = {zone, NULL};
  dml_process_fd fds[] = {{.child_fd = DML_WIRE_FD, .parent_fd = child_end}};
  dml_process_opts opts = {.path = path, .argv = argv, .env = env, .fds = fds, .fd_count = 1, .is_session_leader = true};
  return dml_process_start(loop, &opts, on_exit_of, w, &w->process);
}

dml_status dml_fence_worker_start(dml_loop *loop, const char *path, const dml_fence_worker_ops *ops, void *ud,
                                  dml_fence_worker **out) {
  *out = NULL;
  dml_fence_worker *w = calloc(1, sizeof *w);
  if (!w) return DML_INTERNAL;
  w->ops = *ops;
  w->ud = ud;
  dml_buffer_init(&w->in, DML_WIRE_FRAME_MAX_BYTES + DML_WIRE_HEADER_BYTES + BULK_BYTES);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    free(w);
    return dml_status_from_errno(errno);
  }
  w->fd = ends[0];
  dml_status status = make_handles(w, loop) ? start_process(w, loop, path, ends[1]) : DML_INTERNAL;
  close(ends[1]);
  if (status != DML_OK) {
    dml_fence_worker_free(w);
    return status;
  }
  *out = w;
  return DML_OK;
}

bool dml_fence_worker_has_ended(const dml_fence_worker *worker) { return worker->is_over; }
pid_t dml_fence_worker_pid(const dml_fence_worker *worker) { return dml_process_pid(worker->process); }

void dml_fence_worker_free(dml_fence_worker *worker) {
  if (!worker) return;
  close_handle((uv_handle_t *)worker->poll);
  close_handle((uv_handle_t *)worker->timer);
  close(worker->fd);
  dml_process_free(worker->process);
  dml_buffer_deinit(&worker->in);
  dml_buffer_deinit(&worker->out);
  free(worker);
}
