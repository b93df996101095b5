/* glob.h - the policy's globs: `*` `**` `?` `[a-z]` `[!a]` `{a,b}` and `\` before a character that is meant as it stands.
 *
 * Whole string, case-sensitive, by characters of UTF-8 (a byte that is none is a character that only wildcards match).
 * In a path (`is_path`) `/` is special: `*`, `?` and sets do not match it, `**` does, and a component that is `**` may be
 * absent together with the `/` behind it, so that "/a", `**` and "/b" in a row match "/a/b". In any other string `/` is a
 * character like all others and `**` is `*`.
 *
 * An automaton of ours and no regular expression: all ways to match are followed at once, so the time is at most the
 * subject's length times the pattern's, whatever either holds, and the fence's program needs no library for it. */
#ifndef DML_BASE_GLOB_H
#define DML_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct dml_glob dml_glob;

#define DML_GLOB_BYTES_MAX 4096
/* Braces within braces, and alternatives of one pattern in all. */
#define DML_GLOB_NEST_MAX 8
#define DML_GLOB_ALTERNATIVES_MAX 256

/* Compiles `len` bytes, which need no NUL and may be freed after. Errors: DML_INVALID_ARGUMENT with what is wrong, in words
 * that complete "the glob X: ", in `why` (at most why_len bytes with the NUL); DML_INTERNAL (no memory, `why` too). */
dml_status dml_glob_new(const char *pattern, size_t len, bool is_path, dml_glob **out, char *why, size_t why_len);
/* NULL is fine. */
void dml_glob_free(dml_glob *glob);
/* Whether all of `s` matches: 1, 0, or -1: undecided, since it would take more than some milliseconds. */
int dml_glob_match(const dml_glob *glob, const char *s, size_t len);

#endif
