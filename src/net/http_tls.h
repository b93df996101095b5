/* http_tls.h - a certificate chain and its key for a server, read from PEM files.
 *
 * The key never passes through a script: it is read here, handed to the TLS library, and wiped. What is wrong with a
 * file is said in words of ours without its content. */
#ifndef DML_NET_HTTP_TLS_H
#define DML_NET_HTTP_TLS_H

#include <stdint.h>

#include "base/status.h"
#include "net/http_server_ops.h"

#define DML_HTTP_TLS_FILE_MAX_BYTES (256 * 1024)

typedef struct dml_http_tls dml_http_tls;

/* Reads both files. The key's must be a regular one of this user or root that others have no access to and its group
 * none but to read. On failure *why is what is wrong and how to mend it, with "the certificate" or "the key" as its
 * subject; static. Errors: DML_INVALID_ARGUMENT, DML_INTERNAL. */
dml_status dml_http_tls_load(const char *directory, const char *cert_path, const char *key_path, dml_http_tls **out,
                             const char **why);
/* A server that was given it keeps its own hold. NULL is fine. */
void dml_http_tls_free(dml_http_tls *tls);
/* Until when the first certificate is valid, in seconds since 1970. */
int64_t dml_http_tls_expires_s(const dml_http_tls *tls);
/* What the back end knows it by. Borrowed. */
dml_tls_pair *dml_http_tls_peek(const dml_http_tls *tls);

#endif
