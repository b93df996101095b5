/* core.h - where the pieces of an installation lie. */
#ifndef DML_SCRIPT_CORE_H
#define DML_SCRIPT_CORE_H

#include <stdbool.h>

#define DML_EXPORT __attribute__((visibility("default")))
#define DML_CORE_PATH_MAX 4096

/* The folder with the back ends and the agent program: beside the running code in a build tree, else the installed
 * library folder. `out` has DML_CORE_PATH_MAX bytes. False where nothing is found. */
bool dml_core_find_dir(char *out);

#endif
