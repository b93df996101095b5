/* json.h - JSON from outside: one bounded look over the text, then Jansson.
 *
 * Jansson is strict, but it spends 40 bytes of memory on each byte of `[],[],…`, and one number beyond int64 or one lone
 * surrogate loses the whole message together with its id. So dml_json_scan goes over the text first: it bounds depth and
 * number of values, and finds the bytes of the top-level "id", which are echoed as they came. */
#ifndef DML_BASE_JSON_H
#define DML_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

#define DML_JSON_DEPTH_MAX 128
#define DML_JSON_VALUES_MAX 200000
#define DML_JSON_ID_MAX_BYTES 1024

typedef enum dml_json_id_kind {
  DML_JSON_ID_ABSENT,
  DML_JSON_ID_NULL,
  DML_JSON_ID_INTEGER, /* digits of any length, as they came */
  DML_JSON_ID_STRING,  /* with its quotes, as it came */
  DML_JSON_ID_BAD      /* fraction, exponent, boolean, array, object, over DML_JSON_ID_MAX_BYTES, or there twice */
} dml_json_id_kind;

typedef struct dml_json_scan_result {
  bool is_balanced;  /* brackets and strings close, no NUL; says nothing of the finer grammar */
  bool is_too_deep;  /* over DML_JSON_DEPTH_MAX */
  bool is_too_many;  /* over DML_JSON_VALUES_MAX; keys count too */
  char top;          /* first byte that is no white space: '{', '[', …; 0 for none */
  dml_json_id_kind id_kind;
  size_t id_start;   /* span of the id in the text, where it is an integer or a string */
  size_t id_len;
} dml_json_scan_result;

/* Looks over `text`; never fails: what it could not make out stands in the result. */
void dml_json_scan(const char *text, size_t len, dml_json_scan_result *out);

typedef enum dml_json_fault {
  DML_JSON_FINE,
  DML_JSON_SYNTAX,       /* not JSON, or not UTF-8 */
  DML_JSON_OUT_OF_RANGE, /* JSON, with a number that neither int64 nor double holds */
  DML_JSON_OVER_LIMIT    /* too deep or too many values */
} dml_json_fault;

/* Scans and decodes. On DML_JSON_FINE *out is the caller's (json_decref). The scan's result is also given where `scan`
 * is not NULL. */
dml_json_fault dml_json_decode(const char *text, size_t len, dml_json_scan_result *scan, json_t **out);

/* Appends `value` in compact form, keys sorted, U+2028 and U+2029 escaped (they end lines for some readers).
 * Errors: the buffer's. */
dml_status dml_json_append(dml_buffer *out, const json_t *value);
/* Appends a JSON string for bytes of any kind; invalid UTF-8 becomes U+FFFD. Errors: the buffer's. */
dml_status dml_json_append_string(dml_buffer *out, const char *s, size_t len);
/* A JSON string value for bytes of any kind, mended likewise; NULL without memory. */
json_t *dml_json_string(const char *s, size_t len);

#endif
