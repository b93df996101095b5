/* program.h - the Lua side of the `demilune` program. */
#ifndef DML_SCRIPT_PROGRAM_H
#define DML_SCRIPT_PROGRAM_H

#include <stdbool.h>

#include "base/log.h"
#include "loop/loop.h"

typedef struct dml_program {
  dml_loop *loop;
  dml_log *log;
  const char *library_dir; /* back ends, agent program */
  const char *lua_dir;     /* holds demilune/ */
  int argc;                /* without the program's name */
  char *const *argv;
  bool may_wipe_environment; /* of the variables that credentials are read from */
} dml_program;

/* Makes a Lua state, runs `require "demilune.cli"` with the arguments as a task, turns the loop until it returns, tears
 * everything down. Returns the exit status. */
int dml_program_run(const dml_program *program);

#endif
