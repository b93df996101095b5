/* http_server.c - requests, their bodies and answers, between the wire (http_server_ops.h) and whoever handles them.
 *
 * What the sink hears inside the library is noted as news of the request; on_turn hands the news out, outside, in the
 * order in which requests got them. References: the server's list holds one, the handler one. */
#include "net/http_server.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/http_check.h"
#include "net/http_server_ops.h"

#define METHOD_MAX_BYTES 32

enum news { NEWS_HEAD = 1, NEWS_READABLE = 2, NEWS_WRITABLE = 4, NEWS_END = 8 };

struct dml_http_server {
  const dml_http_server_ops *ops;
  dml_http_listener *listener; /* NULL once closed */
  dml_http_request_cb on_request;
  void *ud;
  dml_http_request *requests;
  dml_http_request *news, **news_end;
  size_t header_max_bytes;
  unsigned requests_max;
  unsigned at_work;
  int refs; /* the owner, and each hand_out at work */
  bool has_tls;
};

struct dml_http_request {
  dml_http_server *server;     /* NULL once out of its list */
  dml_http_exchange *exchange; /* NULL: over */
  dml_http_request *next, **back;
  dml_http_request *next_news;
  unsigned news;
  bool is_news; /* in the list of news */
  int refs;
  const dml_http_request_events *events; /* NULL: nobody listens */
  void *ud;
  char method[METHOD_MAX_BYTES + 1];
  size_t method_len;
  char *raw_target;
  dml_target target;
  dml_headers headers;
  int64_t length;
  dml_status fault; /* found while the head was read */
  int minor;
  size_t header_bytes;
  bool is_exact;
  bool is_at_work; /* counts against requests_max */
  bool is_complete;
  /* body in */
  dml_buffer in;
  size_t in_taken;
  bool has_body_end, is_read_wanted;
  /* answer out */
  bool is_answered, is_stream, is_bodyless, is_finished, is_aborted;
  int64_t out_length; /* announced, or -1 */
  int64_t out_total;
  dml_buffer out;
  size_t out_taken;
  dml_span lent;
};

static const dml_http_server_sink SINK;

/* ---- life ---- */

static void server_unref(dml_http_server *server) {
  if (--server->refs == 0) free(server);
}

dml_status dml_http_server_new(uv_loop_t *loop, const char *directory, const dml_http_server_options *options,
                               dml_http_request_cb on_request, void *ud, dml_http_server **out) {
  const void *table;
  dml_http_server *server = NULL;
  *out = NULL;
  dml_status status = DML_INVALID_ARGUMENT;
  if (options->connections_max == 0 || options->requests_max == 0 || options->header_max_bytes == 0) goto failed;
  if (options->header_max_bytes > DML_HTTP_SERVER_HEADER_MAX_BYTES) goto failed;
  status = dml_backend_open(directory, DML_HTTP_SERVER_FILE, DML_HTTP_SERVER_SYMBOL, DML_HTTP_SERVER_ABI, &table);
  if (status != DML_OK) goto failed;
  status = DML_INTERNAL;
  server = calloc(1, sizeof *server);
  if (!server || fcntl(options->fd, F_SETFL, fcntl(options->fd, F_GETFL) | O_NONBLOCK) != 0) goto failed;
  if (fcntl(options->fd, F_SETFD, FD_CLOEXEC) != 0) goto failed;
  server->ops = table;
  server->on_request = on_request;
  server->ud = ud;
  server->news_end = &server->news;
  server->header_max_bytes = options->header_max_bytes;
  server->requests_max = options->requests_max;
  server->has_tls = options->tls != NULL;
  server->refs = 1;
  dml_http_listener_options listener = {
      .fd = options->fd,
      .connections_max = options->connections_max,
      .header_max_bytes = options->header_max_bytes,
      .idle_timeout_s = options->idle_timeout_s ? options->idle_timeout_s : DML_HTTP_SERVER_IDLE_TIMEOUT_S,
      .tls = options->tls ? dml_http_tls_peek(options->tls) : NULL,
  };
  status = server->ops->open(loop, &listener, &SINK, server, &server->listener);
  if (status == DML_OK)
    *out = server;
  else
    free(server);
  return status;
failed:
  free(server);
  close(options->fd);
  return status;
}

static void hand_out(dml_http_server *server);

void dml_http_server_free(dml_http_server *server) {
  if (!server) return;
  dml_http_listener *listener = server->listener;
  server->listener = NULL;
  if (listener) server->ops->close(listener);
  hand_out(server);
  server_unref(server);
}

dml_status dml_http_server_set_tls(dml_http_server *server, const dml_http_tls *tls) {
  if (!server->has_tls || !server->listener) return DML_CONFLICT;
  return server->ops->set_tls(server->listener, dml_http_tls_peek(tls));
}

size_t dml_http_server_connections(const dml_http_server *server) {
  return server->listener ? server->ops->connections(server->listener) : 0;
}

static void unref_by(dml_http_request *request, int count) {
  request->refs -= count;
  if (request->refs > 0) return;
  free(request->raw_target);
  dml_target_deinit(&request->target);
  dml_headers_deinit(&request->headers);
  dml_buffer_deinit(&request->in);
  dml_buffer_deinit(&request->out);
  free(request);
}

void dml_http_request_unref(dml_http_request *request) { unref_by(request, 1); }

/* Takes the request out of its server's list, once its exchange is over. */
static void leave(dml_http_request *request) {
  *request->back = request->next;
  if (request->next) request->next->back = request->back;
  if (request->is_at_work) request->server->at_work--;
  request->server = NULL;
}

/* ---- news ---- */

static void note(dml_http_request *request, unsigned news) {
  dml_http_server *server = request->server;
  request->news |= news;
  if (request->is_news) return;
  request->is_news = true;
  request->next_news = NULL;
  *server->news_end = request;
  server->news_end = &request->next_news;
}

static dml_http_request *take_news(dml_http_server *server) {
  dml_http_request *request = server->news;
  if (!request) return NULL;
  server->news = request->next_news;
  if (!server->news) server->news_end = &server->news;
  request->is_news = false;
  return request;
}

static void refuse(dml_http_request *request, const dml_http_refusal *refusal) {
  dml_headers headers;
  dml_headers_init(&headers, 256);
  dml_headers_add(&headers, (dml_span){"content-type", 12}, (dml_span){"application/json", 16});
  dml_http_answer answer = {.status = (unsigned)refusal->status,
                            .headers = &headers,
                            .is_last = true,
                            .is_early = true,
                            .body = refusal->body,
                            .body_len = strlen(refusal->body)};
  request->is_answered = true;
  if (request->server->ops->answer(request->exchange, &answer) != DML_OK) request->server->ops->cut(request->exchange);
  dml_headers_deinit(&headers);
}

static const dml_http_refusal *check(dml_http_request *request) {
  dml_http_server *server = request->server;
  dml_http_subject subject = {
      .method = {request->method, request->method_len},
      .raw_target = {request->raw_target, strlen(request->raw_target)},
      .minor = request->minor,
      .header_bytes = request->header_bytes,
      .header_max_bytes = server->header_max_bytes,
      .is_exact = request->is_exact,
      .fault = request->fault,
      .headers = &request->headers,
  };
  const dml_http_refusal *refusal = dml_http_check(&subject, &request->target, &request->length);
  if (!refusal && server->at_work >= server->requests_max) refusal = dml_http_refusal_of(503);
  return refusal;
}

static void begin(dml_http_request *request) {
  dml_http_server *server = request->server;
  const dml_http_refusal *refusal = check(request);
  if (refusal) {
    refuse(request, refusal);
    return;
  }
  request->is_at_work = true;
  server->at_work++;
  request->refs++;
  server->on_request(server->ud, request);
}

/* Each step may free the server, which ends the request in a hand_out below this one; the caller holds it. Returns how
 * many references it has lost. */
static int tell(dml_http_request *request) {
  unsigned news = request->news;
  request->news = 0;
  if ((news & NEWS_HEAD) && request->exchange && request->server->listener) begin(request);
  if ((news & NEWS_READABLE) && request->server && request->events) request->events->on_readable(request->ud);
  if ((news & NEWS_WRITABLE) && request->server && request->events) request->events->on_writable(request->ud);
  if (!(news & NEWS_END)) return 0;
  if (request->events) request->events->on_end(request->ud, request->is_complete);
  leave(request);
  return 1;
}

static void hand_out(dml_http_server *server) {
  dml_http_request *request;
  server->refs++;
  while ((request = take_news(server))) {
    request->refs++;
    unref_by(request, 1 + tell(request));
  }
  server_unref(server);
}

/* ---- what the back end tells ---- */

static void *on_head(void *ud, dml_http_exchange *exchange, const dml_http_head *head) {
  dml_http_server *server = ud;
  dml_http_request *request = calloc(1, sizeof *request);
  char *raw = malloc(head->target.len + 1);
  if (!request || !raw) {
    free(request);
    free(raw);
    return NULL;
  }
  memcpy(raw, head->target.data, head->target.len);
  raw[head->target.len] = '\0';
  request->raw_target = raw;
  request->server = server;
  request->exchange = exchange;
  request->refs = 1;
  request->length = -1;
  request->out_length = -1;
  request->minor = head->minor;
  request->header_bytes = head->header_bytes;
  request->method_len = head->method.len > METHOD_MAX_BYTES ? 0 : head->method.len; /* none is no token */
  memcpy(request->method, head->method.data, request->method_len);
  dml_headers_init(&request->headers, DML_HTTP_SERVER_HEADER_MAX_BYTES);
  dml_buffer_init(&request->in, DML_HTTP_SERVER_BUFFER_BYTES);
  dml_buffer_init(&request->out, DML_HTTP_SERVER_BUFFER_BYTES);
  request->next = server->requests;
  request->back = &server->requests;
  if (request->next) request->next->back = &request->next;
  server->requests = request;
  note(request, NEWS_HEAD);
  return request;
}

static void on_header(void *ud, dml_span name, dml_span value) {
  dml_http_request *request = ud;
  if (request->fault == DML_OK) request->fault = dml_headers_add(&request->headers, name, value);
}

static void on_head_end(void *ud, bool is_exact) {
  dml_http_request *request = ud;
  request->is_exact = is_exact;
}

static size_t on_body(void *ud, const char *bytes, size_t len) {
  dml_http_request *request = ud;
  if (request->in_taken > 0) {
    dml_buffer_consume(&request->in, request->in_taken);
    request->in_taken = 0;
  }
  size_t room = DML_HTTP_SERVER_BUFFER_BYTES - request->in.len;
  if (len > room) len = room;
  if (dml_buffer_append(&request->in, bytes, len) != DML_OK) return 0;
  if (request->is_read_wanted && len > 0) note(request, NEWS_READABLE);
  return len;
}

static void on_body_end(void *ud) {
  dml_http_request *request = ud;
  request->has_body_end = true;
  if (request->is_read_wanted) note(request, NEWS_READABLE);
}

static size_t take_from(dml_span *from, char *out, size_t max) {
  size_t len = from->len < max ? from->len : max;
  if (len == 0) return 0;
  memcpy(out, from->data, len);
  from->data += len;
  from->len -= len;
  return len;
}

/* The rest of what was lent fits the buffer: the writer may go on while it is sent. */
static void give_back(dml_http_request *request) {
  if (!request->lent.data || request->lent.len > DML_HTTP_SERVER_BUFFER_BYTES) return;
  if (dml_buffer_append(&request->out, request->lent.data, request->lent.len) != DML_OK) return;
  request->lent = (dml_span){0};
  note(request, NEWS_WRITABLE);
}

static ssize_t on_pull(void *ud, char *out, size_t max) {
  dml_http_request *request = ud;
  if (request->is_aborted) return DML_HTTP_PULL_ABORT;
  dml_span ready = {request->out.data, request->out.len};
  if (ready.len > 0) ready = (dml_span){ready.data + request->out_taken, ready.len - request->out_taken};
  size_t len = take_from(&ready, out, max);
  request->out_taken += len;
  if (request->out_taken == request->out.len) {
    request->out.len = request->out_taken = 0;
    len += take_from(&request->lent, out + len, max - len);
    give_back(request);
  }
  if (len > 0) return (ssize_t)len;
  if (!request->is_finished) return 0;
  bool is_short = request->out_length >= 0 && request->out_total != request->out_length;
  return is_short ? DML_HTTP_PULL_ABORT : DML_HTTP_PULL_END;
}

static void on_end(void *ud, bool is_complete) {
  dml_http_request *request = ud;
  request->exchange = NULL;
  request->is_complete = is_complete;
  request->lent = (dml_span){0};
  note(request, NEWS_END);
}

static void on_turn(void *ud) { hand_out(ud); }

static const dml_http_server_sink SINK = {on_head,     on_header, on_head_end, on_body,
                                          on_body_end, on_pull,   on_end,      on_turn};

/* ---- the handler's side ---- */

void dml_http_request_set_events(dml_http_request *request, const dml_http_request_events *events, void *ud) {
  request->events = events;
  request->ud = ud;
}

dml_span dml_http_request_method(const dml_http_request *request) {
  return (dml_span){request->method, request->method_len};
}

const dml_target *dml_http_request_target(const dml_http_request *request) { return &request->target; }
const dml_headers *dml_http_request_headers(const dml_http_request *request) { return &request->headers; }
int64_t dml_http_request_length(const dml_http_request *request) { return request->length; }
bool dml_http_request_is_over(const dml_http_request *request) { return request->exchange == NULL; }
bool dml_http_request_is_answered(const dml_http_request *request) { return request->is_answered; }

bool dml_http_request_peer(const dml_http_request *request, struct ucred *out) {
  socklen_t len = sizeof *out;
  if (!request->exchange) return false;
  int fd = request->server->ops->fd(request->exchange);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &len) == 0 && len == sizeof *out && out->pid > 0;
}

dml_http_body dml_http_request_read(dml_http_request *request, dml_span *out) {
  request->is_read_wanted = false;
  *out = (dml_span){0};
  if (request->in.len > request->in_taken) {
    *out = (dml_span){request->in.data + request->in_taken, request->in.len - request->in_taken};
    return DML_HTTP_BODY_BYTES;
  }
  if (request->has_body_end) return DML_HTTP_BODY_END;
  if (!request->exchange || request->is_answered) return DML_HTTP_BODY_FAILED;
  request->is_read_wanted = true;
  request->server->ops->want_body(request->exchange);
  return DML_HTTP_BODY_WAIT;
}

void dml_http_request_consume(dml_http_request *request, size_t len) {
  request->in_taken += len;
  if (request->in_taken < request->in.len) return;
  request->in.len = request->in_taken = 0;
  if (request->exchange && !request->has_body_end) request->server->ops->want_body(request->exchange);
}

/* RFC 9110 §6.4.1: these have no body, whatever their fields say. */
static bool is_bodyless(const dml_http_request *request, int status) {
  return dml_span_is_word(dml_http_request_method(request), "head") || status == 204 || status == 304;
}

static dml_status answer(dml_http_request *request, const dml_http_answer *how) {
  if (request->is_answered) return DML_CONFLICT;
  if (!request->exchange) return DML_CONNECTION_FAILED;
  if (how->status < 200 || how->status > 599) return DML_INVALID_ARGUMENT;
  dml_status status = request->server->ops->answer(request->exchange, how);
  if (status == DML_OK) request->is_answered = true;
  return status;
}

dml_status dml_http_request_respond(dml_http_request *request, int status, const dml_headers *headers, const char *body,
                                    size_t len) {
  return answer(request,
                &(dml_http_answer){.status = (unsigned)status, .headers = headers, .body = body, .body_len = len});
}

dml_status dml_http_request_start(dml_http_request *request, int status, const dml_headers *headers, int64_t length) {
  request->is_bodyless = is_bodyless(request, status);
  dml_status result = answer(
      request, &(dml_http_answer){.status = (unsigned)status, .headers = headers, .is_stream = true, .length = length});
  if (result != DML_OK) return result;
  request->is_stream = true;
  request->out_length = length;
  return DML_OK;
}

dml_status dml_http_request_write(dml_http_request *request, const char *bytes, size_t len, bool *is_lent) {
  *is_lent = false;
  if (!request->is_stream || request->is_finished || request->lent.data) return DML_CONFLICT;
  if (request->out_length >= 0 && (int64_t)len > request->out_length - request->out_total) return DML_TOO_LARGE;
  if (request->is_bodyless) return DML_OK;
  if (!request->exchange || request->is_aborted) return DML_CONNECTION_FAILED;
  if (len == 0) return DML_OK;
  if (request->out_taken > 0) {
    dml_buffer_consume(&request->out, request->out_taken);
    request->out_taken = 0;
  }
  if (len <= DML_HTTP_SERVER_BUFFER_BYTES - request->out.len) {
    dml_status status = dml_buffer_append(&request->out, bytes, len);
    if (status != DML_OK) return status;
  } else {
    request->lent = (dml_span){bytes, len};
    *is_lent = true;
  }
  request->out_total += (int64_t)len;
  request->server->ops->wake(request->exchange);
  return DML_OK;
}

dml_status dml_http_request_finish(dml_http_request *request) {
  if (!request->is_stream || request->is_finished || request->lent.data) return DML_CONFLICT;
  request->is_finished = true;
  if (request->is_bodyless) return DML_OK;
  if (!request->exchange) return DML_CONNECTION_FAILED;
  request->server->ops->wake(request->exchange);
  return DML_OK;
}

void dml_http_request_abort(dml_http_request *request) {
  request->is_aborted = true;
  request->lent = (dml_span){0};
  if (request->exchange) request->server->ops->cut(request->exchange);
}
