/* jsonrpc.c - see jsonrpc.h. */
#include "mcp/jsonrpc.h"

#include <stdio.h>
#include <string.h>

#define NOT_JSON "the message is not JSON in UTF-8"

static void refuse(dml_rpc_message *out, int code, const char *text) {
  out->kind = DML_RPC_INVALID;
  out->error_code = code;
  out->error_text = text;
}

/* Keeps the id's bytes when they are safe to echo: digits always, a string only when it is JSON by itself. */
static void keep_id(const char *text, const dml_json_scan_result *scan, dml_rpc_message *out) {
  if (scan->id_kind != DML_JSON_ID_INTEGER && scan->id_kind != DML_JSON_ID_STRING) return;
  if (scan->id_kind == DML_JSON_ID_STRING) {
    json_t *alone = json_loadb(text + scan->id_start, scan->id_len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (!alone) return;
    json_decref(alone);
  }
  memcpy(out->id, text + scan->id_start, scan->id_len);
  out->id_len = scan->id_len;
}

/* Jansson would refuse the whole message for an id beyond int64: a zero takes its place. */
static void blank_integer_id(char *text, const dml_json_scan_result *scan) {
  if (scan->id_kind != DML_JSON_ID_INTEGER) return;
  memset(text + scan->id_start, ' ', scan->id_len);
  text[scan->id_start] = '0';
}

/* A string without NUL, so that C's functions see all of it. */
static bool is_plain_string(const json_t *value) {
  return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}

/* Ours have string ids. One with a result and an error, or with neither an object nor an error, answers badly. */
static void classify_response(dml_rpc_message *out) {
  const json_t *id = json_object_get(out->root, "id");
  out->kind = json_is_string(id) ? DML_RPC_RESPONSE : DML_RPC_IGNORED;
  out->id_string = json_is_string(id) ? id : NULL;
  const json_t *result = json_object_get(out->root, "result"), *error = json_object_get(out->root, "error");
  if (json_is_object(result) && !error) out->result = result;
  out->is_error = error && !result;
}

static void classify(dml_rpc_message *out, const dml_json_scan_result *scan) {
  const json_t *version = json_object_get(out->root, "jsonrpc");
  const json_t *method = json_object_get(out->root, "method");
  const json_t *params = json_object_get(out->root, "params");
  bool has_id = scan->id_kind != DML_JSON_ID_ABSENT;
  if (!method && (json_object_get(out->root, "result") || json_object_get(out->root, "error"))) {
    classify_response(out);
    return;
  }
  if (has_id && out->id_len == 0) {
    refuse(out, DML_RPC_INVALID_REQUEST, "id must be a string of at most 1 KiB or an integer, once, and not null");
    return;
  }
  if (!is_plain_string(method)) {
    refuse(out, DML_RPC_INVALID_REQUEST, "method must be a string");
    return;
  }
  out->method = json_string_value(method);
  out->params = params;
  if (!has_id) {
    bool is_fine = json_is_string(version) && (!params || json_is_object(params));
    out->kind = is_fine ? DML_RPC_NOTIFICATION : DML_RPC_IGNORED;
    return;
  }
  if (!is_plain_string(version) || strcmp(json_string_value(version), "2.0") != 0) {
    refuse(out, DML_RPC_INVALID_REQUEST, "jsonrpc must be \"2.0\"");
    return;
  }
  if (params && !json_is_object(params)) {
    refuse(out, DML_RPC_INVALID_PARAMS, "params must be an object");
    return;
  }
  const json_t *id = json_object_get(out->root, "id");
  out->id_string = json_is_string(id) ? id : NULL;
  out->kind = DML_RPC_REQUEST;
}

/* Without an id it may be a notification, and these are never answered: one that names a number beyond int64, as the
 * cancel of such an id does, is let go. */
static void refuse_undecoded(dml_rpc_message *out, const dml_json_scan_result *scan, enum json_error_code why) {
  if (why != json_error_numeric_overflow) refuse(out, DML_RPC_PARSE_ERROR, NOT_JSON);
  else if (scan->top == '{' && scan->id_kind == DML_JSON_ID_ABSENT) out->kind = DML_RPC_IGNORED;
  else refuse(out, DML_RPC_INVALID_REQUEST, "a number is outside what can be represented");
}

void dml_rpc_read(char *text, size_t len, dml_rpc_message *out) {
  memset(out, 0, offsetof(dml_rpc_message, id));
  out->id_len = 0;
  out->method = NULL;
  out->params = out->id_string = out->result = NULL;
  out->is_error = false;
  out->root = NULL;
  dml_json_scan_result scan;
  dml_json_scan(text, len, &scan);
  if (scan.top == '[') {
    refuse(out, DML_RPC_INVALID_REQUEST, "batches are not accepted; send one message a line");
    return;
  }
  if (!scan.is_balanced) {
    refuse(out, DML_RPC_PARSE_ERROR, NOT_JSON);
    return;
  }
  keep_id(text, &scan, out);
  if (scan.is_too_deep || scan.is_too_many) {
    refuse(out, DML_RPC_INVALID_REQUEST, "the message is nested too deeply or holds too many values");
    return;
  }
  blank_integer_id(text, &scan);
  json_error_t error;
  out->root = json_loadb(text, len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
  if (!out->root) refuse_undecoded(out, &scan, json_error_code(&error));
  else if (!json_is_object(out->root)) refuse(out, DML_RPC_INVALID_REQUEST, "a message must be an object");
  else classify(out, &scan);
}

void dml_rpc_read_id(const char *head, size_t len, dml_rpc_message *out) {
  dml_json_scan_result scan;
  memset(out, 0, sizeof *out);
  dml_json_scan(head, len, &scan);
  bool is_whole = scan.id_start + scan.id_len < len; /* digits may go on behind the head */
  if (scan.top == '{' && is_whole) keep_id(head, &scan, out);
}

void dml_rpc_release(dml_rpc_message *message) {
  json_decref(message->root);
  message->root = NULL;
}

static dml_status append_all(dml_buffer *out, const char *const *pieces, const size_t *lens, size_t count) {
  size_t before = out->len;
  for (size_t i = 0; i < count; i++) {
    dml_status status = dml_buffer_append(out, pieces[i], lens[i]);
    if (status != DML_OK) {
      out->len = before;
      return status;
    }
  }
  return DML_OK;
}

#define HEAD "{\"jsonrpc\":\"2.0\",\"id\":"

dml_status dml_rpc_append_result(dml_buffer *out, const char *id, size_t id_len, const char *json, size_t json_len) {
  const char *pieces[] = {HEAD, id_len ? id : "null", ",\"result\":", json, "}"};
  size_t lens[] = {sizeof HEAD - 1, id_len ? id_len : 4, 10, json_len, 1};
  return append_all(out, pieces, lens, 5);
}

dml_status dml_rpc_append_error(dml_buffer *out, const char *id, size_t id_len, int code, const char *text,
                                const char *data_json, size_t data_len) {
  char number[16];
  int n = snprintf(number, sizeof number, "%d", code);
  dml_buffer quoted;
  dml_buffer_init(&quoted, 16 * 1024);
  dml_status status = dml_json_append_string(&quoted, text, strlen(text));
  if (status == DML_OK) {
    const char *pieces[] = {HEAD,        id_len ? id : "null",         ",\"error\":{\"code\":", number, ",\"message\":",
                            quoted.data, data_json ? ",\"data\":" : "", data_json ? data_json : "", "}}"};
    size_t lens[] = {sizeof HEAD - 1, id_len ? id_len : 4, 17, (size_t)n, 11, quoted.len, data_json ? 8 : 0, data_len, 2};
    status = append_all(out, pieces, lens, 9);
  }
  dml_buffer_deinit(&quoted);
  return status;
}

dml_status dml_rpc_append_notification(dml_buffer *out, const char *method, const char *json, size_t json_len) {
  const char *pieces[] = {"{\"jsonrpc\":\"2.0\",\"method\":\"", method, "\",\"params\":", json, "}"};
  size_t lens[] = {27, strlen(method), 11, json_len, 1};
  return append_all(out, pieces, lens, 5);
}

dml_status dml_rpc_append_request(dml_buffer *out, const char *id, const char *method, const char *json, size_t json_len) {
  const char *pieces[] = {HEAD "\"", id, "\",\"method\":\"", method, "\",\"params\":", json, "}"};
  size_t lens[] = {sizeof HEAD, strlen(id), 12, strlen(method), 11, json_len, 1};
  return append_all(out, pieces, lens, 7);
}
