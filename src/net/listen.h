/* listen.h - a listening TCP socket on a numeric address. */
#ifndef DML_NET_LISTEN_H
#define DML_NET_LISTEN_H

#include <stdint.h>

#include "base/status.h"

/* Binds `address` (IPv4 or IPv6, numeric, no brackets) and listens; port 0 lets the kernel choose. `*fd` is the
 * caller's, CLOEXEC and non-blocking; `*bound_port` is the port it got. Errors: DML_INVALID_ARGUMENT (no numeric
 * address), those of dml_status_from_errno (in use, not allowed). */
dml_status dml_listen_tcp(const char *address, uint16_t port, int *fd, uint16_t *bound_port);

#endif
