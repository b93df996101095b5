/* headers.c - one run of bytes for all fields, and places in it: growing moves the bytes, so places are offsets. */
#include "net/headers.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16

void dml_headers_init(dml_headers *headers, size_t limit_bytes) {
  *headers = (dml_headers){0};
  /* Two NULs a field are ours, not counted against the caller's limit. */
  dml_buffer_init(&headers->bytes, limit_bytes + 2 * DML_HEADERS_COUNT_MAX);
}

void dml_headers_deinit(dml_headers *headers) {
  dml_buffer_deinit(&headers->bytes);
  free(headers->places);
  headers->places = NULL;
  headers->count = headers->capacity = 0;
}

void dml_headers_clear(dml_headers *headers) {
  headers->bytes.len = 0;
  headers->count = 0;
}

static char to_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static dml_span trim(dml_span span) {
  while (span.len > 0 && is_blank(span.data[0])) span = (dml_span){span.data + 1, span.len - 1};
  while (span.len > 0 && is_blank(span.data[span.len - 1])) span.len--;
  return span;
}

static dml_status make_place(dml_headers *headers) {
  if (headers->count == DML_HEADERS_COUNT_MAX) return DML_TOO_LARGE;
  if (headers->count < headers->capacity) return DML_OK;
  size_t capacity = headers->capacity ? headers->capacity * 2 : FIRST_CAPACITY;
  dml_header_place *places = realloc(headers->places, capacity * sizeof *places);
  if (!places) return DML_INTERNAL;
  headers->places = places;
  headers->capacity = capacity;
  return DML_OK;
}

dml_status dml_headers_add(dml_headers *headers, dml_span name, dml_span value) {
  value = trim(value);
  if (!dml_header_is_token(name) || !dml_header_is_value(value)) return DML_INVALID_ARGUMENT;
  dml_status status = make_place(headers);
  if (status != DML_OK) return status;
  char *bytes = dml_buffer_reserve(&headers->bytes, name.len + value.len + 2, &status);
  if (!bytes) return status;
  size_t at = headers->bytes.len;
  for (size_t i = 0; i < name.len; i++) bytes[i] = to_lower(name.data[i]);
  bytes[name.len] = '\0';
  memcpy(bytes + name.len + 1, value.data, value.len);
  bytes[name.len + 1 + value.len] = '\0';
  dml_buffer_commit(&headers->bytes, name.len + value.len + 2);
  headers->places[headers->count++] = (dml_header_place){
      .name = (uint32_t)at,
      .name_len = (uint32_t)name.len,
      .value = (uint32_t)(at + name.len + 1),
      .value_len = (uint32_t)value.len,
  };
  return DML_OK;
}

void dml_headers_at(const dml_headers *headers, size_t i, dml_span *name, dml_span *value) {
  const dml_header_place *place = &headers->places[i];
  *name = (dml_span){headers->bytes.data + place->name, place->name_len};
  *value = (dml_span){headers->bytes.data + place->value, place->value_len};
}

bool dml_headers_find(const dml_headers *headers, const char *wanted, dml_span *out) {
  size_t len = strlen(wanted);
  for (size_t i = 0; i < headers->count; i++) {
    dml_span name, value;
    dml_headers_at(headers, i, &name, &value);
    if (name.len != len || memcmp(name.data, wanted, len) != 0) continue;
    if (out) *out = value;
    return true;
  }
  return false;
}

static bool is_token_char(unsigned char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

bool dml_header_is_token(dml_span span) {
  for (size_t i = 0; i < span.len; i++)
    if (!is_token_char((unsigned char)span.data[i])) return false;
  return span.len > 0;
}

bool dml_header_is_value(dml_span span) {
  for (size_t i = 0; i < span.len; i++) {
    unsigned char c = (unsigned char)span.data[i];
    if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
  }
  return true;
}

bool dml_span_is_word(dml_span span, const char *word) {
  if (span.len != strlen(word)) return false;
  for (size_t i = 0; i < span.len; i++)
    if (to_lower(span.data[i]) != word[i]) return false;
  return true;
}

bool dml_span_to_length(dml_span span, int64_t *out) {
  int64_t value = 0;
  for (size_t i = 0; i < span.len; i++) {
    if (span.data[i] < '0' || span.data[i] > '9') return false;
    int digit = span.data[i] - '0';
    if (value > (INT64_MAX - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *out = value;
  return span.len > 0;
}
