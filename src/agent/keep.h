/* keep.h - what is kept of one output that is sent only in part: head, tail, and a spool file once something is cut.
 *
 * The first `live` bytes go to the engine as they come (not from here) and are kept too until a spool file has them; of
 * the rest a ring holds the last `tail`. The spool begins when the total passes `spool_at`, which is at most live plus
 * tail, so that head and ring together still are everything before. Constant memory, whatever the output. */
#ifndef DML_AGENT_KEEP_H
#define DML_AGENT_KEEP_H

#include "agent/spool.h"
#include "agent/stream.h"

typedef struct dml_keep {
  int which; /* DML_FRAME_STDOUT or _STDERR */
  size_t live;
  size_t tail;
  size_t spool_at;
  uint64_t total;
  uint8_t *head;
  size_t head_len;
  uint8_t *ring;
  size_t ring_len;
  size_t ring_at; /* where the next byte goes */
  dml_spool *spool;
  bool has_spool_failed;
} dml_keep;

/* How many of the next bytes are live ones. */
size_t dml_keep_live_left(const dml_keep *keep);
void dml_keep_add(dml_agent *agent, dml_keep *keep, const uint8_t *bytes, size_t len);
/* TAIL frames and OUTPUT on `stream`. */
void dml_keep_send(dml_agent *agent, const dml_keep *keep, uint32_t stream);
/* Releases all; `discard` removes the spool file too. Twice is fine. */
void dml_keep_deinit(dml_agent *agent, dml_keep *keep, bool discard);

#endif
