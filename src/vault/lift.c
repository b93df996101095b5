/* lift.c - see lift.h.
 *
 * Goes down only where a pointer leads, so its depth is a pointer's; everything else is skipped by counting brackets.
 */
#include "vault/lift.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "vault/view.h"

typedef struct walk {
  char *text;
  size_t len, at;
  const dml_lift_pointer *pointers;
  size_t count, taken;
  unsigned char *scratch;
  size_t scratch_bytes;
  dml_lift_take take;
  void *ud;
} walk;

/* ---- pointers ---- */

/* One segment from `text`, with ~1 and ~0 decoded. Returns what of the text it took, or 0. */
static size_t take_segment(char *out, const char *text, size_t len) {
  size_t at = 0, size = 0;
  while (at < len && text[at] != '/') {
    char c = text[at++];
    if (c == '\0' || size >= DML_LIFT_SEGMENT_MAX_BYTES) return 0;
    if (c == '~') {
      if (at >= len || (text[at] != '0' && text[at] != '1')) return 0;
      c = text[at++] == '0' ? '~' : '/';
    }
    out[size++] = c;
  }
  out[size] = '\0';
  return at;
}

bool dml_lift_parse(dml_lift_pointer *pointer, const char *text, size_t len) {
  pointer->depth = 0;
  size_t at = 0;
  while (at < len) {
    if (text[at] != '/' || pointer->depth >= DML_LIFT_DEPTH_MAX) return false;
    size_t took = take_segment(pointer->segments[pointer->depth++], text + at + 1, len - at - 1);
    if (took == 0) return false;
    at += took + 1;
  }
  return pointer->depth > 0;
}

bool dml_lift_covers(const dml_lift_pointer *pointer, size_t depth, const char *name) {
  const char *segment = pointer->segments[depth];
  return depth < pointer->depth && (strcmp(segment, "*") == 0 || strcmp(segment, name) == 0);
}

/* Those pointers of the set that go on to a member of this name. */
static uint32_t narrow(const walk *w, uint32_t set, size_t depth, const char *name) {
  uint32_t rest = 0;
  for (size_t i = 0; i < w->count; i++)
    if (set >> i & 1 && dml_lift_covers(&w->pointers[i], depth, name)) rest |= UINT32_C(1) << i;
  return rest;
}

/* The first pointer of the set that ends here, or `count`. */
static size_t ends_here(const walk *w, uint32_t set, size_t depth) {
  size_t i = 0;
  while (i < w->count && !(set >> i & 1 && w->pointers[i].depth == depth)) i++;
  return i;
}

/* ---- text ---- */

static int peek(walk *w) {
  while (w->at < w->len && memchr(" \t\r\n", w->text[w->at], 4)) w->at++;
  return w->at < w->len ? w->text[w->at] : -1;
}

static bool take_char(walk *w, char c) {
  if (peek(w) != c) return false;
  w->at++;
  return true;
}

/* A string: its content without the quotes. */
static bool take_string(walk *w, size_t *start, size_t *end) {
  if (!take_char(w, '"')) return false;
  *start = w->at;
  while (w->at < w->len && w->text[w->at] != '"') w->at += w->text[w->at] == '\\' ? 2 : 1;
  if (w->at >= w->len) return false;
  *end = w->at++;
  return true;
}

/* Decodes a string to `out`; false when it is longer than `size`, or is no text without control characters. */
static bool decode(const walk *w, size_t start, size_t end, unsigned char *out, size_t size, size_t *len) {
  dml_view view;
  dml_view_init(&view, DML_VIEW_JSON, (const unsigned char *)w->text, end, start);
  for (*len = 0; view.at < end || view.rest_count > 0; (*len)++) {
    int byte = dml_view_next(&view);
    if (byte < 0 || *len >= size) return false;
    out[*len] = (unsigned char)byte;
  }
  return true;
}

/* Skips a value of any kind by its brackets. */
static bool skip(walk *w) {
  size_t depth = 0, start, end;
  do {
    int c = peek(w);
    if (c == '"') {
      if (!take_string(w, &start, &end)) return false;
    } else if (c == '{' || c == '[') {
      depth++;
      w->at++;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return false;
      depth--;
      w->at++;
    } else if (c == ',' || c == ':') {
      if (depth == 0) return false;
      w->at++;
    } else {
      size_t before = w->at;
      while (w->at < w->len && !memchr(",:{}[]\" \t\r\n", w->text[w->at], 11)) w->at++;
      if (w->at == before) return false;
    }
  } while (depth > 0);
  return true;
}

/* ---- the walk ---- */

static dml_status value(walk *w, uint32_t set, size_t depth);

static dml_status lift(walk *w, size_t pointer) {
  size_t start, end, len;
  dml_status status = DML_OK;
  if (!take_string(w, &start, &end)) return DML_INVALID_RESPONSE;
  if (w->taken++ >= DML_LIFT_COUNT_MAX) return DML_INVALID_RESPONSE;
  if (!decode(w, start, end, w->scratch, w->scratch_bytes, &len)) return DML_INVALID_RESPONSE;
  size_t size = w->take(w->ud, pointer, w->scratch, len, w->text + start, end - start, &status);
  if (size == 0) return status == DML_OK ? DML_INVALID_RESPONSE : status;
  memset(w->text + start + size, ' ', end - start - size);
  return DML_OK;
}

static dml_status member(walk *w, uint32_t set, size_t depth) {
  unsigned char name[DML_LIFT_SEGMENT_MAX_BYTES + 1];
  size_t start, end, len;
  if (!take_string(w, &start, &end)) return DML_INVALID_RESPONSE;
  bool is_known = decode(w, start, end, name, DML_LIFT_SEGMENT_MAX_BYTES, &len);
  name[is_known ? len : 0] = '\0';
  if (!take_char(w, ':')) return DML_INVALID_RESPONSE;
  return value(w, narrow(w, set, depth, (const char *)name), depth + 1);
}

static dml_status element(walk *w, uint32_t set, size_t depth, size_t index) {
  char name[24];
  snprintf(name, sizeof name, "%zu", index);
  return value(w, narrow(w, set, depth, name), depth + 1);
}

static dml_status container(walk *w, uint32_t set, size_t depth, bool is_object) {
  char close = is_object ? '}' : ']';
  w->at++;
  if (take_char(w, close)) return DML_OK;
  for (size_t i = 0;; i++) {
    dml_status status = is_object ? member(w, set, depth) : element(w, set, depth, i);
    if (status != DML_OK) return status;
    if (take_char(w, close)) return DML_OK;
    if (!take_char(w, ',')) return DML_INVALID_RESPONSE;
  }
}

static dml_status value(walk *w, uint32_t set, size_t depth) {
  int c = peek(w);
  size_t pointer = ends_here(w, set, depth);
  if (c == '"' && pointer < w->count) return lift(w, pointer);
  if ((c == '{' || c == '[') && set) return container(w, set, depth, c == '{');
  return skip(w) ? DML_OK : DML_INVALID_RESPONSE;
}

dml_status dml_lift(char *text, size_t len, const dml_lift_pointer *pointers, size_t count, unsigned char *scratch,
                    size_t scratch_bytes, dml_lift_take take, void *ud) {
  walk w = {.text = text,
            .len = len,
            .pointers = pointers,
            .count = count,
            .scratch = scratch,
            .scratch_bytes = scratch_bytes,
            .take = take,
            .ud = ud};
  if (count > DML_LIFT_POINTERS_MAX) return DML_INVALID_ARGUMENT;
  dml_status status = value(&w, (UINT32_C(1) << count) - 1, 0);
  return status == DML_OK && peek(&w) != -1 ? DML_INVALID_RESPONSE : status;
}
