/* asks.c - see asks.h. */
#include "mcp/asks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void dml_asks_init(dml_asks *asks) { *asks = (dml_asks){0}; }

dml_status dml_asks_add(dml_asks *asks, dml_ask *ask, void *ud) {
  *ask = (dml_ask){0};
  if (asks->count >= DML_ASKS_MAX) return DML_QUOTA_EXCEEDED;
  snprintf(ask->id, sizeof ask->id, "dml-%" PRIu64, ++asks->last);
  ask->ud = ud;
  ask->next = asks->first;
  ask->back = &asks->first;
  if (ask->next) ask->next->back = &ask->next;
  asks->first = ask;
  asks->count++;
  return DML_OK;
}

void dml_asks_remove(dml_asks *asks, dml_ask *ask) {
  if (!ask->back) return;
  *ask->back = ask->next;
  if (ask->next) ask->next->back = ask->back;
  ask->back = NULL;
  asks->count--;
}

dml_ask *dml_asks_find(const dml_asks *asks, const char *id, size_t len) {
  dml_ask *ask = asks->first;
  while (ask && (strlen(ask->id) != len || memcmp(ask->id, id, len) != 0)) ask = ask->next;
  return ask;
}
