/* confine.h - what the worker takes from itself before it reads a byte of a policy. */
#ifndef DML_FENCE_CONFINE_H
#define DML_FENCE_CONFINE_H

#include <stdbool.h>

/* Keeps the channel and no other descriptor; no new ones, no processes, no files, no core, little memory; dies with its
 * parent; every system call but a few ends the process. False when any of that could not be had: the process must exit. */
bool dml_confine(void);

#endif
