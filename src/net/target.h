/* target.h - the request target of HTTP/1.1 (RFC 9112 §3.2), taken apart and decoded.
 *
 * Decoding happens once, here, and every length is kept: what a router, a policy and a file system see is the same run
 * of bytes. A decoded NUL, a broken escape or a raw byte outside visible ASCII makes the whole target invalid. */
#ifndef DML_NET_TARGET_H
#define DML_NET_TARGET_H

#include "base/status.h"
#include "net/headers.h"

#define DML_TARGET_PARAMETERS_MAX 128

typedef struct dml_target_parameter {
  dml_span name, value;
} dml_target_parameter;

/* Do not touch the fields; path, parameters and count may be read. The path begins with "/", or is "*". */
typedef struct dml_target {
  char *arena;
  dml_span path;
  dml_target_parameter *parameters; /* in their order; names may repeat */
  size_t count;
} dml_target;

/* Takes apart `raw`; an absolute target ("http://host/…") must name the authority `host`. On failure there is nothing
 * to deinit. Errors: DML_INVALID_ARGUMENT, DML_TOO_LARGE (DML_TARGET_PARAMETERS_MAX), DML_INTERNAL. */
dml_status dml_target_parse(dml_target *target, dml_span raw, dml_span host);
void dml_target_deinit(dml_target *target);

#endif
