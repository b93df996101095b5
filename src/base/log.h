/* log.h - one line a record, to one descriptor.
 *
 * Storage is the runtime's. Records hold our words and ids of ours only, never text of a provider, a sandbox or a caller;
 * that is for the caller to keep. Control characters are replaced, so that a record is always one line. */
#ifndef DML_BASE_LOG_H
#define DML_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum dml_log_level { DML_LOG_DEBUG, DML_LOG_INFO, DML_LOG_WARN, DML_LOG_ERROR, DML_LOG_OFF } dml_log_level;

#define DML_LOG_LINE_MAX_BYTES 4096
/* A log file that grows beyond this is renamed to `<path>.1` (replacing it) and begun anew; a device or pipe never is. */
#define DML_LOG_FILE_MAX_BYTES (8 * 1024 * 1024)

/* The longest record that is looked over by a filter; the rest of a longer one is dropped before. */
#define DML_LOG_FILTER_MAX_BYTES (64 * 1024)

/* Looks over a record before it is written: returns what to write in its place, good until the next call, and its length.
 * `is_cut`: the record went on, and its end may be half of something. */
typedef const char *(*dml_log_filter)(void *ud, const char *text, size_t *len, bool is_cut);

typedef struct dml_log {
  int fd;              /* -1 for none */
  dml_log_level level; /* records below it are dropped */
  char *path;          /* NULL when fd is stderr */
  long written_bytes;
  bool is_rotated; /* a regular file */
  dml_log_filter filter; /* NULL for none */
  void *filter_ud;
} dml_log;

/* Writes to stderr at `level`. */
void dml_log_init(dml_log *log, dml_log_level level);
/* Closes the file. */
void dml_log_deinit(dml_log *log);
/* Writes to `path` (0600, appended) from now on. Errors: dml_status_from_errno; the old target stays. */
dml_status dml_log_open(dml_log *log, const char *path);
/* Opens the path again, after somebody moved the file. */
dml_status dml_log_reopen(dml_log *log);
/* Sends every record through `filter` from now on; NULL ends that. */
void dml_log_set_filter(dml_log *log, dml_log_filter filter, void *ud);
/* Writes "TIME level text". A failed write is dropped: a log must not end a server. */
void dml_log_write(dml_log *log, dml_log_level level, const char *text, size_t len);
/* printf form. */
void dml_log_printf(dml_log *log, dml_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The level with that name ("debug", "info", "warn", "error", "off"), or -1. */
int dml_log_level_from_name(const char *name);

#endif
