/* http_client_ops.h - what http_client.c asks of its back end, and what the back end tells it.
 *
 * The back end moves bytes and knows no limits: it tells about each header line and each piece of body through the
 * sink, which says whether to go on. Sink functions marked [inside] run inside the library, where the table must not be
 * called; the others run outside, from loop callbacks. Neither side knows Lua; the back end is linked with nothing of
 * the core. */
#ifndef DML_NET_HTTP_CLIENT_OPS_H
#define DML_NET_HTTP_CLIENT_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "net/backend.h"
#include "net/headers.h"

#define DML_HTTP_CLIENT_ABI 2u
#define DML_HTTP_CLIENT_FILE "demilune_curl.so"
#define DML_HTTP_CLIENT_SYMBOL "dml_http_client_backend"

/* Connections that are kept open for another request. */
#define DML_HTTP_CLIENT_IDLE_MAX 32

typedef struct dml_http_wires dml_http_wires; /* the back end's state of one client */
typedef struct dml_http_wire dml_http_wire;   /* one request on the wire */

typedef enum dml_http_flow {
  DML_HTTP_FLOW_ON,
  DML_HTTP_FLOW_PAUSE, /* nothing of the piece was taken; it comes again after resume */
  DML_HTTP_FLOW_STOP   /* ends the transfer with DML_INVALID_RESPONSE */
} dml_http_flow;

typedef struct dml_http_sink {
  /* [inside] A status line; header lines seen before it belonged to an interim response. */
  dml_http_flow (*on_status)(void *ud, int status);
  /* [inside] One header line of it, without its end. */
  dml_http_flow (*on_header)(void *ud, dml_span name, dml_span value);
  /* [inside] The empty line after the headers. */
  dml_http_flow (*on_head_end)(void *ud);
  /* [inside] The next piece of body. */
  dml_http_flow (*on_body)(void *ud, const char *bytes, size_t len);
  /* Outside again after one or more of the above. */
  void (*on_turn)(void *ud);
  /* Outside, once, the last call: the wire is gone. */
  void (*on_done)(void *ud, dml_status status);
} dml_http_sink;

/* Strings end with NUL and live until on_done or cancel; they were checked by the caller. */
typedef struct dml_http_wire_options {
  const char *method;
  const char *url;
  const char *unix_socket;         /* NULL: TCP */
  const char *const *header_lines; /* "Name: value", or "Name;" for an empty value */
  size_t header_count;
  const char *body; /* NULL: none */
  size_t body_len;
  long connect_timeout_ms;
  const char *proxy;   /* NULL: the environment's; "": none */
  const char *ca_file; /* NULL: the environment's, else the system's */
  bool is_tls;         /* the URL's scheme is https */
  bool is_stream;      /* its connection must carry nothing else */
  bool is_fresh;       /* a connection of its own, closed afterwards */
} dml_http_wire_options;

typedef struct dml_http_client_ops {
  dml_backend_head head;
  dml_status (*open)(uv_loop_t *loop, dml_http_wires **out);
  /* Drops all wires without a call to their sinks. Not from inside a sink function. */
  void (*close)(dml_http_wires *wires);
  /* Closes connections that nobody uses, now if nothing runs, else when the last wire is done. */
  void (*close_idle)(dml_http_wires *wires);
  dml_status (*start)(dml_http_wires *wires, const dml_http_wire_options *options, const dml_http_sink *sink, void *ud,
                      dml_http_wire **out);
  /* After a pause. May call on_body before it returns. */
  void (*resume)(dml_http_wire *wire);
  /* Drops the transfer and, unless others share it, its connection; no sink function is called for it again. */
  void (*cancel)(dml_http_wire *wire);
  /* The absolute URL that `reference` means beside `base`, without its fragment; the caller's to free. NULL when it is
   * none, and for one with user information. */
  char *(*resolve_url)(const char *base, const char *reference);
} dml_http_client_ops;

#endif
