/* args.h - an argument vector with a limit.
 *
 * Failure is sticky: callers append without checking and ask once, by dml_args_finish. */
#ifndef DML_SANDBOX_ARGS_H
#define DML_SANDBOX_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define DML_ARGS_MAX 512
#define DML_ARGS_TEXT_MAX_BYTES 8192

/* Do not touch the fields. About 12 KiB: for the heap, not the stack. */
typedef struct dml_args {
  const char *argv[DML_ARGS_MAX + 1];
  size_t count;
  char text[DML_ARGS_TEXT_MAX_BYTES];
  size_t text_len;
  bool is_over;
} dml_args;

/* Empty, on the caller's storage; nothing to release. */
void dml_args_init(dml_args *args);
/* Appends borrowed strings, which must outlive the vector; ends at NULL. */
void dml_args_add(dml_args *args, const char *first, ...) __attribute__((sentinel));
/* Appends one argument in printf form; the text is the vector's. */
void dml_args_addf(dml_args *args, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The vector, ended by NULL, borrowed. Errors: DML_TOO_LARGE when something did not fit. */
dml_status dml_args_finish(dml_args *args, char *const **argv);

#endif
