/* target.c - one allocation for the decoded bytes: decoding never makes a text longer. */
#include "net/target.h"

#include <stdlib.h>
#include <string.h>

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* Decodes `raw` to `*at` and moves it behind. `plus`: what a plus sign stands for. False on a broken escape or a NUL.
 */
static bool decode(char **at, dml_span raw, char plus, dml_span *out) {
  char *start = *at, *to = start;
  for (size_t i = 0; i < raw.len; i++) {
    char c = raw.data[i];
    if (c == '%') {
      if (raw.len - i < 3) return false;
      int high = hex_digit(raw.data[i + 1]), low = hex_digit(raw.data[i + 2]);
      if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
      c = (char)(high << 4 | low);
      i += 2;
    } else if (c == '+') {
      c = plus;
    }
    *to++ = c;
  }
  *to = '\0';
  *at = to + 1;
  *out = (dml_span){start, (size_t)(to - start)};
  return true;
}

/* The bytes before the first `c`; `rest` gets those behind it, empty if there is none. */
static dml_span split(dml_span span, char c, dml_span *rest) {
  const char *found = span.len ? memchr(span.data, c, span.len) : NULL;
  size_t len = found ? (size_t)(found - span.data) : span.len;
  *rest = found ? (dml_span){found + 1, span.len - len - 1} : (dml_span){"", 0};
  return (dml_span){span.data, len};
}

static bool is_visible(dml_span raw) {
  for (size_t i = 0; i < raw.len; i++)
    if ((unsigned char)raw.data[i] <= ' ' || (unsigned char)raw.data[i] >= 0x7f) return false;
  return raw.len > 0;
}

static bool is_same_word(dml_span a, dml_span b) {
  if (a.len != b.len) return false;
  for (size_t i = 0; i < a.len; i++) {
    char x = a.data[i], y = b.data[i];
    if (x >= 'A' && x <= 'Z') x = (char)(x + 32);
    if (y >= 'A' && y <= 'Z') y = (char)(y + 32);
    if (x != y) return false;
  }
  return true;
}

/* RFC 9112 §3.2.2: a server takes the absolute form too. One that disagrees with Host is no honest client's. */
static bool strip_authority(dml_span *raw, dml_span host) {
  static const char *const SCHEMES[] = {"http://", "https://"};
  for (size_t i = 0; i < sizeof SCHEMES / sizeof *SCHEMES; i++) {
    size_t len = strlen(SCHEMES[i]);
    if (raw->len < len || !dml_span_is_word((dml_span){raw->data, len}, SCHEMES[i])) continue;
    dml_span rest = {raw->data + len, raw->len - len};
    size_t end = 0;
    while (end < rest.len && rest.data[end] != '/' && rest.data[end] != '?') end++;
    if (!is_same_word((dml_span){rest.data, end}, host)) return false;
    *raw = (dml_span){rest.data + end, rest.len - end};
    return true;
  }
  return raw->len > 0 && (raw->data[0] == '/' || (raw->len == 1 && raw->data[0] == '*'));
}

static size_t count_parameters(dml_span query) {
  size_t count = query.len > 0;
  for (size_t i = 0; i < query.len; i++) count += query.data[i] == '&';
  return count;
}

static dml_status parse_query(dml_target *target, dml_span query, char **at) {
  size_t most = count_parameters(query);
  if (most == 0) return DML_OK;
  if (most > DML_TARGET_PARAMETERS_MAX) return DML_TOO_LARGE;
  target->parameters = malloc(most * sizeof *target->parameters);
  if (!target->parameters) return DML_INTERNAL;
  while (query.len > 0) {
    dml_span value, pair = split(query, '&', &query);
    if (pair.len == 0) continue;
    dml_span name = split(pair, '=', &value);
    dml_target_parameter *parameter = &target->parameters[target->count++];
    if (!decode(at, name, ' ', &parameter->name) || !decode(at, value, ' ', &parameter->value))
      return DML_INVALID_ARGUMENT;
  }
  return DML_OK;
}

dml_status dml_target_parse(dml_target *target, dml_span raw, dml_span host) {
  *target = (dml_target){0};
  if (!is_visible(raw) || memchr(raw.data, '#', raw.len) || !strip_authority(&raw, host)) return DML_INVALID_ARGUMENT;
  /* Each piece gets a NUL: one for the path, at most two for each parameter, which has at least one byte of its own. */
  target->arena = malloc(raw.len + 2 + 2 * count_parameters(raw));
  if (!target->arena) return DML_INTERNAL;
  char *at = target->arena;
  dml_span query, path = split(raw, '?', &query);
  if (path.len == 0) path = (dml_span){"/", 1};
  dml_status status = decode(&at, path, '+', &target->path) ? DML_OK : DML_INVALID_ARGUMENT;
  if (status == DML_OK) status = parse_query(target, query, &at);
  if (status != DML_OK) dml_target_deinit(target);
  return status;
}

void dml_target_deinit(dml_target *target) {
  free(target->arena);
  free(target->parameters);
  *target = (dml_target){0};
}
