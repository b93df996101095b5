/* buffer.h - a growing run of bytes that cannot pass a limit given when it is made.
 *
 * Storage is the caller's (init/deinit); the bytes are the buffer's until taken. */
#ifndef DML_BASE_BUFFER_H
#define DML_BASE_BUFFER_H

#include <stddef.h>

#include "base/status.h"

/* Do not touch the fields; `data` and `len` may be read. */
typedef struct dml_buffer {
  char *data;
  size_t len;
  size_t capacity;
  size_t limit;
} dml_buffer;

/* An empty buffer that never holds more than `limit_bytes`. Allocates nothing yet. */
void dml_buffer_init(dml_buffer *buffer, size_t limit_bytes);
/* Frees the bytes; the buffer is empty then, with the same limit. Twice is fine. */
void dml_buffer_deinit(dml_buffer *buffer);
/* Makes room for `more` bytes behind the present ones and returns the place, or NULL. Errors as for append. */
char *dml_buffer_reserve(dml_buffer *buffer, size_t more, dml_status *status);
/* Says that `more` bytes of what was reserved are in use now. */
void dml_buffer_commit(dml_buffer *buffer, size_t more);
/* Errors: DML_TOO_LARGE (the limit), DML_INTERNAL (no memory); the buffer is as before. */
dml_status dml_buffer_append(dml_buffer *buffer, const void *bytes, size_t len);
/* Drops the first `len` bytes. */
void dml_buffer_consume(dml_buffer *buffer, size_t len);
/* Empties it; memory over `keep_bytes` goes back to the system. */
void dml_buffer_reset(dml_buffer *buffer, size_t keep_bytes);

#endif
