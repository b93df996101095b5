/* watcher.h - WATCH: what happens in a folder, by inotify(7); with RECURSIVE in all folders below it as well.
 *
 * A watcher tells everything or ends: where events or folders are more than it keeps, what it has is sent and then
 * ERROR with DML_FAULT_EXHAUSTED. It ends with DONE after the folder itself was removed or renamed. */
#ifndef DML_AGENT_WATCHER_H
#define DML_AGENT_WATCHER_H

#include "agent/agent.h"

#define DML_WATCHERS_MAX 32           /* at a time; each is an inotify instance */
#define DML_WATCHER_FOLDERS_MAX 4096  /* of all watchers together */
#define DML_WATCHER_QUEUE_MAX DML_FRAME_DATA_MAX /* bytes of events that wait for credit */

/* OPENED once all folders are watched, or ERROR. */
void dml_watcher_open(dml_agent *agent, uint32_t stream, const char *path, bool is_recursive);

/* ---- folders.c: the folders of one watcher ---- */

typedef struct dml_folder {
  int wd; /* of the inotify instance */
  bool is_unscanned;
  bool is_gone;
  struct dml_folder *up; /* NULL: the watched folder itself */
  char *name;            /* in the one above; of the watched folder its path */
} dml_folder;

typedef struct dml_folders {
  int inotify_fd;
  dml_folder **all; /* by wd */
  size_t count, capacity;
} dml_folders;

/* Begins to watch `name` in `up`, or the path `name` where `up` is NULL. *out is NULL for what is no folder any more or
 * may not be read. errno; ENOSPC or EMLINK when there are too many or they are too deep. */
int dml_folders_add(dml_agent *agent, dml_folders *folders, dml_folder *up, const char *name, dml_folder **out);
/* The folder of a watch descriptor, or NULL. */
dml_folder *dml_folders_find(const dml_folders *folders, int wd);
/* The folder `name` in `up`, or NULL. */
dml_folder *dml_folders_child(const dml_folders *folders, const dml_folder *up, const char *name);
/* Any folder that is_unscanned, or NULL. */
dml_folder *dml_folders_unscanned(const dml_folders *folders);
/* Gives a folder another place, with all below it. False: that cannot be, or there is no memory. */
bool dml_folders_move(dml_folder *folder, dml_folder *up, const char *name);
/* Forgets a folder and all below it. */
void dml_folders_remove(dml_agent *agent, dml_folders *folders, dml_folder *folder);
/* Forgets all and closes the instance. Twice is fine. */
void dml_folders_deinit(dml_agent *agent, dml_folders *folders);
/* Writes the path of `name` (may be "") in `folder`, from the watched folder on or, `is_whole`, with its path before it.
 * `out` has DML_FRAME_PATH_MAX + 1 bytes. False: too long. */
bool dml_folders_path(const dml_folder *folder, const char *name, bool is_whole, char *out);

#endif
