/* http_client_curl.c - the client's back end: libcurl's multi-socket interface in the uv loop.
 *
 * Two lanes, a multi handle each, so that they never share a connection. HTTP/2 is for what libcurl 7.88 does soundly:
 * whole requests without a body, over TLS. When one stream of a connection is paused it stops all of them, and the
 * answer that a server gives before it has read a body becomes an error, or is lost (cf_h2_send of its lib/http2.c). So
 * streams and requests with a body have HTTP/1.1 and the other lane.
 *
 * libcurl says which descriptors it wants to know about; each gets a uv_poll for as long, and is closed (uv_close)
 * before libcurl closes the descriptor, since libuv keys watchers by number. Sink functions run inside libcurl
 * callbacks; what they may not do there (free, start) is put off to dispatch(), after the library has returned.
 *
 * Linked with nothing of the core. One loop, one thread; name resolution uses libcurl's own threads. */
#include <curl/curl.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/http_client_codes.h"
#include "net/http_client_ops.h"

#define EASY_POOL_MAX 8
#define RECEIVE_BUFFER_BYTES (128L * 1024)
/* libcurl's default of 64 KiB is used up to that much; it is allocated with each upload. */
#define UPLOAD_BUFFER_BYTES (512L * 1024)
#define UPLOAD_SMALL_BYTES (64 * 1024)

typedef enum lane_kind { LANE_PLAIN, LANE_MULTIPLEX, LANE_COUNT } lane_kind;

typedef struct lane {
  dml_http_wires *wires;
  CURLM *multi; /* NULL: made by the next start */
  uv_timer_t *timer;
  uv_idle_t *soon; /* in place of a timer of no time */
  size_t count;
  bool is_idle_wanted; /* close_idle waits for the last wire */
} lane;

struct dml_http_wires {
  uv_loop_t *loop;
  lane lanes[LANE_COUNT];
  CURL *pool[EASY_POOL_MAX];
  size_t pooled;
  dml_http_wire *wires;
  dml_http_wire *touched; /* heard something since the last dispatch */
  dml_http_wire **touched_end;
};

struct dml_http_wire {
  dml_http_wires *wires;
  lane *lane;
  dml_http_wire *next, **back;
  dml_http_wire *next_touched;
  bool is_touched;
  bool is_done;
  bool has_head;
  bool may_repeat; /* the method is idempotent */
  unsigned tries;
  dml_status status; /* once done */
  int unix_fd;       /* what this request opened, where that is a unix socket; curl's */
  CURL *easy;
  struct curl_slist *headers;
  const dml_http_sink *sink;
  void *ud;
};

typedef struct watch {
  uv_poll_t poll;
  lane *lane;
  curl_socket_t fd;
} watch;

static dml_status status_from_code(CURLcode code, bool in_body) {
  switch ((int)code) {
#define X(id, before, after)                                                                                           \
  case id: return in_body ? DML_##after : DML_##before;
    DML_HTTP_CLIENT_CODE_MAP(X)
#undef X
  default: return in_body ? DML_INVALID_RESPONSE : DML_CONNECTION_FAILED;
  }
}

/* ---- wires ---- */

static void touch(dml_http_wire *wire) {
  if (wire->is_touched) return;
  wire->is_touched = true;
  wire->next_touched = NULL;
  *wire->wires->touched_end = wire;
  wire->wires->touched_end = &wire->next_touched;
}

static void untouch(dml_http_wire *wire) {
  if (!wire->is_touched) return;
  dml_http_wires *wires = wire->wires;
  dml_http_wire **at = &wires->touched;
  while (*at != wire) at = &(*at)->next_touched;
  *at = wire->next_touched;
  if (!*at) wires->touched_end = at;
  wire->is_touched = false;
}

/* Takes the transfer out of libcurl; its connection is kept only if the exchange was complete. */
static void release_easy(dml_http_wire *wire) {
  dml_http_wires *wires = wire->wires;
  if (!wire->easy) return;
  curl_multi_remove_handle(wire->lane->multi, wire->easy);
  curl_easy_reset(wire->easy);
  if (wires->pooled < EASY_POOL_MAX)
    wires->pool[wires->pooled++] = wire->easy;
  else
    curl_easy_cleanup(wire->easy);
  wire->easy = NULL;
}

/* Lines of the head may hold secrets. */
static void free_lines(struct curl_slist *lines) {
  for (struct curl_slist *line = lines; line; line = line->next) explicit_bzero(line->data, strlen(line->data));
  curl_slist_free_all(lines);
}

static void reopen_if_wanted(lane *in);

static void free_wire(dml_http_wire *wire) {
  release_easy(wire);
  untouch(wire);
  free_lines(wire->headers);
  *wire->back = wire->next;
  if (wire->next) wire->next->back = wire->back;
  wire->lane->count--;
  free(wire);
}

static void collect_done(lane *in) {
  CURLMsg *message;
  int left;
  while (in->multi && (message = curl_multi_info_read(in->multi, &left))) {
    if (message->msg != CURLMSG_DONE) continue;
    CURLcode code = message->data.result;
    dml_http_wire *wire = NULL;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&wire);
    wire->status = status_from_code(code, wire->has_head);
    wire->is_done = true;
    release_easy(wire); /* `message` is invalid from here on */
    touch(wire);
  }
}

/* Tells the core what happened in a lane. Its functions may start, resume and cancel any wire. */
static void dispatch(lane *in) {
  dml_http_wires *wires = in->wires;
  collect_done(in);
  while (wires->touched) {
    dml_http_wire *wire = wires->touched;
    const dml_http_sink *sink = wire->sink;
    void *ud = wire->ud;
    dml_status status = wire->status;
    bool is_done = wire->is_done;
    untouch(wire);
    if (is_done) {
      free_wire(wire);
      sink->on_done(ud, status);
    } else {
      sink->on_turn(ud);
    }
  }
  reopen_if_wanted(in);
}

/* ---- libcurl in the loop ---- */

static void free_handle(uv_handle_t *handle) { free(handle->data); }

static void on_socket_event(uv_poll_t *poll, int error, int events) {
  watch *w = poll->data;
  lane *in = w->lane;
  int mask = (events & UV_READABLE ? CURL_CSELECT_IN : 0) | (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);
  int running;
  curl_multi_socket_action(in->multi, w->fd, error < 0 ? CURL_CSELECT_ERR : mask, &running);
  dispatch(in);
}

static watch *watch_new(lane *in, curl_socket_t fd) {
  watch *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->lane = in;
  w->fd = fd;
  w->poll.data = w;
  if (uv_poll_init(in->wires->loop, &w->poll, fd) != 0) {
    free(w);
    return NULL;
  }
  /* The resolver's own socket pair is not made through open_socket. */
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  curl_multi_assign(in->multi, fd, w);
  return w;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ud, void *socket_ud) {
  lane *in = ud;
  watch *w = socket_ud;
  (void)easy;
  if (what == CURL_POLL_REMOVE) {
    if (!w) return 0;
    curl_multi_assign(in->multi, fd, NULL);
    uv_close((uv_handle_t *)&w->poll, free_handle);
    return 0;
  }
  if (!w && !(w = watch_new(in, fd))) return -1;
  int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
  if (events == 0)
    uv_poll_stop(&w->poll);
  else
    uv_poll_start(&w->poll, events, on_socket_event);
  return 0;
}

static void go_on(lane *in) {
  int running;
  curl_multi_socket_action(in->multi, CURL_SOCKET_TIMEOUT, 0, &running);
  dispatch(in);
}

static void on_timer(uv_timer_t *timer) { go_on(timer->data); }

static void on_soon(uv_idle_t *soon) {
  uv_idle_stop(soon);
  go_on(soon->data);
}

/* Once in the loop's next turn. A timer of no time, started within a timer, runs in the same turn again (libuv 1.44), so
 * that a peer which always has more to say would keep the loop from everything else. */
static void start_soon(lane *in) {
  uv_timer_stop(in->timer);
  uv_idle_start(in->soon, on_soon);
}

/* One millisecond more than asked: a timer that fires early is not asked for again by libcurl. */
static int on_timeout_wanted(CURLM *multi, long timeout_ms, void *ud) {
  lane *in = ud;
  (void)multi;
  if (timeout_ms == 0) {
    start_soon(in);
    return 0;
  }
  uv_idle_stop(in->soon);
  uv_timer_stop(in->timer);
  if (timeout_ms < 0) return 0;
  uv_update_time(in->wires->loop);
  uv_timer_start(in->timer, on_timer, (uint64_t)timeout_ms + 1, 0);
  return 0;
}

/* curl_multi_init makes a socket pair without CLOEXEC (7.88). It gets the two lowest numbers that are free. */
static CURLM *init_multi(void) {
  int first = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  int second = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (first >= 0) close(first);
  if (second >= 0) close(second);
  CURLM *multi = curl_multi_init();
  const int fds[] = {first, second};
  for (size_t i = 0; multi && i < 2; i++) {
    struct stat info;
    if (fds[i] > STDERR_FILENO && fstat(fds[i], &info) == 0 && S_ISSOCK(info.st_mode))
      fcntl(fds[i], F_SETFD, FD_CLOEXEC);
  }
  return multi;
}

static dml_status make_multi(lane *in) {
  in->multi = init_multi();
  if (!in->multi) return DML_INTERNAL;
  bool is_multiplex = in == &in->wires->lanes[LANE_MULTIPLEX];
  curl_multi_setopt(in->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
  curl_multi_setopt(in->multi, CURLMOPT_SOCKETDATA, in);
  curl_multi_setopt(in->multi, CURLMOPT_TIMERFUNCTION, on_timeout_wanted);
  curl_multi_setopt(in->multi, CURLMOPT_TIMERDATA, in);
  curl_multi_setopt(in->multi, CURLMOPT_MAXCONNECTS, (long)DML_HTTP_CLIENT_IDLE_MAX);
  curl_multi_setopt(in->multi, CURLMOPT_PIPELINING, is_multiplex ? CURLPIPE_MULTIPLEX : CURLPIPE_NOTHING);
  return DML_OK;
}

/* A multi handle has no way to close idle connections but its own end. */
static void reopen_if_wanted(lane *in) {
  if (!in->is_idle_wanted || in->count > 0) return;
  in->is_idle_wanted = false;
  curl_multi_cleanup(in->multi);
  in->multi = NULL;
  uv_timer_stop(in->timer);
  uv_idle_stop(in->soon);
}

/* ---- what libcurl hands over ---- */

static dml_http_flow tell_header_line(dml_http_wire *wire, const char *line, size_t len) {
  while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r')) len--;
  if (len == 0) {
    long status = 0;
    curl_easy_getinfo(wire->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200) wire->has_head = true;
    return wire->sink->on_head_end(wire->ud);
  }
  if (!wire->has_head && len > 5 && memcmp(line, "HTTP/", 5) == 0) {
    long status = 0;
    curl_easy_getinfo(wire->easy, CURLINFO_RESPONSE_CODE, &status);
    return wire->sink->on_status(wire->ud, (int)status);
  }
  const char *colon = memchr(line, ':', len);
  if (!colon) return DML_HTTP_FLOW_STOP;
  size_t name_len = (size_t)(colon - line);
  return wire->sink->on_header(wire->ud, (dml_span){line, name_len}, (dml_span){colon + 1, len - name_len - 1});
}

static size_t on_header_line(char *line, size_t size, size_t count, void *ud) {
  dml_http_wire *wire = ud;
  touch(wire);
  return tell_header_line(wire, line, size * count) == DML_HTTP_FLOW_ON ? size * count : 0;
}

static size_t on_body_piece(char *bytes, size_t size, size_t count, void *ud) {
  dml_http_wire *wire = ud;
  size_t len = size * count;
  if (len == 0) return 0;
  touch(wire);
  switch (wire->sink->on_body(wire->ud, bytes, len)) {
  case DML_HTTP_FLOW_ON: return len;
  case DML_HTTP_FLOW_PAUSE: return CURL_WRITEFUNC_PAUSE;
  case DML_HTTP_FLOW_STOP: break;
  }
  return 0;
}

/* Whether our own user or root listens there (unix(7), SO_PEERCRED): a folder that was put in the place of ours must
 * not get our requests. */
static bool is_trusted_peer(curl_socket_t fd) {
  struct ucred peer;
  socklen_t len = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

/* libcurl sends a request again when a kept connection turns out to be dead, whatever its method. One that is not
 * idempotent may have been acted on (RFC 9110 §9.2.2): whether to repeat it is not for us to decide. */
static int on_try(void *ud, char *their_ip, char *our_ip, int their_port, int our_port) {
  dml_http_wire *wire = ud;
  (void)their_ip, (void)our_ip, (void)their_port, (void)our_port;
  /* A connection from the pool was looked at by whoever opened it. */
  if (wire->unix_fd >= 0 && !is_trusted_peer(wire->unix_fd)) return CURL_PREREQFUNC_ABORT;
  return wire->tries++ == 0 || wire->may_repeat ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

static bool is_idempotent(const char *method) {
  static const char *const METHODS[] = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"};
  for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++)
    if (strcmp(method, METHODS[i]) == 0) return true;
  return false;
}

static curl_socket_t open_socket(void *ud, curlsocktype purpose, struct curl_sockaddr *address) {
  (void)purpose;
  dml_http_wire *wire = ud;
  curl_socket_t fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  wire->unix_fd = address->family == AF_UNIX ? fd : -1;
  return fd;
}

/* ---- the table ---- */

static void free_handle_itself(uv_handle_t *handle) { free(handle); }

static void close_handles(lane *in) {
  if (in->timer) uv_close((uv_handle_t *)in->timer, free_handle_itself);
  if (in->soon) uv_close((uv_handle_t *)in->soon, free_handle_itself);
}

static bool open_lane(dml_http_wires *wires, lane *in) {
  in->wires = wires;
  in->timer = calloc(1, sizeof *in->timer);
  if (!in->timer) return false;
  uv_timer_init(wires->loop, in->timer);
  in->timer->data = in;
  in->soon = calloc(1, sizeof *in->soon);
  if (!in->soon) return false;
  uv_idle_init(wires->loop, in->soon);
  in->soon->data = in;
  return true;
}

static dml_status wires_open(uv_loop_t *loop, dml_http_wires **out) {
  *out = NULL;
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return DML_INTERNAL;
  dml_http_wires *wires = calloc(1, sizeof *wires);
  bool ok = wires != NULL;
  if (ok) wires->loop = loop;
  for (size_t i = 0; i < LANE_COUNT && ok; i++) ok = open_lane(wires, &wires->lanes[i]);
  if (!ok) {
    for (size_t i = 0; i < LANE_COUNT && wires; i++) close_handles(&wires->lanes[i]);
    free(wires);
    curl_global_cleanup();
    return DML_INTERNAL;
  }
  wires->touched_end = &wires->touched;
  *out = wires;
  return DML_OK;
}

static void wires_close(dml_http_wires *wires) {
  while (wires->wires) free_wire(wires->wires);
  while (wires->pooled > 0) curl_easy_cleanup(wires->pool[--wires->pooled]);
  for (size_t i = 0; i < LANE_COUNT; i++) {
    if (wires->lanes[i].multi) curl_multi_cleanup(wires->lanes[i].multi);
    close_handles(&wires->lanes[i]);
  }
  free(wires);
  curl_global_cleanup();
}

static void wires_close_idle(dml_http_wires *wires) {
  for (size_t i = 0; i < LANE_COUNT; i++) {
    if (!wires->lanes[i].multi) continue;
    wires->lanes[i].is_idle_wanted = true;
    reopen_if_wanted(&wires->lanes[i]);
  }
}

static void set_body(CURL *easy, const dml_http_wire_options *options) {
  bool is_get = strcmp(options->method, "GET") == 0;
  bool is_head = strcmp(options->method, "HEAD") == 0;
  if (options->body || strcmp(options->method, "POST") == 0) {
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, options->body ? options->body : "");
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)options->body_len);
    if (options->body_len > UPLOAD_SMALL_BYTES) curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER_BYTES);
  } else {
    curl_easy_setopt(easy, is_head ? CURLOPT_NOBODY : CURLOPT_HTTPGET, 1L);
  }
  if (!is_head && !(is_get && !options->body)) curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, options->method);
}

/* The bundle that certificates are checked against: one alone counts. Without its folder beside it, libcurl parses the
 * file once a lane and not once a connection. */
static const char *ca_file(const dml_http_wire_options *options) {
  static const char *const NAMES[] = {"SSL_CERT_FILE", "CURL_CA_BUNDLE"};
  if (options->ca_file) return options->ca_file;
  for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
    const char *path = getenv(NAMES[i]);
    if (path && *path) return path;
  }
  const char *path = curl_version_info(CURLVERSION_NOW)->cainfo;
  return path && access(path, R_OK) == 0 ? path : NULL;
}

static void set_tls(CURL *easy, const dml_http_wire_options *options) {
  const char *bundle = ca_file(options);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(easy, CURLOPT_PROXY_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(easy, CURLOPT_PROXY_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
  curl_easy_setopt(easy, CURLOPT_PROXY_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
  if (!bundle) return;
  curl_easy_setopt(easy, CURLOPT_CAINFO, bundle);
  curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
  curl_easy_setopt(easy, CURLOPT_PROXY_CAINFO, bundle);
  curl_easy_setopt(easy, CURLOPT_PROXY_CAPATH, NULL);
}

static void set_way(CURL *easy, const dml_http_wire_options *options, bool is_multiplex) {
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)(is_multiplex ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
  /* Not CURLOPT_PIPEWAIT: where a handshake hangs, all that wait for it would fail one after the other. */
  if (options->unix_socket) curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, options->unix_socket);
  if (options->proxy) curl_easy_setopt(easy, CURLOPT_PROXY, options->proxy);
  /* Nothing of the request's head is for the proxy of a tunnel. */
  curl_easy_setopt(easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
  bool may_have_proxy = !options->proxy || *options->proxy;
  if (options->is_tls || may_have_proxy) set_tls(easy, options);
  if (!options->is_fresh) return;
  curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
  curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L);
}

static void set_options(dml_http_wire *wire, const dml_http_wire_options *options) {
  CURL *easy = wire->easy;
  curl_easy_setopt(easy, CURLOPT_PRIVATE, wire);
  curl_easy_setopt(easy, CURLOPT_URL, options->url);
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* a cancel does not wait for a name to be resolved */
  curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_try);
  curl_easy_setopt(easy, CURLOPT_PREREQDATA, wire);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, options->connect_timeout_ms);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BUFFER_BYTES);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, wire);
  wire->unix_fd = -1;
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header_line);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, wire);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body_piece);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, wire);
  set_way(easy, options, wire->lane == &wire->wires->lanes[LANE_MULTIPLEX]);
  set_body(easy, options);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, wire->headers);
}

static bool add_line(dml_http_wire *wire, const char *line) {
  struct curl_slist *list = curl_slist_append(wire->headers, line);
  if (!list) return false;
  wire->headers = list;
  return true;
}

/* "Expect:" and "Content-Type:" take out what libcurl would add by itself; a line with a value after them wins. */
static bool add_lines(dml_http_wire *wire, const dml_http_wire_options *options) {
  bool has_type = false;
  if (!add_line(wire, "Expect:")) return false;
  for (size_t i = 0; i < options->header_count; i++) {
    if (strncmp(options->header_lines[i], "content-type", 12) == 0) has_type = true;
    if (!add_line(wire, options->header_lines[i])) return false;
  }
  return has_type || add_line(wire, "Content-Type:");
}

static lane *lane_for(dml_http_wires *wires, const dml_http_wire_options *options) {
  bool may_share = options->is_tls && !options->is_stream && !options->is_fresh && options->body_len == 0;
  return &wires->lanes[may_share ? LANE_MULTIPLEX : LANE_PLAIN];
}

static dml_http_wire *wire_new(lane *in, const dml_http_sink *sink, void *ud) {
  dml_http_wires *wires = in->wires;
  dml_http_wire *wire = calloc(1, sizeof *wire);
  if (!wire) return NULL;
  wire->wires = wires;
  wire->lane = in;
  wire->sink = sink;
  wire->ud = ud;
  wire->next = wires->wires;
  wire->back = &wires->wires;
  if (wire->next) wire->next->back = &wire->next;
  wires->wires = wire;
  in->count++;
  return wire;
}

static dml_status wires_start(dml_http_wires *wires, const dml_http_wire_options *options, const dml_http_sink *sink,
                              void *ud, dml_http_wire **out) {
  *out = NULL;
  lane *in = lane_for(wires, options);
  if (!in->multi && make_multi(in) != DML_OK) return DML_INTERNAL;
  dml_http_wire *wire = wire_new(in, sink, ud);
  if (!wire) return DML_INTERNAL;
  wire->easy = wires->pooled > 0 ? wires->pool[--wires->pooled] : curl_easy_init();
  bool ok = wire->easy && add_lines(wire, options);
  if (ok) {
    wire->may_repeat = is_idempotent(options->method);
    set_options(wire, options);
    ok = curl_multi_add_handle(in->multi, wire->easy) == CURLM_OK;
  }
  if (!ok) {
    free_wire(wire);
    return DML_INTERNAL;
  }
  *out = wire;
  return DML_OK;
}

/* Delivers what libcurl kept back, which may fail; the end is told from the loop, not from in here. */
static void wire_resume(dml_http_wire *wire) {
  if (!wire->easy) return;
  CURLcode code = curl_easy_pause(wire->easy, CURLPAUSE_CONT);
  if (code == CURLE_OK) return;
  wire->status = status_from_code(code, wire->has_head);
  wire->is_done = true;
  release_easy(wire);
  touch(wire);
  start_soon(wire->lane);
}

static void wire_cancel(dml_http_wire *wire) {
  lane *in = wire->lane;
  free_wire(wire);
  reopen_if_wanted(in);
}

static char *wires_resolve_url(const char *base, const char *reference) {
  char *found = NULL, *user = NULL, *out = NULL;
  CURLU *url = curl_url();
  if (url && curl_url_set(url, CURLUPART_URL, base, 0) == CURLUE_OK &&
      curl_url_set(url, CURLUPART_URL, reference, CURLU_URLENCODE) == CURLUE_OK &&
      curl_url_set(url, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK &&
      curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_NO_USER &&
      curl_url_get(url, CURLUPART_URL, &found, 0) == CURLUE_OK)
    out = strdup(found);
  curl_free(found);
  curl_free(user);
  curl_url_cleanup(url);
  return out;
}

extern const dml_http_client_ops dml_http_client_backend;
__attribute__((visibility("default"))) const dml_http_client_ops dml_http_client_backend = {
    .head = {DML_HTTP_CLIENT_ABI},
    .open = wires_open,
    .close = wires_close,
    .close_idle = wires_close_idle,
    .start = wires_start,
    .resume = wire_resume,
    .cancel = wire_cancel,
    .resolve_url = wires_resolve_url,
};
