/* bind_rpc.c - core.rpc: JSON-RPC messages as text, for doors whose transport hands over whole messages.
 *
 * What is read comes with its id as bytes, so that an answer echoes it exactly; what is written is redacted here, as
 * everything that leaves. */
#include <lauxlib.h>
#include <string.h>

#include "script/bind.h"
#include "script/convert.h"
#include "script/stdio_face.h"
#include "script/vault_face.h"

/* Of one message that is written: as much as core.json encodes, and its envelope. */
#define MESSAGE_MAX_BYTES (97 * 1024 * 1024)

static void set_string(lua_State *L, const char *name, const char *text, size_t len) {
  lua_pushlstring(L, text, len);
  lua_setfield(L, -2, name);
}

static void set_kind(lua_State *L, const char *kind) { set_string(L, "kind", kind, strlen(kind)); }

/* What cancels are compared with: "s" and the decoded string, or "i" and the digits. */
static void set_key(lua_State *L, const dml_rpc_message *m) {
  lua_pushstring(L, m->id_string ? "s" : "i");
  if (m->id_string) lua_pushlstring(L, json_string_value(m->id_string), json_string_length(m->id_string));
  else lua_pushlstring(L, m->id, m->id_len);
  lua_concat(L, 2);
  lua_setfield(L, -2, "key");
}

static void set_call(lua_State *L, const dml_rpc_message *m) {
  set_string(L, "method", m->method, strlen(m->method));
  if (m->params) dml_push_json(L, m->params);
  else lua_newtable(L);
  lua_setfield(L, -2, "params");
}

static void set_response(lua_State *L, const dml_rpc_message *m) {
  set_string(L, "answers", json_string_value(m->id_string), json_string_length(m->id_string));
  if (m->result) {
    dml_push_json(L, m->result);
    lua_setfield(L, -2, "result");
  }
  lua_pushboolean(L, m->is_error);
  lua_setfield(L, -2, "is_error");
}

static void set_fault(lua_State *L, const dml_rpc_message *m) {
  lua_pushinteger(L, m->error_code);
  lua_setfield(L, -2, "code");
  set_string(L, "message", m->error_text, strlen(m->error_text));
}

typedef struct reading {
  char *text;
  size_t len;
  dml_rpc_message message;
} reading;

static int push_message(lua_State *L) {
  const dml_rpc_message *m = &((reading *)lua_touserdata(L, 1))->message;
  static const char *const KINDS[] = {
      [DML_RPC_REQUEST] = "request", [DML_RPC_NOTIFICATION] = "notification", [DML_RPC_RESPONSE] = "response",
      [DML_RPC_IGNORED] = "ignored", [DML_RPC_INVALID] = "invalid",
  };
  lua_createtable(L, 0, 6);
  set_kind(L, KINDS[m->kind]);
  if (m->id_len) set_string(L, "id", m->id, m->id_len);
  if (m->kind == DML_RPC_REQUEST) set_key(L, m);
  if (m->kind == DML_RPC_REQUEST || m->kind == DML_RPC_NOTIFICATION) set_call(L, m);
  if (m->kind == DML_RPC_RESPONSE) set_response(L, m);
  if (m->kind == DML_RPC_INVALID) set_fault(L, m);
  return 1;
}

/* rpc.read(text) -> message */
static int l_read(lua_State *L) {
  reading r;
  const char *text = luaL_checklstring(L, 1, &r.len);
  r.text = lua_newuserdatauv(L, r.len + 1, 0); /* dml_rpc_read overwrites */
  memcpy(r.text, text, r.len);
  dml_rpc_read(r.text, r.len, &r.message);
  lua_pushcfunction(L, push_message);
  lua_pushlightuserdata(L, &r);
  int failed = lua_pcall(L, 1, 1, 0);
  dml_rpc_release(&r.message);
  return failed ? lua_error(L) : 1;
}

/* Pushes what was written, or nil. */
static int finish(lua_State *L, dml_buffer *out, dml_status status) {
  if (status == DML_OK) lua_pushlstring(L, out->data, out->len);
  else lua_pushnil(L);
  dml_buffer_deinit(out);
  return 1;
}

/* rpc.result(id, json) -> text | nil: too large, or a mask broke the JSON */
static int l_result(lua_State *L) {
  size_t id_len, len;
  const char *id = luaL_checklstring(L, 1, &id_len);
  luaL_checkstring(L, 2);
  const char *json = dml_stdio_push_outgoing(L, 2, &len);
  dml_buffer out;
  dml_buffer_init(&out, MESSAGE_MAX_BYTES);
  return finish(L, &out, json ? dml_rpc_append_result(&out, id, id_len, json, len) : DML_INTERNAL);
}

/* rpc.error(id?, code, message, data_json?) -> text | nil */
static int l_error(lua_State *L) {
  size_t id_len = 0, data_len = 0;
  const char *id = luaL_optlstring(L, 1, NULL, &id_len);
  int code = (int)luaL_checkinteger(L, 2);
  luaL_checkstring(L, 3);
  bool has_data = !lua_isnoneornil(L, 4);
  if (has_data) luaL_checkstring(L, 4);
  dml_push_redacted(L, 3);
  const char *text = lua_tostring(L, -1), *data = has_data ? dml_stdio_push_outgoing(L, 4, &data_len) : NULL;
  dml_buffer out;
  dml_buffer_init(&out, MESSAGE_MAX_BYTES);
  return finish(L, &out, dml_rpc_append_error(&out, id, id_len, code, text, data, data_len));
}

/* rpc.notification(method, params_json) -> text | nil */
static int l_notification(lua_State *L) {
  size_t len;
  const char *method = luaL_checkstring(L, 1);
  luaL_checkstring(L, 2);
  const char *json = dml_stdio_push_outgoing(L, 2, &len);
  dml_buffer out;
  dml_buffer_init(&out, MESSAGE_MAX_BYTES);
  return finish(L, &out, json ? dml_rpc_append_notification(&out, method, json, len) : DML_INTERNAL);
}

/* rpc.request(id, method, params_json) -> text | nil */
static int l_request(lua_State *L) {
  size_t len;
  const char *id = luaL_checkstring(L, 1), *method = luaL_checkstring(L, 2);
  luaL_checkstring(L, 3);
  const char *json = dml_stdio_push_outgoing(L, 3, &len);
  dml_buffer out;
  dml_buffer_init(&out, MESSAGE_MAX_BYTES);
  return finish(L, &out, json ? dml_rpc_append_request(&out, id, method, json, len) : DML_INTERNAL);
}

static const luaL_Reg FUNCTIONS[] = {{"read", l_read},
                                     {"result", l_result},
                                     {"error", l_error},
                                     {"notification", l_notification},
                                     {"request", l_request},
                                     {NULL, NULL}};

int dml_open_rpc(lua_State *L) {
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
