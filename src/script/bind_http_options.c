/* bind_http_options.c - see bind_http_options.h.
 *
 * Headers with secrets come last and into room that was made for them, so that the bytes never move and leave a copy.
 */
#include "script/bind_http_options.h"

#include <lauxlib.h>
#include <string.h>

#include "script/bind_headers.h"
#include "script/credential.h"

#define TIMEOUT_MAX_MS (30.0 * 86400 * 1000)
/* One secret with the name and prefix of its header. */
#define CREDENTIAL_ROOM_BYTES (8192 + 512)

/* A number of milliseconds; 0 when the field is missing. [-0, +0] */
static uint64_t field_ms(lua_State *L, const char *name, bool required) {
  int type = lua_getfield(L, 1, name);
  lua_Number value = lua_tonumber(L, -1);
  lua_pop(L, 1);
  if (type == LUA_TNIL && !required) return 0;
  if (type != LUA_TNUMBER || !(value >= 1)) luaL_error(L, "%s must be a number of milliseconds, at least 1", name);
  return (uint64_t)(value < TIMEOUT_MAX_MS ? value : TIMEOUT_MAX_MS);
}

/* A string field that must be there, left on the stack. [-0, +1] */
static dml_span field_text(lua_State *L, const char *name) {
  dml_span span;
  if (lua_getfield(L, 1, name) != LUA_TSTRING) luaL_error(L, "%s must be a string", name);
  span.data = lua_tolstring(L, -1, &span.len);
  return span;
}

/* A string field, left on the stack; `otherwise` when it is missing. [-0, +1] */
static dml_span field_text_or(lua_State *L, const char *name, dml_span otherwise) {
  if (lua_getfield(L, 1, name) == LUA_TNIL) return otherwise;
  lua_pop(L, 1);
  return field_text(L, name);
}

static bool field_flag(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  bool is_set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is_set;
}

static size_t field_limit(lua_State *L, bool is_stream) {
  int type = lua_getfield(L, 1, "max_body_bytes");
  lua_Integer value = lua_tointeger(L, -1);
  lua_pop(L, 1);
  if (type == LUA_TNIL && is_stream) return 0;
  if (type != LUA_TNUMBER || value < 0) luaL_error(L, "max_body_bytes must be a number of bytes");
  return (size_t)value;
}

static dml_status make_room(dml_headers *headers, size_t count) {
  size_t left = headers->bytes.limit - headers->bytes.len;
  size_t room = count < left / CREDENTIAL_ROOM_BYTES ? count * CREDENTIAL_ROOM_BYTES : left;
  dml_status status;
  dml_buffer_reserve(&headers->bytes, room, &status);
  return status;
}

static dml_status add_credentials(lua_State *L, const dml_http_transfer_options *options, dml_headers *headers) {
  int type = lua_getfield(L, 1, "credentials");
  dml_status status = type == LUA_TTABLE ? make_room(headers, (size_t)lua_rawlen(L, -1)) : DML_OK;
  if (status == DML_OK)
    status = dml_credentials_add(L, lua_gettop(L), options->url, options->unix_socket.len > 0, headers);
  lua_pop(L, 1);
  return status == DML_OK || status == DML_AUTHENTICATION_FAILED ? status : DML_INVALID_ARGUMENT;
}

dml_status dml_http_options_read(lua_State *L, dml_http_transfer_options *options, dml_headers *headers) {
  options->url = field_text(L, "url");
  options->method = field_text_or(L, "method", (dml_span){"GET", 3});
  options->unix_socket = field_text_or(L, "unix_socket", (dml_span){"", 0});
  options->proxy = field_text_or(L, "proxy", (dml_span){NULL, 0});
  options->ca_file = field_text_or(L, "ca_file", (dml_span){"", 0});
  options->timeout_ms = field_ms(L, "timeout_ms", true);
  options->connect_timeout_ms = field_ms(L, "connect_timeout_ms", false);
  options->is_stream = field_flag(L, "stream");
  options->is_fresh = field_flag(L, "is_fresh");
  options->body_max_bytes = field_limit(L, options->is_stream);
  options->headers = headers;
  if (lua_getfield(L, 1, "body") != LUA_TNIL) options->body = luaL_checklstring(L, -1, &options->body_len);
  lua_getfield(L, 1, "headers");
  dml_status status = dml_to_headers(L, -1, headers);
  lua_pop(L, 1);
  if (status != DML_OK) return DML_INVALID_ARGUMENT;
  options->has_secrets = lua_getfield(L, 1, "credentials") != LUA_TNIL;
  lua_pop(L, 1);
  return options->has_secrets ? add_credentials(L, options, headers) : DML_OK;
}
