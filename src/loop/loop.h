/* loop.h - the event loop of one runtime: libuv's, own or a host's.
 *
 * One loop, one thread. Nothing here is safe to call from another thread. */
#ifndef DML_LOOP_LOOP_H
#define DML_LOOP_LOOP_H

#include <stdint.h>
#include <uv.h>

#include "base/status.h"

typedef struct dml_loop dml_loop;

/* `host` is the loop of an embedder, which keeps owning it; NULL makes one. Errors: DML_INTERNAL. */
dml_status dml_loop_new(uv_loop_t *host, dml_loop **out);
/* Own loop: runs what is left of closing handles, then frees it. NULL is fine. */
void dml_loop_free(dml_loop *loop);
/* The libuv loop, borrowed. */
uv_loop_t *dml_loop_uv(dml_loop *loop);

#endif
