/* keep.c - see keep.h. */
#include "agent/keep.h"

#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

#define OUTPUT_FIELDS_BYTES 256

size_t dml_keep_live_left(const dml_keep *keep) {
  return keep->total < keep->live ? keep->live - (size_t)keep->total : 0;
}

static void add_head(dml_keep *keep, const uint8_t *bytes, size_t len) {
  if (len == 0 || keep->has_spool_failed) return;
  uint8_t *head = realloc(keep->head, keep->head_len + len);
  if (!head) {
    keep->has_spool_failed = true; /* a spool without its head would lie */
    return;
  }
  memcpy(head + keep->head_len, bytes, len);
  keep->head = head;
  keep->head_len += len;
}

static void add_ring(dml_keep *keep, const uint8_t *bytes, size_t len) {
  if (keep->tail == 0 || len == 0) return;
  if (!keep->ring) keep->ring = malloc(keep->tail);
  if (!keep->ring) {
    keep->tail = 0;
    return;
  }
  if (len > keep->tail) {
    bytes += len - keep->tail;
    len = keep->tail;
  }
  size_t first = keep->tail - keep->ring_at < len ? keep->tail - keep->ring_at : len;
  memcpy(keep->ring + keep->ring_at, bytes, first);
  memcpy(keep->ring, bytes + first, len - first);
  keep->ring_at = (keep->ring_at + len) % keep->tail;
  keep->ring_len = keep->ring_len + len < keep->tail ? keep->ring_len + len : keep->tail;
}

/* The ring's bytes in order, as at most two runs. */
static void ring_runs(const dml_keep *keep, const uint8_t *runs[2], size_t lens[2]) {
  size_t from = keep->ring_len < keep->tail ? 0 : keep->ring_at;
  size_t first = keep->ring_len < keep->tail - from ? keep->ring_len : keep->tail - from;
  runs[0] = keep->ring + from;
  lens[0] = first;
  runs[1] = keep->ring;
  lens[1] = keep->ring_len - first;
}

static void begin_spool(dml_agent *agent, dml_keep *keep) {
  keep->spool = dml_spool_open(agent, keep->which);
  if (!keep->spool) keep->has_spool_failed = true;
  else {
    if (keep->head_len) dml_spool_write(agent, keep->spool, keep->head, keep->head_len);
    if (keep->ring_len) {
      const uint8_t *runs[2];
      size_t lens[2];
      ring_runs(keep, runs, lens);
      for (int i = 0; i < 2; i++) dml_spool_write(agent, keep->spool, runs[i], lens[i]);
    }
  }
  free(keep->head);
  keep->head = NULL;
  keep->head_len = 0;
}

void dml_keep_add(dml_agent *agent, dml_keep *keep, const uint8_t *bytes, size_t len) {
  size_t live = dml_keep_live_left(keep);
  if (live > len) live = len;
  if (keep->total + len > keep->spool_at && !keep->spool && !keep->has_spool_failed) begin_spool(agent, keep);
  if (keep->spool) dml_spool_write(agent, keep->spool, bytes, len);
  else add_head(keep, bytes, live);
  add_ring(keep, bytes + live, len - live);
  keep->total += len;
}

void dml_keep_send(dml_agent *agent, const dml_keep *keep, uint32_t stream) {
  uint8_t flags = (uint8_t)keep->which;
  if (keep->ring_len) {
    const uint8_t *runs[2];
    size_t lens[2];
    ring_runs(keep, runs, lens);
    for (int i = 0; i < 2; i++)
      for (size_t at = 0; at < lens[i]; at += DML_FRAME_DATA_MAX) {
        size_t len = lens[i] - at < DML_FRAME_DATA_MAX ? lens[i] - at : DML_FRAME_DATA_MAX;
        dml_channel_send(&agent->channel, DML_FRAME_TAIL, flags, stream, runs[i] + at, len);
      }
  }
  dml_fields fields;
  dml_fields_init(&fields, OUTPUT_FIELDS_BYTES);
  dml_fields_put_int(&fields, DML_FIELD_TOTAL, (int64_t)keep->total);
  if (keep->spool && !keep->spool->is_lost) {
    char path[DML_SPOOL_PATH_BYTES];
    dml_spool_path(keep->spool, path);
    dml_fields_put_text(&fields, DML_FIELD_PATH, path);
  }
  dml_channel_send_fields(&agent->channel, DML_FRAME_OUTPUT, flags, stream, &fields);
}

void dml_keep_deinit(dml_agent *agent, dml_keep *keep, bool discard) {
  if (keep->spool && discard) dml_spool_discard(agent, keep->spool);
  else if (keep->spool) dml_spool_finish(agent, keep->spool);
  keep->spool = NULL;
  free(keep->head);
  free(keep->ring);
  keep->head = keep->ring = NULL;
  keep->head_len = keep->ring_len = keep->ring_at = 0;
}
