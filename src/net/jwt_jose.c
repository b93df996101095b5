/* jwt_jose.c - the back end that checks signatures: libjose, which has OpenSSL do the arithmetic. */
#include <jose/jose.h>

#include "net/jwt_ops.h"

/* The default writes to stderr, with words that are the token's. */
static void say_nothing(void *misc, const char *file, int line, uint64_t error, const char *format, va_list arguments) {
  (void)misc, (void)file, (void)line, (void)error, (void)format, (void)arguments;
}

static bool is_signed(json_t *jws, const json_t *jwk) {
  jose_cfg_t *settings = jose_cfg();
  if (!settings) return false;
  jose_cfg_set_err_func(settings, say_nothing, NULL);
  bool is_good = jose_jws_ver(settings, jws, NULL, jwk, false);
  jose_cfg_decref(settings);
  return is_good;
}

extern const dml_jwt_ops dml_jwt_backend;
__attribute__((visibility("default"))) const dml_jwt_ops dml_jwt_backend = {
    .head = {DML_JWT_ABI},
    .is_signed = is_signed,
};
