/* origin.c - see origin.h. */
#include "vault/origin.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

static const char NAME_CHARS[] = "abcdefghijklmnopqrstuvwxyz0123456789.-_";
static const char ADDRESS_CHARS[] = "0123456789abcdef:.";

static bool take_scheme(const char *url, size_t len, dml_origin *out, size_t *at) {
  if (len >= 8 && strncasecmp(url, "https://", 8) == 0) {
    out->is_https = true;
    *at = 8;
  } else if (len >= 7 && strncasecmp(url, "http://", 7) == 0) {
    out->is_https = false;
    *at = 7;
  } else {
    return false;
  }
  out->port = out->is_https ? 443 : 80;
  return true;
}

static bool take_port(const char *text, size_t len, unsigned *out) {
  unsigned port = 0;
  if (len == 0 || len > 5) return false;
  for (size_t i = 0; i < len; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
    port = port * 10 + (unsigned)(text[i] - '0');
  }
  *out = port;
  return port > 0 && port <= UINT16_MAX;
}

static bool is_made_of(const char *text, size_t len, const char *chars) {
  for (size_t i = 0; i < len; i++)
    if (!text[i] || !strchr(chars, text[i])) return false;
  return len > 0;
}

/* Length of the host at the start of an authority in small letters, or 0. */
static size_t host_length(const char *text, size_t len) {
  if (len > 0 && text[0] == '[') {
    const char *end = memchr(text, ']', len);
    size_t inner = end ? (size_t)(end - text) - 1 : 0;
    return is_made_of(text + 1, inner, ADDRESS_CHARS) ? inner + 2 : 0;
  }
  const char *colon = memchr(text, ':', len);
  size_t host = colon ? (size_t)(colon - text) : len;
  return is_made_of(text, host, NAME_CHARS) && text[0] != '.' && text[host - 1] != '.' ? host : 0;
}

bool dml_origin_of_url(const char *url, size_t len, dml_origin *out) {
  char authority[DML_ORIGIN_HOST_MAX_BYTES + 8];
  size_t at, size = 0;
  memset(out, 0, sizeof *out);
  if (!take_scheme(url, len, out, &at)) return false;
  for (; at < len && !memchr("/?#", url[at], 3); at++) {
    if (size >= sizeof authority) return false;
    authority[size++] = url[at] >= 'A' && url[at] <= 'Z' ? (char)(url[at] | 0x20) : url[at];
  }
  size_t host = host_length(authority, size);
  if (host == 0 || host > DML_ORIGIN_HOST_MAX_BYTES) return false;
  memcpy(out->host, authority, host);
  if (host == size) return true;
  return authority[host] == ':' && take_port(authority + host + 1, size - host - 1, &out->port);
}

bool dml_origin_is_same(const dml_origin *a, const dml_origin *b) {
  return a->is_https == b->is_https && a->port == b->port && strcmp(a->host, b->host) == 0;
}

bool dml_origin_is_safe(const dml_origin *origin) {
  static const char *const LOOPBACK[] = {"127.0.0.1", "[::1]", "localhost"};
  for (size_t i = 0; i < sizeof LOOPBACK / sizeof *LOOPBACK; i++)
    if (strcmp(origin->host, LOOPBACK[i]) == 0) return true;
  return origin->is_https;
}

bool dml_origin_is_domain(const char *text, size_t len) {
  if (len > DML_ORIGIN_HOST_MAX_BYTES || !is_made_of(text, len, NAME_CHARS) || memchr(text, '.', len) == NULL)
    return false;
  if (text[0] == '.' || text[len - 1] == '.') return false;
  return text[len - 1] < '0' || text[len - 1] > '9'; /* no top level ends in a digit, an IPv4 address does */
}

bool dml_origin_is_below(const dml_origin *origin, const char *domain) {
  size_t host = strlen(origin->host), tail = strlen(domain);
  if (!origin->is_https || origin->port != 443 || host < tail + 2) return false;
  return origin->host[host - tail - 1] == '.' && strcmp(origin->host + host - tail, domain) == 0;
}
