/* runtime.h - one runtime: a loop, a log and a Lua state, wired together. One thread. */
#ifndef DML_RUNTIME_H
#define DML_RUNTIME_H

/* Finds the pieces of the installation, runs the program with these arguments (without its name), tears down. Returns the
 * exit status; what cannot be said any other way goes to stderr. Changes nothing process-wide: that is main.c's. */
int dml_runtime_main(int argc, char *const *argv);

#endif
