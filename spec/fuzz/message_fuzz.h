/* message_fuzz.h - one message of any bytes through the scan, the reader and the writers, with what must hold
 * afterwards.
 *
 * The same function serves the deterministic test beside it and libFuzzer:
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -DDML_LIBFUZZER -Isrc -Ispec
 * spec/fuzz/message_test.c src/base/{json,buffer,utf8,status}.c src/mcp/{jsonrpc,calls}.c -ljansson -o
 * /tmp/message_fuzz An aborted assertion is a find. */
#ifndef DML_SPEC_MESSAGE_FUZZ_H
#define DML_SPEC_MESSAGE_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "mcp/calls.h"
#include "mcp/jsonrpc.h"

#define FUZZ_MUST(condition)                                                                                           \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                        \
      abort();                                                                                                         \
    }                                                                                                                  \
  } while (0)

static void fuzz_scan(const char *text, size_t len) {
  dml_json_scan_result scan;
  dml_json_scan(text, len, &scan);
  if (scan.id_kind == DML_JSON_ID_STRING || scan.id_kind == DML_JSON_ID_INTEGER) {
    FUZZ_MUST(scan.id_len > 0 && scan.id_len <= DML_JSON_ID_MAX_BYTES);
    FUZZ_MUST(scan.id_start < len && scan.id_len <= len - scan.id_start);
  }
  json_t *value;
  dml_json_fault fault = dml_json_decode(text, len, NULL, &value);
  FUZZ_MUST((fault == DML_JSON_FINE) == (value != NULL));
  if (!value) return;
  /* what was decoded is written and read again as the same value, and the id is where the scan says */
  FUZZ_MUST(scan.is_balanced && !scan.is_too_deep && !scan.is_too_many);
  FUZZ_MUST(json_is_object(value) == (scan.top == '{'));
  if (json_is_object(value)) FUZZ_MUST((json_object_get(value, "id") == NULL) == (scan.id_kind == DML_JSON_ID_ABSENT));
  dml_buffer out;
  dml_buffer_init(&out, 64 * 1024 * 1024);
  FUZZ_MUST(dml_json_append(&out, value) == DML_OK);
  FUZZ_MUST(dml_utf8_is_valid(out.data, out.len) && !memchr(out.data, '\n', out.len));
  json_t *again = json_loadb(out.data, out.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  FUZZ_MUST(again && json_equal(value, again));
  json_decref(again);
  json_decref(value);
  dml_buffer_deinit(&out);
}

/* Whatever came in, what goes out is one line of JSON that echoes the id. */
static void fuzz_answer(const dml_rpc_message *message) {
  dml_buffer out;
  dml_buffer_init(&out, 1024 * 1024);
  FUZZ_MUST(dml_rpc_append_error(&out, message->id, message->id_len, -32600, "a \"text\" \xFF", NULL, 0) == DML_OK);
  FUZZ_MUST(!memchr(out.data, '\n', out.len));
  json_error_t error;
  json_t *root = json_loadb(out.data, out.len, JSON_ALLOW_NUL, &error);
  if (!root) { /* an id beyond int64 is fine, and nothing else */
    FUZZ_MUST(json_error_code(&error) == json_error_numeric_overflow);
  } else if (message->id_len == 0) {
    FUZZ_MUST(json_is_null(json_object_get(root, "id")));
  } else {
    const json_t *id = json_object_get(root, "id");
    FUZZ_MUST(json_is_integer(id) || json_is_string(id));
  }
  json_decref(root);
  dml_buffer_deinit(&out);
}

static void fuzz_calls(const dml_rpc_message *message) {
  static dml_calls calls; /* too large for the stack of some */
  dml_calls_init(&calls);
  dml_call call;
  FUZZ_MUST(dml_calls_add(&calls, message, &call, NULL) == DML_OK);
  if (message->params) (void)dml_calls_find_cancelled(&calls, message->params);
  dml_calls_remove(&calls, &call);
  dml_calls_remove(&calls, &call);
  FUZZ_MUST(calls.count == 0);
}

static void fuzz_message(const uint8_t *bytes, size_t len) {
  fuzz_scan((const char *)bytes, len);
  char *text = malloc(len ? len : 1); /* of exactly this size, so that reading beyond it shows */
  FUZZ_MUST(text);
  memcpy(text, bytes, len);
  dml_rpc_message message;
  dml_rpc_read(text, len, &message);
  FUZZ_MUST(message.id_len <= DML_JSON_ID_MAX_BYTES);
  switch (message.kind) {
  case DML_RPC_REQUEST:
    FUZZ_MUST(message.root && message.method && message.id_len > 0);
    FUZZ_MUST(!message.params || json_is_object(message.params));
    fuzz_calls(&message);
    fuzz_answer(&message);
    break;
  case DML_RPC_NOTIFICATION:
    FUZZ_MUST(message.root && message.method && (!message.params || json_is_object(message.params)));
    break;
  case DML_RPC_INVALID:
    FUZZ_MUST(message.error_code <= -32600 && message.error_text);
    fuzz_answer(&message);
    break;
  case DML_RPC_RESPONSE:
    FUZZ_MUST(message.root && json_is_string(message.id_string) && !message.method);
    FUZZ_MUST(!message.result || (json_is_object(message.result) && !message.is_error));
    break;
  case DML_RPC_IGNORED: break;
  }
  dml_rpc_release(&message);
  free(text);
}

#endif
