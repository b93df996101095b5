/* http_server_ops.h - what http_server.c asks of its back end, and what the back end tells it.
 *
 * The back end parses and moves bytes; what a request means, which are refused and how much may wait is the core's.
 * Sink functions marked [inside] run inside the library: they note what they hear and must not call the table. on_turn
 * runs outside, after one or more of them, and may call anything. The back end is linked with nothing of the core. */
#ifndef DML_NET_HTTP_SERVER_OPS_H
#define DML_NET_HTTP_SERVER_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/status.h"
#include "net/backend.h"
#include "net/headers.h"

#define DML_HTTP_SERVER_ABI 2u
#define DML_HTTP_SERVER_FILE "demilune_mhd.so"
#define DML_HTTP_SERVER_SYMBOL "dml_http_server_backend"

/* A body that is at most this long is read ahead, before its handler asks for it. */
#define DML_HTTP_SERVER_AHEAD_BYTES (256 * 1024)
/* Body that is read and dropped because the answer is there already: a client that still sends would not see an answer
 * on a connection that is closed under it. Beyond that it is closed all the same. */
#define DML_HTTP_SERVER_DROP_MAX_BYTES (256u * 1024 * 1024)

typedef struct dml_http_listener dml_http_listener; /* the back end's state of one server */
typedef struct dml_http_exchange dml_http_exchange; /* one request and its answer on the wire */
typedef struct dml_tls_pair dml_tls_pair;           /* a certificate chain and its key */

typedef struct dml_http_head {
  dml_span method;
  dml_span target; /* as on the wire */
  int minor;       /* of HTTP/1.x */
  size_t header_bytes;
} dml_http_head;

#define DML_HTTP_PULL_END ((ssize_t)-1)
#define DML_HTTP_PULL_ABORT ((ssize_t)-2)

typedef struct dml_http_server_sink {
  /* [inside] The head of a request without its fields. Returns what the other functions get as `request`; NULL closes
   * the connection. */
  void *(*on_head)(void *ud, dml_http_exchange *exchange, const dml_http_head *head);
  /* [inside] The fields follow, one call each, in order. */
  void (*on_header)(void *request, dml_span name, dml_span value);
  /* [inside] `is_exact`: every byte of the head is accounted for, there was no NUL, no bare line feed and no folded
   * line (RFC 9112 §2.2, §5.2). */
  void (*on_head_end)(void *request, bool is_exact);
  /* [inside] Body: returns how many bytes were taken. The rest comes again after want_body. */
  size_t (*on_body)(void *request, const char *bytes, size_t len);
  /* [inside] The request is complete. */
  void (*on_body_end)(void *request);
  /* [inside] Fills `out` with body of a streamed answer: > 0 bytes, 0 for nothing now (say so with wake when there is),
   * DML_HTTP_PULL_END, DML_HTTP_PULL_ABORT. */
  ssize_t (*on_pull)(void *request, char *out, size_t max);
  /* [inside, or inside close] Once, the last call: the exchange is gone. `is_complete`: the whole answer was sent. */
  void (*on_end)(void *request, bool is_complete);
  /* Outside: requests heard something. */
  void (*on_turn)(void *ud);
} dml_http_server_sink;

typedef struct dml_http_listener_options {
  int fd; /* a listening, non-blocking socket; taken, on failure too */
  unsigned connections_max;
  /* Of a connection that neither side uses, but not while a handler works; and how long a whole head may take, and the
   * rest of a body that is dropped. */
  unsigned idle_timeout_s;
  size_t header_max_bytes; /* that a connection has room for */
  dml_tls_pair *tls; /* NULL: plain. Held by the listener from then on, beside its owner */
} dml_http_listener_options;

typedef struct dml_http_answer {
  unsigned status;
  const dml_headers *headers; /* framing fields among them are left out; copied */
  bool is_last;               /* the connection ends with it, as with "Connection: close" among the headers */
  bool is_early;              /* a body that was not read yet is not read at all; implies is_last */
  bool is_stream;             /* body by on_pull, else the bytes below */
  int64_t length;             /* of a stream: -1 for chunked */
  const char *body;           /* borrowed until on_end */
  size_t body_len;
} dml_http_answer;

typedef struct dml_http_server_ops {
  dml_backend_head head;
  /* Errors: DML_INTERNAL. */
  dml_status (*open)(uv_loop_t *loop, const dml_http_listener_options *options, const dml_http_server_sink *sink,
                     void *ud, dml_http_listener **out);
  /* Stops listening and ends all exchanges, each with its on_end; frees the listener. */
  void (*close)(dml_http_listener *listener);
  /* Open connections. */
  size_t (*connections)(const dml_http_listener *listener);
  /* The handler reads: on with a body that was held back. */
  void (*want_body)(dml_http_exchange *exchange);
  /* Once an exchange. Errors: DML_INTERNAL. */
  dml_status (*answer)(dml_http_exchange *exchange, const dml_http_answer *answer);
  /* on_pull has something again. */
  void (*wake)(dml_http_exchange *exchange);
  /* Closes the connection without a clean end. */
  void (*cut)(dml_http_exchange *exchange);
  /* The connection's descriptor, borrowed. */
  int (*fd)(const dml_http_exchange *exchange);
  /* A pair from PEM texts; the key must be the first certificate's. On failure *why is what is wrong, static. Errors:
   * DML_INVALID_ARGUMENT, DML_INTERNAL. */
  dml_status (*tls_new)(dml_span cert_pem, dml_span key_pem, dml_tls_pair **out, const char **why);
  void (*tls_free)(dml_tls_pair *pair);
  int64_t (*tls_expires_s)(const dml_tls_pair *pair);
  /* From the next connection on. Only for a listener that was opened with one. Errors: DML_INTERNAL. */
  dml_status (*set_tls)(dml_http_listener *listener, dml_tls_pair *pair);
} dml_http_server_ops;

#endif
