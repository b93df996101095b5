/* redact.h - masks every live secret in a text, in every form of view.h, whole or in pieces.
 *
 * What is masked becomes "[redacted]"; matches that overlap become one. Of several secrets at one place the longest
 * counts. The work is linear in the text, whatever is live: the filter of secrets.h looks at each place, and where it
 * nods, the sorted set is narrowed byte by byte. Nothing here touches a secret outside of the arena. */
#ifndef DML_VAULT_REDACT_H
#define DML_VAULT_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/status.h"
#include "vault/secrets.h"

#define DML_REDACT_MARK "[redacted]"
/* The longest form of a secret: each byte as \u00xx. */
#define DML_REDACT_HELD_MAX_BYTES (6u * DML_SECRET_MAX_BYTES)

/* Appends `text` with its secrets masked to `out`, but appends nothing when there are none: *is_changed says which.
 * With `is_cut` the text goes on where nobody sees it: an end that may be the beginning of a secret is dropped. Errors:
 * the buffer's. */
dml_status dml_redact(dml_secrets *set, const char *text, size_t len, bool is_cut, dml_buffer *out, bool *is_changed);

/* Appends the part [first, *end) of `text`, masked as in the whole: a secret that begins before is not named again, one
 * that goes beyond is masked at its beginning. *end is at most `last`; less where, with `is_cut`, an end of the text
 * that may be the beginning of a secret reaches into the part. Errors: the buffer's. */
dml_status dml_redact_part(dml_secrets *set, const char *text, size_t len, size_t first, size_t last, bool is_cut,
                           dml_buffer *out, size_t *end);

/* A text that comes in pieces. Do not touch the fields. */
typedef struct dml_redactor {
  dml_buffer held; /* from the first place on that is not decided */
  size_t done;     /* so much of it has been masked already */
} dml_redactor;

/* At the beginning of a text. Allocates nothing yet. */
void dml_redactor_init(dml_redactor *redactor);
/* Drops what is held back. Twice is fine. */
void dml_redactor_deinit(dml_redactor *redactor);
/* Takes a piece and appends to `out` what is decided now. At most DML_REDACT_HELD_MAX_BYTES are held back: an end that
 * may be the beginning of a secret. Errors: the buffer's; then the redactor is of no more use. */
dml_status dml_redactor_feed(dml_redactor *redactor, dml_secrets *set, const char *piece, size_t len, dml_buffer *out);
/* The text has ended: appends what was held back. Errors: the buffer's. */
dml_status dml_redactor_finish(dml_redactor *redactor, dml_secrets *set, dml_buffer *out);

#endif
