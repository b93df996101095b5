/* bind_http.c - the HTTP client as Lua sees it: core.http.
 *
 * One client a Lua state, made by the first request. A call object (a userdata) owns the transfer, so that whatever
 * ends the task or the state drops it. A whole response becomes a plain table; a streaming one is the call object
 * itself. An answer with tokens is decoded by the vault's side before any of it is a Lua value. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "net/http_client.h"
#include "script/bind.h"
#include "script/bind_headers.h"
#include "script/bind_http_options.h"
#include "script/credential.h"
#include "script/task.h"

#define CLIENT_T "demilune.http.client"
#define RESPONSE_T "demilune.http.response"
#define TIMEOUT_MAX_MS (30.0 * 86400 * 1000)

/* Stack of a request: the options, the call object, then the strings of the options. */
#define CALL_INDEX 2
/* User values of a call: the body that the transfer borrows, and the fields of the response. */
#define CALL_BODY 1
#define CALL_FIELDS 2

static const char CLIENT_KEY = 0;

typedef struct call {
  dml_http_transfer *transfer; /* NULL: closed */
  dml_wait *wait;              /* whoever waits for the response, or for bytes of it */
  dml_http_client *client;
  dml_headers headers; /* of the request, while it is put together */
  uv_loop_t *loop;
  uv_timer_t *timer; /* of reads with a timeout; made by the first */
  dml_status status;
  bool is_stream;
  bool has_tokens;
  bool is_read; /* a task is in read */
} call;

static void free_handle(uv_handle_t *handle) { free(handle); }

/* ---- the client ---- */

static int client_gc(lua_State *L) {
  dml_http_client **client = lua_touserdata(L, 1);
  dml_http_client_free(*client);
  *client = NULL;
  return 0;
}

/* Makes the client if need be. [-0, +0] */
static dml_status get_client(lua_State *L, dml_http_client **out) {
  dml_script *script = dml_script_of(L);
  dml_status status = DML_OK;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &CLIENT_KEY);
  dml_http_client **client = lua_touserdata(L, -1);
  if (!client) {
    client = lua_newuserdatauv(L, sizeof *client, 0);
    *client = NULL;
    luaL_setmetatable(L, CLIENT_T);
    status = dml_http_client_new(dml_loop_uv(dml_script_loop(script)), dml_script_dir(script), client);
    if (status == DML_OK) {
      lua_pushvalue(L, -1);
      lua_rawsetp(L, LUA_REGISTRYINDEX, &CLIENT_KEY);
    } else {
      dml_log_printf(dml_script_log(script), DML_LOG_ERROR, "the HTTP client (demilune_curl.so) could not be opened");
    }
    lua_pop(L, 1);
  }
  *out = *client;
  lua_pop(L, 1);
  return status;
}

/* ---- call objects ---- */

static void close_call(call *c) {
  dml_http_transfer_free(c->transfer);
  c->transfer = NULL;
  dml_headers_wipe(&c->headers);
  if (!c->timer) return;
  uv_timer_stop(c->timer);
  uv_close((uv_handle_t *)c->timer, free_handle);
  c->timer = NULL;
}

static int call_gc(lua_State *L) {
  close_call(lua_touserdata(L, 1));
  return 0;
}

static void drop_call(void *ud) {
  call *c = ud;
  c->wait = NULL;
  c->is_read = false;
  close_call(c);
}

static void wake(call *c, dml_wait_push push) {
  dml_wait *wait = c->wait;
  c->wait = NULL;
  if (wait) dml_wait_wake(wait, push, c);
}

/* The URL that a redirect names, on top of the stack's response. [-0, +0] */
static void set_redirect(lua_State *L, const call *c) {
  dml_span location;
  int code = dml_http_transfer_status(c->transfer);
  if (code < 300 || code > 399 || !dml_headers_find(dml_http_transfer_headers(c->transfer), "location", &location))
    return;
  char *url = dml_http_client_resolve_url(c->client, lua_tostring(L, DML_HTTP_URL_INDEX), location.data);
  if (!url) return;
  lua_pushstring(L, url);
  free(url);
  lua_setfield(L, -2, "redirect_url");
}

/* The head's part of a response. [-0, +1] */
static void push_head(lua_State *L, const call *c) {
  lua_createtable(L, 0, 3);
  lua_pushinteger(L, dml_http_transfer_status(c->transfer));
  lua_setfield(L, -2, "status");
  dml_push_headers(L, dml_http_transfer_headers(c->transfer));
  lua_setfield(L, -2, "headers");
  set_redirect(L, c);
}

/* Adds the body to the response on top, and lets the transfer go. [-0, +0] */
static void set_body(lua_State *L, call *c) {
  dml_span body = dml_http_transfer_peek(c->transfer);
  lua_pushlstring(L, body.data, body.len);
  lua_setfield(L, -2, "body");
  close_call(c);
}

static int push_response(lua_State *L, void *ud) {
  call *c = ud;
  if (c->status != DML_OK || !c->transfer) {
    close_call(c);
    return dml_push_error(L, c->status != DML_OK ? c->status : DML_STOPPED);
  }
  push_head(L, c);
  if (c->is_stream || c->has_tokens) {
    lua_setiuservalue(L, CALL_INDEX, CALL_FIELDS);
    lua_pushvalue(L, CALL_INDEX);
  } else {
    set_body(L, c);
  }
  return 1;
}

static void on_response(void *ud, dml_status status) {
  call *c = ud;
  c->status = status;
  wake(c, push_response);
}

/* What read gives, when it need not wait. */
static int push_chunk(lua_State *L, void *ud) {
  call *c = ud;
  dml_status status;
  c->is_read = false;
  if (!c->transfer) return dml_push_error(L, DML_STOPPED);
  dml_span bytes = dml_http_transfer_peek(c->transfer);
  if (bytes.len > 0) {
    lua_pushlstring(L, bytes.data, bytes.len);
    dml_http_transfer_consume(c->transfer, bytes.len);
    return 1;
  }
  if (!dml_http_transfer_is_over(c->transfer, &status)) return dml_push_error(L, DML_PROVIDER_TIMEOUT);
  if (status != DML_OK) return dml_push_error(L, status);
  lua_pushnil(L);
  return 1;
}

static bool has_chunk(const call *c) {
  dml_status status;
  return dml_http_transfer_peek(c->transfer).len > 0 || dml_http_transfer_is_over(c->transfer, &status);
}

static void on_readable(void *ud) {
  call *c = ud;
  if (!c->wait || !has_chunk(c)) return;
  if (c->timer) uv_timer_stop(c->timer);
  wake(c, push_chunk);
}

static const dml_http_transfer_events EVENTS = {on_response, on_readable};

/* ---- request ---- */

static call *new_call(lua_State *L) {
  call *c = lua_newuserdatauv(L, sizeof *c, 2);
  memset(c, 0, sizeof *c);
  dml_headers_init(&c->headers, DML_HTTP_CLIENT_HEADER_MAX_BYTES);
  luaL_setmetatable(L, RESPONSE_T);
  return c;
}

/* {...} -> response | nil, err; with tokens, the response is the call object, whose body is still to be decoded. */
static int exchange(lua_State *L) {
  dml_http_transfer_options options = {0};
  call *c = new_call(L);
  dml_status status = dml_http_options_read(L, &options, &c->headers);
  if (status != DML_OK) return dml_push_error(L, status);
  lua_getfield(L, 1, "body");
  lua_setiuservalue(L, CALL_INDEX, CALL_BODY);
  c->is_stream = options.is_stream;
  c->has_tokens = options.is_body_secret = lua_getfield(L, 1, "tokens") != LUA_TNIL;
  if (c->has_tokens && c->is_stream) return luaL_error(L, "a response that is streamed cannot have tokens");
  c->loop = dml_loop_uv(dml_script_loop(dml_script_of(L)));
  status = get_client(L, &c->client);
  if (status != DML_OK) return dml_push_error(L, status);
  c->wait = dml_wait_new(L, drop_call, c);
  status = dml_http_client_start(c->client, &options, &EVENTS, c, &c->transfer);
  dml_headers_wipe(&c->headers);
  if (status != DML_OK) {
    dml_wait_forget(c->wait);
    c->wait = NULL;
    return dml_push_error(L, status);
  }
  return dml_wait_yield(L);
}

/* Below: the options. On top: what exchange gave. */
static int lift(lua_State *L, int status, lua_KContext context) {
  (void)status, (void)context;
  call *c = luaL_testudata(L, 2, RESPONSE_T);
  if (!c) return lua_gettop(L) - 1;
  if (!c->transfer) return dml_push_error(L, DML_STOPPED);
  int code = dml_http_transfer_status(c->transfer);
  lua_getiuservalue(L, 2, CALL_FIELDS);
  if (code < 200 || code > 299 || code == 204) {
    set_body(L, c);
    return 1;
  }
  dml_span body = dml_http_transfer_peek(c->transfer);
  lua_getfield(L, 1, "tokens");
  int count = dml_push_lifted(L, lua_gettop(L), body.data, body.len);
  close_call(c);
  if (count != 1) return count;
  lua_setfield(L, 3, "json");
  lua_settop(L, 3);
  return 1;
}

/* http.request{...} -> response | nil, err */
static int l_request(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  int type = lua_getfield(L, 1, "tokens");
  lua_settop(L, 1);
  if (type == LUA_TNIL) return exchange(L);
  luaL_argcheck(L, type == LUA_TTABLE, 1, "tokens are a table of bindings");
  lua_pushcfunction(L, exchange);
  lua_pushvalue(L, 1);
  lua_callk(L, 1, LUA_MULTRET, 0, lift);
  return lift(L, LUA_OK, 0);
}

/* http.close_idle() */
static int l_close_idle(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &CLIENT_KEY);
  dml_http_client **client = lua_touserdata(L, -1);
  if (client && *client) dml_http_client_close_idle(*client);
  return 0;
}

/* ---- streaming responses ---- */

static call *check_call(lua_State *L) { return luaL_checkudata(L, 1, RESPONSE_T); }

static void on_read_timeout(uv_timer_t *timer) { wake(timer->data, push_chunk); }

static bool start_timer(call *c, lua_Number timeout_ms) {
  if (!c->timer) {
    c->timer = calloc(1, sizeof *c->timer);
    if (!c->timer) return false;
    uv_timer_init(c->loop, c->timer);
    c->timer->data = c;
  }
  uv_update_time(c->loop);
  uv_timer_start(c->timer, on_read_timeout, (uint64_t)(timeout_ms < TIMEOUT_MAX_MS ? timeout_ms : TIMEOUT_MAX_MS), 0);
  return true;
}

/* response:read(timeout_ms?) -> chunk | nil at the clean end | nil, err; a timeout leaves the response usable. */
static int l_read(lua_State *L) {
  call *c = check_call(L);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  if (c->is_read) return luaL_error(L, "another task reads this response");
  if (!c->transfer || has_chunk(c)) return push_chunk(L, c);
  dml_wait *wait = dml_wait_new(L, drop_call, c);
  if (timeout_ms >= 0 && !start_timer(c, timeout_ms)) {
    dml_wait_forget(wait);
    return dml_push_error(L, DML_INTERNAL);
  }
  c->wait = wait;
  c->is_read = true;
  return dml_wait_yield(L);
}

/* response:close() drops the transfer; whoever reads is told `stopped`. */
static int l_close(lua_State *L) {
  call *c = check_call(L);
  close_call(c);
  wake(c, push_chunk);
  return 0;
}

static const luaL_Reg METHODS[] = {{"read", l_read}, {"close", l_close}, {NULL, NULL}};

/* Methods, then status and headers. */
static int call_index(lua_State *L) {
  luaL_checkudata(L, 1, RESPONSE_T);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  if (lua_getiuservalue(L, 1, CALL_FIELDS) != LUA_TTABLE) return 0;
  lua_pushvalue(L, 2);
  lua_rawget(L, -2);
  return 1;
}

static const luaL_Reg FUNCTIONS[] = {{"request", l_request}, {"close_idle", l_close_idle}, {NULL, NULL}};

int dml_open_http(lua_State *L) {
  if (luaL_newmetatable(L, CLIENT_T)) {
    lua_pushcfunction(L, client_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  if (luaL_newmetatable(L, RESPONSE_T)) {
    luaL_newlib(L, METHODS);
    lua_pushcclosure(L, call_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, call_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, l_close);
    lua_setfield(L, -2, "__close");
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
