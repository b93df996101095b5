/* jwt.c - see jwt.h. */
#include "net/jwt.h"

#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "net/headers.h"
#include "net/jwt_ops.h"

typedef struct parts {
  dml_span header, payload, signature; /* in base64url */
  dml_span covered;                    /* what the signature is of: header, dot, payload */
} parts;

static bool take_apart(const char *token, size_t len, parts *out) {
  const char *first = memchr(token, '.', len), *end = token + len;
  const char *second = first ? memchr(first + 1, '.', (size_t)(end - first - 1)) : NULL;
  if (!second || memchr(second + 1, '.', (size_t)(end - second - 1))) return false;
  out->header = (dml_span){token, (size_t)(first - token)};
  out->payload = (dml_span){first + 1, (size_t)(second - first - 1)};
  out->signature = (dml_span){second + 1, (size_t)(end - second - 1)};
  out->covered = (dml_span){token, (size_t)(second - token)};
  return out->header.len > 0 && out->payload.len > 0;
}

/* The object in a part; NULL for anything else. */
static json_t *object_of(dml_span part) {
  json_t *value = NULL;
  unsigned char *bytes = malloc(part.len + 1);
  size_t len = bytes ? dml_jwt_unbase64(part.data, part.len, bytes, part.len) : 0;
  if (len > 0 && dml_json_decode((const char *)bytes, len, NULL, &value) == DML_JSON_FINE && !json_is_object(value)) {
    json_decref(value);
    value = NULL;
  }
  free(bytes);
  return value;
}

/* RFC 9068 §2.1 says at+jwt; most issuers write JWT or nothing. Other types are tokens for other purposes
 * (RFC 8725 §3.11). */
static bool is_type_known(const json_t *header) {
  const json_t *typ = json_object_get(header, "typ");
  const char *text = json_string_value(typ);
  if (!typ) return true;
  if (!text) return false;
  return strcasecmp(text, "JWT") == 0 || strcasecmp(text, "at+jwt") == 0 || strcasecmp(text, "application/at+jwt") == 0;
}

static dml_jwt_fault check_header(const json_t *header, unsigned allowed, unsigned *alg) {
  const char *name = json_string_value(json_object_get(header, "alg"));
  const json_t *kid = json_object_get(header, "kid");
  if (!name || !is_type_known(header) || (kid && !json_is_string(kid))) return DML_JWT_MALFORMED;
  *alg = dml_jwt_alg_from_name(name) & allowed;
  if (*alg == 0) return DML_JWT_ALGORITHM;
  return json_object_get(header, "crit") ? DML_JWT_CRITICAL : DML_JWT_FINE;
}

static bool is_signed_ed25519(const parts *token, const dml_jwt_key *key) {
  unsigned char signature[crypto_sign_BYTES];
  size_t len = dml_jwt_unbase64(token->signature.data, token->signature.len, signature, sizeof signature);
  return len == sizeof signature && crypto_sign_verify_detached(signature, (const unsigned char *)token->covered.data,
                                                                token->covered.len, key->ed25519) == 0;
}

static dml_jwt_fault check_with_library(const char *directory, const parts *token, const dml_jwt_key *key) {
  const void *table;
  if (dml_backend_open(directory, DML_JWT_FILE, DML_JWT_SYMBOL, DML_JWT_ABI, &table) != DML_OK) return DML_JWT_INTERNAL;
  const dml_jwt_ops *ops = table;
  json_t *jws =
      json_pack("{s:s%, s:s%, s:s%}", "payload", token->payload.data, token->payload.len, "protected",
                token->header.data, token->header.len, "signature", token->signature.data, token->signature.len);
  if (!jws) return DML_JWT_MALFORMED; /* no UTF-8 */
  bool is_signed = ops->is_signed(jws, key->jwk);
  json_decref(jws);
  return is_signed ? DML_JWT_FINE : DML_JWT_SIGNATURE;
}

static bool fits(const dml_jwt_key *key, unsigned alg, const json_t *kid) {
  return (key->algs & alg) && (!kid || (key->kid && json_equal(key->kid, kid)));
}

/* Several keys may have one id (RFC 7517 §4.5); a token without an id must leave no choice. */
static dml_jwt_fault check_signature(const char *directory, const dml_jwt_keys *keys, const parts *token, unsigned alg,
                                     const json_t *kid) {
  const dml_jwt_key *tried[DML_JWT_TRIES_MAX];
  size_t count = 0;
  for (size_t i = 0; i < keys->count && count < DML_JWT_TRIES_MAX; i++)
    if (fits(&keys->list[i], alg, kid)) tried[count++] = &keys->list[i];
  if (count == 0 || (!kid && count > 1)) return DML_JWT_UNKNOWN_KEY;
  dml_jwt_fault fault = DML_JWT_SIGNATURE;
  for (size_t i = 0; i < count && fault == DML_JWT_SIGNATURE; i++) {
    if (alg != DML_JWT_EDDSA)
      fault = check_with_library(directory, token, tried[i]);
    else if (is_signed_ed25519(token, tried[i]))
      fault = DML_JWT_FINE;
  }
  return fault;
}

dml_jwt_fault dml_jwt_verify(const char *directory, const dml_jwt_keys *keys, const char *token, size_t len,
                             unsigned algs, json_t **claims) {
  parts apart;
  unsigned alg = 0;
  *claims = NULL;
  if (len > DML_JWT_MAX_BYTES || !take_apart(token, len, &apart)) return DML_JWT_MALFORMED;
  json_t *header = object_of(apart.header);
  if (!header) return DML_JWT_MALFORMED;
  dml_jwt_fault fault = check_header(header, algs, &alg);
  if (fault == DML_JWT_FINE) fault = check_signature(directory, keys, &apart, alg, json_object_get(header, "kid"));
  json_decref(header);
  if (fault != DML_JWT_FINE) return fault;
  *claims = object_of(apart.payload);
  return *claims ? DML_JWT_FINE : DML_JWT_MALFORMED;
}
