/* loop.c - see loop.h. */
#include "loop/loop.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* Closing handles are done in a turn or two. What libuv's threads still work on (a sync to disk) is waited for. */
#define CLOSE_TURNS_MAX 64
#define CLOSE_NAPS_MAX 2000
#define CLOSE_NAP_NS 1000000

struct dml_loop {
  uv_loop_t *uv;
  uv_loop_t own;
  bool is_own;
};

dml_status dml_loop_new(uv_loop_t *host, dml_loop **out) {
  *out = NULL;
  dml_loop *loop = calloc(1, sizeof *loop);
  if (!loop) return DML_INTERNAL;
  if (host) {
    loop->uv = host;
  } else {
    if (uv_loop_init(&loop->own) != 0) {
      free(loop);
      return DML_INTERNAL;
    }
    loop->uv = &loop->own;
    loop->is_own = true;
  }
  *out = loop;
  return DML_OK;
}

/* Whether one of libuv's threads still works for the loop. */
static bool has_request(const dml_loop *loop) { return loop->uv->active_reqs.count > 0; }

/* Returns whether the memory may go. */
static bool close_own(dml_loop *loop) {
  for (int turn = 0; turn < CLOSE_TURNS_MAX + CLOSE_NAPS_MAX; turn++) {
    if (uv_loop_close(loop->uv) == 0) return true;
    uv_run(loop->uv, UV_RUN_NOWAIT);
    if (turn < CLOSE_TURNS_MAX) continue;
    if (!has_request(loop)) break;
    nanosleep(&(struct timespec){.tv_nsec = CLOSE_NAP_NS}, NULL);
  }
  return !has_request(loop);
}

void dml_loop_free(dml_loop *loop) {
  if (!loop) return;
  if (loop->is_own && !close_own(loop)) return; /* a thread that is still at work would write into it */
  free(loop);
}

uv_loop_t *dml_loop_uv(dml_loop *loop) { return loop->uv; }
