/* buffer_test.c - base/buffer: growth, the limit, what a failure leaves. */
#include "base/buffer.h"

#include <string.h>

#include "support/check.h"

static void test_append_and_consume(void) {
  dml_buffer buffer;
  dml_buffer_init(&buffer, 100);
  CHECK(buffer.len == 0);
  CHECK(dml_buffer_append(&buffer, "hello ", 6) == DML_OK);
  CHECK(dml_buffer_append(&buffer, "world", 5) == DML_OK);
  CHECK(dml_buffer_append(&buffer, "", 0) == DML_OK);
  CHECK(buffer.len == 11 && memcmp(buffer.data, "hello world", 11) == 0);
  dml_buffer_consume(&buffer, 6);
  CHECK(buffer.len == 5 && memcmp(buffer.data, "world", 5) == 0);
  dml_buffer_consume(&buffer, 5);
  CHECK(buffer.len == 0);
  dml_buffer_deinit(&buffer);
}

static void test_limit(void) {
  dml_buffer buffer;
  char bytes[64] = {0};
  dml_buffer_init(&buffer, 100);
  CHECK(dml_buffer_append(&buffer, bytes, 64) == DML_OK);
  CHECK(dml_buffer_append(&buffer, bytes, 37) == DML_TOO_LARGE);
  CHECK(buffer.len == 64);
  CHECK(dml_buffer_append(&buffer, bytes, 36) == DML_OK);
  CHECK(dml_buffer_append(&buffer, bytes, 1) == DML_TOO_LARGE);
  CHECK(buffer.len == 100);
  dml_buffer_deinit(&buffer);
}

static void test_no_overflow_of_sizes(void) {
  dml_buffer buffer;
  dml_status status = DML_OK;
  dml_buffer_init(&buffer, 100);
  CHECK(dml_buffer_append(&buffer, "x", 1) == DML_OK);
  CHECK(dml_buffer_reserve(&buffer, (size_t)-1, &status) == NULL);
  CHECK(status == DML_TOO_LARGE);
  CHECK(buffer.len == 1 && buffer.data[0] == 'x');
  dml_buffer_deinit(&buffer);
}

static void test_reserve_and_commit(void) {
  dml_buffer buffer;
  dml_status status = DML_INTERNAL;
  dml_buffer_init(&buffer, 1 << 20);
  for (int i = 0; i < 1000; i++) {
    char *place = dml_buffer_reserve(&buffer, 100, &status);
    CHECK(place != NULL);
    if (!place) break;
    memset(place, 'a' + i % 26, 100);
    dml_buffer_commit(&buffer, 50);
  }
  CHECK(buffer.len == 50000);
  CHECK(buffer.data[0] == 'a' && buffer.data[49] == 'a' && buffer.data[50] == 'b');
  dml_buffer_reset(&buffer, 16);
  CHECK(buffer.len == 0 && buffer.capacity <= 16);
  CHECK(dml_buffer_append(&buffer, "again", 5) == DML_OK);
  dml_buffer_deinit(&buffer);
}

int main(void) {
  CHECK_RUN(test_append_and_consume);
  CHECK_RUN(test_limit);
  CHECK_RUN(test_no_overflow_of_sizes);
  CHECK_RUN(test_reserve_and_commit);
  return check_end();
}
