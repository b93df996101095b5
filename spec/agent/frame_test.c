/* frame_test.c - base/frame: headers, the inbox at every cut, fields, and random bytes. */
#include "base/frame.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"

#define BIG 100000
#define ROUNDS 20000

static void put_frame(uint8_t *out, uint8_t type, uint32_t stream, const void *payload, size_t len) {
  dml_frame frame = {.type = type, .flags = 2, .stream = stream, .len = len};
  dml_frame_put_header(out, &frame);
  if (len) memcpy(out + DML_FRAME_HEADER_BYTES, payload, len);
}

/* Hands bytes over as a socket would, at most `step` at a time, and returns the last result before more were needed. */
static dml_frame_result feed(dml_inbox *inbox, const uint8_t *bytes, size_t len, size_t step, size_t *frames,
                             size_t *payload_bytes) {
  dml_frame frame;
  dml_frame_result result = DML_FRAME_MORE;
  for (size_t at = 0; at < len && result != DML_FRAME_BAD;) {
    size_t room = 0;
    uint8_t *place = dml_inbox_reserve(inbox, &room);
    if (!place) return DML_FRAME_BAD;
    if (room > step) room = step;
    if (room > len - at) room = len - at;
    memcpy(place, bytes + at, room);
    dml_inbox_commit(inbox, room);
    at += room;
    while ((result = dml_inbox_next(inbox, &frame)) == DML_FRAME_WHOLE) {
      (*frames)++;
      *payload_bytes += frame.len;
    }
  }
  return result;
}

static void test_header(void) {
  uint8_t bytes[DML_FRAME_HEADER_BYTES + 3];
  dml_frame frame;
  size_t need = 0;
  put_frame(bytes, DML_FRAME_DATA, 0x01020304, "abc", 3);
  CHECK(memcmp(bytes, "\3\0\0\0\30\2\0\0\4\3\2\1abc", sizeof bytes) == 0);
  CHECK(dml_frame_parse(bytes, 11, &frame, &need) == DML_FRAME_MORE && need == 12);
  CHECK(dml_frame_parse(bytes, 14, &frame, &need) == DML_FRAME_MORE && need == 15);
  CHECK(dml_frame_parse(bytes, 15, &frame, &need) == DML_FRAME_WHOLE && need == 15);
  CHECK(frame.type == DML_FRAME_DATA && frame.flags == 2 && frame.stream == 0x01020304 && frame.len == 3);
  CHECK(memcmp(frame.payload, "abc", 3) == 0);
}

static void test_refused_headers(void) {
  uint8_t bytes[DML_FRAME_HEADER_BYTES] = {0};
  dml_frame frame;
  size_t need = 0;
  dml_frame_put_u32(bytes, DML_FRAME_PAYLOAD_MAX);
  CHECK(dml_frame_parse(bytes, sizeof bytes, &frame, &need) == DML_FRAME_MORE);
  dml_frame_put_u32(bytes, DML_FRAME_PAYLOAD_MAX + 1);
  CHECK(dml_frame_parse(bytes, sizeof bytes, &frame, &need) == DML_FRAME_BAD);
  dml_frame_put_u32(bytes, 0xFFFFFFFFu);
  CHECK(dml_frame_parse(bytes, sizeof bytes, &frame, &need) == DML_FRAME_BAD);
  dml_frame_put_u32(bytes, 0);
  bytes[7] = 1;
  CHECK(dml_frame_parse(bytes, sizeof bytes, &frame, &need) == DML_FRAME_BAD);
}

static void test_inbox_in_any_pieces(void) {
  static uint8_t bytes[3 * DML_FRAME_HEADER_BYTES + BIG + 5];
  static uint8_t payload[BIG];
  put_frame(bytes, 1, 1, payload, BIG);
  put_frame(bytes + DML_FRAME_HEADER_BYTES + BIG, 2, 2, payload, 0);
  put_frame(bytes + 2 * DML_FRAME_HEADER_BYTES + BIG, 3, 3, payload, 5);
  static const size_t STEPS[] = {1, 7, 12, 4096, 65536, sizeof bytes};
  for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
    size_t frames = 0, payload_bytes = 0;
    dml_inbox inbox;
    dml_inbox_init(&inbox);
    CHECK(feed(&inbox, bytes, sizeof bytes, STEPS[i], &frames, &payload_bytes) == DML_FRAME_MORE);
    CHECK(frames == 3 && payload_bytes == BIG + 5);
    CHECK(!dml_inbox_has_frame(&inbox));
    dml_inbox_trim(&inbox);
    CHECK(inbox.data == NULL);
    dml_inbox_deinit(&inbox);
  }
}

static void test_fields(void) {
  dml_fields fields;
  dml_field field;
  int64_t number = 0;
  dml_fields_init(&fields, 1000);
  dml_fields_put_int(&fields, DML_FIELD_PID, -2);
  dml_fields_put_text(&fields, DML_FIELD_PATH, "/tmp");
  dml_fields_put(&fields, DML_FIELD_ARG, "a\0b", 3);
  CHECK(!fields.failed);
  dml_field_reader reader = {fields.data, fields.len};
  CHECK(dml_field_next(&reader, &field) == 1 && field.tag == DML_FIELD_PID);
  CHECK(dml_field_int(&field, &number) && number == -2 && !dml_field_text(&field, 100));
  CHECK(dml_field_next(&reader, &field) == 1 && strcmp(dml_field_text(&field, 4), "/tmp") == 0);
  CHECK(!dml_field_text(&field, 3) && !dml_field_int(&field, &number));
  CHECK(dml_field_next(&reader, &field) == 1 && field.len == 3 && !dml_field_text(&field, 100));
  CHECK(dml_field_next(&reader, &field) == 0);
  for (size_t len = 1; len < fields.len; len++) {
    dml_field_reader cut = {fields.data, len};
    int more;
    while ((more = dml_field_next(&cut, &field)) > 0) continue;
    CHECK(more == -1 || len == 13 || len == 23);
  }
  dml_fields_deinit(&fields);
}

static void test_fields_limit(void) {
  dml_fields fields;
  char bytes[64] = {0};
  dml_fields_init(&fields, 80);
  dml_fields_put(&fields, DML_FIELD_ARG, bytes, 64);
  CHECK(!fields.failed && fields.len == 69);
  dml_fields_put(&fields, DML_FIELD_ARG, bytes, 7);
  CHECK(fields.failed && fields.len == 69);
  dml_fields_put(&fields, DML_FIELD_ARG, bytes, 1);
  CHECK(fields.failed && fields.len == 69);
  dml_fields_deinit(&fields);
  dml_fields_init(&fields, 80);
  dml_fields_put(&fields, DML_FIELD_ARG, bytes, SIZE_MAX);
  CHECK(fields.failed);
  dml_fields_deinit(&fields);
}

static void test_fault_names(void) {
  CHECK(strcmp(dml_fault_name(DML_FAULT_NOT_FOUND), "not_found") == 0);
  CHECK(strcmp(dml_fault_name(DML_FAULT_FAILED), "failed") == 0);
  CHECK(strcmp(dml_fault_name(0), "failed") == 0);
  CHECK(strcmp(dml_fault_name(-1), "failed") == 0);
  CHECK(strcmp(dml_fault_name(INT64_MAX), "failed") == 0);
}

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static void test_random_bytes(void) {
  uint64_t state = 1;
  size_t frames = 0, payload_bytes = 0, bad = 0;
  for (int i = 0; i < ROUNDS; i++) {
    uint8_t bytes[96];
    size_t len = 1 + next_random(&state) % sizeof bytes;
    for (size_t j = 0; j < len; j++) bytes[j] = (uint8_t)next_random(&state);
    /* short lengths and clean reserved bits, so that something gets through */
    for (size_t j = 0; j + 8 <= len; j += 24) memcpy(bytes + j + 1, "\0\0\0", 3), memcpy(bytes + j + 6, "\0\0", 2);
    dml_inbox inbox;
    dml_inbox_init(&inbox);
    bad += feed(&inbox, bytes, len, 1 + next_random(&state) % 32, &frames, &payload_bytes) == DML_FRAME_BAD;
    dml_inbox_deinit(&inbox);
    uint8_t *exact = malloc(len); /* so that a sanitizer sees a read behind it */
    if (!exact) continue;
    memcpy(exact, bytes, len);
    dml_field_reader reader = {exact, len};
    dml_field field;
    while (dml_field_next(&reader, &field) > 0) dml_field_text(&field, 1000);
    free(exact);
  }
  CHECK(frames > 100 && bad > 100);
}

int main(void) {
  CHECK_RUN(test_header);
  CHECK_RUN(test_refused_headers);
  CHECK_RUN(test_inbox_in_any_pieces);
  CHECK_RUN(test_fields);
  CHECK_RUN(test_fields_limit);
  CHECK_RUN(test_fault_names);
  CHECK_RUN(test_random_bytes);
  return check_end();
}
