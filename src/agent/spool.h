/* spool.h - files under /tmp/.demilune/out that keep the whole output of a command whose middle is not sent.
 *
 * Written by the sandbox's own user into a place that the same user may disturb at any time: every open is O_EXCL and
 * O_NOFOLLOW, every failure only loses the spool, never the command. The set bounds what all files take together; the
 * oldest go first, even one that is still being written. */
#ifndef DML_AGENT_SPOOL_H
#define DML_AGENT_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DML_SPOOL_FILE_BYTES (64u * 1024 * 1024)
#define DML_SPOOL_SET_BYTES (256u * 1024 * 1024)
#define DML_SPOOL_SET_FILES 512
#define DML_SPOOL_NAME_BYTES 64
#define DML_SPOOL_PATH_BYTES 96

typedef struct dml_agent dml_agent;

/* In the set from open until it is lost or evicted; with its writer until finish or discard. */
typedef struct dml_spool {
  char name[DML_SPOOL_NAME_BYTES];
  uint64_t size;
  int fd; /* -1: nobody writes */
  bool is_lost;
  struct dml_spool *next; /* the next newer one */
} dml_spool;

typedef struct dml_spool_set {
  dml_spool *oldest;
  uint64_t total;
  size_t count;
} dml_spool_set;

/* Makes a file for output `which` (DML_FRAME_STDOUT or _STDERR). NULL when it cannot be made. */
dml_spool *dml_spool_open(dml_agent *agent, int which);
/* Appends; past DML_SPOOL_FILE_BYTES bytes go nowhere. A failure removes the file and sets is_lost. */
void dml_spool_write(dml_agent *agent, dml_spool *spool, const uint8_t *bytes, size_t len);
/* The path in the sandbox, at most DML_SPOOL_PATH_BYTES with its NUL. */
void dml_spool_path(const dml_spool *spool, char *out);
/* The writer lets go; the file stays for the sandbox to read. */
void dml_spool_finish(dml_agent *agent, dml_spool *spool);
/* The writer lets go and the file is removed. */
void dml_spool_discard(dml_agent *agent, dml_spool *spool);

#endif
