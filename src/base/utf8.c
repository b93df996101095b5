/* utf8.c - see utf8.h. */
#include "base/utf8.h"

#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

/* RFC 3629 §4: how many bytes follow, and the range of the second one, which bars overlong forms and surrogates. */
static int follow_count(unsigned char first, unsigned char *low, unsigned char *high) {
  *low = 0x80;
  *high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) return 1;
  if (first >= 0xE0 && first <= 0xEF) {
    if (first == 0xE0) *low = 0xA0;
    if (first == 0xED) *high = 0x9F;
    return 2;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (first == 0xF0) *low = 0x90;
    if (first == 0xF4) *high = 0x8F;
    return 3;
  }
  return 0;
}

int dml_utf8_step(const char *s, size_t len) {
  unsigned char first = (unsigned char)s[0];
  if (first < 0x80) return 1;
  unsigned char low, high;
  int follow = follow_count(first, &low, &high);
  if (follow == 0) return 0;
  for (int i = 1; i <= follow; i++) {
    if ((size_t)i >= len) return -1;
    unsigned char c = (unsigned char)s[i];
    if (c < low || c > high) return 0;
    low = 0x80;
    high = 0xBF;
  }
  return follow + 1;
}

/* Length of the leading run of plain ASCII: the common case, eight bytes at a time. */
static size_t ascii_run(const char *s, size_t len) {
  size_t at = 0;
  while (len - at >= 8) {
    unsigned long long word;
    memcpy(&word, s + at, 8);
    if (word & 0x8080808080808080ULL) break;
    at += 8;
  }
  while (at < len && (unsigned char)s[at] < 0x80) at++;
  return at;
}

bool dml_utf8_is_valid(const char *s, size_t len) {
  for (size_t at = ascii_run(s, len); at < len; at += ascii_run(s + at, len - at)) {
    int step = dml_utf8_step(s + at, len - at);
    if (step <= 0) return false;
    at += (size_t)step;
    if (at >= len) break;
  }
  return true;
}

/* How many bytes one U+FFFD stands for: the longest prefix that could have begun a character. */
static size_t invalid_run(const char *s, size_t len) {
  unsigned char low, high;
  int follow = follow_count((unsigned char)s[0], &low, &high);
  size_t run = 1;
  while (run <= (size_t)follow && run < len) {
    unsigned char c = (unsigned char)s[run];
    if (c < low || c > high) break;
    low = 0x80;
    high = 0xBF;
    run++;
  }
  return run;
}

dml_status dml_utf8_append_mended(dml_buffer *out, const char *s, size_t len) {
  size_t start = 0, at = 0;
  dml_status status = DML_OK;
  while (at < len && status == DML_OK) {
    at += ascii_run(s + at, len - at);
    if (at >= len) break;
    int step = dml_utf8_step(s + at, len - at);
    if (step > 0) {
      at += (size_t)step;
      continue;
    }
    status = dml_buffer_append(out, s + start, at - start);
    if (status == DML_OK) status = dml_buffer_append(out, REPLACEMENT, 3);
    at += invalid_run(s + at, len - at);
    start = at;
  }
  return status == DML_OK ? dml_buffer_append(out, s + start, len - start) : status;
}
