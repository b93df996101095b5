/* regex.h - regular expressions for what operators look for in text: PCRE2 with limits that hold whatever the pattern and
 * the text are. (Globs are in glob.h and need no PCRE2.)
 *
 * Syntax: PCRE2's, UTF-8, without \C. A text that is not UTF-8 is looked at with U+FFFD in place of what is none. */
#ifndef DML_BASE_REGEX_H
#define DML_BASE_REGEX_H

#include <stddef.h>

#include "base/buffer.h"

/* Keeps what matching needs: for one thread at a time, even through a const pointer. */
typedef struct dml_regex dml_regex;

#define DML_REGEX_BYTES_MAX 4096
/* A match that is longer may be missed by dml_regex_mask. */
#define DML_REGEX_MASK_SPAN 4096

/* Compiles `len` bytes, which need no NUL and may be freed after; to machine code where the system allows that. Errors:
 * DML_INVALID_ARGUMENT with PCRE2's words about it in `why` (at most why_len bytes with the NUL) and the byte it is about
 * in `offset`; DML_INTERNAL (no memory, `why` too). */
dml_status dml_regex_new(const char *pattern, size_t len, dml_regex **out, size_t *offset, char *why, size_t why_len);
/* NULL is fine. */
void dml_regex_free(dml_regex *regex);
/* Whether some part of `s` matches: 1, 0, or -1: undecided, since a limit was hit. */
int dml_regex_match(const dml_regex *regex, const char *s, size_t len);
/* Appends `s` with every match replaced by `with` (NUL-terminated) and counts them; a match of nothing is none. A text that
 * is not UTF-8 is appended mended when something in it matches, else as it came. A match that goes on past
 * DML_REGEX_MASK_SPAN is followed to 64 KiB. Errors: DML_TOO_LARGE (a limit was hit, or the buffer's), DML_INTERNAL (no
 * memory); what was appended is to be thrown away then. */
dml_status dml_regex_mask(const dml_regex *regex, const char *s, size_t len, const char *with, dml_buffer *out, size_t *count);
/* Appends `s` with every byte of a match replaced by `*`, so that each byte keeps its place; bytes that are no UTF-8 are
 * looked at as `?` and stay as they are. Errors: as dml_regex_mask. */
dml_status dml_regex_blank(const dml_regex *regex, const char *s, size_t len, dml_buffer *out);

#endif
