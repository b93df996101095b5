/* http_check.c - see http_check.h. */
#include "net/http_check.h"

#include <string.h>

#define REFUSAL(status, text)                                                                                          \
  { status, "{\"code\":" #status ",\"message\":\"" text "\"}" }

static const dml_http_refusal MALFORMED = REFUSAL(400, "The request is not well-formed HTTP.");
static const dml_http_refusal BAD_TARGET = REFUSAL(400, "The request target is not valid.");
static const dml_http_refusal NO_HOST = REFUSAL(400, "HTTP/1.1 requests carry one Host field.");
static const dml_http_refusal REPEATED = REFUSAL(400, "A field that may come once only is repeated.");
static const dml_http_refusal BAD_FRAMING = REFUSAL(400, "The length of the body is not clear.");

static const dml_http_refusal BY_STATUS[] = {
    REFUSAL(500, "Internal error."),
    REFUSAL(400, "The request is not well-formed HTTP."),
    REFUSAL(414, "The request target is too long."),
    REFUSAL(431, "The request's header fields are too large."),
    REFUSAL(503, "Too many requests are at work."),
};

/* Fields of which one value decides: who asks, from where, for what, and where the body ends. */
static const char *const SINGLE[] = {
    "host",
    "content-length",
    "transfer-encoding",
    "origin",
    "authorization",
    "content-type",
    "mcp-session-id",
    "x-access-token",
    "last-event-id",
    "mcp-protocol-version",
    "x-api-key",
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "e2b-traffic-access-token",
};

const dml_http_refusal *dml_http_refusal_of(int status) {
  for (size_t i = 0; i < sizeof BY_STATUS / sizeof *BY_STATUS; i++)
    if (BY_STATUS[i].status == status) return &BY_STATUS[i];
  return &BY_STATUS[0];
}

static bool is_single(dml_span name, size_t *which) {
  for (size_t i = 0; i < sizeof SINGLE / sizeof *SINGLE; i++) {
    if (!dml_span_is_word(name, SINGLE[i])) continue;
    *which = i;
    return true;
  }
  return false;
}

static bool has_repeated(const dml_headers *headers) {
  bool seen[sizeof SINGLE / sizeof *SINGLE] = {false};
  for (size_t i = 0; i < headers->count; i++) {
    dml_span name, value;
    size_t which;
    dml_headers_at(headers, i, &name, &value);
    if (!is_single(name, &which)) continue;
    if (seen[which]) return true;
    seen[which] = true;
  }
  return false;
}

/* RFC 9112 §6.1-6.3. A coding in an HTTP/1.0 request is faulty too (§6.1). */
static bool has_clear_framing(const dml_http_subject *subject, int64_t *length) {
  dml_span value;
  bool has_length = dml_headers_find(subject->headers, "content-length", &value);
  *length = -1;
  if (has_length && !dml_span_to_length(value, length)) return false;
  if (!dml_headers_find(subject->headers, "transfer-encoding", &value)) return true;
  return !has_length && subject->minor >= 1 && dml_span_is_word(value, "chunked");
}

/* No user information, no spaces, no list: what may be compared with a list of names (RFC 9110 §7.2). */
static bool is_host(dml_span host) {
  for (size_t i = 0; i < host.len; i++)
    if ((unsigned char)host.data[i] <= ' ' || (unsigned char)host.data[i] >= 0x7f ||
        strchr("/\\,@?#\"<>", host.data[i]))
      return false;
  return true;
}

const dml_http_refusal *dml_http_check(const dml_http_subject *subject, dml_target *target, int64_t *length) {
  dml_span host = {"", 0};
  if (subject->header_bytes > subject->header_max_bytes) return dml_http_refusal_of(431);
  if (subject->fault == DML_TOO_LARGE) return dml_http_refusal_of(431);
  if (subject->fault == DML_INTERNAL) return dml_http_refusal_of(500);
  if (subject->fault != DML_OK || !subject->is_exact) return &MALFORMED;
  if (!dml_header_is_token(subject->method)) return &MALFORMED;
  if (has_repeated(subject->headers)) return &REPEATED;
  if (!dml_headers_find(subject->headers, "host", &host) && subject->minor >= 1) return &NO_HOST;
  if (!is_host(host)) return &NO_HOST;
  if (!has_clear_framing(subject, length)) return &BAD_FRAMING;
  switch (dml_target_parse(target, subject->raw_target, host)) {
  case DML_OK: return NULL;
  case DML_TOO_LARGE: return dml_http_refusal_of(414);
  case DML_INTERNAL: return dml_http_refusal_of(500);
  default: return &BAD_TARGET;
  }
}
