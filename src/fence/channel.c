/* channel.c - see channel.h. */
#include "fence/channel.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 4096
#define KEEP_BYTES ((size_t)64 * 1024)

static void give_up(void) { _exit(DML_WIRE_EXIT_BROKEN); }

void dml_channel_must(dml_status status) {
  if (status != DML_OK) give_up();
}

void dml_channel_open(dml_policy *policy) {
  dml_buffer_init(&policy->in, DML_WIRE_FRAME_MAX_BYTES + DML_WIRE_HEADER_BYTES + READ_BYTES);
  dml_buffer_init(&policy->out, DML_WIRE_FRAME_MAX_BYTES + DML_WIRE_HEADER_BYTES);
}

/* Until `need` bytes are there. */
static void fill(dml_buffer *in, size_t need) {
  while (in->len < need) {
    dml_status status;
    size_t room = need - in->len > READ_BYTES ? need - in->len : READ_BYTES;
    char *place = dml_buffer_reserve(in, room, &status);
    if (!place) give_up();
    ssize_t got = read(DML_WIRE_FD, place, room);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) give_up();
    dml_buffer_commit(in, (size_t)got);
  }
}

dml_wire_kind dml_channel_receive(dml_policy *policy, dml_unpacker *out) {
  dml_buffer *in = &policy->in;
  dml_buffer_consume(in, policy->in_taken);
  if (in->len == 0) dml_buffer_reset(in, KEEP_BYTES);
  fill(in, DML_WIRE_HEADER_BYTES);
  uint32_t len;
  memcpy(&len, in->data, sizeof len);
  dml_wire_kind kind = (dml_wire_kind)(unsigned char)in->data[4];
  if (len > DML_WIRE_FRAME_MAX_BYTES) give_up();
  policy->in_taken = DML_WIRE_HEADER_BYTES + (size_t)len;
  fill(in, policy->in_taken);
  *out = (dml_unpacker){.at = in->data + DML_WIRE_HEADER_BYTES, .end = in->data + policy->in_taken};
  return kind;
}

void dml_channel_begin(dml_policy *policy, dml_wire_kind kind) {
  dml_buffer_reset(&policy->out, KEEP_BYTES);
  char header[DML_WIRE_HEADER_BYTES] = {0, 0, 0, 0, (char)kind};
  dml_channel_must(dml_buffer_append(&policy->out, header, sizeof header));
}

void dml_channel_put_counters(dml_policy *policy) {
  dml_buffer *out = &policy->out;
  dml_channel_must(dml_pack_integer(out, policy->limits.instructions));
  dml_channel_must(dml_pack_integer(out, policy->limits.cpu_us));
  dml_channel_must(dml_pack_integer(out, (int64_t)policy->limits.used_bytes));
  dml_channel_must(dml_pack_integer(out, (int64_t)policy->log_count));
  for (size_t i = 0; i < policy->log_count; i++)
    dml_channel_must(dml_pack_string(out, policy->logs[i], policy->log_lens[i]));
}

void dml_channel_send(dml_policy *policy) {
  dml_buffer *out = &policy->out;
  uint32_t len = (uint32_t)(out->len - DML_WIRE_HEADER_BYTES);
  memcpy(out->data, &len, sizeof len);
  for (size_t at = 0; at < out->len;) {
    ssize_t put = write(DML_WIRE_FD, out->data + at, out->len - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) give_up();
    at += (size_t)put;
  }
}

void dml_channel_send_fault(dml_policy *policy) {
  const dml_fault *fault = &policy->fault;
  const char *file = fault->file ? fault->file : "";
  dml_buffer *out = &policy->out;
  dml_channel_begin(policy, DML_WIRE_FAULT);
  dml_channel_put_counters(policy);
  dml_channel_must(dml_pack_integer(out, (int64_t)fault->kind));
  dml_channel_must(dml_pack_integer(out, (int64_t)fault->limit));
  dml_channel_must(dml_pack_integer(out, fault->line));
  dml_channel_must(dml_pack_string(out, file, strlen(file)));
  dml_channel_must(dml_pack_string(out, fault->text, fault->len));
  dml_channel_send(policy);
}
