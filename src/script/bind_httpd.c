/* bind_httpd.c - the HTTP server as Lua sees it: core.httpd.
 *
 * Each request is a userdata, held by the registry until its exchange and its task are over. The two ends are tied in C
 * alone, so that they hold however a task ends: an exchange that ends early cancels the task, and a task that ends
 * without a complete answer settles the exchange. */
#include <lauxlib.h>
#include <string.h>

#include "net/http_check.h"
#include "net/http_server.h"
#include "net/listen.h"
#include "script/bind.h"
#include "script/bind_headers.h"
#include "script/task.h"

#define SERVER_T "demilune.httpd.server"
#define REQUEST_T "demilune.httpd.request"
#define TLS_T "demilune.httpd.tls"

/* User values of a request: what its answer borrows, bytes that a write lent, tables made on first use. */
#define REQUEST_BODY 1
#define REQUEST_LENT 2
#define REQUEST_CACHE 3
#define REQUEST_VALUES 3

#define HEADERS_MAX_BYTES (64 * 1024)

/* User value 1: the handler. */
typedef struct server {
  dml_http_server *http; /* NULL: closed */
  dml_script *script;
} server;

typedef struct request {
  dml_http_request *http;
  lua_State *main;
  dml_task *task; /* NULL: not started, or over */
  dml_wait *wait;
  dml_headers headers; /* of an answer that is put together */
  bool is_writing;     /* `wait` is a write's */
  bool is_settled;     /* the handler has given all of its answer, or aborted */
  bool is_over;        /* the exchange is */
} request;

/* ---- a request's life ---- */

static int request_gc(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  if (r->http) {
    dml_http_request_set_events(r->http, NULL, NULL);
    dml_http_request_unref(r->http);
  }
  r->http = NULL;
  dml_headers_deinit(&r->headers);
  return 0;
}

/* The registry's hold ends. [-0, +0] */
static void let_go(request *r) {
  lua_pushnil(r->main);
  lua_rawsetp(r->main, LUA_REGISTRYINDEX, r);
}

/* What the handler's task left undone. */
static void settle(request *r) {
  r->is_settled = true;
  if (dml_http_request_is_answered(r->http)) {
    dml_http_request_abort(r->http);
    return;
  }
  const char *body = dml_http_refusal_of(500)->body;
  dml_headers headers;
  dml_headers_init(&headers, HEADERS_MAX_BYTES);
  dml_headers_add(&headers, (dml_span){"content-type", 12}, (dml_span){"application/json", 16});
  if (dml_http_request_respond(r->http, 500, &headers, body, strlen(body)) != DML_OK) dml_http_request_abort(r->http);
  dml_headers_deinit(&headers);
}

static void on_task_end(void *ud) {
  request *r = ud;
  r->task = NULL;
  if (r->is_over)
    let_go(r);
  else if (!r->is_settled)
    settle(r);
}

static void wake(request *r, dml_wait_push push) {
  dml_wait *wait = r->wait;
  r->wait = NULL;
  if (wait) dml_wait_wake(wait, push, r);
}

static int push_gone(lua_State *L, void *ud) {
  (void)ud;
  return dml_push_error(L, DML_CONNECTION_FAILED);
}

/* What read gives, when it need not wait. */
static int push_body(lua_State *L, void *ud) {
  request *r = ud;
  dml_span bytes;
  switch (dml_http_request_read(r->http, &bytes)) {
  case DML_HTTP_BODY_BYTES:
    lua_pushlstring(L, bytes.data, bytes.len);
    dml_http_request_consume(r->http, bytes.len);
    return 1;
  case DML_HTTP_BODY_END: lua_pushnil(L); return 1;
  default: return push_gone(L, r);
  }
}

static void on_readable(void *ud) {
  request *r = ud;
  if (!r->is_writing) wake(r, push_body);
}

static void on_writable(void *ud) {
  request *r = ud;
  if (r->is_writing) wake(r, dml_push_true);
}

/* A handler that has answered may go on without its client. */
static void on_end(void *ud, bool is_complete) {
  request *r = ud;
  lua_rawgetp(r->main, LUA_REGISTRYINDEX, r); /* keeps it for the rest of this function */
  r->is_over = true;
  if (!is_complete && !r->is_settled && r->task) dml_task_cancel(r->task);
  wake(r, push_gone); /* another task than the handler's may wait too */
  if (!r->task) let_go(r);
  lua_pop(r->main, 1);
}

static const dml_http_request_events EVENTS = {on_readable, on_writable, on_end};

/* ---- a request comes in ---- */

typedef struct arrival {
  server *server;
  dml_http_request *http; /* NULL once the userdata owns it */
} arrival;

static int start_handler(lua_State *L) {
  arrival *a = lua_touserdata(L, 1);
  lua_rawgetp(L, LUA_REGISTRYINDEX, a->server);
  lua_getiuservalue(L, -1, 1);
  request *r = lua_newuserdatauv(L, sizeof *r, REQUEST_VALUES);
  memset(r, 0, sizeof *r);
  luaL_setmetatable(L, REQUEST_T);
  r->main = dml_script_main(a->server->script);
  dml_headers_init(&r->headers, HEADERS_MAX_BYTES);
  r->http = a->http;
  a->http = NULL;
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, r);
  dml_http_request_set_events(r->http, &EVENTS, r);
  r->task = dml_task_spawn(L, 1);
  dml_task_on_end(r->task, on_task_end, r);
  return 0;
}

static void on_request(void *ud, dml_http_request *http) {
  server *s = ud;
  arrival a = {s, http};
  dml_script_enter(s->script, start_handler, &a);
  if (!a.http) return;
  dml_http_request_abort(http);
  dml_http_request_unref(http);
}

/* ---- reading ---- */

static request *check_request(lua_State *L) { return luaL_checkudata(L, 1, REQUEST_T); }

/* A reader whose task was cancelled takes nothing with it. */
static void drop_read(void *ud) { ((request *)ud)->wait = NULL; }

/* request:read() -> chunk | nil at the end | nil, err. HTTP/1.1 could, libmicrohttpd cannot: read beside an answer. */
static int l_read(lua_State *L) {
  request *r = check_request(L);
  dml_span bytes;
  if (r->wait) return luaL_error(L, "another task waits for this request");
  dml_http_body state = dml_http_request_read(r->http, &bytes);
  if (state == DML_HTTP_BODY_FAILED && !r->is_over && dml_http_request_is_answered(r->http))
    return luaL_error(L, "the body cannot be read once the answer has begun");
  if (state != DML_HTTP_BODY_WAIT) return push_body(L, r);
  lua_settop(L, 1);
  r->wait = dml_wait_new(L, drop_read, r);
  r->is_writing = false;
  return dml_wait_yield(L);
}

/* Stack of read_all: request, limit, list of chunks, then what read gave. The number of results, or -1 to go on. */
static int take_chunk(lua_State *L, lua_Integer *total) {
  if (lua_isnil(L, 4)) {
    if (!lua_isnil(L, 5)) return 2;
    lua_Integer count = (lua_Integer)lua_rawlen(L, 3);
    if (count == 1) {
      lua_rawgeti(L, 3, 1);
      return 1;
    }
    luaL_Buffer buffer;
    luaL_buffinitsize(L, &buffer, (size_t)*total);
    for (lua_Integer i = 1; i <= count; i++) {
      lua_rawgeti(L, 3, i);
      luaL_addvalue(&buffer);
    }
    luaL_pushresult(&buffer);
    return 1;
  }
  *total += (lua_Integer)lua_rawlen(L, 4);
  if (*total > lua_tointeger(L, 2)) return dml_push_error(L, DML_TOO_LARGE);
  lua_settop(L, 4);
  lua_rawseti(L, 3, (lua_Integer)lua_rawlen(L, 3) + 1);
  return -1;
}

static int read_more(lua_State *L, int status, lua_KContext total_so_far) {
  lua_Integer total = (lua_Integer)total_so_far;
  bool has_result = status == LUA_YIELD;
  for (;;) {
    if (!has_result) {
      lua_pushcfunction(L, l_read);
      lua_pushvalue(L, 1);
      lua_callk(L, 1, 2, (lua_KContext)total, read_more);
    }
    has_result = false;
    int results = take_chunk(L, &total);
    if (results >= 0) return results;
  }
}

/* request:read_all(max_bytes) -> body | nil, err */
static int l_read_all(lua_State *L) {
  request *r = check_request(L);
  lua_Integer max = luaL_checkinteger(L, 2);
  if (dml_http_request_length(r->http) > max) return dml_push_error(L, DML_TOO_LARGE);
  lua_settop(L, 2);
  lua_createtable(L, 1, 0);
  return read_more(L, LUA_OK, 0);
}

/* ---- answering ---- */

/* true, or nil and the world's failure; misuse raises. */
static int push_answer_result(lua_State *L, dml_status status) {
  if (status == DML_CONFLICT) return luaL_error(L, "the request is answered already, or its answer is not started");
  if (status == DML_INVALID_ARGUMENT) return luaL_error(L, "the status or a header is not valid HTTP");
  return status == DML_OK ? dml_push_true(L, NULL) : dml_push_error(L, status);
}

static dml_status read_headers(lua_State *L, request *r) {
  dml_headers_clear(&r->headers);
  return dml_to_headers(L, 3, &r->headers);
}

/* request:respond(status, headers?, body?) -> true | nil, err */
static int l_respond(lua_State *L) {
  request *r = check_request(L);
  size_t len;
  int code = (int)luaL_checkinteger(L, 2);
  const char *body = luaL_optlstring(L, 4, "", &len);
  lua_settop(L, 4);
  dml_status status = read_headers(L, r);
  if (status == DML_OK && dml_http_request_is_answered(r->http)) status = DML_CONFLICT;
  if (status == DML_OK) {
    lua_setiuservalue(L, 1, REQUEST_BODY); /* borrowed until on_end */
    status = dml_http_request_respond(r->http, code, &r->headers, body, len);
  }
  if (status == DML_OK) r->is_settled = true;
  dml_headers_deinit(&r->headers);
  return push_answer_result(L, status);
}

/* request:start(status, headers?) -> true | nil, err; a Content-Length among the headers makes the length fixed. */
static int l_start(lua_State *L) {
  request *r = check_request(L);
  int code = (int)luaL_checkinteger(L, 2);
  int64_t length = -1;
  dml_span value;
  lua_settop(L, 3);
  dml_status status = read_headers(L, r);
  if (status == DML_OK && dml_headers_find(&r->headers, "content-length", &value) &&
      !dml_span_to_length(value, &length))
    status = DML_INVALID_ARGUMENT;
  if (status == DML_OK) status = dml_http_request_start(r->http, code, &r->headers, length);
  dml_headers_deinit(&r->headers);
  return push_answer_result(L, status);
}

/* A cancelled write leaves half of a chunk behind: the answer cannot go on. */
static void drop_write(void *ud) {
  request *r = ud;
  r->wait = NULL;
  r->is_settled = true;
  dml_http_request_abort(r->http);
}

/* request:write(chunk) -> true | nil, err */
static int l_write(lua_State *L) {
  request *r = check_request(L);
  size_t len;
  bool is_lent;
  const char *bytes = luaL_checklstring(L, 2, &len);
  if (r->wait) return luaL_error(L, "another task waits for this request");
  dml_status status = dml_http_request_write(r->http, bytes, len, &is_lent);
  if (status == DML_TOO_LARGE) return luaL_error(L, "more bytes than the announced Content-Length");
  if (status != DML_OK || !is_lent) return push_answer_result(L, status);
  lua_settop(L, 2);
  lua_setiuservalue(L, 1, REQUEST_LENT);
  r->wait = dml_wait_new(L, drop_write, r);
  r->is_writing = true;
  return dml_wait_yield(L);
}

/* request:finish() -> true | nil, err */
static int l_finish(lua_State *L) {
  request *r = check_request(L);
  dml_status status = dml_http_request_finish(r->http);
  if (status == DML_OK) r->is_settled = true;
  return push_answer_result(L, status);
}

/* request:abort() */
static int l_abort(lua_State *L) {
  request *r = check_request(L);
  r->is_settled = true;
  dml_http_request_abort(r->http);
  return 0;
}

/* request:peer() -> {pid=, uid=, gid=} | nil */
static int l_peer(lua_State *L) {
  struct ucred peer;
  if (!dml_http_request_peer(check_request(L)->http, &peer)) {
    lua_pushnil(L);
    return 1;
  }
  lua_createtable(L, 0, 3);
  lua_pushinteger(L, peer.pid);
  lua_setfield(L, -2, "pid");
  lua_pushinteger(L, peer.uid);
  lua_setfield(L, -2, "uid");
  lua_pushinteger(L, peer.gid);
  lua_setfield(L, -2, "gid");
  return 1;
}

/* ---- fields ---- */

/* {[name] = value}, decoded; values of a repeated name are joined with a comma, so that all readers see the same. */
static void push_query(lua_State *L, const dml_target *target) {
  lua_createtable(L, 0, (int)target->count);
  for (size_t i = 0; i < target->count; i++) {
    const dml_target_parameter *parameter = &target->parameters[i];
    lua_pushlstring(L, parameter->name.data, parameter->name.len);
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) == LUA_TNIL) {
      lua_pop(L, 1);
      lua_pushlstring(L, parameter->value.data, parameter->value.len);
    } else {
      lua_pushliteral(L, ",");
      lua_pushlstring(L, parameter->value.data, parameter->value.len);
      lua_concat(L, 3);
    }
    lua_rawset(L, -3);
  }
}

/* Tables are made once a request: a handler may keep and change its own. [-0, +1] */
static void push_table(lua_State *L, const request *r, const char *name) {
  if (lua_getiuservalue(L, 1, REQUEST_CACHE) != LUA_TTABLE) {
    lua_createtable(L, 0, 2);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, REQUEST_CACHE);
  }
  if (lua_getfield(L, -1, name) != LUA_TNIL) return;
  if (*name == 'q')
    push_query(L, dml_http_request_target(r->http));
  else
    dml_push_headers(L, dml_http_request_headers(r->http));
  lua_pushvalue(L, -1);
  lua_setfield(L, -4, name);
}

static int request_index(lua_State *L) {
  request *r = check_request(L);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  if (strcmp(name, "method") == 0) {
    dml_span method = dml_http_request_method(r->http);
    lua_pushlstring(L, method.data, method.len);
  } else if (strcmp(name, "path") == 0) {
    dml_span path = dml_http_request_target(r->http)->path;
    lua_pushlstring(L, path.data, path.len);
  } else if (strcmp(name, "headers") == 0 || strcmp(name, "query") == 0) {
    push_table(L, r, name);
  } else if (strcmp(name, "content_length") == 0 && dml_http_request_length(r->http) >= 0) {
    lua_pushinteger(L, dml_http_request_length(r->http));
  } else {
    lua_pushnil(L);
  }
  return 1;
}

/* ---- servers ---- */

static server *check_server(lua_State *L) { return luaL_checkudata(L, 1, SERVER_T); }

/* server:close() ends all requests; twice is fine. */
static int l_close(lua_State *L) {
  server *s = check_server(L);
  dml_http_server *http = s->http;
  s->http = NULL;
  dml_http_server_free(http);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, s);
  return 0;
}

/* server:connections() -> number of open connections */
static int l_connections(lua_State *L) {
  server *s = check_server(L);
  lua_pushinteger(L, s->http ? (lua_Integer)dml_http_server_connections(s->http) : 0);
  return 1;
}

static const dml_http_tls *check_tls(lua_State *L, int index) {
  const dml_http_tls *tls = *(dml_http_tls **)luaL_checkudata(L, index, TLS_T);
  luaL_argcheck(L, tls, index, "it was collected");
  return tls;
}

/* server:set_tls(tls) -> true | nil, err; raises for a plain or closed server */
static int l_set_tls(lua_State *L) {
  server *s = check_server(L);
  const dml_http_tls *tls = check_tls(L, 2);
  dml_status status = s->http ? dml_http_server_set_tls(s->http, tls) : DML_CONFLICT;
  if (status == DML_CONFLICT) return luaL_error(L, "the server has no TLS");
  return status == DML_OK ? dml_push_true(L, NULL) : dml_push_error(L, status);
}

static lua_Integer field_number(lua_State *L, const char *name, lua_Integer least, lua_Integer most,
                                lua_Integer otherwise) {
  int is_integer;
  int type = lua_getfield(L, 1, name);
  lua_Integer value = lua_tointegerx(L, -1, &is_integer);
  lua_pop(L, 1);
  if (type == LUA_TNIL && otherwise >= 0) return otherwise;
  if (!is_integer || value < least || value > most)
    return luaL_error(L, "%s must be an integer from %I to %I", name, (LUAI_UACINT)least, (LUAI_UACINT)most);
  return value;
}

/* httpd.listen{...} -> server | nil, err; `fd` is taken unless an argument is wrong, which raises. */
static int l_listen(lua_State *L) {
  dml_script *script = dml_script_of(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  dml_http_server_options options = {
      .fd = (int)field_number(L, "fd", 0, INT32_MAX, -1),
      .connections_max = (unsigned)field_number(L, "connections", 1, 65536, -1),
      .requests_max = (unsigned)field_number(L, "max_requests", 1, 65536, -1),
      .header_max_bytes = (size_t)field_number(L, "max_header_bytes", 1024, DML_HTTP_SERVER_HEADER_MAX_BYTES, -1),
      .idle_timeout_s = (unsigned)field_number(L, "idle_timeout_s", 1, 86400, 0),
  };
  if (lua_getfield(L, 1, "tls") != LUA_TNIL) options.tls = check_tls(L, -1); /* the options keep it alive */
  lua_settop(L, 1);
  if (lua_getfield(L, 1, "handler") != LUA_TFUNCTION) return luaL_error(L, "handler must be a function");
  server *s = lua_newuserdatauv(L, sizeof *s, 1);
  *s = (server){.script = script};
  luaL_setmetatable(L, SERVER_T);
  lua_insert(L, -2);
  lua_setiuservalue(L, -2, 1);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, s); /* a server lives until it is closed */
  dml_status status = dml_http_server_new(dml_loop_uv(dml_script_loop(script)), dml_script_dir(script), &options,
                                          on_request, s, &s->http);
  if (status == DML_OK) return 1;
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, s);
  dml_log_printf(dml_script_log(script), DML_LOG_ERROR, "the HTTP server (demilune_mhd.so) could not be started");
  return dml_push_error(L, status);
}

static const luaL_Reg SERVER_METHODS[] = {
    {"close", l_close}, {"connections", l_connections}, {"set_tls", l_set_tls}, {NULL, NULL}};

static const luaL_Reg REQUEST_METHODS[] = {
    {"read", l_read},     {"read_all", l_read_all}, {"respond", l_respond}, {"start", l_start}, {"write", l_write},
    {"finish", l_finish}, {"abort", l_abort},       {"peer", l_peer},       {NULL, NULL},
};

/* httpd.listen_tcp(address, port) -> fd, port | nil, err; a numeric address, port 0 for any. */
static int l_listen_tcp(lua_State *L) {
  int fd;
  uint16_t bound_port;
  lua_Integer port = luaL_checkinteger(L, 2);
  luaL_argcheck(L, port >= 0 && port <= UINT16_MAX, 2, "no port number");
  dml_status status = dml_listen_tcp(luaL_checkstring(L, 1), (uint16_t)port, &fd, &bound_port);
  if (status != DML_OK) return dml_push_error(L, status);
  lua_pushinteger(L, fd);
  lua_pushinteger(L, bound_port);
  return 2;
}

/* httpd.tls(cert_path, key_path) -> Tls | nil, why */
static int l_tls(lua_State *L) {
  const char *cert = luaL_checkstring(L, 1), *key = luaL_checkstring(L, 2), *why;
  dml_http_tls **box = lua_newuserdatauv(L, sizeof *box, 0);
  *box = NULL;
  luaL_setmetatable(L, TLS_T);
  if (dml_http_tls_load(dml_script_dir(dml_script_of(L)), cert, key, box, &why) == DML_OK) return 1;
  lua_pushnil(L);
  lua_pushstring(L, why);
  return 2;
}

static int tls_gc(lua_State *L) {
  dml_http_tls **box = luaL_checkudata(L, 1, TLS_T);
  dml_http_tls_free(*box);
  *box = NULL;
  return 0;
}

/* tls:expires() -> seconds since 1970 */
static int l_expires(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)dml_http_tls_expires_s(check_tls(L, 1)));
  return 1;
}

static const luaL_Reg TLS_METHODS[] = {{"expires", l_expires}, {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {{"listen", l_listen}, {"listen_tcp", l_listen_tcp}, {"tls", l_tls}, {NULL, NULL}};

static void make_tls_type(lua_State *L) {
  if (luaL_newmetatable(L, TLS_T)) {
    luaL_newlib(L, TLS_METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, tls_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
}

int dml_open_httpd(lua_State *L) {
  make_tls_type(L);
  if (luaL_newmetatable(L, SERVER_T)) {
    luaL_newlib(L, SERVER_METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, l_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, l_close);
    lua_setfield(L, -2, "__close");
  }
  lua_pop(L, 1);
  if (luaL_newmetatable(L, REQUEST_T)) {
    luaL_newlib(L, REQUEST_METHODS);
    lua_pushcclosure(L, request_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, request_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
