/* line.c - see line.h. Only the last lines of a chunk are looked at, so a flood costs little. */
#include "agent/line.h"

#include <string.h>

#define BLANKS_MAX 16 /* blank lines at the end that are looked behind */

static size_t append(uint8_t *to, size_t to_len, const uint8_t *bytes, size_t len) {
  if (len > DML_LINE_BYTES - to_len) len = DML_LINE_BYTES - to_len;
  memcpy(to + to_len, bytes, len);
  return to_len + len;
}

/* RFC 3629: continuation bytes are 10xxxxxx. */
static size_t cut(const uint8_t *text, size_t len) {
  if (len <= DML_FRAME_LINE_MAX) return len;
  len = DML_FRAME_LINE_MAX;
  for (int i = 0; i < 3 && len > 0 && (text[len] & 0xC0) == 0x80; i++) len--;
  return len;
}

/* The line that ends at `end`, with what an earlier chunk began when it begins before this one. Returns its length. */
static size_t copy_line(const dml_line *line, const uint8_t *bytes, const uint8_t *before, const uint8_t *end,
                        uint8_t *out) {
  const uint8_t *start = before ? before + 1 : bytes;
  size_t len = before ? 0 : append(out, 0, line->partial, line->partial_len);
  len = append(out, len, start, (size_t)(end - start));
  if (len && len <= DML_FRAME_LINE_MAX && out[len - 1] == '\r') len--;
  return cut(out, len);
}

bool dml_line_add(dml_line *line, const uint8_t *bytes, size_t len) {
  const uint8_t *last = memrchr(bytes, '\n', len);
  if (!last) {
    line->partial_len = append(line->partial, line->partial_len, bytes, len);
    return false;
  }
  uint8_t text[DML_LINE_BYTES];
  size_t text_len = 0;
  const uint8_t *before = NULL;
  int left = BLANKS_MAX;
  for (const uint8_t *end = last; end && text_len == 0 && left > 0; end = before, left--) {
    before = memrchr(bytes, '\n', (size_t)(end - bytes));
    text_len = copy_line(line, bytes, before, end, text);
  }
  line->partial_len = append(line->partial, 0, last + 1, (size_t)(bytes + len - (last + 1)));
  if (text_len == 0) return false;
  memcpy(line->text, text, text_len);
  line->text_len = text_len;
  return true;
}
