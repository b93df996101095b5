/* spawn.h - a START as the engine sent it, and the making of the child. */
#ifndef DML_AGENT_SPAWN_H
#define DML_AGENT_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/frame.h"

typedef struct dml_agent dml_agent;

typedef struct dml_start_output {
  int64_t live, tail, spool_at; /* live < 0: everything is sent */
} dml_start_output;

/* All text is borrowed from the bytes that were parsed. */
typedef struct dml_start {
  char **argv; /* argv[0] is the command */
  size_t argc;
  char **envp; /* with the defaults */
  const char *cwd; /* NULL: the agent's own */
  const char *tag; /* NULL: none */
  int64_t timeout_ms;
  bool has_stdin;
  bool wants_progress;
  dml_start_output outputs[2];
} dml_start;

/* False when the fields are not a START that may be obeyed; `out` is to be deinited in either case. */
bool dml_start_parse(const uint8_t *bytes, size_t len, dml_start *out);
void dml_start_deinit(dml_start *start);

/* The parent's ends, non-blocking; stdin -1 when the child has /dev/null. */
typedef struct dml_spawned {
  pid_t pid;
  int fds[3];
} dml_spawned;

/* Runs it as leader of a session and group of its own. On failure nothing is left; *which is DML_FIELD_CMD,
 * DML_FIELD_CWD or 0. */
dml_fault dml_spawn(dml_agent *agent, const dml_start *start, dml_spawned *out, int *which);

#endif
