/* runtime.h - one runtime: a loop, a log and a Lua state, wired together. One thread. */
#ifndef DML_RUNTIME_H
#define DML_RUNTIME_H

#include <stdbool.h>

/* Finds the pieces of the installation, runs the program with these arguments (without its name), tears down. Returns the
 * exit status; what cannot be said any other way goes to stderr. Changes nothing process-wide: that is main.c's; but with
 * `may_wipe_environment` a variable that a credential was read from is overwritten and unset. */
int dml_runtime_main(int argc, char *const *argv, bool may_wipe_environment);

#endif
