/* asks.h - what we asked a client and it has not answered yet, by the id we gave it.
 *
 * Storage of an ask is the caller's; the table links it in. One table a connection. */
#ifndef DML_MCP_ASKS_H
#define DML_MCP_ASKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Questions that wait at a time; few, so a list is searched from its head. */
#define DML_ASKS_MAX 64
#define DML_ASK_ID_BYTES 32

/* Do not touch the fields. */
typedef struct dml_ask {
  char id[DML_ASK_ID_BYTES]; /* "dml-1", never used again on the connection */
  struct dml_ask *next, **back;
  void *ud;
} dml_ask;

typedef struct dml_asks {
  size_t count;
  uint64_t last; /* number of the newest id */
  dml_ask *first;
} dml_asks;

/* An empty table. It owns nothing, so it needs no deinit: remove each ask. */
void dml_asks_init(dml_asks *asks);
/* Gives `ask` an id and links it in. Errors: DML_QUOTA_EXCEEDED; then `ask` is empty. */
dml_status dml_asks_add(dml_asks *asks, dml_ask *ask, void *ud);
/* Unlinks it. Safe to call twice, and on zeroed storage. */
void dml_asks_remove(dml_asks *asks, dml_ask *ask);
/* The ask with that id, which may hold any bytes; NULL where none waits. */
dml_ask *dml_asks_find(const dml_asks *asks, const char *id, size_t len);

#endif
