/* channel.c - see channel.h. */
#include "agent/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define SMALL_BYTES 4096
#define FIRST_OUT_BYTES 8192
#define FIELDS_MAX 1024

void dml_channel_init(dml_channel *channel, int fd) { *channel = (dml_channel){.fd = fd}; }

bool dml_channel_has_output(const dml_channel *channel) { return channel->out_len > 0; }

bool dml_channel_is_full(const dml_channel *channel) { return channel->out_len >= DML_CHANNEL_FULL_BYTES; }

static void queue(dml_channel *channel, const void *bytes, size_t len) {
  if (len == 0 || channel->is_broken) return;
  if (channel->out_start && channel->out_start + channel->out_len + len > channel->out_capacity) {
    memmove(channel->out, channel->out + channel->out_start, channel->out_len);
    channel->out_start = 0;
  }
  size_t need = channel->out_len + len;
  if (need > channel->out_capacity) {
    size_t capacity = channel->out_capacity ? channel->out_capacity : FIRST_OUT_BYTES;
    while (capacity < need) capacity *= 2;
    uint8_t *out = realloc(channel->out, capacity);
    if (!out) {
      channel->is_broken = true;
      return;
    }
    channel->out = out;
    channel->out_capacity = capacity;
  }
  memcpy(channel->out + channel->out_start + channel->out_len, bytes, len);
  channel->out_len += len;
}

/* What of `parts` the socket took. */
static size_t send_parts(dml_channel *channel, struct iovec *parts, size_t count) {
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
  ssize_t sent;
  do sent = sendmsg(channel->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return (size_t)sent;
  if (errno != EAGAIN && errno != EWOULDBLOCK) channel->is_broken = true;
  return 0;
}

static void consume_out(dml_channel *channel, size_t len) {
  channel->out_start += len;
  channel->out_len -= len;
  if (channel->out_len == 0) channel->out_start = 0;
}

void dml_channel_flush(dml_channel *channel) {
  while (channel->out_len && !channel->is_broken) {
    struct iovec part = {channel->out + channel->out_start, channel->out_len};
    size_t sent = send_parts(channel, &part, 1);
    if (sent == 0) return;
    consume_out(channel, sent);
  }
}

/* Writes outbox, header and payload in one call and queues the rest. */
static void send_large(dml_channel *channel, const uint8_t *header, const void *payload, size_t len) {
  struct iovec parts[3] = {
      {NULL, channel->out_len}, {(void *)(uintptr_t)header, DML_FRAME_HEADER_BYTES}, {(void *)(uintptr_t)payload, len}};
  size_t skip = channel->out_len ? 0 : 1;
  if (!skip) parts[0].iov_base = channel->out + channel->out_start;
  size_t sent = channel->is_broken ? 0 : send_parts(channel, parts + skip, 3 - skip);
  size_t from_out = sent < channel->out_len ? sent : channel->out_len;
  consume_out(channel, from_out);
  sent -= from_out;
  size_t from_header = sent < DML_FRAME_HEADER_BYTES ? sent : DML_FRAME_HEADER_BYTES;
  sent -= from_header;
  queue(channel, header + from_header, DML_FRAME_HEADER_BYTES - from_header);
  queue(channel, (const uint8_t *)payload + sent, len - sent);
}

void dml_channel_send(dml_channel *channel, dml_frame_type type, uint8_t flags, uint32_t stream, const void *payload,
                      size_t len) {
  uint8_t header[DML_FRAME_HEADER_BYTES];
  dml_frame frame = {.type = (uint8_t)type, .flags = flags, .stream = stream, .len = len};
  if (len > DML_FRAME_PAYLOAD_MAX) {
    channel->is_broken = true;
    return;
  }
  dml_frame_put_header(header, &frame);
  if (len > SMALL_BYTES) {
    send_large(channel, header, payload, len);
    return;
  }
  queue(channel, header, sizeof header);
  queue(channel, payload, len);
}

void dml_channel_send_fields(dml_channel *channel, dml_frame_type type, uint8_t flags, uint32_t stream,
                             dml_fields *fields) {
  if (fields->failed) channel->is_broken = true;
  else dml_channel_send(channel, type, flags, stream, fields->data, fields->len);
  dml_fields_deinit(fields);
}

void dml_channel_send_error(dml_channel *channel, uint32_t stream, dml_fault fault, int which) {
  dml_fields fields;
  dml_fields_init(&fields, FIELDS_MAX);
  dml_fields_put_int(&fields, DML_FIELD_CODE, fault);
  if (which) dml_fields_put_int(&fields, DML_FIELD_WHICH, which);
  dml_channel_send_fields(channel, DML_FRAME_ERROR, 0, stream, &fields);
}

void dml_channel_send_done(dml_channel *channel, uint32_t stream) {
  dml_channel_send(channel, DML_FRAME_DONE, 0, stream, NULL, 0);
}

void dml_channel_send_credit(dml_channel *channel, uint32_t stream, uint32_t bytes) {
  uint8_t payload[4];
  dml_frame_put_u32(payload, bytes);
  dml_channel_send(channel, DML_FRAME_CREDIT, 0, stream, payload, sizeof payload);
}

void dml_channel_receive(dml_channel *channel) {
  size_t room;
  uint8_t *place = dml_inbox_reserve(&channel->inbox, &room);
  if (!place) {
    channel->is_broken = true;
    return;
  }
  ssize_t got = recv(channel->fd, place, room, MSG_DONTWAIT);
  if (got > 0) dml_inbox_commit(&channel->inbox, (size_t)got);
  else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) channel->is_broken = true;
}

void dml_channel_trim(dml_channel *channel) {
  dml_inbox_trim(&channel->inbox);
  if (channel->out_len) return;
  free(channel->out);
  channel->out = NULL;
  channel->out_capacity = channel->out_start = 0;
}
