/* http_client.h - HTTP requests over TCP, TLS and unix sockets, in the loop.
 *
 * A transfer either gathers the whole response up to a limit, or streams: then the body waits in a bounded buffer, and
 * a reader that does not come stops the sender. Connections are pooled inside the client. Redirects are not followed.
 * Whole requests without a body speak HTTP/2 over TLS with a server that offers it (ALPN), and share its connection;
 * all else is HTTP/1.1 (http_client_curl.c says why). Certificates are always checked; TLS is 1.2 or later. Loopback
 * hosts and unix sockets have no proxy.
 *
 * One client a runtime; not from inside its own callbacks: free. */
#ifndef DML_NET_HTTP_CLIENT_H
#define DML_NET_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "net/headers.h"

/* Response headers, names and values together. */
#define DML_HTTP_CLIENT_HEADER_MAX_BYTES (64 * 1024)
/* What a streaming transfer holds before it stops reading from the connection. */
#define DML_HTTP_CLIENT_STREAM_BYTES (256 * 1024)
#define DML_HTTP_CLIENT_URL_MAX_BYTES (64 * 1024)
#define DML_HTTP_CLIENT_TRANSFERS_MAX 1024
#define DML_HTTP_CLIENT_CONNECT_TIMEOUT_MS 10000
/* sun_path holds 108 bytes with its NUL (unix(7)). */
#define DML_HTTP_CLIENT_SOCKET_PATH_MAX_BYTES 107
#define DML_HTTP_CLIENT_PROXY_MAX_BYTES 2048
#define DML_HTTP_CLIENT_CA_PATH_MAX_BYTES 4096

typedef struct dml_http_client dml_http_client;
typedef struct dml_http_transfer dml_http_transfer;

/* All borrowed for the call of start, but `body` until the transfer is over or freed. The URL is absolute, http or
 * https; its authority is a host and at most a port, in letters that every parser reads alike. */
typedef struct dml_http_transfer_options {
  dml_span method;
  dml_span url;
  dml_span unix_socket;       /* len 0: TCP to the URL's host */
  const dml_headers *headers; /* NULL: none */
  const char *body;           /* NULL: no body; "" and 0: an empty one */
  size_t body_len;
  uint64_t timeout_ms;         /* until the whole response is in; streaming: until its headers are in. > 0 */
  uint64_t connect_timeout_ms; /* 0: DML_HTTP_CLIENT_CONNECT_TIMEOUT_MS */
  size_t body_max_bytes;       /* not for streaming */
  dml_span proxy;              /* data NULL: the environment's, by libcurl's rules; len 0: none */
  dml_span ca_file;            /* the only bundle; len 0: SSL_CERT_FILE, CURL_CA_BUNDLE, else the system's */
  bool is_stream;
  bool is_fresh;       /* a connection of its own, closed afterwards */
  bool has_secrets;    /* in the headers: over http these go to no proxy, and no copy of ours stays behind */
  bool is_body_secret; /* the response's body is wiped when the transfer is freed; not for streaming */
} dml_http_transfer_options;

/* From loop callbacks. Either may free the transfer. */
typedef struct dml_http_transfer_events {
  /* Once: the response (streaming: its head) is there, or why not. Errors: DML_CONNECTION_FAILED, DML_PROVIDER_TIMEOUT,
   * DML_INVALID_RESPONSE, DML_TOO_LARGE (body_max_bytes), DML_INTERNAL. */
  void (*on_response)(void *ud, dml_status status);
  /* Streaming, after on_response with DML_OK: bytes came, or the end. */
  void (*on_readable)(void *ud);
} dml_http_transfer_events;

/* Opens the back end in `directory`. Errors: DML_INTERNAL. */
dml_status dml_http_client_new(uv_loop_t *loop, const char *directory, dml_http_client **out);
/* Drops what runs without a callback; transfers that are not freed yet stay valid, over, and theirs to free. */
void dml_http_client_free(dml_http_client *client);
/* Closes pooled connections: now when nothing runs, else when the last running transfer is over. */
void dml_http_client_close_idle(dml_http_client *client);

/* Whether it is a URL that start takes. */
bool dml_http_url_is_valid(dml_span url);
/* The absolute URL that a Location means beside the URL of its request (RFC 9110 §10.2.2), without a fragment; the
 * caller's to free. NULL when start would not take it. Both strings end with NUL. */
char *dml_http_client_resolve_url(const dml_http_client *client, const char *url, const char *location);

/* Starts a request; no callback runs before control is back at the loop. Errors: DML_INVALID_ARGUMENT (method, URL,
 * header, socket path, proxy or CA file is not valid), DML_UNAVAILABLE (DML_HTTP_CLIENT_TRANSFERS_MAX run),
 * DML_INTERNAL. */
dml_status dml_http_client_start(dml_http_client *client, const dml_http_transfer_options *options,
                                 const dml_http_transfer_events *events, void *ud, dml_http_transfer **out);
/* Drops the transfer, running or not, and frees it: no callback comes any more. NULL is fine. */
void dml_http_transfer_free(dml_http_transfer *transfer);

/* After on_response with DML_OK. */
int dml_http_transfer_status(const dml_http_transfer *transfer);
/* Borrowed from the transfer. */
const dml_headers *dml_http_transfer_headers(const dml_http_transfer *transfer);
/* The bytes of body at hand; borrowed until the next call on the transfer or turn of the loop. */
dml_span dml_http_transfer_peek(const dml_http_transfer *transfer);
/* Takes `len` of them away, which lets a stopped sender go on. */
void dml_http_transfer_consume(dml_http_transfer *transfer, size_t len);
/* Whether nothing more will come after the bytes at hand, and then how it ended: DML_OK is a clean end. */
bool dml_http_transfer_is_over(const dml_http_transfer *transfer, dml_status *status);

#endif
