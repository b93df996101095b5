/* etc_files.h - the files of /etc that a sandbox gets from us instead of from the host.
 *
 * They say who is there (user, 1000), that names are looked up in a file only (so a look-up fails at once, there is no
 * network), and keep a login shell cheap. */
#ifndef DML_SANDBOX_ETC_FILES_H
#define DML_SANDBOX_ETC_FILES_H

#include <stddef.h>

#include "base/status.h"

#define DML_ETC_FILES_COUNT 9
#define DML_SANDBOX_HOSTNAME "sandbox"

typedef struct dml_etc_files {
  const char *paths[DML_ETC_FILES_COUNT]; /* inside the sandbox, static */
  int fds[DML_ETC_FILES_COUNT];           /* sealed memory files */
} dml_etc_files;

/* Errors: DML_NO_CAPACITY, DML_INTERNAL; then nothing is open. */
dml_status dml_etc_files_init(dml_etc_files *files);
void dml_etc_files_deinit(dml_etc_files *files);

#endif
