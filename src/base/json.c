/* json.c - the scan, and Jansson behind it. */
#include "base/json.h"

#include <string.h>

#include "base/utf8.h"

typedef struct scanner {
  const char *text;
  size_t len, at;
  size_t depth;
  size_t values;
  bool at_key;     /* in the top-level object, before a key */
  bool key_is_id;  /* the key just read is "id" */
  bool id_seen;
  dml_json_scan_result *out;
} scanner;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_value_end(char c) {
  return is_space(c) || c == ',' || c == ']' || c == '}' || c == ':' || c == '"' || c == '[' || c == '{';
}

/* Goes behind the string that begins at `at`; false where it does not end. The next quote is looked for once, however many
 * escapes stand before it. */
static bool skip_string(scanner *s) {
  const char *quote = NULL;
  s->at++;
  while (s->at < s->len) {
    if (!quote || quote < s->text + s->at) quote = memchr(s->text + s->at, '"', s->len - s->at);
    if (!quote) return false;
    const char *slash = memchr(s->text + s->at, '\\', (size_t)(quote - s->text) - s->at);
    if (!slash) {
      s->at = (size_t)(quote - s->text) + 1;
      return true;
    }
    s->at = (size_t)(slash - s->text) + 2;
  }
  return false;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* The next ASCII character of a JSON string, escapes \uXXXX resolved; -1 for anything else. */
static int next_char(const char *s, size_t len, size_t *at) {
  if (*at >= len) return -1;
  if (s[*at] != '\\') return (unsigned char)s[(*at)++];
  if (*at + 6 > len || s[*at + 1] != 'u') return -1;
  int code = 0;
  for (size_t i = *at + 2; i < *at + 6; i++) {
    int digit = hex_digit(s[i]);
    if (digit < 0) return -1;
    code = code * 16 + digit;
  }
  *at += 6;
  return code < 128 ? code : -1;
}

/* Whether the string between the quotes spells `id`, however it is escaped. */
static bool spells_id(const char *s, size_t len) {
  size_t at = 0;
  return next_char(s, len, &at) == 'i' && next_char(s, len, &at) == 'd' && at == len;
}

static void note_id(scanner *s, size_t start, dml_json_id_kind kind) {
  dml_json_scan_result *out = s->out;
  size_t len = s->at - start;
  if (s->id_seen || len > DML_JSON_ID_MAX_BYTES) kind = DML_JSON_ID_BAD;
  s->id_seen = true;
  out->id_kind = kind;
  out->id_start = start;
  out->id_len = len;
}

static dml_json_id_kind scalar_kind(const char *s, size_t len) {
  if (len == 4 && memcmp(s, "null", 4) == 0) return DML_JSON_ID_NULL;
  size_t at = len > 1 && s[0] == '-' ? 1 : 0;
  if (len - at > 1 && s[at] == '0') return DML_JSON_ID_BAD;
  for (; at < len; at++)
    if (s[at] < '0' || s[at] > '9') return DML_JSON_ID_BAD;
  return DML_JSON_ID_INTEGER;
}

static bool scan_string(scanner *s) {
  size_t start = s->at;
  if (!skip_string(s)) return false;
  if (s->at > s->len) return false;
  if (s->depth != 1 || s->out->top != '{') return true;
  if (s->at_key) {
    s->key_is_id = spells_id(s->text + start + 1, s->at - start - 2);
    s->at_key = false;
  } else if (s->key_is_id) {
    note_id(s, start, DML_JSON_ID_STRING);
    s->key_is_id = false;
  }
  return true;
}

static void scan_scalar(scanner *s) {
  size_t start = s->at;
  while (s->at < s->len && !is_value_end(s->text[s->at])) s->at++;
  if (s->at == start) s->at++;
  if (s->key_is_id && s->depth == 1) {
    note_id(s, start, scalar_kind(s->text + start, s->at - start));
    s->key_is_id = false;
  }
}

static void scan_open(scanner *s) {
  if (s->key_is_id && s->depth == 1) {
    note_id(s, s->at, DML_JSON_ID_BAD);
    s->key_is_id = false;
  }
  s->depth++;
  if (s->depth == 1) s->at_key = true;
  s->at++;
}

/* One token; false ends the scan. */
static bool scan_token(scanner *s) {
  char c = s->text[s->at];
  if (is_space(c) || c == ':') {
    s->at++;
    return true;
  }
  if (c == ',') {
    if (s->depth == 1) s->at_key = true;
    s->at++;
    return true;
  }
  if (c == '}' || c == ']') {
    s->at++;
    if (s->depth == 0) return false;
    s->depth--;
    return true;
  }
  if (++s->values > DML_JSON_VALUES_MAX) s->out->is_too_many = true;
  if (c == '"') return scan_string(s);
  if (c == '{' || c == '[') {
    scan_open(s);
    if (s->depth > DML_JSON_DEPTH_MAX) s->out->is_too_deep = true;
    return true;
  }
  scan_scalar(s);
  return true;
}

void dml_json_scan(const char *text, size_t len, dml_json_scan_result *out) {
  *out = (dml_json_scan_result){0};
  scanner s = {.text = text, .len = len, .out = out};
  while (s.at < len && is_space(text[s.at])) s.at++;
  if (s.at < len) out->top = text[s.at];
  bool goes_on = true;
  while (s.at < len && goes_on) goes_on = scan_token(&s);
  out->is_balanced = goes_on && s.depth == 0 && out->top != 0;
  /* Jansson 2.14 overlooks a NUL behind a number. */
  if (out->is_balanced && memchr(text, '\0', len)) out->is_balanced = false;
}

dml_json_fault dml_json_decode(const char *text, size_t len, dml_json_scan_result *scan, json_t **out) {
  dml_json_scan_result own;
  if (!scan) scan = &own;
  *out = NULL;
  dml_json_scan(text, len, scan);
  if (scan->is_too_deep || scan->is_too_many) return DML_JSON_OVER_LIMIT;
  if (!scan->is_balanced) return DML_JSON_SYNTAX;
  json_error_t error;
  *out = json_loadb(text, len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
  if (*out) return DML_JSON_FINE;
  return json_error_code(&error) == json_error_numeric_overflow ? DML_JSON_OUT_OF_RANGE : DML_JSON_SYNTAX;
}

static int append_piece(const char *piece, size_t size, void *ud) {
  dml_buffer *out = ud;
  return dml_buffer_append(out, piece, size) == DML_OK ? 0 : -1;
}

/* U+2028 and U+2029 are E2 80 A8 and E2 80 A9 in UTF-8; in JSON they can only stand in strings. */
static bool is_separator(const char *s) { return s[0] == '\xE2' && s[1] == '\x80' && (s[2] == '\xA8' || s[2] == '\xA9'); }

static size_t count_separators(const char *s, size_t len) {
  size_t count = 0, at = 0;
  while (len - at > 2) {
    const char *hit = memchr(s + at, '\xE2', len - 2 - at);
    if (!hit) break;
    at = (size_t)(hit - s) + 1;
    if (is_separator(hit)) count++;
  }
  return count;
}

/* From the end to the start, so that each byte moves once however many there are. */
static dml_status escape_separators(dml_buffer *out, size_t from) {
  size_t left = count_separators(out->data + from, out->len - from);
  if (left == 0) return DML_OK;
  dml_status status;
  if (!dml_buffer_reserve(out, left * 3, &status)) return status;
  char *source = out->data + out->len;
  dml_buffer_commit(out, left * 3);
  char *target = out->data + out->len;
  while (left > 0) {
    if (!is_separator(source - 3)) {
      *--target = *--source;
      continue;
    }
    source -= 3;
    target -= 6;
    target[5] = source[2] == '\xA8' ? '8' : '9';
    memcpy(target, "\\u202", 5);
    left--;
  }
  return DML_OK;
}

dml_status dml_json_append(dml_buffer *out, const json_t *value) {
  size_t from = out->len;
  size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS;
  if (json_dump_callback(value, append_piece, out, flags) != 0) return DML_TOO_LARGE;
  return escape_separators(out, from);
}

json_t *dml_json_string(const char *s, size_t len) {
  if (dml_utf8_is_valid(s, len)) return json_stringn_nocheck(s, len);
  dml_buffer mended;
  dml_buffer_init(&mended, len * 3 + 3);
  json_t *value = NULL;
  if (dml_utf8_append_mended(&mended, s, len) == DML_OK) value = json_stringn_nocheck(mended.data, mended.len);
  dml_buffer_deinit(&mended);
  return value;
}

dml_status dml_json_append_string(dml_buffer *out, const char *s, size_t len) {
  json_t *value = dml_json_string(s, len);
  if (!value) return DML_INTERNAL;
  dml_status status = dml_json_append(out, value);
  json_decref(value);
  return status;
}
