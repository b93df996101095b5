/* jwt.h - JSON Web Tokens in compact form (RFC 7519, RFC 7515 §7.1): who signed one, and what it claims.
 *
 * Which key a token was signed with is decided by the set of its issuer alone: what a token's header says of keys
 * ("jwk", "jku", "x5c", "x5u") is not looked at. The algorithm must be one that the caller allows and the key is made
 * for, so that "none" and a public key taken for an HMAC secret have no place (RFC 8725 §3.1). What the claims mean is
 * the caller's. */
#ifndef DML_NET_JWT_H
#define DML_NET_JWT_H

#include <jansson.h>
#include <stddef.h>

#include "net/jwt_keys.h"

#define DML_JWT_MAX_BYTES (16 * 1024)
/* Keys of a set that one token is tried with. */
#define DML_JWT_TRIES_MAX 4

typedef enum dml_jwt_fault {
  DML_JWT_FINE,
  DML_JWT_MALFORMED,   /* no JWT; too long; a header or claims that are no JSON object; of another type */
  DML_JWT_ALGORITHM,   /* signed by one that is not allowed */
  DML_JWT_CRITICAL,    /* its header demands an extension; none is known */
  DML_JWT_UNKNOWN_KEY, /* the set has no key that could have signed it, or several and the token names none */
  DML_JWT_SIGNATURE,   /* the signature is not of that key */
  DML_JWT_INTERNAL     /* no memory, or the back end (DML_JWT_FILE) cannot be opened */
} dml_jwt_fault;

/* Checks a token; `algs` is a set of dml_jwt_alg, `directory` where back ends lie. On DML_JWT_FINE the claims, an
 * object, are the caller's (json_decref). */
dml_jwt_fault dml_jwt_verify(const char *directory, const dml_jwt_keys *keys, const char *token, size_t len,
                             unsigned algs, json_t **claims);

#endif
