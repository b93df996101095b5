/* calls.c - see calls.h. */
#include "mcp/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dml_calls_init(dml_calls *calls) { memset(calls, 0, sizeof *calls); }

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ - chains are bounded by DML_CALLS_MAX whatever ids are chosen. */
static size_t bucket_of(const char *key, size_t len) {
  unsigned hash = 2166136261u;
  for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)key[i]) * 16777619u;
  return hash % DML_CALLS_BUCKETS;
}

static char *make_key(char kind, const char *s, size_t len, size_t *key_len) {
  char *key = malloc(len + 1);
  if (!key) return NULL;
  key[0] = kind;
  memcpy(key + 1, s, len);
  *key_len = len + 1;
  return key;
}

dml_status dml_calls_add(dml_calls *calls, const dml_rpc_message *message, dml_call *call, void *ud) {
  *call = (dml_call){0};
  if (calls->count >= DML_CALLS_MAX) return DML_QUOTA_EXCEEDED;
  call->id = malloc(message->id_len);
  const json_t *s = message->id_string;
  call->key = s ? make_key('s', json_string_value(s), json_string_length(s), &call->key_len)
                : make_key('i', message->id, message->id_len, &call->key_len);
  if (!call->id || !call->key) {
    free(call->id);
    free(call->key);
    *call = (dml_call){0};
    return DML_INTERNAL;
  }
  memcpy(call->id, message->id, message->id_len);
  call->id_len = message->id_len;
  call->ud = ud;
  dml_call **head = &calls->buckets[bucket_of(call->key, call->key_len)];
  call->next = *head;
  call->back = head;
  if (call->next) call->next->back = &call->next;
  *head = call;
  calls->count++;
  return DML_OK;
}

void dml_calls_remove(dml_calls *calls, dml_call *call) {
  if (!call->back) return;
  *call->back = call->next;
  if (call->next) call->next->back = call->back;
  free(call->id);
  free(call->key);
  *call = (dml_call){0};
  calls->count--;
}

static dml_call *find(dml_calls *calls, char kind, const char *s, size_t len) {
  size_t key_len;
  char *key = make_key(kind, s, len, &key_len);
  if (!key) return NULL;
  dml_call *call = calls->buckets[bucket_of(key, key_len)];
  while (call && (call->key_len != key_len || memcmp(call->key, key, key_len) != 0)) call = call->next;
  free(key);
  return call;
}

dml_call *dml_calls_find_cancelled(dml_calls *calls, const json_t *params) {
  const json_t *id = json_object_get(params, "requestId");
  if (json_is_string(id)) return find(calls, 's', json_string_value(id), json_string_length(id));
  if (!json_is_integer(id)) return NULL;
  char digits[32];
  int n = snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(id));
  return find(calls, 'i', digits, (size_t)n);
}
