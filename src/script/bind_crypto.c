/* bind_crypto.c - core.crypto: libsodium's hashes, base64, random bytes and sealing. */
#include <lauxlib.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "script/bind.h"

#define RANDOM_MAX_BYTES 4096

/* crypto.sha256(bytes) -> 64 hex digits */
static int l_sha256(lua_State *L) {
  size_t len;
  const char *s = luaL_checklstring(L, 1, &len);
  unsigned char hash[crypto_hash_sha256_BYTES];
  char hex[crypto_hash_sha256_BYTES * 2 + 1];
  crypto_hash_sha256(hash, (const unsigned char *)s, len);
  sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
  lua_pushstring(L, hex);
  return 1;
}

/* crypto.hmac(key, bytes) -> 64 hex digits; HMAC-SHA256 (RFC 2104) with a key of any length */
static int l_hmac(lua_State *L) {
  size_t key_len, len;
  const char *key = luaL_checklstring(L, 1, &key_len);
  const char *s = luaL_checklstring(L, 2, &len);
  unsigned char hash[crypto_auth_hmacsha256_BYTES];
  char hex[crypto_auth_hmacsha256_BYTES * 2 + 1];
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, (const unsigned char *)key, key_len);
  crypto_auth_hmacsha256_update(&state, (const unsigned char *)s, len);
  crypto_auth_hmacsha256_final(&state, hash);
  sodium_memzero(&state, sizeof state);
  sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
  lua_pushstring(L, hex);
  return 1;
}

/* crypto.equal(a, b) -> boolean; how long it takes says nothing of where two of the same length differ */
static int l_equal(lua_State *L) {
  size_t a_len, b_len;
  const char *a = luaL_checklstring(L, 1, &a_len), *b = luaL_checklstring(L, 2, &b_len);
  lua_pushboolean(L, a_len == b_len && sodium_memcmp(a, b, a_len) == 0);
  return 1;
}

/* crypto.base64(bytes) -> RFC 4648 §4, padded */
static int l_base64(lua_State *L) {
  size_t len;
  const char *s = luaL_checklstring(L, 1, &len);
  size_t need = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
  luaL_Buffer out;
  char *place = luaL_buffinitsize(L, &out, need);
  sodium_bin2base64(place, need, (const unsigned char *)s, len, sodium_base64_VARIANT_ORIGINAL);
  luaL_pushresultsize(&out, need - 1);
  return 1;
}

/* sodium_base642bin(3) of libsodium 1.0.18 takes bytes beyond ASCII for digits where char is signed. */
static bool is_ascii(const char *s, size_t len) {
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)s[i] >= 0x80) return false;
  return true;
}

static int decode(lua_State *L, int variant) {
  size_t len, got;
  const char *s = luaL_checklstring(L, 1, &len);
  if (!is_ascii(s, len)) return 0;
  luaL_Buffer out;
  char *place = luaL_buffinitsize(L, &out, len / 4 * 3 + 3);
  const char *end;
  int rc = sodium_base642bin((unsigned char *)place, len / 4 * 3 + 3, s, len, NULL, &got, &end, variant);
  if (rc != 0 || end != s + len) return 0;
  luaL_pushresultsize(&out, got);
  return 1;
}

/* crypto.unbase64(text) -> bytes | nothing; canonical RFC 4648 §4 with padding and nothing else */
static int l_unbase64(lua_State *L) { return decode(L, sodium_base64_VARIANT_ORIGINAL); }

/* crypto.random(n) -> n bytes nobody can guess */
static int l_random(lua_State *L) {
  lua_Integer n = luaL_checkinteger(L, 1);
  luaL_argcheck(L, n > 0 && n <= RANDOM_MAX_BYTES, 1, "from 1 to 4096 bytes");
  unsigned char bytes[RANDOM_MAX_BYTES];
  randombytes_buf(bytes, (size_t)n);
  lua_pushlstring(L, (const char *)bytes, (size_t)n);
  return 1;
}

/* crypto.id(n) -> n characters of [a-z2-7] */
static int l_id(lua_State *L) {
  static const char ALPHABET[] = "abcdefghijklmnopqrstuvwxyz234567";
  lua_Integer n = luaL_checkinteger(L, 1);
  luaL_argcheck(L, n > 0 && n <= 64, 1, "from 1 to 64 characters");
  unsigned char bytes[64];
  char out[64];
  randombytes_buf(bytes, (size_t)n);
  for (lua_Integer i = 0; i < n; i++) out[i] = ALPHABET[bytes[i] & 31];
  lua_pushlstring(L, out, (size_t)n);
  return 1;
}

static const unsigned char *check_key(lua_State *L) {
  size_t len;
  const char *key = luaL_checklstring(L, 1, &len);
  luaL_argcheck(L, len == crypto_secretbox_KEYBYTES, 1, "a key has 32 bytes");
  return (const unsigned char *)key;
}

/* crypto.seal(key, bytes) -> URL-safe base64 text of nonce and sealed box */
static int l_seal(lua_State *L) {
  const unsigned char *key = check_key(L);
  size_t len;
  const char *s = luaL_checklstring(L, 2, &len);
  luaL_argcheck(L, len <= RANDOM_MAX_BYTES, 2, "too long to seal");
  unsigned char box[crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + RANDOM_MAX_BYTES];
  size_t size = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + len;
  randombytes_buf(box, crypto_secretbox_NONCEBYTES);
  crypto_secretbox_easy(box + crypto_secretbox_NONCEBYTES, (const unsigned char *)s, len, box, key);
  char text[sizeof box * 4 / 3 + 8];
  sodium_bin2base64(text, sizeof text, box, size, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
  lua_pushstring(L, text);
  return 1;
}

/* crypto.open(key, text) -> bytes | nothing; refuses what was not sealed with the key and non-canonical encodings */
static int l_open(lua_State *L) {
  const unsigned char *key = check_key(L);
  size_t len, got;
  const char *text = luaL_checklstring(L, 2, &len);
  if (!is_ascii(text, len)) return 0;
  unsigned char box[crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + RANDOM_MAX_BYTES];
  const char *end;
  int rc = sodium_base642bin(box, sizeof box, text, len, NULL, &got, &end, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
  if (rc != 0 || end != text + len) return 0;
  if (got < crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES) return 0;
  unsigned char plain[RANDOM_MAX_BYTES];
  size_t sealed = got - crypto_secretbox_NONCEBYTES;
  if (crypto_secretbox_open_easy(plain, box + crypto_secretbox_NONCEBYTES, sealed, box, key) != 0) return 0;
  lua_pushlstring(L, (const char *)plain, sealed - crypto_secretbox_MACBYTES);
  return 1;
}

static const luaL_Reg FUNCTIONS[] = {{"sha256", l_sha256}, {"hmac", l_hmac}, {"base64", l_base64}, {"unbase64", l_unbase64},
                                     {"random", l_random}, {"id", l_id},         {"seal", l_seal},
                                     {"open", l_open},     {"equal", l_equal}, {NULL, NULL}};

int dml_open_crypto(lua_State *L) {
  if (sodium_init() < 0) return luaL_error(L, "libsodium could not be started");
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
