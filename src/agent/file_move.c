/* file_move.c - MOVE.
 *
 * Where the destination is a directory already, nothing moves into it or replaces it, although rename(2) would replace
 * an empty one: envd refuses that too. Another file system is for the engine to care about, since a copy takes time. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/fault.h"
#include "agent/file.h"

static int move(const char *from, char *to) {
  struct stat source, target;
  if (lstat(from, &source) != 0) return errno; /* before anything is made */
  int error = dml_file_make_parents(to);
  if (error) return error;
  if (lstat(to, &target) == 0 && S_ISDIR(target.st_mode) &&
      (target.st_dev != source.st_dev || target.st_ino != source.st_ino))
    return EEXIST;
  return rename(from, to) == 0 ? 0 : errno;
}

void dml_file_move(dml_agent *agent, uint32_t stream, const char *from, const char *to) {
  char copy[DML_FRAME_PATH_MAX + 1];
  size_t len = strlen(to);
  memcpy(copy, to, len + 1); /* checked: at most DML_FRAME_PATH_MAX */
  while (len > 1 && copy[len - 1] == '/') copy[--len] = '\0';
  int error = move(from, copy);
  if (error) dml_channel_send_error(&agent->channel, stream, dml_fault_from_errno(error), 0);
  else dml_channel_send_done(&agent->channel, stream);
}
