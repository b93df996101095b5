/* buffer.c - doubling growth up to the limit. */
#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY_BYTES 512

void dml_buffer_init(dml_buffer *buffer, size_t limit_bytes) {
  *buffer = (dml_buffer){.limit = limit_bytes};
}

void dml_buffer_deinit(dml_buffer *buffer) {
  free(buffer->data);
  *buffer = (dml_buffer){.limit = buffer->limit};
}

char *dml_buffer_reserve(dml_buffer *buffer, size_t more, dml_status *status) {
  *status = DML_OK;
  if (more > buffer->limit || buffer->len > buffer->limit - more) {
    *status = DML_TOO_LARGE;
    return NULL;
  }
  size_t need = buffer->len + more;
  if (need > buffer->capacity) {
    size_t capacity = buffer->capacity ? buffer->capacity : FIRST_CAPACITY_BYTES;
    while (capacity < need) capacity = capacity > buffer->limit / 2 ? buffer->limit : capacity * 2;
    char *data = realloc(buffer->data, capacity);
    if (!data) {
      *status = DML_INTERNAL;
      return NULL;
    }
    buffer->data = data;
    buffer->capacity = capacity;
  }
  return buffer->data + buffer->len;
}

void dml_buffer_commit(dml_buffer *buffer, size_t more) { buffer->len += more; }

dml_status dml_buffer_append(dml_buffer *buffer, const void *bytes, size_t len) {
  if (len == 0) return DML_OK;
  dml_status status;
  char *place = dml_buffer_reserve(buffer, len, &status);
  if (!place) return status;
  memcpy(place, bytes, len);
  buffer->len += len;
  return DML_OK;
}

void dml_buffer_consume(dml_buffer *buffer, size_t len) {
  if (len >= buffer->len) {
    buffer->len = 0;
    return;
  }
  memmove(buffer->data, buffer->data + len, buffer->len - len);
  buffer->len -= len;
}

void dml_buffer_reset(dml_buffer *buffer, size_t keep_bytes) {
  buffer->len = 0;
  if (buffer->capacity > keep_bytes) {
    free(buffer->data);
    buffer->data = NULL;
    buffer->capacity = 0;
  }
}
