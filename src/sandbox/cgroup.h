/* cgroup.h - limits on memory, processor time and processes that hold for a whole sandbox.
 *
 * One interface, two back ends (cgroup_v2.c, cgroup_v1.c) and "none": a plain user without a delegated subtree has no
 * limits, and is told so by `holds` rather than given numbers that nothing enforces. A group is a directory in one (v2)
 * or several (v1) hierarchies, named after the engine that made it, so that the next engine can reap what a dead one
 * left. */
#ifndef DML_SANDBOX_CGROUP_H
#define DML_SANDBOX_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sandbox/engine_id.h"

#define DML_CGROUP_DIRS_MAX 4
#define DML_CGROUP_NAME_MAX_BYTES 160
#define DML_CGROUP_PATH_BYTES (PATH_MAX + DML_CGROUP_NAME_MAX_BYTES + 64)
/* Dead groups reaped by one dml_cgroups_open. */
#define DML_CGROUP_REAP_MAX 4096

typedef enum dml_cgroup_controller {
  DML_CGROUP_MEMORY,
  DML_CGROUP_CPU,
  DML_CGROUP_PIDS,
  DML_CGROUP_CONTROLLERS
} dml_cgroup_controller;

typedef struct dml_cgroup_limits {
  uint64_t memory_bytes; /* swap included where the system can; 0 for none */
  double cpu_count;      /* 0 for none */
  uint32_t pids_count;   /* 0 for none */
} dml_cgroup_limits;

typedef enum dml_cgroup_freezer {
  DML_FREEZER_NONE,
  DML_FREEZER_BRIEF,  /* v1: what it holds cannot be killed */
  DML_FREEZER_LASTING /* v2 */
} dml_cgroup_freezer;

/* What a group has used and uses. */
typedef struct dml_cgroup_account {
  bool has_cpu, has_memory;
  uint64_t cpu_us;
  uint64_t memory_bytes, file_bytes; /* the latter is part of the former */
} dml_cgroup_account;

typedef struct dml_cgroups dml_cgroups;

/* A back end: how the hierarchies are found and limits are written. */
typedef struct dml_cgroup_backend {
  const char *kind; /* "cgroup2", "cgroup1" */
  /* Fills in dirs, dirs_count and at[]; false when this machine or user has no such thing. */
  bool (*detect)(dml_cgroups *groups);
  /* Writes the limits of the controllers that are there. `name` is the group's directory below each of dirs. */
  dml_status (*limit)(const dml_cgroups *groups, const char *name, const dml_cgroup_limits *limits);
  /* How a group is frozen: the file, what is written to it, and the file and word that say that it is. */
  dml_cgroup_freezer freezer;
  const char *freeze_file, *freeze_text, *thaw_text, *frozen_file, *frozen_word;
  /* Reads what is accounted for; `account` is zeroed. */
  void (*read_account)(const dml_cgroups *groups, const char *name, dml_cgroup_account *account);
} dml_cgroup_backend;

/* Engine-wide. Callers may read `backend` (NULL for none); the rest is for the back ends. */
struct dml_cgroups {
  const dml_cgroup_backend *backend;
  dml_engine_id self;
  char dirs[DML_CGROUP_DIRS_MAX][PATH_MAX]; /* where our groups are made */
  size_t dirs_count;
  int at[DML_CGROUP_CONTROLLERS]; /* which of dirs has the controller; -1 for none */
  int freezer_at;                 /* likewise; where it is a directory for this alone, it is the last one */
};

/* One group. The descriptors are for the child that shall join: it writes "0" to each. */
typedef struct dml_cgroup {
  char name[DML_CGROUP_NAME_MAX_BYTES];
  int procs_fds[DML_CGROUP_DIRS_MAX];
  size_t procs_count;
} dml_cgroup;

/* Finds what this process may use, and reaps the groups of dead engines there. Never fails: at worst no limit holds. */
void dml_cgroups_open(dml_cgroups *groups, const dml_engine_id *self);
/* Whether a limit of that kind holds for groups made here. */
bool dml_cgroups_holds(const dml_cgroups *groups, dml_cgroup_controller controller);
/* Makes a group with limits; `name` is [a-z0-9]. Errors: DML_NO_CAPACITY, DML_CONFLICT (the name exists), DML_INTERNAL;
 * then nothing is left. With no back end an empty group that joins nothing. */
dml_status dml_cgroup_init(dml_cgroup *group, const dml_cgroups *groups, const char *name,
                           const dml_cgroup_limits *limits);
/* Closes the descriptors for joining, once the child has them. */
void dml_cgroup_close_procs(dml_cgroup *group);
/* Kills what is in the group and removes it. Bounded: about 100 ms in the worst case; what is still left then is the
 * next engine's to reap. */
void dml_cgroup_deinit(dml_cgroup *group, const dml_cgroups *groups);
/* How groups made here can be frozen. */
dml_cgroup_freezer dml_cgroups_freezer(const dml_cgroups *groups);
/* Freezes or thaws; freezing takes effect a little later. Errors: DML_INTERNAL, DML_FILE_NOT_FOUND (no freezer). */
dml_status dml_cgroup_freeze(const dml_cgroup *group, const dml_cgroups *groups, bool is_frozen);
bool dml_cgroup_is_frozen(const dml_cgroup *group, const dml_cgroups *groups);
/* The file that lists the group's processes, into DML_CGROUP_PATH_BYTES; false where there is no group. */
bool dml_cgroup_procs_path(const dml_cgroup *group, const dml_cgroups *groups, char *out);
/* What the group has used and uses, as far as it is accounted for. */
void dml_cgroup_read_account(const dml_cgroup *group, const dml_cgroups *groups, dml_cgroup_account *account);

/* For the back ends. */
extern const dml_cgroup_backend DML_CGROUP_V2, DML_CGROUP_V1;
/* Writes printf text to `dir`/`name`/`file`, in one write as cgroup files want it. Errors: DML_FILE_NOT_FOUND (no such
 * file), DML_INTERNAL. */
dml_status dml_cgroup_write(const char *dir, const char *name, const char *file, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The first `out_bytes` - 1 bytes of `dir`/`file`; false when it cannot be read. */
bool dml_cgroup_read(const char *dir, const char *file, char *out, size_t out_bytes);
/* The number in `dir`/`name`/`file`: its first, or with a `key` that of the line "key number"; false when there is
 * none.
 */
bool dml_cgroup_read_number(const char *dir, const char *name, const char *file, const char *key, uint64_t *out);
/* Whether `word` is one of the words of `list`, which are separated by any of `separators`. */
bool dml_cgroup_has_word(const char *list, const char *word, const char *separators);

#endif
