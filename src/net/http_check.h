/* http_check.h - which requests are refused, and with what.
 *
 * Refused is what another parser on the way could read differently from ours (RFC 9112 §11.2), and a second value where
 * one alone decides who asks and for what. */
#ifndef DML_NET_HTTP_CHECK_H
#define DML_NET_HTTP_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/headers.h"
#include "net/target.h"

typedef struct dml_http_refusal {
  int status;
  const char *body; /* JSON */
} dml_http_refusal;

typedef struct dml_http_subject {
  dml_span method;
  dml_span raw_target;
  int minor; /* of HTTP/1.x */
  size_t header_bytes, header_max_bytes;
  bool is_exact;    /* see on_head_end in http_server_ops.h */
  dml_status fault; /* of the header list */
  const dml_headers *headers;
} dml_http_subject;

/* NULL when the request may pass: then `target` is parsed (the caller deinits it) and `length` is its Content-Length or
 * -1. Else the refusal, static. */
const dml_http_refusal *dml_http_check(const dml_http_subject *subject, dml_target *target, int64_t *length);
/* The refusal with that status (400, 414, 431, 500, 503); 500 for others. Static. */
const dml_http_refusal *dml_http_refusal_of(int status);

#endif
