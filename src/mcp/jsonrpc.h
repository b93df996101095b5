/* jsonrpc.h - one JSON-RPC message in, one out (JSON-RPC 2.0; MCP basic, "Messages", all revisions).
 *
 * Batches are refused on every revision. Ids are echoed from the bytes they came in, so that an integer of any length
 * and a string in any spelling come back exactly. */
#ifndef DML_MCP_JSONRPC_H
#define DML_MCP_JSONRPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/json.h"

#define DML_RPC_PARSE_ERROR (-32700)
#define DML_RPC_INVALID_REQUEST (-32600)
#define DML_RPC_METHOD_NOT_FOUND (-32601)
#define DML_RPC_INVALID_PARAMS (-32602)
#define DML_RPC_INTERNAL_ERROR (-32603)

typedef enum dml_rpc_kind {
  DML_RPC_REQUEST,
  DML_RPC_NOTIFICATION,
  DML_RPC_RESPONSE, /* to something that was asked, perhaps: its id is a string */
  DML_RPC_IGNORED,  /* a response that can be none of ours, or a notification that is malformed: silence */
  DML_RPC_INVALID   /* to be answered with error_code and error_text */
} dml_rpc_kind;

typedef struct dml_rpc_message {
  dml_rpc_kind kind;
  char id[DML_JSON_ID_MAX_BYTES + 1]; /* as it came, quotes included; empty: null */
  size_t id_len;
  const char *method;      /* borrowed from root; NUL-free */
  const json_t *params;    /* borrowed from root; an object, or NULL */
  const json_t *id_string; /* borrowed from root: the decoded id where it is a string, else NULL */
  const json_t *result;    /* borrowed from root: of a response, an object; NULL where there is none, or no object */
  bool is_error;           /* a response that says so; what it says is foreign and not kept */
  json_t *root;
  int error_code;
  const char *error_text;
} dml_rpc_message;

/* Reads one message; overwrites an integer id in `text`. Release `out` afterwards, whatever its kind. */
void dml_rpc_read(char *text, size_t len, dml_rpc_message *out);
void dml_rpc_release(dml_rpc_message *message);
/* Reads the id alone, from the head of a message that is too long to be kept. */
void dml_rpc_read_id(const char *head, size_t len, dml_rpc_message *out);

/* Each appends one message without a line end. `id_len` 0 is null; `json` is JSON text of ours. Errors: the buffer's; then
 * the buffer is as before. */
dml_status dml_rpc_append_result(dml_buffer *out, const char *id, size_t id_len, const char *json, size_t json_len);
dml_status dml_rpc_append_error(dml_buffer *out, const char *id, size_t id_len, int code, const char *text,
                                const char *data_json, size_t data_len);
dml_status dml_rpc_append_notification(dml_buffer *out, const char *method, const char *json, size_t json_len);
/* `id` and `method` are words of ours that need no escapes. */
dml_status dml_rpc_append_request(dml_buffer *out, const char *id, const char *method, const char *json, size_t json_len);

#endif
