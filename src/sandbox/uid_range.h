/* uid_range.h - a host uid of its own for each sandbox of a root engine.
 *
 * The kernel uid of a sandbox decides what it may read under /usr and whose processes RLIMIT_NPROC counts; bubblewrap's
 * --uid changes only how it looks from inside. A uid comes from a window that nobody is assigned to (no row of passwd,
 * group, subuid or subgid), that this user namespace can map, and is held by a lock file in a place of the whole
 * machine, so that two engines never share one. The files stay: unlinking a file that others lock is a race. */
#ifndef DML_SANDBOX_UID_RANGE_H
#define DML_SANDBOX_UID_RANGE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

#define DML_UID_WINDOW_COUNT 1024u

/* Do not touch the fields. */
typedef struct dml_uid_range {
  int dir_fd; /* of the lock files; -1 when not open */
  uid_t base;
  uint32_t next; /* where the next search begins */
  unsigned char is_assigned[DML_UID_WINDOW_COUNT];
} dml_uid_range;

/* Chooses the window. Errors: DML_UNSUPPORTED (no window can be mapped in this user namespace), DML_FILE_PERMISSION
 * (no place for the lock files), DML_INTERNAL. Then there is nothing to close. */
dml_status dml_uid_range_open(dml_uid_range *range);
void dml_uid_range_close(dml_uid_range *range);
/* Takes a uid (and the gid of the same number). It is given back by closing *lock_fd.
 * Errors: DML_NO_CAPACITY (all taken, or no descriptor left). */
dml_status dml_uid_range_take(dml_uid_range *range, uid_t *uid, int *lock_fd);

#endif
