/* forms.h - writes bytes in the forms that a secret can take, independently of vault/view. For C tests. */
#ifndef DML_SPEC_FORMS_H
#define DML_SPEC_FORMS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
  char bytes[1 << 17];
  size_t len;
} text;

static inline void put(text *t, const void *bytes, size_t len) {
  if (len > sizeof t->bytes - t->len) abort();
  memcpy(t->bytes + t->len, bytes, len);
  t->len += len;
}

static inline void put_text(text *t, const char *s) { put(t, s, strlen(s)); }

/* A generator of its own, so that a failure can be repeated. */
static inline uint32_t roll(uint64_t *state, uint32_t below) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33) % below;
}

static inline void put_hex(text *t, const unsigned char *s, size_t n, uint64_t *state) {
  for (size_t i = 0; i < 2 * n; i++)
    put(t, (roll(state, 2) ? "0123456789abcdef" : "0123456789ABCDEF") + (s[i / 2] >> (i % 2 ? 0 : 4) & 15), 1);
}

/* Escapes what URLs reserve, and at times more. */
static inline void put_url(text *t, const unsigned char *s, size_t n, uint64_t *state) {
  for (size_t i = 0; i < n; i++) {
    char escape[4];
    int is_plain =
        s[i] < 0x80 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", s[i]) != NULL;
    snprintf(escape, sizeof escape, roll(state, 2) ? "%%%02X" : "%%%02x", s[i]);
    if (is_plain && roll(state, 8))
      put(t, s + i, 1);
    else
      put(t, escape, 3);
  }
}

/* Quotes and backslashes always, other things at times; bytes from 0x80 on are two-byte characters and may become \u.
 */
static inline void put_json(text *t, const unsigned char *s, size_t n, uint64_t *state) {
  for (size_t i = 0; i < n; i++) {
    char escape[8];
    unsigned code = s[i];
    int is_two = (s[i] & 0xE0) == 0xC0 && i + 1 < n;
    if (is_two) code = (unsigned)(s[i] & 0x1F) << 6 | (s[i + 1] & 0x3F);
    snprintf(escape, sizeof escape, roll(state, 2) ? "\\u%04x" : "\\u%04X", code);
    if (!is_two && strchr("\"\\/", s[i]) && roll(state, 3))
      put(t, "\\", 1), put(t, s + i, 1);
    else if (s[i] == '"' || s[i] == '\\' || roll(state, 8) == 0)
      put(t, escape, 6), i += is_two;
    else
      put(t, s + i, 1 + is_two), i += is_two;
  }
}

/* Base64 of `before` bytes, the secret, `after` bytes. The span of the characters that the secret has a part in. */
static inline void put_base64(text *t, const unsigned char *s, size_t n, size_t before, size_t after, uint64_t *state,
                              size_t *start, size_t *end) {
  static const char STANDARD[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static const char OTHER[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const char *alphabet = roll(state, 2) ? STANDARD : OTHER;
  size_t total = before + n + after, bits = total * 8;
  unsigned char *all = calloc(1, total + 3);
  if (!all) abort();
  for (size_t i = 0; i < before + after; i++) all[i < before ? i : n + i] = (unsigned char)roll(state, 256);
  memcpy(all + before, s, n);
  *start = t->len + before * 8 / 6;
  *end = t->len + ((before + n) * 8 + 5) / 6;
  for (size_t bit = 0; bit < bits; bit += 6) {
    unsigned two = (unsigned)all[bit / 8] << 8 | all[bit / 8 + 1];
    put(t, alphabet + (two >> (10 - bit % 8) & 63), 1);
  }
  if (roll(state, 2))
    for (size_t i = bits % 24; i && i < 24; i += 8) put(t, "=", 1);
  free(all);
}

#endif
