/* headers.h - a bounded list of HTTP header fields, and the grammar of names and values.
 *
 * Names are kept in lower case, values without the white space around them (RFC 9110 §5.5), both with their length: a
 * value may hold any byte but control characters. Repeated names stay separate entries, in the order of the wire.
 * Storage is the caller's (init/deinit). */
#ifndef DML_NET_HEADERS_H
#define DML_NET_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

/* More fields than this are refused, however short they are. */
#define DML_HEADERS_COUNT_MAX 256

/* A run of bytes that somebody else owns. */
typedef struct dml_span {
  const char *data;
  size_t len;
} dml_span;

typedef struct dml_header_place {
  uint32_t name, name_len, value, value_len;
} dml_header_place;

/* Do not touch the fields; `count` may be read. */
typedef struct dml_headers {
  dml_buffer bytes;
  dml_header_place *places;
  size_t count;
  size_t capacity;
} dml_headers;

/* `limit_bytes`: names and values together. Allocates nothing yet. */
void dml_headers_init(dml_headers *headers, size_t limit_bytes);
void dml_headers_deinit(dml_headers *headers);
/* Forgets all fields and keeps the memory. */
void dml_headers_clear(dml_headers *headers);
/* Copies one field. Errors: DML_INVALID_ARGUMENT (a name that is no token, a control character in the value),
 * DML_TOO_LARGE (the limit or the count), DML_INTERNAL (no memory). */
dml_status dml_headers_add(dml_headers *headers, dml_span name, dml_span value);
/* Field `i` in [0, count). The bytes are borrowed until the next change, and are followed by a NUL each. */
void dml_headers_at(const dml_headers *headers, size_t i, dml_span *name, dml_span *value);
/* The first field of that (lower case) name. The value may be NULL. */
bool dml_headers_find(const dml_headers *headers, const char *name, dml_span *value);

/* A token (RFC 9110 §5.6.2), at least one byte. */
bool dml_header_is_token(dml_span span);
/* A field value: no control character but the tab. */
bool dml_header_is_value(dml_span span);
/* Whether the bytes are this word, letters in any case. */
bool dml_span_is_word(dml_span span, const char *lower_case_word);
/* A decimal number with digits only, as Content-Length has (RFC 9110 §8.6). False too beyond int64. */
bool dml_span_to_length(dml_span span, int64_t *out);

#endif
