/* file.h - the file requests. Each answers on `stream`, at once or, for large work, as a job in bounded steps.
 *
 * All of it runs with the rights of the sandbox's user. Paths are C strings of at most DML_FRAME_PATH_MAX bytes; a
 * relative one is taken from the agent's working directory. */
#ifndef DML_AGENT_FILE_H
#define DML_AGENT_FILE_H

#include <stdint.h>
#include <sys/stat.h>

#include "agent/agent.h"

#define DML_REMOVE_DEPTH_MAX 256
/* Names of what is not at its place yet. Watchers show nothing of them, but what comes of them: with the first ending a
 * new file, with the second one that replaces another, else something that was moved here. */
#define DML_HIDDEN_PREFIX ".demilune-"
#define DML_HIDDEN_NEW ".new"
#define DML_HIDDEN_AGAIN ".tmp"
#define DML_LIST_SEEN_MAX 10000000 /* entries that one LIST looks at before it stops counting */

/* READ: OPENED with size and mode, DATA as credit allows, DONE. `length` < 0: to the end. Regular files only. */
void dml_file_read(dml_agent *agent, uint32_t stream, const char *path, int64_t offset, int64_t length);
/* WRITE: OPENED; takes DATA until END, then DONE with the size. `append_at` < 0: replaces. See file_write.c. */
void dml_file_write(dml_agent *agent, uint32_t stream, const char *path, int64_t append_at);
/* STAT: one ENTRY, DONE. Does not follow a final symlink. */
void dml_file_stat(dml_agent *agent, uint32_t stream, const char *path);
/* LIST: ENTRY for the first `limit` in order, DONE with TOTAL. See file_list.c. */
void dml_file_list(dml_agent *agent, uint32_t stream, const char *path, int64_t depth, int64_t limit);
/* MKDIR, parents too. DONE. */
void dml_file_mkdir(dml_agent *agent, uint32_t stream, const char *path);
/* REMOVE, with everything below. DONE. */
void dml_file_remove(dml_agent *agent, uint32_t stream, const char *path);

/* MOVE: rename(2), the parents of `to` made; a directory is never replaced. DONE. */
void dml_file_move(dml_agent *agent, uint32_t stream, const char *from, const char *to);

/* Makes all directories above the last component of `path` (a scratch copy that is written to and restored). errno. */
int dml_file_make_parents(char *path);
/* Sends one ENTRY for `name` in directory `dir`, shown under `path`. errno, nothing sent then. */
int dml_file_send_entry(dml_agent *agent, uint32_t stream, int dir, const char *name, const char *path);

#endif
