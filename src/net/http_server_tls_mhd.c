/* http_server_tls_mhd.c - see http_server_tls_mhd.h. Facts about GnuTLS are of version 3.7.9. */
#include "net/http_server_tls_mhd.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdlib.h>

struct dml_tls_pair {
  gnutls_certificate_credentials_t credentials;
  int64_t expires_s;
  int refs;
};

/* What the daemon would ask for a certificate. A connection that was not given one is refused. */
static int no_certificate(gnutls_session_t session, const gnutls_datum_t *names, int name_count,
                          const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **certificates,
                          unsigned *count, gnutls_privkey_t *key) {
  (void)session, (void)names, (void)name_count, (void)algorithms, (void)algorithm_count;
  (void)certificates, (void)count, (void)key;
  return -1;
}

const struct MHD_OptionItem dml_tls_daemon_options[] = {
    {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)no_certificate},
    {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)DML_TLS_PRIORITIES},
    {MHD_OPTION_END, 0, NULL},
};

static dml_status fault_of(int code, const char **why) {
  switch (code) {
  case GNUTLS_E_MEMORY_ERROR: return DML_INTERNAL;
  case GNUTLS_E_CERTIFICATE_KEY_MISMATCH: *why = "the key is not the certificate's"; break;
  case GNUTLS_E_DECRYPTION_FAILED:
  case GNUTLS_E_UNKNOWN_CIPHER_TYPE: *why = "the key is encrypted; write it into its file without a passphrase"; break;
  default: *why = "the key file holds no private key in PEM form"; break;
  }
  return DML_INVALID_ARGUMENT;
}

/* Until when the first certificate of a list is valid. -1: there is none. */
static int64_t read_expiry(const gnutls_datum_t *pem) {
  gnutls_x509_crt_t first;
  int64_t expires_s = -1;
  if (gnutls_x509_crt_init(&first) < 0) return -1;
  if (gnutls_x509_crt_import(first, pem, GNUTLS_X509_FMT_PEM) >= 0)
    expires_s = (int64_t)gnutls_x509_crt_get_expiration_time(first);
  gnutls_x509_crt_deinit(first);
  return expires_s;
}

dml_status dml_tls_pair_new(dml_span cert_pem, dml_span key_pem, dml_tls_pair **out, const char **why) {
  gnutls_datum_t cert = {(unsigned char *)(uintptr_t)cert_pem.data, (unsigned)cert_pem.len};
  gnutls_datum_t key = {(unsigned char *)(uintptr_t)key_pem.data, (unsigned)key_pem.len};
  *out = NULL;
  *why = "the certificate file holds no certificate in PEM form";
  int64_t expires_s = read_expiry(&cert);
  if (expires_s < 0) return DML_INVALID_ARGUMENT;
  dml_tls_pair *pair = calloc(1, sizeof *pair);
  if (!pair || gnutls_certificate_allocate_credentials(&pair->credentials) < 0) {
    free(pair);
    return DML_INTERNAL;
  }
  pair->refs = 1;
  pair->expires_s = expires_s;
  int code = gnutls_certificate_set_x509_key_mem2(pair->credentials, &cert, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
  if (code < 0) {
    dml_tls_pair_unref(pair);
    return fault_of(code, why);
  }
  *why = NULL;
  *out = pair;
  return DML_OK;
}

void dml_tls_pair_unref(dml_tls_pair *pair) {
  if (!pair || --pair->refs > 0) return;
  gnutls_certificate_free_credentials(pair->credentials);
  free(pair);
}

dml_tls_pair *dml_tls_pair_ref(dml_tls_pair *pair) {
  if (pair) pair->refs++;
  return pair;
}

int64_t dml_tls_pair_expires_s(const dml_tls_pair *pair) { return pair->expires_s; }

bool dml_tls_pair_attach(dml_tls_pair *pair, struct MHD_Connection *mhd) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
  if (!info || !info->tls_session) return false;
  return gnutls_credentials_set(info->tls_session, GNUTLS_CRD_CERTIFICATE, pair->credentials) == GNUTLS_E_SUCCESS;
}
