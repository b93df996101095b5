/* utf8.h - checks and mends text that comes from outside (RFC 3629). */
#ifndef DML_BASE_UTF8_H
#define DML_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* Length of the valid character at `s` ([1, 4]), 0 where the bytes are invalid, -1 where they are the beginning of a
 * character that `len` cuts off. `len` > 0. */
int dml_utf8_step(const char *s, size_t len);
bool dml_utf8_is_valid(const char *s, size_t len);
/* Appends `s` with every maximal invalid run of bytes replaced by U+FFFD (Unicode 15 §3.9, W3C practice).
 * Errors: the buffer's. */
dml_status dml_utf8_append_mended(dml_buffer *out, const char *s, size_t len);

#endif
