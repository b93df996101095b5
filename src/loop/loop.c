/* loop.c - see loop.h. */
#include "loop/loop.h"

#include <stdbool.h>
#include <stdlib.h>

#define CLOSE_TURNS_MAX 64

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

void dml_loop_free(dml_loop *loop) {
  if (!loop) return;
  if (loop->is_own) {
    for (int turn = 0; turn < CLOSE_TURNS_MAX && uv_loop_close(loop->uv) != 0; turn++) uv_run(loop->uv, UV_RUN_NOWAIT);
  }
  free(loop);
}

uv_loop_t *dml_loop_uv(dml_loop *loop) { return loop->uv; }
