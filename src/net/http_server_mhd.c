/* http_server_mhd.c - the server's back end: libmicrohttpd with external epoll in the uv loop.
 *
 * One uv_poll watches the daemon's epoll descriptor; turn() runs the daemon until it has nothing to do, and after each
 * run, outside the library, lets the core hand out what was heard. A handler that answers within that turn never costs
 * a suspend; one that takes longer has its connection suspended, and then a uv_poll on the connection's descriptor sees
 * the client leave, which libmicrohttpd does not. That watch is closed before libmicrohttpd closes the descriptor:
 * libuv keys watches by number.
 *
 * libmicrohttpd forgets its timeout with every byte, so a head (and a body that nobody wants any more) has a time of
 * its own, after which the socket is shut down under it.
 *
 * Answers are queued in the access handler only. Facts about libmicrohttpd are of version 0.9.75. */
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http_server_ops.h"
#include "net/http_server_tls_mhd.h"

/* Half of a connection's memory is its read buffer: where heads may be large, an upload moves in pieces of 64 KiB and more.
 * All of it is cleared after each request, so a door of small messages has less. */
#define CONNECTION_MEMORY_MIN_BYTES ((size_t)32 * 1024)

static size_t connection_memory_bytes(size_t header_max_bytes) {
  size_t bytes = header_max_bytes * 5 / 2;
  return bytes < CONNECTION_MEMORY_MIN_BYTES ? CONNECTION_MEMORY_MIN_BYTES : bytes;
}

/* A streamed answer of known length is filled in pieces of this at most; chunks are made in the connection's memory, so
 * that one of unknown length needs its piece for HTTP/1.0 alone. */
#define BLOCK_BYTES ((size_t)128 * 1024)
#define BLOCK_SMALL_BYTES ((size_t)8 * 1024)
/* Runs of the daemon in one turn; what is left then goes on in the loop's next one. */
#define RUNS_MAX 16
/* How long a listening socket is left alone whose connections cannot be accepted. */
#define REST_MS 50
/* While a TLS handshake waits for its client, the library wants to be run without end. New bytes wake the epoll
 * descriptor all the same: so after this many runs in which nothing happened it is left alone for a while. */
#define SHAKING_RUNS_MAX 8
#define SHAKING_WAIT_MS 100
/* From a TLS connection's begin to the head of its first request. */
#define SHAKING_MAX_MS 10000
/* "HTTP/1.1" */
#define VERSION_LEN 8

typedef struct connection connection;

/* A pair that connections were given since it was set. */
typedef struct pair_use {
  struct pair_use *next;
  dml_tls_pair *pair;
  size_t connections;
} pair_use;

struct dml_http_listener {
  struct MHD_Daemon *daemon;
  uv_poll_t *poll;
  uv_timer_t *timer;
  uv_timer_t *due_timer;
  connection *list; /* all connections */
  pair_use *pairs;  /* the first is in force; NULL: plain */
  uint64_t patience_ms;
  uv_loop_t *loop;
  const dml_http_server_sink *sink;
  void *ud;
  dml_http_exchange *exchanges;
  size_t connections;
  unsigned opened; /* counts connections */
  unsigned turn;   /* counts runs */
  size_t shaking;  /* TLS connections that no request came from yet */
  bool is_turning;
  bool is_timed;     /* in on_timer: libuv 1.44 would call a timer of 0 again at once, and nothing else */
  bool has_happened; /* the library called */
  bool is_restless;  /* something changed that only another run sees */
  bool is_closed;
  bool is_resting; /* the epoll descriptor is not watched until the timer */
};

/* One client connection. */
struct connection {
  dml_http_listener *listener;
  connection *next, **back;
  uint64_t due_ms; /* of the loop's clock: until then its head has come, or its unwanted body; 0 for no such limit */
  int fd;
  uv_poll_t *watch; /* NULL before its first suspension */
  pair_use *pair;   /* NULL: plain */
  bool is_shaking;  /* TLS, and no request came yet */
  bool is_gone;     /* the client closed its side */
  dml_http_exchange *exchange;
};

typedef enum phase { PHASE_HEAD, PHASE_BODY, PHASE_FULL } phase;

struct dml_http_exchange {
  dml_http_listener *listener;
  dml_http_exchange *next, **back;
  connection *connection;
  struct MHD_Connection *mhd;
  void *request; /* the core's; NULL before the head is complete */
  char *target;
  phase phase;
  bool has_body, is_ahead, is_wanted, is_expecting, is_head_method;
  bool is_suspended, is_aborted, is_queued, has_full_turn;
  unsigned full_turn;
  uint64_t dropped_bytes;
  struct MHD_Response *response; /* given, not yet queued */
  bool is_early;                 /* see dml_http_answer */
  unsigned status;
};

static void free_handle(uv_handle_t *handle) { free(handle); }

/* ---- suspending ---- */

static bool turn(dml_http_listener *listener);
static void arm(dml_http_listener *listener, uint64_t wait_ms);

/* Without threads a resumed connection makes no descriptor ready: the daemon must be run. */
static void release(dml_http_exchange *exchange) {
  if (!exchange->is_suspended) return;
  exchange->is_suspended = false;
  MHD_resume_connection(exchange->mhd);
  if (exchange->listener->is_turning)
    exchange->listener->is_restless = true;
  else if (!exchange->listener->is_closed)
    arm(exchange->listener, 0);
}

static void on_left(uv_poll_t *watch, int error, int events) {
  connection *c = watch->data;
  (void)error, (void)events;
  uv_poll_stop(watch);
  c->is_gone = true;
  if (!c->exchange || !c->exchange->is_suspended) return;
  c->exchange->is_aborted = true;
  release(c->exchange);
  turn(c->listener);
}

static bool start_watch(connection *c) {
  if (c->watch) return true;
  uv_poll_t *watch = calloc(1, sizeof *watch);
  if (!watch) return false;
  if (uv_poll_init(c->listener->loop, watch, c->fd) != 0) {
    free(watch);
    return false;
  }
  watch->data = c;
  c->watch = watch;
  uv_poll_start(watch, UV_DISCONNECT, on_left);
  return true;
}

/* Only from inside a library callback. False: the client is gone, there is nothing to wait for. */
static bool suspend(dml_http_exchange *exchange) {
  if (exchange->connection->is_gone || !start_watch(exchange->connection)) return false;
  exchange->is_suspended = true;
  MHD_suspend_connection(exchange->mhd);
  return true;
}

/* ---- slow clients ---- */

static void on_due(uv_timer_t *timer) {
  dml_http_listener *listener = timer->data;
  uint64_t now_ms = uv_now(listener->loop), next_ms = 0;
  for (connection *c = listener->list; c; c = c->next) {
    if (c->due_ms == 0) continue;
    if (c->due_ms <= now_ms) {
      c->due_ms = 0;
      shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd sees the end and closes */
    } else if (next_ms == 0 || c->due_ms < next_ms) {
      next_ms = c->due_ms;
    }
  }
  if (next_ms > 0) uv_timer_start(timer, on_due, next_ms - now_ms, 0);
}

static void set_due_in(connection *c, uint64_t wait_ms) {
  dml_http_listener *listener = c->listener;
  if (listener->is_closed) return;
  c->due_ms = uv_now(listener->loop) + wait_ms;
  uv_handle_t *handle = (uv_handle_t *)listener->due_timer;
  if (uv_is_active(handle) && uv_timer_get_due_in(listener->due_timer) <= wait_ms) return;
  uv_timer_start(listener->due_timer, on_due, wait_ms, 0);
}

static void set_due(connection *c) { set_due_in(c, c->listener->patience_ms); }

/* ---- certificates ---- */

static bool add_pair(dml_http_listener *listener, dml_tls_pair *pair) {
  pair_use *use = calloc(1, sizeof *use);
  if (!use) return false;
  use->pair = dml_tls_pair_ref(pair);
  use->next = listener->pairs;
  listener->pairs = use;
  return true;
}

/* Lets go of pairs that are no longer in force or in use; of all with `is_end`. Outside of the library: it tells that a
 * connection is closed before it is done with its session. */
static void sweep_pairs(dml_http_listener *listener, bool is_end) {
  if (!listener->pairs) return;
  pair_use **place = is_end ? &listener->pairs : &listener->pairs->next;
  while (*place) {
    pair_use *use = *place;
    if (use->connections > 0 && !is_end) {
      place = &use->next;
      continue;
    }
    *place = use->next;
    dml_tls_pair_unref(use->pair);
    free(use);
  }
}

static void begin_tls(connection *c, struct MHD_Connection *mhd) {
  dml_http_listener *listener = c->listener;
  c->is_shaking = true;
  listener->shaking++;
  if (listener->patience_ms > SHAKING_MAX_MS) set_due_in(c, SHAKING_MAX_MS);
  if (!dml_tls_pair_attach(listener->pairs->pair, mhd)) return;
  c->pair = listener->pairs;
  c->pair->connections++;
}

static void end_shaking(connection *c) {
  if (c->is_shaking) c->listener->shaking--;
  c->is_shaking = false;
}

/* ---- the head ---- */

typedef struct walk {
  dml_http_exchange *exchange;
  const char *expected; /* where the next field must begin */
  bool is_exact;
  bool has_length;
} walk;

static bool is_word(dml_span span, const char *word) {
  return span.len == strlen(word) && strncasecmp(span.data, word, span.len) == 0;
}

/* Whether there is a body, and whether it is short enough to be read ahead. Doubtful lengths are the core's to refuse.
 */
static void judge_length(dml_http_exchange *exchange, dml_span value) {
  size_t length = 0, i = 0;
  for (; i < value.len && length <= DML_HTTP_SERVER_AHEAD_BYTES; i++) {
    if (value.data[i] < '0' || value.data[i] > '9') break;
    length = length * 10 + (size_t)(value.data[i] - '0');
  }
  exchange->has_body = !is_word(value, "0");
  exchange->is_ahead = value.len > 0 && i == value.len && length <= DML_HTTP_SERVER_AHEAD_BYTES;
}

/* libmicrohttpd cuts lines at NUL, takes a bare line feed for a line's end and joins folded lines elsewhere. Fields
 * that follow each other in memory at exactly the distance of a CRLF have none of that. */
static enum MHD_Result on_field(void *ud, enum MHD_ValueKind kind, const char *name_data, size_t name_len,
                                const char *value_data, size_t value_len) {
  walk *w = ud;
  dml_http_exchange *exchange = w->exchange;
  dml_span name = {name_data, name_len}, value = {value_data ? value_data : "", value_data ? value_len : 0};
  (void)kind;
  if (name.data != w->expected || !value_data) w->is_exact = false;
  w->expected = value.data + value.len + 2;
  if (is_word(name, "transfer-encoding")) exchange->has_body = true;
  if (is_word(name, "expect")) exchange->is_expecting = true;
  if (is_word(name, "content-length") && !w->has_length) {
    w->has_length = true;
    judge_length(exchange, value);
  }
  exchange->listener->sink->on_header(exchange->request, name, value);
  return MHD_YES;
}

/* The request line lies in memory as "method NUL target NUL version", what was between them replaced. */
static bool begin(dml_http_exchange *exchange, const char *url, const char *method, const char *version) {
  const dml_http_server_sink *sink = exchange->listener->sink;
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(exchange->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  if (!info || strlen(version) != VERSION_LEN) return false;
  exchange->is_head_method = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
  size_t target_len = strlen(exchange->target);
  dml_http_head head = {
      .method = {method, strlen(method)},
      .target = {exchange->target, target_len},
      .minor = version[VERSION_LEN - 1] - '0',
      .header_bytes = info->header_size,
  };
  exchange->request = sink->on_head(exchange->listener->ud, exchange, &head);
  if (!exchange->request) return false;
  walk w = {.exchange = exchange, .expected = version + VERSION_LEN + 2};
  w.is_exact = url == method + head.method.len + 1 && version == url + target_len + 1;
  MHD_get_connection_values_n(exchange->mhd, MHD_HEADER_KIND, on_field, &w);
  if (w.expected + 2 != method + head.header_bytes) w.is_exact = false;
  /* With a coding the first Content-Length says nothing; a client that asks first is answered before it sends. */
  if (exchange->is_expecting) exchange->is_ahead = false;
  sink->on_head_end(exchange->request, w.is_exact);
  return true;
}

/* ---- libmicrohttpd's callbacks ---- */

/* Called with the raw target before it is taken apart in place; what it returns becomes the request's context. */
static void *on_target(void *ud, const char *target, struct MHD_Connection *mhd) {
  dml_http_listener *listener = ud;
  dml_http_exchange *exchange = calloc(1, sizeof *exchange);
  char *copy = strdup(target);
  if (!exchange || !copy) {
    free(exchange);
    free(copy);
    return NULL;
  }
  exchange->listener = listener;
  exchange->mhd = mhd;
  exchange->target = copy;
  exchange->next = listener->exchanges;
  exchange->back = &listener->exchanges;
  if (exchange->next) exchange->next->back = &exchange->next;
  listener->exchanges = exchange;
  return exchange;
}

/* Targets are decoded by the core. */
static size_t keep_escapes(void *ud, struct MHD_Connection *mhd, char *text) {
  (void)ud, (void)mhd;
  return strlen(text);
}

static enum MHD_Result queue(dml_http_exchange *exchange) {
  exchange->connection->due_ms = 0;
  enum MHD_Result result = MHD_queue_response(exchange->mhd, exchange->status, exchange->response);
  MHD_destroy_response(exchange->response);
  exchange->response = NULL;
  exchange->is_queued = true;
  return result;
}

/* The first call. An answer queued here closes the connection under a client that may still be sending, which then may
 * never see it: right only where the body must not be read, or is not sent yet. */
static enum MHD_Result on_first_call(dml_http_exchange *exchange) {
  if (!exchange->has_body) {
    exchange->phase = PHASE_FULL;
    return MHD_YES;
  }
  if (exchange->response && (exchange->is_early || exchange->is_expecting)) return queue(exchange);
  if (exchange->is_ahead || exchange->is_wanted || exchange->response) {
    exchange->phase = PHASE_BODY;
    return MHD_YES;
  }
  return suspend(exchange) ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_upload(dml_http_exchange *exchange, const char *bytes, size_t *len) {
  if (exchange->response) {
    if (exchange->dropped_bytes == 0) set_due(exchange->connection);
    exchange->dropped_bytes += *len;
    *len = 0;
    return exchange->dropped_bytes <= DML_HTTP_SERVER_DROP_MAX_BYTES ? MHD_YES : MHD_NO;
  }
  *len -= exchange->listener->sink->on_body(exchange->request, bytes, *len);
  if (*len == 0) return MHD_YES;
  return suspend(exchange) ? MHD_YES : MHD_NO;
}

/* The last call, again and again until there is an answer. The first time the handler has not had its turn yet. */
static enum MHD_Result on_last_call(dml_http_exchange *exchange) {
  if (!exchange->has_full_turn) {
    exchange->has_full_turn = true;
    exchange->full_turn = exchange->listener->turn;
    exchange->phase = PHASE_FULL;
    exchange->listener->sink->on_body_end(exchange->request);
  }
  if (exchange->response) return queue(exchange);
  if (exchange->full_turn == exchange->listener->turn) return MHD_YES;
  return suspend(exchange) ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_access(void *ud, struct MHD_Connection *mhd, const char *url, const char *method,
                                 const char *version, const char *bytes, size_t *len, void **context) {
  dml_http_exchange *exchange = *context;
  ((dml_http_listener *)ud)->has_happened = true;
  if (!exchange || exchange->is_aborted) return MHD_NO;
  if (!exchange->connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    exchange->connection = info->socket_context;
    if (!exchange->connection) return MHD_NO;
    exchange->connection->exchange = exchange;
    exchange->connection->due_ms = 0;
    end_shaking(exchange->connection);
    if (!begin(exchange, url, method, version)) return MHD_NO;
  }
  if (*len > 0) return on_upload(exchange, bytes, len);
  return exchange->phase == PHASE_HEAD ? on_first_call(exchange) : on_last_call(exchange);
}

static ssize_t on_pull(void *ud, uint64_t position, char *out, size_t max) {
  dml_http_exchange *exchange = ud;
  (void)position;
  exchange->listener->has_happened = true;
  if (exchange->is_aborted) return MHD_CONTENT_READER_END_WITH_ERROR;
  ssize_t len = exchange->listener->sink->on_pull(exchange->request, out, max);
  if (len > 0) return len;
  if (len == DML_HTTP_PULL_END) return MHD_CONTENT_READER_END_OF_STREAM;
  return len == 0 && suspend(exchange) ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void on_completed(void *ud, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code) {
  dml_http_exchange *exchange = *context;
  (void)ud, (void)mhd;
  if (!exchange) return;
  exchange->listener->has_happened = true;
  *context = NULL;
  bool is_complete = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && exchange->is_queued && !exchange->is_aborted;
  if (exchange->connection) {
    exchange->connection->exchange = NULL;
    set_due(exchange->connection);
  }
  if (exchange->request) exchange->listener->sink->on_end(exchange->request, is_complete);
  if (exchange->response) MHD_destroy_response(exchange->response);
  *exchange->back = exchange->next;
  if (exchange->next) exchange->next->back = exchange->back;
  free(exchange->target);
  free(exchange);
}

/* ---- connections ---- */

static void open_connection(dml_http_listener *listener, struct MHD_Connection *mhd, void **context) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
  connection *c = calloc(1, sizeof *c);
  if (!c) return;
  c->listener = listener;
  c->fd = info->connect_fd;
  c->next = listener->list;
  c->back = &listener->list;
  if (c->next) c->next->back = &c->next;
  listener->list = c;
  set_due(c);
  if (listener->pairs) begin_tls(c, mhd);
  *context = c;
  listener->connections++;
  listener->opened++;
}

static void close_connection(dml_http_listener *listener, connection *c, void **context) {
  *context = NULL;
  listener->is_restless = true; /* at the limit the daemon listens again only in its next run */
  listener->connections--;
  if (c->watch) {
    uv_poll_stop(c->watch);
    uv_close((uv_handle_t *)c->watch, free_handle);
  }
  if (c->pair) c->pair->connections--;
  end_shaking(c);
  *c->back = c->next;
  if (c->next) c->next->back = c->back;
  free(c);
}

static void on_connection(void *ud, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
  ((dml_http_listener *)ud)->has_happened = true;
  if (code == MHD_CONNECTION_NOTIFY_STARTED)
    open_connection(ud, mhd, context);
  else if (*context)
    close_connection(ud, *context, context);
}

/* ---- the daemon in the loop ---- */

static void on_poll(uv_poll_t *poll, int error, int events) {
  dml_http_listener *listener = poll->data;
  bool was_empty = listener->connections == 0;
  unsigned opened = listener->opened;
  (void)error, (void)events;
  if (!turn(listener) || !was_empty || listener->opened != opened) return;
  /* Somebody knocks and cannot be let in, for want of descriptors: libmicrohttpd would try again without end. */
  uv_poll_stop(poll);
  listener->is_resting = true;
  arm(listener, REST_MS);
}

static void on_timer(uv_timer_t *timer) {
  dml_http_listener *listener = timer->data;
  if (listener->is_resting) uv_poll_start(listener->poll, UV_READABLE, on_poll);
  listener->is_resting = false;
  listener->is_timed = true;
  if (turn(listener)) listener->is_timed = false;
}

/* The timer may stand too early, never too late. */
static void arm(dml_http_listener *listener, uint64_t wait_ms) {
  uv_handle_t *handle = (uv_handle_t *)listener->timer;
  if (wait_ms == 0 && listener->is_timed) wait_ms = 1;
  if (uv_is_active(handle) && uv_timer_get_due_in(listener->timer) <= wait_ms) return;
  uv_timer_start(listener->timer, on_timer, wait_ms, 0);
}

/* Runs the daemon once. False: the listener is gone. */
static bool run(dml_http_listener *listener) {
  listener->is_restless = listener->has_happened = false;
  MHD_run(listener->daemon);
  if (listener->pairs) sweep_pairs(listener, false);
  listener->turn++;
  listener->sink->on_turn(listener->ud);
  if (!listener->is_closed) return true;
  free(listener);
  return false;
}

/* Whether the daemon wants to be run again, and in how long. */
static bool wants_run(dml_http_listener *listener, uint64_t *wait_ms) {
  MHD_UNSIGNED_LONG_LONG asked_ms = 0;
  bool has_wait = MHD_get_timeout(listener->daemon, &asked_ms) == MHD_YES;
  *wait_ms = listener->is_restless ? 0 : asked_ms;
  return has_wait || listener->is_restless;
}

/* False: the listener is gone. */
static bool turn(dml_http_listener *listener) {
  uint64_t wait_ms = 0;
  bool has_wait = true;
  int idle = 0;
  if (listener->is_turning) return true;
  listener->is_turning = true;
  for (int i = 0; i < RUNS_MAX && has_wait && wait_ms == 0; i++) {
    if (!run(listener)) return false;
    has_wait = wants_run(listener, &wait_ms);
    idle = listener->has_happened || listener->is_restless ? 0 : idle + 1;
    if (has_wait && wait_ms == 0 && listener->shaking > 0 && idle >= SHAKING_RUNS_MAX) wait_ms = SHAKING_WAIT_MS;
  }
  listener->is_turning = false;
  if (has_wait) arm(listener, wait_ms);
  return true;
}

/* ---- the table ---- */

/* One whose handles libuv does not know yet. */
static void listener_free(dml_http_listener *listener) {
  sweep_pairs(listener, true);
  free(listener->poll);
  free(listener->timer);
  free(listener->due_timer);
  free(listener);
}

static dml_http_listener *listener_new(uv_loop_t *loop, const dml_http_server_sink *sink, void *ud) {
  dml_http_listener *listener = calloc(1, sizeof *listener);
  if (!listener) return NULL;
  listener->poll = calloc(1, sizeof *listener->poll);
  listener->timer = calloc(1, sizeof *listener->timer);
  listener->due_timer = calloc(1, sizeof *listener->due_timer);
  if (!listener->poll || !listener->timer || !listener->due_timer) {
    listener_free(listener);
    return NULL;
  }
  listener->loop = loop;
  listener->sink = sink;
  listener->ud = ud;
  return listener;
}

static struct MHD_Daemon *start_daemon(dml_http_listener *listener, const dml_http_listener_options *options) {
  static const struct MHD_OptionItem NO_MORE[] = {{MHD_OPTION_END, 0, NULL}};
  const struct MHD_OptionItem *more = options->tls ? dml_tls_daemon_options : NO_MORE;
  return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (options->tls ? MHD_USE_TLS : 0), 0, NULL, NULL,
                          on_access, listener, MHD_OPTION_ARRAY, more, MHD_OPTION_LISTEN_SOCKET,
                          (MHD_socket)options->fd, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                          connection_memory_bytes(options->header_max_bytes),
                          MHD_OPTION_CONNECTION_LIMIT, options->connections_max, MHD_OPTION_CONNECTION_TIMEOUT,
                          options->idle_timeout_s, MHD_OPTION_URI_LOG_CALLBACK, on_target, listener,
                          MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                          NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, listener, MHD_OPTION_END);
}

static dml_status listener_open(uv_loop_t *loop, const dml_http_listener_options *options,
                                const dml_http_server_sink *sink, void *ud, dml_http_listener **out) {
  *out = NULL;
  dml_http_listener *listener = listener_new(loop, sink, ud);
  if (!listener) {
    close(options->fd);
    return DML_INTERNAL;
  }
  listener->patience_ms = (uint64_t)options->idle_timeout_s * 1000;
  if (!options->tls || add_pair(listener, options->tls)) listener->daemon = start_daemon(listener, options);
  const union MHD_DaemonInfo *info =
      listener->daemon ? MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
  if (!info || uv_poll_init(loop, listener->poll, info->epoll_fd) != 0) {
    /* A daemon that did not start leaves the socket alone; one that did closes it. */
    if (listener->daemon)
      MHD_stop_daemon(listener->daemon);
    else
      close(options->fd);
    listener_free(listener);
    return DML_INTERNAL;
  }
  listener->poll->data = listener;
  uv_poll_start(listener->poll, UV_READABLE, on_poll);
  uv_timer_init(loop, listener->timer);
  listener->timer->data = listener;
  uv_timer_init(loop, listener->due_timer);
  listener->due_timer->data = listener;
  arm(listener, 0);
  *out = listener;
  return DML_OK;
}

static void listener_close(dml_http_listener *listener) {
  listener->is_closed = true;
  uv_poll_stop(listener->poll);
  uv_close((uv_handle_t *)listener->poll, free_handle);
  uv_timer_stop(listener->timer);
  uv_close((uv_handle_t *)listener->timer, free_handle);
  uv_timer_stop(listener->due_timer);
  uv_close((uv_handle_t *)listener->due_timer, free_handle);
  /* Stopping a daemon with suspended connections would end the process. */
  for (dml_http_exchange *exchange = listener->exchanges; exchange; exchange = exchange->next) {
    exchange->is_aborted = true;
    release(exchange);
  }
  MHD_stop_daemon(listener->daemon);
  sweep_pairs(listener, true);
  if (!listener->is_turning) free(listener);
}

static dml_status listener_set_tls(dml_http_listener *listener, dml_tls_pair *pair) {
  if (!add_pair(listener, pair)) return DML_INTERNAL;
  sweep_pairs(listener, false);
  return DML_OK;
}

static size_t listener_connections(const dml_http_listener *listener) { return listener->connections; }

static void exchange_want_body(dml_http_exchange *exchange) {
  exchange->is_wanted = true;
  if (exchange->phase != PHASE_FULL) release(exchange);
}

static struct MHD_Response *make_whole(const char *body, size_t len) {
  return MHD_create_response_from_buffer(len, (void *)(uintptr_t)(body ? body : ""), MHD_RESPMEM_PERSISTENT);
}

static struct MHD_Response *make_stream(dml_http_exchange *exchange, int64_t length) {
  size_t block = length < 0 ? BLOCK_SMALL_BYTES : (uint64_t)length < BLOCK_BYTES ? (size_t)length + 1 : BLOCK_BYTES;
  uint64_t size = length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)length;
  struct MHD_Response *response = MHD_create_response_from_callback(size, block, on_pull, exchange, NULL);
  /* Else libmicrohttpd would end the headers of a chunked HEAD answer with a last chunk. */
  if (response && exchange->is_head_method && length < 0)
    MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
  return response;
}

static struct MHD_Response *make_response(dml_http_exchange *exchange, const dml_http_answer *answer) {
  bool has_no_body = answer->status == MHD_HTTP_NO_CONTENT || answer->status == MHD_HTTP_NOT_MODIFIED;
  if (!answer->is_stream) return make_whole(answer->body, answer->body_len);
  return has_no_body ? make_whole("", 0) : make_stream(exchange, answer->length);
}

static bool is_framing(dml_span name) { return is_word(name, "content-length") || is_word(name, "transfer-encoding"); }

static bool add_headers(struct MHD_Response *response, const dml_http_answer *answer) {
  size_t count = answer->headers ? answer->headers->count : 0;
  const dml_headers *headers = answer->headers;
  bool is_last = answer->is_last;
  for (size_t i = 0; i < count; i++) {
    const dml_header_place *place = &headers->places[i];
    dml_span name = {headers->bytes.data + place->name, place->name_len};
    dml_span value = {headers->bytes.data + place->value, place->value_len};
    if (is_word(name, "connection")) {
      if (is_word(value, "close")) is_last = true;
    } else if (value.len > 0 && !is_framing(name)) {
      if (MHD_add_response_header(response, name.data, value.data) != MHD_YES) return false;
    }
  }
  return !is_last || MHD_add_response_header(response, "connection", "close") == MHD_YES;
}

static dml_status exchange_answer(dml_http_exchange *exchange, const dml_http_answer *answer) {
  if (exchange->response || exchange->is_queued) return DML_CONFLICT;
  struct MHD_Response *response = make_response(exchange, answer);
  if (!response) return DML_INTERNAL;
  if (!add_headers(response, answer)) {
    MHD_destroy_response(response);
    return DML_INTERNAL;
  }
  exchange->response = response;
  exchange->status = answer->status;
  exchange->is_early = answer->is_early;
  release(exchange);
  return DML_OK;
}

static void exchange_wake(dml_http_exchange *exchange) {
  if (exchange->is_queued) release(exchange);
}

/* Cuts the connection too: an exchange that is not suspended may be busy sending what needs no callback. */
static void exchange_cut(dml_http_exchange *exchange) {
  exchange->is_aborted = true;
  shutdown(exchange->connection->fd, SHUT_RDWR);
  release(exchange);
}

static int exchange_fd(const dml_http_exchange *exchange) { return exchange->connection->fd; }

extern const dml_http_server_ops dml_http_server_backend;
__attribute__((visibility("default"))) const dml_http_server_ops dml_http_server_backend = {
    .head = {DML_HTTP_SERVER_ABI},
    .open = listener_open,
    .close = listener_close,
    .connections = listener_connections,
    .want_body = exchange_want_body,
    .answer = exchange_answer,
    .wake = exchange_wake,
    .cut = exchange_cut,
    .fd = exchange_fd,
    .tls_new = dml_tls_pair_new,
    .tls_free = dml_tls_pair_unref,
    .tls_expires_s = dml_tls_pair_expires_s,
    .set_tls = listener_set_tls,
};
