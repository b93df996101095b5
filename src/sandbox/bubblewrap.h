/* bubblewrap.h - the one place that says how a sandbox is built: bubblewrap's arguments and the descriptors behind them.
 *
 * Nothing here depends on what an agent asks for but sizes: no argument of a tool weakens the isolation. Host files are
 * visible from /usr and a short list of /etc, read-only; everything else is a memory file or a tmpfs with a size. */
#ifndef DML_SANDBOX_BUBBLEWRAP_H
#define DML_SANDBOX_BUBBLEWRAP_H

#include <stdint.h>

#include "base/status.h"
#include "sandbox/args.h"
#include "sandbox/engine_id.h"
#include "sandbox/etc_files.h"
#include "sandbox/host_layout.h"
#include "sandbox/spawn.h"

/* The user of every sandbox, as it looks from inside. */
#define DML_SANDBOX_UID "1000"
#define DML_SANDBOX_HOME "/home/user"
/* Marks our processes on the host; bubblewrap clears it again before it starts anything. */
#define DML_BUBBLEWRAP_MARK "DEMILUNE_ENGINE"

/* Engine-wide. */
typedef struct dml_bubblewrap {
  const char *path; /* of bwrap, static or borrowed */
  char engine[DML_ENGINE_ID_TEXT_BYTES];
  int seccomp_fd;
  dml_etc_files etc;
  dml_host_layout host;
} dml_bubblewrap;

/* /usr/bin/bwrap or /usr/local/bin/bwrap, whichever can be run; NULL for none. Never by PATH. */
const char *dml_bubblewrap_find(void);
/* `path` must outlive it. Errors: DML_NO_CAPACITY, DML_INTERNAL; then nothing is open. */
dml_status dml_bubblewrap_init(dml_bubblewrap *bubblewrap, const char *path, const dml_engine_id *engine);
void dml_bubblewrap_deinit(dml_bubblewrap *bubblewrap);
/* What a sandbox's files can take of memory: home, /tmp, /run and /dev/shm together. */
uint64_t dml_bubblewrap_writable_bytes(uint64_t disk_bytes);
/* Appends the whole command line up to and with "--"; what is to run follows. The descriptors it needs are added to
 * `spawn`; `info_fd` is where bubblewrap writes the pid of the sandbox's first process, as the child's number. Failures
 * are sticky in `spawn` and `args`. */
void dml_bubblewrap_arguments(const dml_bubblewrap *bubblewrap, uint64_t disk_bytes, int info_fd, dml_spawn *spawn,
                              dml_args *args);

#endif
