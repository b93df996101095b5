/* calls.h - the requests that are being worked on, by id, so that a cancel finds its call.
 *
 * Storage of a call is the caller's; the table links it in. One table a connection. */
#ifndef DML_MCP_CALLS_H
#define DML_MCP_CALLS_H

#include <stdbool.h>
#include <stddef.h>

#include "mcp/jsonrpc.h"

/* Requests at work at a time; those beyond are refused (`quota_exceeded`). */
#define DML_CALLS_MAX 1024
#define DML_CALLS_BUCKETS 256

/* Do not touch the fields. */
typedef struct dml_call {
  char *id; /* as it came; its bytes are what the answer echoes */
  size_t id_len;
  char *key; /* what cancels are compared with: 's' + decoded string, or 'i' + digits */
  size_t key_len;
  struct dml_call *next, **back;
  void *ud;
} dml_call;

typedef struct dml_calls {
  size_t count;
  dml_call *buckets[DML_CALLS_BUCKETS];
} dml_calls;

/* An empty table. It owns nothing but what its calls hold, so it needs no deinit: remove each call. */
void dml_calls_init(dml_calls *calls);
/* Links a call for the request in. Errors: DML_QUOTA_EXCEEDED, DML_INTERNAL; then `call` is empty. */
dml_status dml_calls_add(dml_calls *calls, const dml_rpc_message *message, dml_call *call, void *ud);
/* Unlinks and frees what add took. Safe to call twice. */
void dml_calls_remove(dml_calls *calls, dml_call *call);
/* The call that `params` of notifications/cancelled names, or NULL. */
dml_call *dml_calls_find_cancelled(dml_calls *calls, const json_t *params);

#endif
