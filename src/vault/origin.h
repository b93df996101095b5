/* origin.h - where a credential may go: scheme, host and port of a URL, read so strictly that no two readers differ.
 *
 * Anything unusual (user information, escapes, a backslash, an IPv6 zone, a port of more than five digits) is no
 * origin. */
#ifndef DML_VAULT_ORIGIN_H
#define DML_VAULT_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>

#define DML_ORIGIN_HOST_MAX_BYTES 253u

typedef struct dml_origin {
  bool is_https;
  unsigned port;
  char host[DML_ORIGIN_HOST_MAX_BYTES + 1]; /* small letters; an IPv6 address with its brackets */
} dml_origin;

/* The origin of an http or https URL; false where it has none that is beyond doubt. */
bool dml_origin_of_url(const char *url, size_t len, dml_origin *out);
bool dml_origin_is_same(const dml_origin *a, const dml_origin *b);
/* Whether what is said there stays on this machine or is encrypted: https, or http to 127.0.0.1, [::1] or localhost. */
bool dml_origin_is_safe(const dml_origin *origin);
/* Whether text is the name of a domain in small letters, not an address, with a dot in it. */
bool dml_origin_is_domain(const char *text, size_t len);
/* Whether the origin is https on port 443 of a host below the domain. */
bool dml_origin_is_below(const dml_origin *origin, const char *domain);

#endif
