/* jwt_ops.h - what jwt.c asks of the back end that checks signatures. It is linked with nothing of the core. */
#ifndef DML_NET_JWT_OPS_H
#define DML_NET_JWT_OPS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "net/backend.h"

#define DML_JWT_ABI 1u
#define DML_JWT_FILE "demilune_jose.so"
#define DML_JWT_SYMBOL "dml_jwt_backend"

typedef struct dml_jwt_ops {
  dml_backend_head head;
  /* Whether `jws` (RFC 7515 §7.2.2: payload, protected, signature) was signed with the public key `jwk`, by the
   * algorithm that its protected header names. Both are borrowed. */
  bool (*is_signed)(json_t *jws, const json_t *jwk);
} dml_jwt_ops;

#endif
