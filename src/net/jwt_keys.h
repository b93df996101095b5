/* jwt_keys.h - the keys of an issuer of tokens: a JWK set (RFC 7517 §5), of which only public signing keys are kept.
 *
 * A key is taken apart and put together anew from the fields that its type has, so that nothing else of the set reaches
 * the library that checks signatures. Keys that cannot be used here are skipped, as RFC 7517 §5 wants it. */
#ifndef DML_NET_JWT_KEYS_H
#define DML_NET_JWT_KEYS_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* Keys of one set that are looked at. */
#define DML_JWT_KEYS_MAX 64
#define DML_JWT_ED25519_BYTES 32

/* Signatures that can be checked (RFC 7518 §3.1, RFC 8037 §3.1), as a set of bits. Symmetric ones are not among them: a
 * server that could check those could make them. */
typedef enum dml_jwt_alg { DML_JWT_RS256 = 1, DML_JWT_PS256 = 2, DML_JWT_ES256 = 4, DML_JWT_EDDSA = 8 } dml_jwt_alg;

typedef struct dml_jwt_key {
  json_t *kid;   /* a string; NULL for none */
  json_t *jwk;   /* NULL for Ed25519 */
  unsigned algs; /* of dml_jwt_alg */
  unsigned char ed25519[DML_JWT_ED25519_BYTES];
} dml_jwt_key;

typedef struct dml_jwt_keys {
  dml_jwt_key list[DML_JWT_KEYS_MAX];
  size_t count;
} dml_jwt_keys;

/* The algorithm of that name ("RS256"), or 0. */
unsigned dml_jwt_alg_from_name(const char *name);
/* Decodes base64url without padding, canonical (RFC 7515 §2), into `out` of `max` bytes. Returns the length; 0 for
 * anything else, an empty text too. */
size_t dml_jwt_unbase64(const char *text, size_t len, unsigned char *out, size_t max);

/* Reads a set. Errors: DML_INVALID_RESPONSE (no JWK set, or none of its keys can be used), DML_INTERNAL. */
dml_status dml_jwt_keys_new(const char *json, size_t len, dml_jwt_keys **out);
/* NULL is fine. */
void dml_jwt_keys_free(dml_jwt_keys *keys);

#endif
