/* fence_worker.h - one process that runs policy code, seen from the server: frames to it, frames from it, its end.
 *
 * It may have been taken over by what it runs: a frame too large, bytes behind an answer or an answer that nobody waits
 * for end it. Knows nothing of Lua; bind_fence.c says what frames mean. */
#ifndef DML_SCRIPT_FENCE_WORKER_H
#define DML_SCRIPT_FENCE_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "fence/wire.h"
#include "loop/loop.h"

typedef struct dml_fence_worker dml_fence_worker;

typedef struct dml_fence_end {
  bool is_late;   /* its time was up, and it was killed */
  bool is_broken; /* it sent what it must not, and was killed */
  int code, signal;
} dml_fence_end;

/* Both run in the loop, and may free the worker. */
typedef struct dml_fence_worker_ops {
  /* A whole frame, header included; its bytes are the callee's to dml_buffer_deinit. */
  void (*on_frame)(void *ud, dml_wire_kind kind, dml_buffer *frame);
  /* Once, and nothing after it; the worker must still be freed. */
  void (*on_end)(void *ud, const dml_fence_end *end);
} dml_fence_worker_ops;

/* Starts the program at `path`. Errors: DML_FILE_NOT_FOUND, DML_FILE_PERMISSION, DML_NO_CAPACITY, DML_INTERNAL. */
dml_status dml_fence_worker_start(dml_loop *loop, const char *path, const dml_fence_worker_ops *ops, void *ud,
                                  dml_fence_worker **out);
/* Sends a whole frame, and kills the worker where no frame has come back after `timeout_ms`. The bytes are taken out of
 * `frame`. What fails shows as the end. */
void dml_fence_worker_send(dml_fence_worker *worker, dml_buffer *frame, uint64_t timeout_ms);
/* Whether the process is gone, which can be so while its last frame is handed over. */
bool dml_fence_worker_has_ended(const dml_fence_worker *worker);
pid_t dml_fence_worker_pid(const dml_fence_worker *worker);
/* Kills and reaps it; no callback runs any more. NULL is fine. */
void dml_fence_worker_free(dml_fence_worker *worker);

#endif
