/* http_server_tls_mhd.h - certificates of the server's back end; GnuTLS, which Debian's libmicrohttpd is built with.
 *
 * Each connection is given the pair that is in force when it begins, in place of the daemon's own, and keeps it to its
 * end: so certificates are exchanged without one being dropped. */
#ifndef DML_NET_HTTP_SERVER_TLS_MHD_H
#define DML_NET_HTTP_SERVER_TLS_MHD_H

#include <microhttpd.h>

#include "net/http_server_ops.h"

/* TLS 1.2 and later (RFC 8996), the library's choice of ciphers, the server's order. */
#define DML_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* See tls_new, tls_free and tls_expires_s of dml_http_server_ops. */
dml_status dml_tls_pair_new(dml_span cert_pem, dml_span key_pem, dml_tls_pair **out, const char **why);
void dml_tls_pair_unref(dml_tls_pair *pair);
int64_t dml_tls_pair_expires_s(const dml_tls_pair *pair);
/* Another hold on it, to be given back with unref. */
dml_tls_pair *dml_tls_pair_ref(dml_tls_pair *pair);

/* Gives a connection its certificate, before its handshake. False: it has none, and its handshake will fail. The pair
 * must outlive the connection. */
bool dml_tls_pair_attach(dml_tls_pair *pair, struct MHD_Connection *mhd);

/* Options of a daemon with TLS, ended by MHD_OPTION_END: no certificate of its own. */
extern const struct MHD_OptionItem dml_tls_daemon_options[];

#endif
