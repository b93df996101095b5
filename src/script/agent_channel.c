/* agent_channel.c - see agent_channel.h. */
#include "script/agent_channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define RECEIVES_A_TURN 8
#define KEEP_OUT_BYTES 4096

struct dml_agent_channel {
  dml_script *script;
  uv_poll_t poll;
  uv_timer_t clock; /* the earliest of `timers` */
  int fd;
  int poll_events;
  int status, events; /* what the loop said last */
  int open_handles;
  bool is_ready;
  bool is_shut;
  bool is_broken; /* a send failed: shut from the loop, for the caller may be in the middle of something */
  dml_agent_channel_cb on_change;
  void *ud;
  dml_inbox inbox;
  uint8_t *out;
  size_t out_start, out_len, out_capacity;
  uint32_t last_id;
  size_t stream_count;
  dml_agent_stream *buckets[DML_AGENT_CHANNEL_BUCKETS];
  dml_agent_timer *timers;
};

static void on_events(uv_poll_t *handle, int status, int events);

/* ---- life ---- */

static void on_handle_closed(uv_handle_t *handle) {
  dml_agent_channel *channel = handle->data;
  if (--channel->open_handles > 0) return;
  dml_inbox_deinit(&channel->inbox);
  free(channel->out);
  free(channel);
}

dml_status dml_agent_channel_new(dml_script *script, int fd, dml_agent_channel_cb on_change, void *ud,
                                 dml_agent_channel **out) {
  dml_loop *loop = dml_script_loop(script);
  *out = NULL;
  dml_agent_channel *channel = calloc(1, sizeof *channel);
  /* also makes the descriptor non-blocking; refuses what cannot be polled */
  if (!channel || uv_poll_init(dml_loop_uv(loop), &channel->poll, fd) != 0) {
    free(channel);
    close(fd);
    return DML_INTERNAL;
  }
  uv_timer_init(dml_loop_uv(loop), &channel->clock);
  channel->poll.data = channel->clock.data = channel;
  channel->script = script;
  channel->open_handles = 2;
  channel->fd = fd;
  channel->on_change = on_change;
  channel->ud = ud;
  channel->poll_events = UV_READABLE;
  uv_poll_start(&channel->poll, UV_READABLE, on_events);
  *out = channel;
  return DML_OK;
}

bool dml_agent_channel_is_ready(const dml_agent_channel *channel) { return channel->is_ready && !channel->is_shut; }

bool dml_agent_channel_is_shut(const dml_agent_channel *channel) { return channel->is_shut; }

static void unlink_stream(dml_agent_stream *stream) {
  dml_agent_channel *channel = stream->channel;
  dml_agent_stream **at = &channel->buckets[stream->id % DML_AGENT_CHANNEL_BUCKETS];
  while (*at != stream) at = &(*at)->next;
  *at = stream->next;
  channel->stream_count--;
  stream->is_open = false;
}

static void close_streams(dml_agent_channel *channel) {
  for (size_t i = 0; i < DML_AGENT_CHANNEL_BUCKETS; i++)
    while (channel->buckets[i]) {
      dml_agent_stream *stream = channel->buckets[i];
      unlink_stream(stream);
      stream->ops->closed(stream);
    }
}

void dml_agent_channel_shut(dml_agent_channel *channel) {
  if (channel->is_shut) return;
  channel->is_shut = true;
  uv_poll_stop(&channel->poll);
  uv_close((uv_handle_t *)&channel->poll, on_handle_closed);
  close(channel->fd);
  channel->fd = -1;
  close_streams(channel);
  if (channel->on_change) channel->on_change(channel, channel->ud);
}

void dml_agent_channel_free(dml_agent_channel *channel) {
  if (!channel) return;
  channel->on_change = NULL;
  dml_agent_channel_shut(channel);
  while (channel->timers) dml_agent_timer_stop(channel, channel->timers);
  uv_close((uv_handle_t *)&channel->clock, on_handle_closed);
}

/* ---- out ---- */

static void update_poll(dml_agent_channel *channel) {
  if (channel->is_shut) return;
  int events = UV_READABLE | (channel->out_len ? UV_WRITABLE : 0);
  if (events == channel->poll_events) return;
  channel->poll_events = events;
  uv_poll_start(&channel->poll, events, on_events);
}

static bool queue(dml_agent_channel *channel, const void *bytes, size_t len) {
  if (len == 0) return true;
  if (channel->out_start && channel->out_start + channel->out_len + len > channel->out_capacity) {
    memmove(channel->out, channel->out + channel->out_start, channel->out_len);
    channel->out_start = 0;
  }
  size_t need = channel->out_len + len;
  if (need > channel->out_capacity) {
    size_t capacity = channel->out_capacity ? channel->out_capacity : KEEP_OUT_BYTES;
    while (capacity < need) capacity *= 2;
    uint8_t *out = realloc(channel->out, capacity);
    if (!out) {
      channel->is_broken = true;
      shutdown(channel->fd, SHUT_RDWR); /* the loop sees it and shuts */
      return false;
    }
    channel->out = out;
    channel->out_capacity = capacity;
  }
  memcpy(channel->out + channel->out_start + channel->out_len, bytes, len);
  channel->out_len += len;
  return true;
}

static size_t send_parts(dml_agent_channel *channel, struct iovec *parts, size_t count) {
  if (channel->is_broken || channel->is_shut) return 0;
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
  ssize_t sent;
  do sent = sendmsg(channel->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return (size_t)sent;
  /* EPIPE and the like: the loop will see the end too, after what the agent said last */
  if (errno != EAGAIN && errno != EWOULDBLOCK) channel->is_broken = true;
  return 0;
}

/* Straight from the caller's bytes when nothing waits; only the rest is copied. */
static void send_frame(dml_agent_channel *channel, dml_frame_type type, uint32_t stream, const void *payload,
                       size_t len) {
  uint8_t header[DML_FRAME_HEADER_BYTES];
  dml_frame frame = {.type = (uint8_t)type, .stream = stream, .len = len};
  dml_frame_put_header(header, &frame);
  size_t sent = 0;
  if (channel->out_len == 0) {
    struct iovec parts[2] = {{header, sizeof header}, {(void *)(uintptr_t)payload, len}};
    sent = send_parts(channel, parts, len ? 2 : 1);
  }
  size_t of_header = sent < sizeof header ? sent : sizeof header;
  if (queue(channel, header + of_header, sizeof header - of_header) && len)
    queue(channel, (const uint8_t *)payload + (sent - of_header), len - (sent - of_header));
  update_poll(channel);
}

static void flush(dml_agent_channel *channel) {
  while (channel->out_len) {
    struct iovec part = {channel->out + channel->out_start, channel->out_len};
    size_t sent = send_parts(channel, &part, 1);
    if (sent == 0) return;
    channel->out_start += sent;
    channel->out_len -= sent;
  }
  channel->out_start = 0;
  if (channel->out_capacity <= KEEP_OUT_BYTES) return;
  free(channel->out);
  channel->out = NULL;
  channel->out_capacity = 0;
}

static void wake_writers(dml_agent_channel *channel) {
  /* A callback may end any stream, so each is looked for again; ids only grow. */
  for (size_t i = 0; i < DML_AGENT_CHANNEL_BUCKETS; i++) {
    uint32_t below = UINT32_MAX;
    for (;;) {
      dml_agent_stream *found = NULL;
      for (dml_agent_stream *s = channel->buckets[i]; s; s = s->next)
        if (s->id < below && (!found || s->id > found->id)) found = s;
      if (!found || channel->out_len >= DML_AGENT_CHANNEL_OUT_HIGH) break;
      below = found->id;
      if (found->ops->writable) found->ops->writable(found);
    }
  }
}

/* ---- in ---- */

static dml_agent_stream *find_stream(const dml_agent_channel *channel, uint32_t id) {
  dml_agent_stream *stream = channel->buckets[id % DML_AGENT_CHANNEL_BUCKETS];
  while (stream && stream->id != id) stream = stream->next;
  return stream;
}

static bool take_hello(dml_agent_channel *channel, const dml_frame *frame) {
  dml_field_reader reader = {frame->payload, frame->len};
  dml_field field;
  int64_t version;
  if (channel->is_ready || frame->flags || frame->stream) return false;
  if (dml_field_next(&reader, &field) != 1 || field.tag != DML_FIELD_VERSION || reader.len) return false;
  if (!dml_field_int(&field, &version) || version != DML_FRAME_VERSION) return false;
  channel->is_ready = true;
  if (channel->on_change) channel->on_change(channel, channel->ud);
  return true;
}

static bool take_credit(dml_agent_stream *stream, const dml_frame *frame) {
  if (frame->len != 4) return false;
  uint32_t more = dml_frame_get_u32(frame->payload);
  if (more > DML_FRAME_WINDOW - stream->credit) return false;
  stream->credit += more;
  if (stream->ops->writable) stream->ops->writable(stream);
  return true;
}

/* The stream is over whatever the frame says, so shutting the channel would pass it over. */
static bool take_last(dml_agent_stream *stream, const dml_frame *frame) {
  unlink_stream(stream);
  if (stream->ops->frame(stream, frame)) return true;
  stream->ops->closed(stream);
  return false;
}

static bool take_frame(dml_agent_channel *channel, const dml_frame *frame) {
  if (frame->type == DML_FRAME_HELLO) return take_hello(channel, frame);
  if (!channel->is_ready || frame->stream == 0 || frame->stream > channel->last_id) return false;
  dml_agent_stream *stream = find_stream(channel, frame->stream);
  switch (frame->type) {
  case DML_FRAME_CREDIT: return !stream || take_credit(stream, frame);
  case DML_FRAME_DATA:
    if (!stream) return true;
    if (frame->len > DML_FRAME_DATA_MAX || frame->len + DML_FRAME_COST > stream->window) return false;
    stream->window -= (uint32_t)frame->len + DML_FRAME_COST;
    return stream->ops->frame(stream, frame);
  case DML_FRAME_DONE:
  case DML_FRAME_ERROR:
  case DML_FRAME_EXIT:
    return !stream || take_last(stream, frame);
  case DML_FRAME_STARTED:
  case DML_FRAME_LINE:
  case DML_FRAME_TAIL:
  case DML_FRAME_OUTPUT:
  case DML_FRAME_OPENED:
  case DML_FRAME_ENTRY: return !stream || stream->ops->frame(stream, frame);
  default: return false;
  }
}

/* Serves what was received; false when the channel is to be shut. */
static bool take_frames(dml_agent_channel *channel) {
  dml_frame frame;
  dml_frame_result result;
  while (!channel->is_shut && (result = dml_inbox_next(&channel->inbox, &frame)) != DML_FRAME_MORE)
    if (result == DML_FRAME_BAD || !take_frame(channel, &frame)) return false;
  return true;
}

/* Receives once. 1: something came, 0: nothing for now, -1: the end. */
static int receive(dml_agent_channel *channel, bool *was_whole) {
  size_t room;
  uint8_t *place = dml_inbox_reserve(&channel->inbox, &room);
  if (!place) return -1;
  ssize_t got;
  do got = recv(channel->fd, place, room, MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  if (got == 0) return -1;
  dml_inbox_commit(&channel->inbox, (size_t)got);
  *was_whole = (size_t)got < room;
  return 1;
}

static void serve_events(dml_agent_channel *channel) {
  bool is_over = channel->status < 0;
  bool was_whole = false;
  for (int i = 0; i < RECEIVES_A_TURN && !is_over && !was_whole && !channel->is_shut; i++) {
    int got = receive(channel, &was_whole);
    is_over = got < 0 || !take_frames(channel);
    if (got == 0) break;
  }
  if (channel->is_shut) return;
  if (is_over) {
    dml_agent_channel_shut(channel);
    return;
  }
  if (channel->stream_count == 0) dml_inbox_trim(&channel->inbox);
  if (!(channel->events & UV_WRITABLE)) return;
  flush(channel);
  if (channel->out_len < DML_AGENT_CHANNEL_OUT_HIGH) wake_writers(channel);
  update_poll(channel);
}

static int enter_events(lua_State *L) {
  serve_events(lua_touserdata(L, 1));
  return 0;
}

static void on_events(uv_poll_t *handle, int status, int events) {
  dml_agent_channel *channel = handle->data;
  channel->status = status;
  channel->events = events;
  dml_script_enter(channel->script, enter_events, channel);
}

/* ---- streams ---- */

static bool send_request(dml_agent_channel *channel, uint32_t id, dml_frame_type type, const dml_fields *fields) {
  size_t at = 0;
  if (type == DML_FRAME_START)
    for (; fields->len - at > DML_FRAME_PAYLOAD_MAX; at += DML_FRAME_PAYLOAD_MAX)
      send_frame(channel, DML_FRAME_START_PART, id, fields->data + at, DML_FRAME_PAYLOAD_MAX);
  send_frame(channel, type, id, fields->len ? fields->data + at : NULL, fields->len - at);
  return !channel->is_broken;
}

dml_fault dml_agent_stream_open(dml_agent_channel *channel, dml_agent_stream *stream, const dml_agent_stream_ops *ops,
                                dml_frame_type type, const dml_fields *fields) {
  size_t most = type == DML_FRAME_START ? DML_FRAME_START_MAX : DML_FRAME_PAYLOAD_MAX;
  if (channel->is_shut) return DML_FAULT_CLOSED;
  if (fields->failed || fields->len > most) return DML_FAULT_TOO_LARGE;
  if (channel->stream_count >= DML_FRAME_STREAMS_MAX || channel->last_id == UINT32_MAX ||
      channel->out_len + fields->len > DML_AGENT_CHANNEL_OUT_MAX)
    return DML_FAULT_EXHAUSTED;
  *stream = (dml_agent_stream){.channel = channel,
                               .ops = ops,
                               .id = ++channel->last_id,
                               .credit = DML_FRAME_WINDOW,
                               .window = DML_FRAME_WINDOW,
                               .is_open = true};
  dml_agent_stream **head = &channel->buckets[stream->id % DML_AGENT_CHANNEL_BUCKETS];
  stream->next = *head;
  *head = stream;
  channel->stream_count++;
  if (send_request(channel, stream->id, type, fields)) return DML_FAULT_NONE;
  unlink_stream(stream);
  return DML_FAULT_CLOSED;
}

void dml_agent_stream_drop(dml_agent_stream *stream) {
  if (!stream->is_open) return;
  unlink_stream(stream);
  send_frame(stream->channel, DML_FRAME_DROP, stream->id, NULL, 0);
}

size_t dml_agent_stream_write(dml_agent_stream *stream, const void *bytes, size_t len) {
  size_t done = 0;
  while (done < len && stream->is_open && stream->credit > DML_FRAME_COST &&
         stream->channel->out_len < DML_AGENT_CHANNEL_OUT_HIGH) {
    size_t part = len - done;
    if (part > stream->credit - DML_FRAME_COST) part = stream->credit - DML_FRAME_COST;
    if (part > DML_FRAME_DATA_MAX) part = DML_FRAME_DATA_MAX;
    stream->credit -= (uint32_t)part + DML_FRAME_COST;
    send_frame(stream->channel, DML_FRAME_DATA, stream->id, (const uint8_t *)bytes + done, part);
    done += part;
  }
  return done;
}

void dml_agent_stream_end(dml_agent_stream *stream) {
  if (stream->is_open) send_frame(stream->channel, DML_FRAME_END, stream->id, NULL, 0);
}

void dml_agent_stream_consume(dml_agent_stream *stream, size_t len) {
  if (!stream->is_open) return;
  stream->consumed += (uint32_t)len + DML_FRAME_COST;
  if (stream->consumed < DML_FRAME_WINDOW / 4) return;
  uint8_t payload[4];
  dml_frame_put_u32(payload, stream->consumed);
  stream->window += stream->consumed;
  stream->consumed = 0;
  send_frame(stream->channel, DML_FRAME_CREDIT, stream->id, payload, sizeof payload);
}

/* ---- deadlines ---- */

static void on_clock(uv_timer_t *handle);

static void arm_clock(dml_agent_channel *channel) {
  uint64_t now_ms = uv_now(channel->clock.loop);
  uint64_t at_ms = UINT64_MAX;
  for (const dml_agent_timer *t = channel->timers; t; t = t->next)
    if (t->at_ms < at_ms) at_ms = t->at_ms;
  if (at_ms == UINT64_MAX) uv_timer_stop(&channel->clock);
  else uv_timer_start(&channel->clock, on_clock, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

/* Fires one, then looks again: a callback may stop or start any. */
static int enter_clock(lua_State *L) {
  dml_agent_channel *channel = lua_touserdata(L, 1);
  uint64_t now_ms = uv_now(channel->clock.loop);
  for (dml_agent_timer *t = channel->timers; t; t = t->next) {
    if (t->at_ms > now_ms) continue;
    dml_agent_timer_stop(channel, t);
    if (channel->timers) uv_timer_start(&channel->clock, on_clock, 0, 0);
    t->fired(t);
    return 0;
  }
  arm_clock(channel);
  return 0;
}

static void on_clock(uv_timer_t *handle) {
  dml_agent_channel *channel = handle->data;
  dml_script_enter(channel->script, enter_clock, channel);
}

void dml_agent_timer_start(dml_agent_channel *channel, dml_agent_timer *timer, uint64_t timeout_ms,
                           void (*fired)(dml_agent_timer *timer)) {
  dml_agent_timer_stop(channel, timer);
  uv_update_time(channel->clock.loop);
  uint64_t now_ms = uv_now(channel->clock.loop);
  timer->fired = fired;
  timer->at_ms = now_ms + timeout_ms;
  timer->next = channel->timers;
  timer->back = &channel->timers;
  if (timer->next) timer->next->back = &timer->next;
  channel->timers = timer;
  if (!uv_is_active((uv_handle_t *)&channel->clock) || timeout_ms < uv_timer_get_due_in(&channel->clock))
    uv_timer_start(&channel->clock, on_clock, timeout_ms, 0);
}

void dml_agent_timer_stop(dml_agent_channel *channel, dml_agent_timer *timer) {
  if (!timer->back) return;
  *timer->back = timer->next;
  if (timer->next) timer->next->back = timer->back;
  timer->back = NULL;
  if (!channel->timers) uv_timer_stop(&channel->clock);
}
