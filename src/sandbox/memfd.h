/* memfd.h - sealed memory files: how data and the agent get into a sandbox without a path of the host.
 *
 * A file made here is complete, cannot be written again and is CLOEXEC. One serves all sandboxes of an engine; whoever
 * reads it to its end (bubblewrap's --file, --seccomp) gets a description of its own from dml_memfd_reopen, because
 * descriptors that are merely duplicated share their offset. */
#ifndef DML_SANDBOX_MEMFD_H
#define DML_SANDBOX_MEMFD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* The largest program that dml_memfd_from_program takes. */
#define DML_MEMFD_PROGRAM_MAX_BYTES (32u * 1024 * 1024)

/* A sealed copy of `bytes`; the descriptor is the caller's to close. Errors: DML_INTERNAL, DML_NO_CAPACITY (no
 * descriptor or memory left). On error *out is -1. */
dml_status dml_memfd_new(const char *name, const void *bytes, size_t len, int *out);
/* An empty file that is still open for writing, until dml_memfd_seal. Errors: as above. */
dml_status dml_memfd_begin(const char *name, int *out);
dml_status dml_memfd_seal(int fd);
/* A sealed, executable copy of the regular file at `path`. Errors: as above, DML_FILE_NOT_FOUND, DML_FILE_PERMISSION,
 * DML_TOO_LARGE; DML_UNSUPPORTED when the system refuses executable memory files (vm.memfd_noexec). */
dml_status dml_memfd_from_program(const char *path, int *out);
/* An unsealed file of `len` zero bytes that cannot grow: a place for the first `len` bytes of a child's messages.
 * Errors: as for dml_memfd_new. */
dml_status dml_memfd_fixed(const char *name, size_t len, int *out);
/* A description of its own, read-only, at offset 0. Needs /proc. Errors: DML_INTERNAL, DML_NO_CAPACITY. */
dml_status dml_memfd_reopen(int fd, int *out);

#endif
