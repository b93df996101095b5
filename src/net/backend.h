/* backend.h - opens a back end: a shared object beside the program with one table of functions.
 *
 * Back ends are apart because their libraries cost start time and memory that a run without HTTP need not pay. */
#ifndef DML_NET_BACKEND_H
#define DML_NET_BACKEND_H

#include <stdint.h>

#include "base/status.h"

/* The first member of each table, so that a file of another build is refused instead of called. */
typedef struct dml_backend_head {
  uint32_t abi;
} dml_backend_head;

/* Opens `directory/file` and finds the table `symbol` in it; `abi` must match its head. The object stays loaded until
 * the process ends. Errors: DML_INTERNAL (no such file, not loadable, another ABI). */
dml_status dml_backend_open(const char *directory, const char *file, const char *symbol, uint32_t abi,
                            const void **out);

#endif
