/* engine_id.h - which running engine something on this machine belongs to.
 *
 * Control groups and bubblewrap processes carry the id of their engine, so that the next engine can tell what a dead one
 * left from what a live one uses. A pid alone is reused; with its start time it is not (proc(5), field 22). Pids of
 * another pid namespace mean nothing here, so that namespace is part of the id and foreign ones count as alive. */
#ifndef DML_SANDBOX_ENGINE_ID_H
#define DML_SANDBOX_ENGINE_ID_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

#define DML_ENGINE_ID_TEXT_BYTES 64

typedef struct dml_engine_id {
  unsigned long pid_namespace;
  unsigned long long start_ticks;
  pid_t pid;
} dml_engine_id;

/* Of this process. Errors: DML_INTERNAL where /proc cannot be read. */
dml_status dml_engine_id_self(dml_engine_id *id);
/* "NAMESPACE-PID-START", lower-case hexadecimal, into `out` of DML_ENGINE_ID_TEXT_BYTES. */
void dml_engine_id_format(const dml_engine_id *id, char *out);
/* Reads that form at the beginning of `text`; returns what follows it, or NULL. */
const char *dml_engine_id_parse(const char *text, dml_engine_id *id);
/* Whether that engine has certainly ended, as seen from the pid namespace of `self`. */
bool dml_engine_id_is_dead(const dml_engine_id *id, const dml_engine_id *self);

#endif
