/* lift.h - takes the strings at some places of a JSON text out of it, before anybody decodes it.
 *
 * What is taken is overwritten in the text by a mark, so that the decoder, which copies strings to the heap, never sees
 * it. A text that is no JSON may be lifted from in the wrong place; the decoder refuses it then. */
#ifndef DML_VAULT_LIFT_H
#define DML_VAULT_LIFT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define DML_LIFT_POINTERS_MAX 16u
#define DML_LIFT_DEPTH_MAX 16u
#define DML_LIFT_SEGMENT_MAX_BYTES 64u
/* Strings taken from one text. */
#define DML_LIFT_COUNT_MAX 1024u

/* A JSON pointer (RFC 6901) taken apart; a segment "*" stands for every member or element. */
typedef struct dml_lift_pointer {
  size_t depth;
  char segments[DML_LIFT_DEPTH_MAX][DML_LIFT_SEGMENT_MAX_BYTES + 1];
} dml_lift_pointer;

/* False when the text is no pointer to something below the top, or is beyond the limits. */
bool dml_lift_parse(dml_lift_pointer *pointer, const char *text, size_t len);
/* Whether the segment covers a member of this name. */
bool dml_lift_covers(const dml_lift_pointer *pointer, size_t depth, const char *name);

/* Called with a decoded string (UTF-8, in memory that the caller wipes after the call) and the number of its pointer.
 * The mark that it writes, at most `room` bytes without '"' or '\', takes the string's place; 0 gives up with *status.
 */
typedef size_t (*dml_lift_take)(void *ud, size_t pointer, const unsigned char *bytes, size_t len, char *mark,
                                size_t room, dml_status *status);

/* Goes over the text, which is changed. `scratch` is where strings are decoded. Errors: what `take` says,
 * DML_INVALID_RESPONSE (no JSON, a string at a pointer that is longer than the scratch). */
dml_status dml_lift(char *text, size_t len, const dml_lift_pointer *pointers, size_t count, unsigned char *scratch,
                    size_t scratch_bytes, dml_lift_take take, void *ud);

#endif
