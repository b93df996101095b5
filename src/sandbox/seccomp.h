/* seccomp.h - the system calls that a sandbox does not have.
 *
 * A list of what is refused, not of what is allowed: agents run arbitrary programs, and namespaces, an unassigned uid
 * and the lack of every capability carry the isolation; the filter takes away what leaves the namespaces (AF_VSOCK) and
 * the parts of the kernel where unprivileged holes are usually found. Foreign architectures are killed, because their
 * numbers would pass the list. */
#ifndef DML_SANDBOX_SECCOMP_H
#define DML_SANDBOX_SECCOMP_H

#include "base/status.h"

/* The BPF program, as bubblewrap's --seccomp reads it, in a sealed memory file; the descriptor is the caller's.
 * Errors: DML_INTERNAL, DML_NO_CAPACITY. On error *out is -1. */
dml_status dml_seccomp_program(int *out);

#endif
