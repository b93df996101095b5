/* frame.c - reading and writing frames and their fields. */
#include "base/frame.h"

#include <stdlib.h>
#include <string.h>

#define FIELD_HEAD_BYTES 5
#define FIRST_FIELDS_BYTES 128
/* One whole DATA frame: the common case needs no growth. */
#define INBOX_BYTES (DML_FRAME_HEADER_BYTES + DML_FRAME_DATA_MAX)

static const char *const FAULT_NAMES[] = {
    "failed",
#define X(id, name) name,
    DML_FAULT_MAP(X)
#undef X
};

const char *dml_fault_name(int64_t fault) {
  return fault > 0 && fault < DML_FAULT_COUNT ? FAULT_NAMES[fault] : FAULT_NAMES[0];
}

void dml_frame_put_u32(uint8_t *out, uint32_t value) {
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> (8 * i));
}

uint32_t dml_frame_get_u32(const uint8_t *in) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) value |= (uint32_t)in[i] << (8 * i);
  return value;
}

void dml_frame_put_header(uint8_t *out, const dml_frame *frame) {
  dml_frame_put_u32(out, (uint32_t)frame->len);
  out[4] = frame->type;
  out[5] = frame->flags;
  out[6] = out[7] = 0;
  dml_frame_put_u32(out + 8, frame->stream);
}

dml_frame_result dml_frame_parse(const uint8_t *bytes, size_t len, dml_frame *out, size_t *need) {
  *need = DML_FRAME_HEADER_BYTES;
  if (len < DML_FRAME_HEADER_BYTES) return DML_FRAME_MORE;
  uint32_t payload_len = dml_frame_get_u32(bytes);
  if (payload_len > DML_FRAME_PAYLOAD_MAX || bytes[6] != 0 || bytes[7] != 0) return DML_FRAME_BAD;
  *need += payload_len;
  if (len < *need) return DML_FRAME_MORE;
  *out = (dml_frame){.type = bytes[4],
                     .flags = bytes[5],
                     .stream = dml_frame_get_u32(bytes + 8),
                     .payload = bytes + DML_FRAME_HEADER_BYTES,
                     .len = payload_len};
  return DML_FRAME_WHOLE;
}

void dml_inbox_init(dml_inbox *inbox) { *inbox = (dml_inbox){0}; }

void dml_inbox_deinit(dml_inbox *inbox) {
  free(inbox->data);
  *inbox = (dml_inbox){0};
}

/* Moves what waits to the front of a block that holds the frame it begins. */
static bool make_room(dml_inbox *inbox) {
  dml_frame frame;
  size_t need = 0;
  size_t capacity = INBOX_BYTES;
  if (inbox->len && dml_frame_parse(inbox->data + inbox->start, inbox->len, &frame, &need) != DML_FRAME_BAD &&
      need > capacity)
    capacity = need;
  if (capacity > inbox->capacity) {
    uint8_t *data = malloc(capacity);
    if (!data) return false;
    if (inbox->len) memcpy(data, inbox->data + inbox->start, inbox->len);
    free(inbox->data);
    inbox->data = data;
    inbox->capacity = capacity;
  } else if (inbox->start) {
    memmove(inbox->data, inbox->data + inbox->start, inbox->len);
  }
  inbox->start = 0;
  return inbox->len < inbox->capacity;
}

uint8_t *dml_inbox_reserve(dml_inbox *inbox, size_t *room) {
  if (inbox->len == 0) inbox->start = 0;
  dml_frame frame;
  size_t need = 0;
  bool fits = inbox->data && dml_frame_parse(inbox->data + inbox->start, inbox->len, &frame, &need) == DML_FRAME_MORE &&
              need <= inbox->capacity - inbox->start;
  if (!fits && !make_room(inbox)) return NULL;
  *room = inbox->capacity - inbox->start - inbox->len;
  return inbox->data + inbox->start + inbox->len;
}

void dml_inbox_commit(dml_inbox *inbox, size_t len) { inbox->len += len; }

dml_frame_result dml_inbox_next(dml_inbox *inbox, dml_frame *out) {
  if (inbox->len == 0) return DML_FRAME_MORE;
  size_t need = 0;
  dml_frame_result result = dml_frame_parse(inbox->data + inbox->start, inbox->len, out, &need);
  if (result == DML_FRAME_WHOLE) {
    inbox->start += need;
    inbox->len -= need;
  }
  return result;
}

bool dml_inbox_has_frame(const dml_inbox *inbox) {
  dml_frame frame;
  size_t need = 0;
  return inbox->len && dml_frame_parse(inbox->data + inbox->start, inbox->len, &frame, &need) != DML_FRAME_MORE;
}

void dml_inbox_trim(dml_inbox *inbox) {
  if (inbox->len == 0) dml_inbox_deinit(inbox);
}

void dml_fields_init(dml_fields *fields, size_t limit_bytes) { *fields = (dml_fields){.limit = limit_bytes}; }

void dml_fields_deinit(dml_fields *fields) {
  free(fields->data);
  *fields = (dml_fields){.limit = fields->limit};
}

static bool fields_grow(dml_fields *fields, size_t more) {
  if (fields->failed || more > fields->limit || fields->len > fields->limit - more) return false;
  size_t need = fields->len + more;
  if (need <= fields->capacity) return true;
  size_t capacity = fields->capacity ? fields->capacity : FIRST_FIELDS_BYTES;
  while (capacity < need) capacity *= 2;
  uint8_t *data = realloc(fields->data, capacity);
  if (!data) return false;
  fields->data = data;
  fields->capacity = capacity;
  return true;
}

void dml_fields_put(dml_fields *fields, dml_field_tag tag, const void *bytes, size_t len) {
  if (len > fields->limit || !fields_grow(fields, FIELD_HEAD_BYTES + len)) {
    fields->failed = true;
    return;
  }
  uint8_t *place = fields->data + fields->len;
  place[0] = (uint8_t)tag;
  dml_frame_put_u32(place + 1, (uint32_t)len);
  if (len) memcpy(place + FIELD_HEAD_BYTES, bytes, len);
  fields->len += FIELD_HEAD_BYTES + len;
}

void dml_fields_put_int(dml_fields *fields, dml_field_tag tag, int64_t value) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
  dml_fields_put(fields, tag, bytes, sizeof bytes);
}

void dml_fields_put_text(dml_fields *fields, dml_field_tag tag, const char *text) {
  dml_fields_put(fields, tag, text, strlen(text) + 1);
}

int dml_field_next(dml_field_reader *reader, dml_field *out) {
  if (reader->len == 0) return 0;
  if (reader->len < FIELD_HEAD_BYTES) return -1;
  uint32_t len = dml_frame_get_u32(reader->bytes + 1);
  if (len > reader->len - FIELD_HEAD_BYTES) return -1;
  *out = (dml_field){.tag = reader->bytes[0], .bytes = reader->bytes + FIELD_HEAD_BYTES, .len = len};
  reader->bytes += FIELD_HEAD_BYTES + len;
  reader->len -= FIELD_HEAD_BYTES + len;
  return 1;
}

bool dml_field_int(const dml_field *field, int64_t *out) {
  if (field->len != 8) return false;
  uint64_t value = 0;
  for (int i = 0; i < 8; i++) value |= (uint64_t)field->bytes[i] << (8 * i);
  *out = (int64_t)value;
  return true;
}

const char *dml_field_text(const dml_field *field, size_t max_len) {
  if (field->len == 0 || field->len - 1 > max_len) return NULL;
  if (memchr(field->bytes, 0, field->len) != field->bytes + field->len - 1) return NULL;
  return (const char *)field->bytes;
}
