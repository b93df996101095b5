/* bind_unix.c - the two ends of a control channel: core.sys.acceptor and core.sys.connect_unix.
 *
 * Each end asks the kernel who the other is (SO_PEERCRED, unix(7)): a path proves nothing about who listens there. */
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "script/bind.h"
#include "script/task.h"

#define ACCEPTOR_T "demilune.acceptor"
/* How long a process that is out of descriptors lets the queue stand before it tries again. */
#define BACKOFF_MS 200

typedef struct acceptor {
  uv_poll_t *poll;
  uv_timer_t *deadline, *backoff;
  int fd; /* -1: closed */
  dml_wait *wait;
  int accepted, err; /* for the push */
  struct ucred peer;
} acceptor;

static void free_handle(uv_handle_t *handle) { free(handle); }

static void stop(acceptor *a) {
  if (a->poll) uv_poll_stop(a->poll);
  if (a->deadline) uv_timer_stop(a->deadline);
  if (a->backoff) uv_timer_stop(a->backoff);
  a->wait = NULL;
}

static void drop_accept(void *ud) { stop(ud); }

static int push_accepted(lua_State *co, void *ud) {
  acceptor *a = ud;
  if (a->accepted < 0) return dml_push_error(co, dml_status_from_errno(a->err));
  lua_pushinteger(co, a->accepted);
  lua_pushinteger(co, (lua_Integer)a->peer.uid);
  lua_pushinteger(co, (lua_Integer)a->peer.pid);
  a->accepted = -1;
  return 3;
}

static int push_late(lua_State *co, void *ud) {
  (void)ud;
  return dml_push_error(co, DML_PROVIDER_TIMEOUT);
}

static void wake(acceptor *a, dml_wait_push push) {
  dml_wait *wait = a->wait;
  stop(a);
  if (wait) dml_wait_wake(wait, push, a);
}

/* A connection that was already given up is not there to be served. */
static bool is_passing(int err) { return err == EAGAIN || err == EINTR || err == ECONNABORTED; }

static bool is_exhausted(int err) { return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM; }

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_backoff(uv_timer_t *timer) {
  acceptor *a = timer->data;
  uv_poll_start(a->poll, UV_READABLE, on_connection);
}

static void on_connection(uv_poll_t *poll, int status, int events) {
  (void)status, (void)events;
  acceptor *a = poll->data;
  a->accepted = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC);
  a->err = errno;
  if (a->accepted < 0 && is_passing(a->err)) return;
  if (a->accepted < 0 && is_exhausted(a->err)) {
    uv_poll_stop(a->poll);
    dml_timer_start(a->backoff, on_backoff, BACKOFF_MS);
    return;
  }
  socklen_t len = sizeof a->peer;
  if (a->accepted >= 0 && getsockopt(a->accepted, SOL_SOCKET, SO_PEERCRED, &a->peer, &len) != 0) {
    a->err = errno;
    close(a->accepted);
    a->accepted = -1;
  }
  wake(a, push_accepted);
}

static void on_deadline(uv_timer_t *timer) { wake(timer->data, push_late); }

static uv_timer_t *make_timer(uv_loop_t *loop, acceptor *a) {
  uv_timer_t *timer = calloc(1, sizeof *timer);
  if (!timer) return NULL;
  uv_timer_init(loop, timer);
  timer->data = a;
  return timer;
}

static void release(acceptor *a, bool takes_fd) {
  stop(a);
  if (a->poll) uv_close((uv_handle_t *)a->poll, free_handle);
  if (a->deadline) uv_close((uv_handle_t *)a->deadline, free_handle);
  if (a->backoff) uv_close((uv_handle_t *)a->backoff, free_handle);
  if (takes_fd && a->fd >= 0) close(a->fd);
  *a = (acceptor){.fd = -1, .accepted = -1};
}

/* sys.acceptor(fd) -> Acceptor | nil, err; takes a listening descriptor */
static int l_acceptor(lua_State *L) {
  int fd = (int)luaL_checkinteger(L, 1);
  acceptor *a = lua_newuserdatauv(L, sizeof *a, 0);
  *a = (acceptor){.fd = -1, .accepted = -1};
  luaL_setmetatable(L, ACCEPTOR_T);
  uv_loop_t *loop = dml_loop_uv(dml_script_loop(dml_script_of(L)));
  a->poll = calloc(1, sizeof *a->poll);
  if (!a->poll || uv_poll_init(loop, a->poll, fd) != 0) { /* which also sets O_NONBLOCK */
    free(a->poll);
    a->poll = NULL;
    return dml_push_error(L, DML_INTERNAL);
  }
  a->poll->data = a;
  a->deadline = make_timer(loop, a);
  a->backoff = make_timer(loop, a);
  if (!a->deadline || !a->backoff) {
    release(a, false);
    return dml_push_error(L, DML_INTERNAL);
  }
  a->fd = fd;
  return 1;
}

/* Acceptor:accept(timeout_ms?) async -> fd, uid, pid | nil, err */
static int acceptor_accept(lua_State *L) {
  acceptor *a = luaL_checkudata(L, 1, ACCEPTOR_T);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  if (a->fd < 0 || a->wait) return luaL_error(L, "the acceptor is closed, or another task accepts");
  lua_settop(L, 1); /* the waiting task keeps the acceptor */
  a->wait = dml_wait_new(L, drop_accept, a);
  uv_poll_start(a->poll, UV_READABLE, on_connection);
  if (timeout_ms >= 0) dml_timer_start(a->deadline, on_deadline, timeout_ms);
  return dml_wait_yield(L);
}

/* Acceptor:close(); twice is fine. Not while a task accepts: cancel that first. */
static int acceptor_close(lua_State *L) {
  acceptor *a = luaL_checkudata(L, 1, ACCEPTOR_T);
  if (a->wait) return luaL_error(L, "a task accepts; cancel it first");
  release(a, true);
  return 0;
}

static int acceptor_gc(lua_State *L) {
  release(luaL_checkudata(L, 1, ACCEPTOR_T), true);
  return 0;
}

static int connect_to(const char *path, int *err) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, path, strlen(path) + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&address, sizeof address);
  *err = rc == 0 ? 0 : errno;
  if (rc != 0 && fd >= 0) close(fd);
  return rc == 0 ? fd : -1;
}

static bool is_trusted(int fd) {
  struct ucred peer;
  socklen_t len = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

/* sys.connect_unix(path) -> fd | nil, err. Never waits: a full queue is connection_failed. */
static int l_connect_unix(lua_State *L) {
  size_t len;
  const char *path = luaL_checklstring(L, 1, &len);
  if (len == 0 || len >= sizeof ((struct sockaddr_un *)0)->sun_path) return dml_push_error(L, DML_TOO_LARGE);
  int err;
  int fd = connect_to(path, &err);
  if (fd < 0) return dml_push_error(L, err == EAGAIN ? DML_CONNECTION_FAILED : dml_status_from_errno(err));
  if (!is_trusted(fd)) {
    close(fd);
    return dml_push_error(L, DML_FILE_PERMISSION);
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); /* only the connecting must not wait; writers expect to */
  lua_pushinteger(L, fd);
  return 1;
}

static const luaL_Reg METHODS[] = {{"accept", acceptor_accept}, {"close", acceptor_close}, {NULL, NULL}};

void dml_open_unix(lua_State *L) {
  if (luaL_newmetatable(L, ACCEPTOR_T)) {
    luaL_newlib(L, METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, acceptor_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  lua_pushcfunction(L, l_acceptor);
  lua_setfield(L, -2, "acceptor");
  lua_pushcfunction(L, l_connect_unix);
  lua_setfield(L, -2, "connect_unix");
}
