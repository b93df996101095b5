/* http_server.h - HTTP/1.1 requests on a listening socket, strict about what a request may look like.
 *
 * Whatever two HTTP parsers could read differently is refused with 400 and the connection closed: two Content-Length or
 * Host fields, Content-Length beside Transfer-Encoding, other codings than chunked, NUL, bare line feeds, folded lines.
 * Bodies move both ways with back-pressure: what nobody reads stays in the kernel, what the client does not read makes
 * the writer wait.
 *
 * Callbacks come from the loop, outside the HTTP library, so they may call everything here. A client counts as gone
 * when it closes its side of the connection while its handler waits, half or whole. */
#ifndef DML_NET_HTTP_SERVER_H
#define DML_NET_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/status.h"
#include "net/headers.h"
#include "net/http_tls.h"
#include "net/target.h"

/* Body that waits for a reader, and answer that waits for the client, a request. */
#define DML_HTTP_SERVER_BUFFER_BYTES (256 * 1024)
#define DML_HTTP_SERVER_IDLE_TIMEOUT_S 75

typedef struct dml_http_server dml_http_server;
typedef struct dml_http_request dml_http_request;

typedef struct dml_http_server_options {
  int fd;                   /* a bound, listening stream socket, AF_UNIX or TCP; taken, on failure too */
  unsigned connections_max; /* beyond, clients wait in the socket's backlog */
  unsigned requests_max;    /* at work at a time; beyond, 503 */
  size_t header_max_bytes;  /* request line and fields; beyond, 431. At most DML_HTTP_SERVER_HEADER_MAX_BYTES */
  unsigned idle_timeout_s;  /* 0: DML_HTTP_SERVER_IDLE_TIMEOUT_S */
  const dml_http_tls *tls;  /* TLS 1.2 and later with this pair; NULL: plain. Not kept */
} dml_http_server_options;

#define DML_HTTP_SERVER_HEADER_MAX_BYTES (64 * 1024)

/* A request that passed the checks. The callee keeps a reference, to be given back with unref; it sets its events at
 * once or never hears of the request again. */
typedef void (*dml_http_request_cb)(void *ud, dml_http_request *request);

typedef struct dml_http_request_events {
  /* After a read that found nothing: bytes or the end are there. */
  void (*on_readable)(void *ud);
  /* After a write that lent its bytes: they are used, more may be written. */
  void (*on_writable)(void *ud);
  /* Once: the exchange is over. `is_complete`: the whole answer went out; else the client is gone, the request was
   * aborted or the server closed. The request stays readable until unref. */
  void (*on_end)(void *ud, bool is_complete);
} dml_http_request_events;

/* Opens the back end in `directory` and starts to listen. Errors: DML_INVALID_ARGUMENT (a limit), DML_INTERNAL. */
dml_status dml_http_server_new(uv_loop_t *loop, const char *directory, const dml_http_server_options *options,
                               dml_http_request_cb on_request, void *ud, dml_http_server **out);
/* Stops listening and ends all requests: their on_end runs in here. Frees the server; requests still referenced stay
 * valid, over. NULL is fine. */
void dml_http_server_free(dml_http_server *server);
/* What connections that begin from now on are shown; others stay as they are. `tls` is not kept. Errors: DML_CONFLICT
 * (the server is plain), DML_INTERNAL. */
dml_status dml_http_server_set_tls(dml_http_server *server, const dml_http_tls *tls);
size_t dml_http_server_connections(const dml_http_server *server);

/* Who hears of the request from now on; `events` is borrowed until it is over. NULL: nobody. */
void dml_http_request_set_events(dml_http_request *request, const dml_http_request_events *events, void *ud);
/* Gives the callee's reference back; set its events to NULL before. */
void dml_http_request_unref(dml_http_request *request);

/* Borrowed from the request. */
dml_span dml_http_request_method(const dml_http_request *request);
const dml_target *dml_http_request_target(const dml_http_request *request);
const dml_headers *dml_http_request_headers(const dml_http_request *request);
/* -1 when the request does not say. */
int64_t dml_http_request_length(const dml_http_request *request);
/* SO_PEERCRED (unix(7)); false for TCP and once the request is over. */
bool dml_http_request_peer(const dml_http_request *request, struct ucred *out);
/* Whether the exchange is over, and whether an answer was given. */
bool dml_http_request_is_over(const dml_http_request *request);
bool dml_http_request_is_answered(const dml_http_request *request);

typedef enum dml_http_body {
  DML_HTTP_BODY_BYTES,
  DML_HTTP_BODY_WAIT,
  DML_HTTP_BODY_END,
  DML_HTTP_BODY_FAILED
} dml_http_body;

/* BYTES: `out` holds what is there, borrowed until the next call or turn of the loop; take it with consume. WAIT:
 * on_readable or on_end will come. END: the body is complete. FAILED: the client is gone, or the answer has been given.
 */
dml_http_body dml_http_request_read(dml_http_request *request, dml_span *out);
void dml_http_request_consume(dml_http_request *request, size_t len);

/* Answers with a whole body, borrowed until on_end. Framing fields in `headers` are left out, empty values too. Errors:
 * DML_CONFLICT (answered before), DML_CONNECTION_FAILED (over), DML_INVALID_ARGUMENT (the status), DML_INTERNAL. */
dml_status dml_http_request_respond(dml_http_request *request, int status, const dml_headers *headers, const char *body,
                                    size_t len);
/* Answers with a body to be written: of `length` bytes, or chunked when -1. Errors as for respond. */
dml_status dml_http_request_start(dml_http_request *request, int status, const dml_headers *headers, int64_t length);
/* Writes. With `*is_lent` the bytes must stay until on_writable or on_end, and nothing else may be written meanwhile;
 * else they were copied. Errors: DML_CONFLICT (not started, finished, or bytes are lent), DML_TOO_LARGE (more than
 * `length`), DML_CONNECTION_FAILED (over), DML_INTERNAL. */
dml_status dml_http_request_write(dml_http_request *request, const char *bytes, size_t len, bool *is_lent);
/* Ends the body cleanly; a body shorter than its `length` is cut off instead. Errors: DML_CONFLICT,
 * DML_CONNECTION_FAILED. */
dml_status dml_http_request_finish(dml_http_request *request);
/* Closes the connection without a clean end. Lent bytes are given up. Harmless when over. */
void dml_http_request_abort(dml_http_request *request);

#endif
