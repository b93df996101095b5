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
#define HEADER_LINES_MAX_BYTES (128 * 1024)

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

static bool are_valid(const dml_http_transfer_options *options) {
  if (!is_method(options->method) || options->timeout_ms == 0) return false;
  if (options->body && dml_span_is_word(options->method, "head")) return false;
  if (!is_plain_text(options->url, DML_HTTP_CLIENT_URL_MAX_BYTES)) return false;
  if (!has_prefix(options->url, "http://") && !has_prefix(options->url, "https://")) return false;
  const dml_span *path = &options->unix_socket;
  if (path->len == 0) return true;
  return path->len <= DML_HTTP_CLIENT_SOCKET_PATH_MAX_BYTES && !memchr(path->data, '\0', path->len);
}

/* NUL-terminated copies for the back end; one allocation, freed after start. */
typedef struct strings {
  char *arena;
  char *method, *url, *unix_socket;
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
  size_t need = options->method.len + options->url.len + options->unix_socket.len + 3;
  dml_span name, value;
  for (size_t i = 0; i < count; i++) {
    dml_headers_at(headers, i, &name, &value);
    need += name.len + value.len + 3;
  }
  if (need > HEADER_LINES_MAX_BYTES + DML_HTTP_CLIENT_URL_MAX_BYTES) return DML_INVALID_ARGUMENT;
  char *at = s->arena = malloc(need);
  if (!at) return DML_INTERNAL;
  s->method = put(&at, options->method);
  s->url = put(&at, options->url);
  s->unix_socket = options->unix_socket.len ? put(&at, options->unix_socket) : NULL;
  s->count = 0;
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
  };
  status = client->ops->start(client->wires, &wire, &SINK, transfer, &transfer->wire);
  if (status == DML_OK)
    *out = transfer;
  else
    dml_http_transfer_free(transfer);
done:
  free(s.arena);
  return status;
}

void dml_http_transfer_free(dml_http_transfer *transfer) {
  if (!transfer) return;
  if (transfer->wire) transfer->client->ops->cancel(transfer->wire);
  end_transfer(transfer, DML_STOPPED);
  dml_headers_deinit(&transfer->headers);
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
  dml_status status = dml_buffer_append(&transfer->body, bytes, len);
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
