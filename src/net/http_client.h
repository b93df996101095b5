/* http_client.h - HTTP/1.1 requests over TCP, TLS and unix sockets, in the loop.
 *
 * A transfer either gathers the whole response up to a limit, or streams: then the body waits in a bounded buffer, and
 * a reader that does not come stops the sender. Connections are pooled inside the client. Redirects are not followed.
 * HTTP/2 is left out on purpose: libcurl 7.88 stops all streams of a connection when one is paused.
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

typedef struct dml_http_client dml_http_client;
typedef struct dml_http_transfer dml_http_transfer;

/* All borrowed for the call of start, but `body` until the transfer is over or freed. */
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
  bool is_stream;
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

/* Starts a request; no callback runs before control is back at the loop. Errors: DML_INVALID_ARGUMENT (method, URL,
 * header or socket path is not valid), DML_UNAVAILABLE (DML_HTTP_CLIENT_TRANSFERS_MAX run), DML_INTERNAL. */
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
