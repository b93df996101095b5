/* view.h - reads a text as if it were written in one of the forms that bytes take on their way through programs.
 *
 * A view turns characters, from a place on, into the bytes they stand for, one at a time. So a secret is found in every
 * form by looking for its own bytes, and no encoded copy of it is ever made. */
#ifndef DML_VAULT_VIEW_H
#define DML_VAULT_VIEW_H

#include <stddef.h>
#include <stdint.h>

typedef enum dml_view_kind {
  DML_VIEW_PLAIN,
  DML_VIEW_URL,      /* RFC 3986 §2.1: %XX; other characters stand for themselves */
  DML_VIEW_FORM,     /* the same, and + is a space */
  DML_VIEW_JSON,     /* RFC 8259 §7: \/ \" \u00e9 and so on */
  DML_VIEW_HEX,      /* two digits of either case a byte */
  DML_VIEW_BASE64_0, /* RFC 4648 §4 and §5, alphabets mixed; the bytes begin with a quartet, */
  DML_VIEW_BASE64_1, /* or behind one foreign byte: in its second character, */
  DML_VIEW_BASE64_2, /* or behind two: in its third */
  DML_VIEW_COUNT
} dml_view_kind;

/* What dml_view_next gives besides bytes. */
#define DML_VIEW_MISMATCH (-1) /* no byte of this form stands here */
#define DML_VIEW_CUT (-2)      /* the text ends, perhaps in the middle of a character */

/* Do not touch the fields; `at` may be read: the place behind the last character that was used. */
typedef struct dml_view {
  const unsigned char *text;
  size_t len, at;
  dml_view_kind kind;
  uint32_t bits; /* of base64: read and not yet used, the lowest bit_count */
  unsigned bit_count;
  unsigned char rest[3]; /* of a \u character: its other bytes, the next one last */
  unsigned rest_count;
} dml_view;

/* Begins at `at`; in the views base64 1 and 2 a part of the character there belongs to the foreign bytes. */
void dml_view_init(dml_view *view, dml_view_kind kind, const unsigned char *text, size_t len, size_t at);
/* The same in base64, where the character that the foreign bytes share is not there: `bits` stands for the first
 * `count` bits of the first byte, 4 or 2, which it would have told. */
void dml_view_init_behind(dml_view *view, const unsigned char *text, size_t len, size_t at, uint32_t bits,
                          unsigned count);
/* The next byte, or DML_VIEW_MISMATCH or DML_VIEW_CUT; after these two the view is spent. */
int dml_view_next(dml_view *view);

#endif
