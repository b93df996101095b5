/* mounts.h - this process's mount table (proc(5), mountinfo). */
#ifndef DML_SANDBOX_MOUNTS_H
#define DML_SANDBOX_MOUNTS_H

#include <stdbool.h>

/* One mount; the strings live during the callback only, octal escapes resolved in `root` and `point`. */
typedef struct dml_mount {
  const char *root;          /* what of the file system is mounted */
  const char *point;         /* where */
  const char *type;          /* "cgroup2", "proc", … */
  const char *options;       /* of this mount */
  const char *super_options; /* of the file system: with cgroup v1 the controllers */
} dml_mount;

/* Returns false to stop. */
typedef bool (*dml_mount_cb)(const dml_mount *mount, void *ud);

/* Calls `cb` for each mount, at most 10,000, in the table's order. Returns whether the table could be read. */
bool dml_mounts_each(dml_mount_cb cb, void *ud);

#endif
