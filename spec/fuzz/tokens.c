/* tokens.c - libFuzzer target: a JWK set and a JWT, as an issuer and a caller could send them.
 *
 * scripts/test builds it. The input is a set, a line feed and a token; a good set of ours is tried with the token as
 * well, so that the fuzzer gets past the search for a key. Signatures other than EdDSA end where the back end is
 * opened. */
#include <stdint.h>
#include <string.h>

#include "net/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static const char GOOD[] = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"k\",\"x\":\"11qYAYKxCrfVS_"
                           "7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";

static void try_token(const dml_jwt_keys *keys, const char *token, size_t len) {
  json_t *claims;
  unsigned algs = DML_JWT_RS256 | DML_JWT_PS256 | DML_JWT_ES256 | DML_JWT_EDDSA;
  dml_jwt_fault fault = dml_jwt_verify("/nowhere", keys, token, len, algs, &claims);
  if ((fault == DML_JWT_FINE) != (claims != NULL)) __builtin_trap();
  json_decref(claims);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
  static dml_jwt_keys *good;
  dml_jwt_keys *keys;
  const char *text = (const char *)bytes;
  const char *end = memchr(text, '\n', len);
  if (!end) return 0;
  size_t set_len = (size_t)(end - text);
  if (!good && dml_jwt_keys_new(GOOD, sizeof GOOD - 1, &good) != DML_OK) __builtin_trap();
  try_token(good, end + 1, len - set_len - 1);
  if (dml_jwt_keys_new(text, set_len, &keys) == DML_OK) {
    if (keys->count == 0 || keys->count > DML_JWT_KEYS_MAX) __builtin_trap();
    try_token(keys, end + 1, len - set_len - 1);
  }
  dml_jwt_keys_free(keys);
  return 0;
}
