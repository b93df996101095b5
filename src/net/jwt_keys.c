/* jwt_keys.c - see jwt_keys.h. */
#include "net/jwt_keys.h"

#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* RFC 7518 §3.3: 2,048 bits at least. Beyond 8,192 a check takes milliseconds. */
#define RSA_MIN_BYTES 256
#define RSA_MAX_BYTES 1024
#define EXPONENT_MAX_BYTES 4
#define P256_BYTES 32
#define KID_MAX_BYTES 256

static const struct {
  const char *name;
  dml_jwt_alg alg;
} ALGS[] = {{"RS256", DML_JWT_RS256}, {"PS256", DML_JWT_PS256}, {"ES256", DML_JWT_ES256}, {"EdDSA", DML_JWT_EDDSA}};

unsigned dml_jwt_alg_from_name(const char *name) {
  for (size_t i = 0; i < sizeof ALGS / sizeof *ALGS; i++)
    if (strcmp(ALGS[i].name, name) == 0) return ALGS[i].alg;
  return 0;
}

size_t dml_jwt_unbase64(const char *text, size_t len, unsigned char *out, size_t max) {
  size_t got;
  const char *end;
  /* sodium_base642bin(3) of libsodium 1.0.18 takes bytes beyond ASCII for digits where char is signed. */
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)text[i] >= 0x80) return 0;
  int rc = sodium_base642bin(out, max, text, len, NULL, &got, &end, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
  return rc == 0 && end == text + len ? got : 0;
}

/* Length of a number of the key, without zeros in front; 0 for none. */
static size_t number_of(const json_t *from, const char *name, unsigned char *out, size_t max) {
  const json_t *value = json_object_get(from, name);
  if (!json_is_string(value)) return 0;
  size_t len = dml_jwt_unbase64(json_string_value(value), json_string_length(value), out, max);
  return len > 0 && out[0] != 0 ? len : 0;
}

static bool is_rsa(const json_t *from) {
  unsigned char bytes[RSA_MAX_BYTES];
  if (number_of(from, "n", bytes, sizeof bytes) < RSA_MIN_BYTES) return false;
  size_t len = number_of(from, "e", bytes, EXPONENT_MAX_BYTES);
  return len > 0 && (bytes[len - 1] & 1) == 1 && (len > 1 || bytes[0] >= 3);
}

static bool has_text(const json_t *from, const char *name, const char *text) {
  const char *value = json_string_value(json_object_get(from, name));
  return value && strcmp(value, text) == 0;
}

/* A coordinate keeps its zeros in front (RFC 7518 §6.2.1.2). Whether the point lies on the curve is the library's. */
static bool is_coordinate(const json_t *from, const char *name, unsigned char *out) {
  const json_t *value = json_object_get(from, name);
  if (!json_is_string(value)) return false;
  return dml_jwt_unbase64(json_string_value(value), json_string_length(value), out, P256_BYTES) == P256_BYTES;
}

static json_t *copy_of(const json_t *from, const char *const *names) {
  json_t *copy = json_object();
  for (; copy && *names; names++)
    if (json_object_set(copy, *names, json_object_get(from, *names)) != 0) {
      json_decref(copy);
      return NULL;
    }
  return copy;
}

/* What the key itself can check; 0 for one that is of no use here. */
static unsigned read_material(const json_t *from, dml_jwt_key *key) {
  static const char *const RSA[] = {"kty", "n", "e", NULL};
  static const char *const EC[] = {"kty", "crv", "x", "y", NULL};
  unsigned char bytes[P256_BYTES];
  if (has_text(from, "kty", "RSA") && is_rsa(from)) {
    key->jwk = copy_of(from, RSA);
    return key->jwk ? DML_JWT_RS256 | DML_JWT_PS256 : 0;
  }
  if (has_text(from, "kty", "EC") && has_text(from, "crv", "P-256")) {
    if (!is_coordinate(from, "x", bytes) || !is_coordinate(from, "y", bytes)) return 0;
    key->jwk = copy_of(from, EC);
    return key->jwk ? DML_JWT_ES256 : 0;
  }
  bool is_ed = has_text(from, "kty", "OKP") && has_text(from, "crv", "Ed25519");
  return is_ed && is_coordinate(from, "x", key->ed25519) ? DML_JWT_EDDSA : 0;
}

/* RFC 7517 §4.2 and §4.3: absent means that nothing is said. */
static bool may_check(const json_t *from) {
  const json_t *operations = json_object_get(from, "key_ops");
  if (json_object_get(from, "use") && !has_text(from, "use", "sig")) return false;
  if (!operations) return true;
  for (size_t i = 0; i < json_array_size(operations); i++) {
    const char *operation = json_string_value(json_array_get(operations, i));
    if (operation && strcmp(operation, "verify") == 0) return true;
  }
  return false;
}

static bool read_key(const json_t *from, dml_jwt_key *key) {
  const json_t *alg = json_object_get(from, "alg");
  json_t *kid = json_object_get(from, "kid");
  memset(key, 0, sizeof *key);
  if (!json_is_object(from) || !may_check(from)) return false;
  if (kid && (!json_is_string(kid) || json_string_length(kid) > KID_MAX_BYTES)) return false;
  key->algs = read_material(from, key);
  if (alg) key->algs &= json_is_string(alg) ? dml_jwt_alg_from_name(json_string_value(alg)) : 0;
  if (key->algs == 0) {
    json_decref(key->jwk);
    return false;
  }
  key->kid = json_incref(kid);
  return true;
}

dml_status dml_jwt_keys_new(const char *json, size_t len, dml_jwt_keys **out) {
  json_t *set = NULL;
  *out = NULL;
  if (sodium_init() < 0) return DML_INTERNAL;
  if (dml_json_decode(json, len, NULL, &set) != DML_JSON_FINE) return DML_INVALID_RESPONSE;
  dml_jwt_keys *keys = calloc(1, sizeof *keys);
  if (!keys) {
    json_decref(set);
    return DML_INTERNAL;
  }
  const json_t *list = json_object_get(set, "keys");
  for (size_t i = 0; i < json_array_size(list) && i < DML_JWT_KEYS_MAX; i++)
    if (read_key(json_array_get(list, i), &keys->list[keys->count])) keys->count++;
  json_decref(set);
  if (keys->count == 0) {
    dml_jwt_keys_free(keys);
    return DML_INVALID_RESPONSE;
  }
  *out = keys;
  return DML_OK;
}

void dml_jwt_keys_free(dml_jwt_keys *keys) {
  if (!keys) return;
  for (size_t i = 0; i < keys->count; i++) {
    json_decref(keys->list[i].kid);
    json_decref(keys->list[i].jwk);
  }
  free(keys);
}
