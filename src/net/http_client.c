/* http_client.c - limits, deadlines and buffering of transfers; the wire is the back end's (http_client_ops.h).
 *
 * What the sink hears inside the library is only noted; the owner is told in on_turn, outside, where it may free the
 * transfer or start others. */
#include "net/http_client.h"

#include <stdlib.h>
#include <string.h>

#include "net/http_client_ops.h"

/* A body of known length gets its room at once, up to this; beyond, the buffer doubles. */
#define RESERVE_MAX_BYTES (16 * 1024 * 1024)
/* One piece more than the mark fits: a piece is taken whole or refused. libcurl gives at most 16 KiB. */
#define STREAM_SLACK_BYTES (64 * 1024)
/* What one request's strings may come to: its header lines, and the rest. */
#define STRINGS_MAX_BYTES (128 * 1024 + DML_HTTP_CLIENT_URL_MAX_BYTES)
/* First room of a body with secrets in it: most never move. */
#define SECRET_BODY_FIRST_BYTES (64 * 1024)

struct dml_http_client {
  uv_loop_t *loop;
  const dml_http_client_ops *ops;
  dml_http_wires *wires;
  dml_http_transfer *transfers;
  size_t count;
};

struct dml_http_transfer {
  dml_http_client *client; /* NULL once the client is freed */
  dml_http_transfer *next, **back;
  dml_http_wire *wire; /* NULL: over */
  uv_timer_t *deadline;
  const dml_http_transfer_events *events;
  void *ud;
  int status_code;
  dml_headers headers;
  dml_buffer body;
  size_t taken;       /* bytes at the front of body that the reader has had */
  dml_status failure; /* why the sink said stop */
  dml_status ended;   /* once wire is NULL */
  size_t body_max_bytes;
  bool is_stream;
  bool is_body_secret;
  bool has_head;
  bool has_told; /* on_response ran */
  bool is_paused;
};

static const dml_http_sink SINK;

static void free_handle(uv_handle_t *handle) { free(handle); }

static void stop_deadline(dml_http_transfer *transfer) {
  if (!transfer->deadline) return;
  uv_timer_stop(transfer->deadline);
  uv_close((uv_handle_t *)transfer->deadline, free_handle);
  transfer->deadline = NULL;
}

static void unlink_transfer(dml_http_transfer *transfer) {
  if (!transfer->back) return;
  *transfer->back = transfer->next;
  if (transfer->next) transfer->next->back = transfer->back;
  transfer->back = NULL;
  transfer->client->count--;
}

/* The wire is gone: nothing more will come. */
static void end_transfer(dml_http_transfer *transfer, dml_status status) {
  transfer->wire = NULL;
  transfer->ended = status;
  stop_deadline(transfer);
  unlink_transfer(transfer);
}

dml_status dml_http_client_new(uv_loop_t *loop, const char *directory, dml_http_client **out) {
  *out = NULL;
  const void *table;
  dml_status status =
      dml_backend_open(directory, DML_HTTP_CLIENT_FILE, DML_HTTP_CLIENT_SYMBOL, DML_HTTP_CLIENT_ABI, &table);
  if (status != DML_OK) return status;
  dml_http_client *client = calloc(1, sizeof *client);
  if (!client) return DML_INTERNAL;
  client->loop = loop;
  client->ops = table;
  status = client->ops->open(loop, &client->wires);
  if (status != DML_OK) {
    free(client);
    return status;
  }
  *out = client;
  return DML_OK;
}

void dml_http_client_free(dml_http_client *client) {
  if (!client) return;
  client->ops->close(client->wires);
  while (client->transfers) {
    dml_http_transfer *transfer = client->transfers;
    end_transfer(transfer, DML_STOPPED);
    transfer->client = NULL;
  }
  free(client);
}

void dml_http_client_close_idle(dml_http_client *client) { client->ops->close_idle(client->wires); }

char *dml_http_client_resolve_url(const dml_http_client *client, const char *url, const char *location) {
  char *found = client->ops->resolve_url(url, location);
  if (found && dml_http_url_is_valid((dml_span){found, strlen(found)})) return found;
  free(found);
  return NULL;
}

/* ---- start ---- */

static bool is_plain_text(dml_span span, size_t max) {
  for (size_t i = 0; i < span.len; i++)
    if ((unsigned char)span.data[i] <= ' ' || (unsigned char)span.data[i] >= 0x7f) return false;
  return span.len > 0 && span.len <= max;
}

static bool has_prefix(dml_span span, const char *prefix) {
  size_t len = strlen(prefix);
  return span.len > len && dml_span_is_word((dml_span){span.data, len}, prefix);
}

static bool is_method(dml_span method) {
  return dml_header_is_token(method) && method.len <= 32 && !dml_span_is_word(method, "connect");
}

static bool is_tls(dml_span url) { return has_prefix(url, "https://"); }

/* Host and port, in letters that every parser reads alike: who may get a credential is decided by another one than
 * libcurl's. A user name, an escape or a backslash has no place there. */
static dml_span authority(dml_span url) {
  size_t from = is_tls(url) ? strlen("https://") : strlen("http://");
  dml_span out = {url.data + from, 0};
  while (from + out.len < url.len && !strchr("/?#", out.data[out.len])) out.len++;
  return out;
}

static bool is_authority(dml_span span) {
  for (size_t i = 0; i < span.len; i++) {
    char c = span.data[i];
    bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_word && !strchr("-._:[]", c)) return false;
  }
  return span.len > 0;
}

bool dml_http_url_is_valid(dml_span url) {
  if (!is_plain_text(url, DML_HTTP_CLIENT_URL_MAX_BYTES)) return false;
  return (has_prefix(url, "http://") || is_tls(url)) && is_authority(authority(url));
}

static bool is_loopback(dml_span url) {
  static const char *const HOSTS[] = {"localhost", "127.0.0.1", "[::1]"};
  dml_span host = authority(url);
  for (size_t i = 0; i < sizeof HOSTS / sizeof *HOSTS; i++) {
    size_t len = strlen(HOSTS[i]);
    if (host.len < len || !dml_span_is_word((dml_span){host.data, len}, HOSTS[i])) continue;
    if (host.len == len || host.data[len] == ':') return true;
  }
  return false;
}

static bool is_path(dml_span path, size_t max) { return path.len <= max && !memchr(path.data, '\0', path.len); }

static bool is_proxy(dml_span proxy) {
  static const char *const SCHEMES[] = {"http://", "https://", "socks4a://", "socks5://", "socks5h://"};
  if (proxy.len == 0) return true;
  for (size_t i = 0; i < sizeof SCHEMES / sizeof *SCHEMES; i++)
    if (has_prefix(proxy, SCHEMES[i])) return is_plain_text(proxy, DML_HTTP_CLIENT_PROXY_MAX_BYTES);
  return false;
}

static bool are_valid(const dml_http_transfer_options *options) {
  if (!is_method(options->method) || options->timeout_ms == 0) return false;
  if (options->body && dml_span_is_word(options->method, "head")) return false;
  if (!dml_http_url_is_valid(options->url)) return false;
  if (!is_proxy(options->proxy)) return false;
  if (options->ca_file.len && !is_path(options->ca_file, DML_HTTP_CLIENT_CA_PATH_MAX_BYTES)) return false;
  return options->unix_socket.len == 0 || is_path(options->unix_socket, DML_HTTP_CLIENT_SOCKET_PATH_MAX_BYTES);
}

/* Proxies are for hosts elsewhere; what is secret goes through one in a tunnel only. */
static bool must_go_direct(const dml_http_transfer_options *options) {
  if (options->unix_socket.len || is_loopback(options->url)) return true;
  return options->has_secrets && !is_tls(options->url);
}

/* NUL-terminated copies for the back end; one allocation, wiped and freed after start. */
typedef struct strings {
  char *arena;
  size_t size;
  char *method, *url, *unix_socket, *proxy, *ca_file;
  const char *lines[DML_HEADERS_COUNT_MAX];
  size_t count;
} strings;

static char *put(char **at, dml_span span) {
  char *start = *at;
  memcpy(start, span.data, span.len);
  start[span.len] = '\0';
  *at += span.len + 1;
  return start;
}

/* Framing is the client's own: a second Content-Length beside it would be a smuggling tool. */
static bool is_framing(dml_span name) {
  return dml_span_is_word(name, "content-length") || dml_span_is_word(name, "transfer-encoding");
}

static dml_status make_strings(strings *s, const dml_http_transfer_options *options) {
  const dml_headers *headers = options->headers;
  size_t count = headers ? headers->count : 0;
  dml_span proxy = must_go_direct(options) ? (dml_span){"", 0} : options->proxy;
  size_t need =
      options->method.len + options->url.len + options->unix_socket.len + proxy.len + options->ca_file.len + 5;
  dml_span name, value;
  for (size_t i = 0; i < count; i++) {
    dml_headers_at(headers, i, &name, &value);
    need += name.len + value.len + 3;
  }
  if (need > STRINGS_MAX_BYTES) return DML_INVALID_ARGUMENT;
  char *at = s->arena = malloc(need);
  if (!at) return DML_INTERNAL;
  s->size = need;
  s->method = put(&at, options->method);
  s->url = put(&at, options->url);
  s->unix_socket = options->unix_socket.len ? put(&at, options->unix_socket) : NULL;
  s->proxy = proxy.data ? put(&at, proxy) : NULL;
  s->ca_file = options->ca_file.len ? put(&at, options->ca_file) : NULL;
  for (size_t i = 0; i < count; i++) {
    dml_headers_at(headers, i, &name, &value);
    if (is_framing(name)) continue;
    s->lines[s->count++] = at;
    put(&at, name);
    /* In place of the name's NUL. libcurl's form for an empty value is "Name;". */
    at[-1] = value.len ? ':' : ';';
    if (value.len) *at++ = ' ';
    put(&at, value);
  }
  return DML_OK;
}

static void on_deadline(uv_timer_t *timer);

static dml_http_transfer *transfer_new(dml_http_client *client, const dml_http_transfer_options *options) {
  dml_http_transfer *transfer = calloc(1, sizeof *transfer);
  uv_timer_t *deadline = calloc(1, sizeof *deadline);
  if (!transfer || !deadline) {
    free(transfer);
    free(deadline);
    return NULL;
  }
  transfer->client = client;
  transfer->is_stream = options->is_stream;
  transfer->is_body_secret = options->is_body_secret;
  transfer->body_max_bytes = options->body_max_bytes;
  dml_headers_init(&transfer->headers, DML_HTTP_CLIENT_HEADER_MAX_BYTES);
  dml_buffer_init(&transfer->body,
                  options->is_stream ? DML_HTTP_CLIENT_STREAM_BYTES + STREAM_SLACK_BYTES : options->body_max_bytes);
  uv_timer_init(client->loop, deadline);
  deadline->data = transfer;
  uv_update_time(client->loop);
  uv_timer_start(deadline, on_deadline, options->timeout_ms, 0);
  transfer->deadline = deadline;
  transfer->next = client->transfers;
  transfer->back = &client->transfers;
  if (transfer->next) transfer->next->back = &transfer->next;
  client->transfers = transfer;
  client->count++;
  return transfer;
}

dml_status dml_http_client_start(dml_http_client *client, const dml_http_transfer_options *options,
                                 const dml_http_transfer_events *events, void *ud, dml_http_transfer **out) {
  strings s = {0};
  *out = NULL;
  if (!are_valid(options)) return DML_INVALID_ARGUMENT;
  if (client->count >= DML_HTTP_CLIENT_TRANSFERS_MAX) return DML_UNAVAILABLE;
  dml_status status = make_strings(&s, options);
  if (status != DML_OK) return status;
  dml_http_transfer *transfer = transfer_new(client, options);
  if (!transfer) {
    status = DML_INTERNAL;
    goto done;
  }
  transfer->events = events;
  transfer->ud = ud;
  uint64_t connect_ms = options->connect_timeout_ms ? options->connect_timeout_ms : DML_HTTP_CLIENT_CONNECT_TIMEOUT_MS;
  dml_http_wire_options wire = {
      .method = s.method,
      .url = s.url,
      .unix_socket = s.unix_socket,
      .header_lines = s.lines,
      .header_count = s.count,
      .body = options->body,
      .body_len = options->body_len,
      .connect_timeout_ms = connect_ms > INT32_MAX ? INT32_MAX : (long)connect_ms,
      .proxy = s.proxy,
      .ca_file = s.ca_file,
      .is_tls = is_tls(options->url),
      .is_stream = options->is_stream,
      .is_fresh = options->is_fresh,
  };
  status = client->ops->start(client->wires, &wire, &SINK, transfer, &transfer->wire);
  if (status == DML_OK)
    *out = transfer;
  else
    dml_http_transfer_free(transfer);
done:
  explicit_bzero(s.arena, s.size);
  free(s.arena);
  return status;
}

static void wipe_body(dml_http_transfer *transfer) {
  if (transfer->is_body_secret && transfer->body.data) explicit_bzero(transfer->body.data, transfer->body.capacity);
}

void dml_http_transfer_free(dml_http_transfer *transfer) {
  if (!transfer) return;
  if (transfer->wire) transfer->client->ops->cancel(transfer->wire);
  end_transfer(transfer, DML_STOPPED);
  dml_headers_deinit(&transfer->headers);
  wipe_body(transfer);
  dml_buffer_deinit(&transfer->body);
  free(transfer);
}

/* ---- what the back end tells ---- */

static dml_http_flow stop_with(dml_http_transfer *transfer, dml_status status) {
  transfer->failure = status;
  return DML_HTTP_FLOW_STOP;
}

static dml_http_flow on_status(void *ud, int status) {
  dml_http_transfer *transfer = ud;
  if (transfer->has_head) return stop_with(transfer, DML_INVALID_RESPONSE);
  transfer->status_code = status;
  dml_headers_clear(&transfer->headers);
  return DML_HTTP_FLOW_ON;
}

static dml_http_flow on_header(void *ud, dml_span name, dml_span value) {
  dml_http_transfer *transfer = ud;
  if (transfer->has_head) return DML_HTTP_FLOW_ON; /* a trailer: nobody asks for those */
  dml_status status = dml_headers_add(&transfer->headers, name, value);
  if (status == DML_OK) return DML_HTTP_FLOW_ON;
  return stop_with(transfer, status == DML_INTERNAL ? status : DML_INVALID_RESPONSE);
}

static dml_http_flow on_head_end(void *ud) {
  dml_http_transfer *transfer = ud;
  dml_span value;
  int64_t length;
  if (transfer->has_head || transfer->status_code < 200) return DML_HTTP_FLOW_ON;
  transfer->has_head = true;
  if (transfer->is_stream || !dml_headers_find(&transfer->headers, "content-length", &value)) return DML_HTTP_FLOW_ON;
  if (!dml_span_to_length(value, &length)) return stop_with(transfer, DML_INVALID_RESPONSE);
  dml_status status = DML_OK;
  size_t room = (uint64_t)length < RESERVE_MAX_BYTES ? (size_t)length : RESERVE_MAX_BYTES;
  if (room > transfer->body_max_bytes) room = transfer->body_max_bytes;
  if (room > 0 && !dml_buffer_reserve(&transfer->body, room, &status)) return stop_with(transfer, status);
  return DML_HTTP_FLOW_ON;
}

/* Room for more of a body with secrets, of which a plain realloc would leave a copy behind. */
static dml_status move_secret_body(dml_http_transfer *transfer, size_t more) {
  dml_buffer *body = &transfer->body;
  if (body->len + more <= body->capacity) return DML_OK;
  dml_buffer next;
  dml_status status;
  dml_buffer_init(&next, transfer->body_max_bytes);
  size_t room = body->len + more > SECRET_BODY_FIRST_BYTES / 2 ? (body->len + more) * 2 : SECRET_BODY_FIRST_BYTES;
  if (room > transfer->body_max_bytes) room = transfer->body_max_bytes;
  if (room < body->len + more) return DML_TOO_LARGE;
  if (!dml_buffer_reserve(&next, room, &status)) return status;
  dml_buffer_append(&next, body->data, body->len);
  wipe_body(transfer);
  dml_buffer_deinit(body);
  *body = next;
  return DML_OK;
}

static dml_http_flow on_body(void *ud, const char *bytes, size_t len) {
  dml_http_transfer *transfer = ud;
  if (transfer->is_stream && transfer->body.len - transfer->taken >= DML_HTTP_CLIENT_STREAM_BYTES) {
    transfer->is_paused = true;
    return DML_HTTP_FLOW_PAUSE;
  }
  if (transfer->taken > 0) {
    dml_buffer_consume(&transfer->body, transfer->taken);
    transfer->taken = 0;
  }
  dml_status status = transfer->is_body_secret ? move_secret_body(transfer, len) : DML_OK;
  if (status == DML_OK) status = dml_buffer_append(&transfer->body, bytes, len);
  return status == DML_OK ? DML_HTTP_FLOW_ON : stop_with(transfer, status);
}

static void on_turn(void *ud) {
  dml_http_transfer *transfer = ud;
  if (transfer->has_told) {
    if (transfer->is_stream) transfer->events->on_readable(transfer->ud);
  } else if (!transfer->wire || (transfer->is_stream && transfer->has_head)) {
    transfer->has_told = true;
    stop_deadline(transfer);
    /* A stream that failed after its head still has its head, and what came before the failure. */
    transfer->events->on_response(transfer->ud, transfer->is_stream && transfer->has_head ? DML_OK : transfer->ended);
  }
}

static void on_done(void *ud, dml_status status) {
  dml_http_transfer *transfer = ud;
  if (transfer->failure != DML_OK) status = transfer->failure;
  if (status == DML_OK && !transfer->has_head) status = DML_INVALID_RESPONSE;
  end_transfer(transfer, status);
  on_turn(transfer);
}

static const dml_http_sink SINK = {on_status, on_header, on_head_end, on_body, on_turn, on_done};

static void on_deadline(uv_timer_t *timer) {
  dml_http_transfer *transfer = timer->data;
  transfer->client->ops->cancel(transfer->wire);
  transfer->failure = DML_PROVIDER_TIMEOUT;
  on_done(transfer, DML_PROVIDER_TIMEOUT);
}

/* ---- reading ---- */

int dml_http_transfer_status(const dml_http_transfer *transfer) { return transfer->status_code; }

const dml_headers *dml_http_transfer_headers(const dml_http_transfer *transfer) { return &transfer->headers; }

dml_span dml_http_transfer_peek(const dml_http_transfer *transfer) {
  size_t len = transfer->body.len - transfer->taken;
  return len ? (dml_span){transfer->body.data + transfer->taken, len} : (dml_span){"", 0};
}

void dml_http_transfer_consume(dml_http_transfer *transfer, size_t len) {
  transfer->taken += len;
  if (transfer->taken >= transfer->body.len) {
    transfer->body.len = 0;
    transfer->taken = 0;
  }
  if (!transfer->is_paused || !transfer->wire) return;
  if (transfer->body.len - transfer->taken > DML_HTTP_CLIENT_STREAM_BYTES / 2) return;
  transfer->is_paused = false;
  transfer->client->ops->resume(transfer->wire);
}

bool dml_http_transfer_is_over(const dml_http_transfer *transfer, dml_status *status) {
  *status = transfer->ended;
  return transfer->wire == NULL;
}
