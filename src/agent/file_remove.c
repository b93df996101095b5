/* file_remove.c - REMOVE: a file, or a directory with everything below, a buffer of names a step.
 *
 * Always relative to open directories and never through a symlink, so that a sandbox that moves things about meanwhile
 * cannot lead it elsewhere. A directory is read from its start again after one below it went, since what was before is
 * gone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/fault.h"
#include "agent/file.h"

#define NAMES_BYTES 8192
#define REFILLS_MAX 64 /* how often a directory may turn out to have been filled again */

typedef struct doomed {
  struct doomed *up;
  int fd;
  int refills;
  char name[256]; /* in the directory above */
} doomed;

typedef struct removal {
  dml_stream stream;
  int parent;
  doomed *top;
  int depth;
} removal;

static int push(removal *r, const char *name) {
  if (r->depth >= DML_REMOVE_DEPTH_MAX) return EFBIG;
  int fd = openat(r->top ? r->top->fd : r->parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno;
  doomed *d = calloc(1, sizeof *d);
  if (!d || strlen(name) >= sizeof d->name) {
    close(fd);
    free(d);
    return d ? ENAMETOOLONG : ENOMEM;
  }
  memcpy(d->name, name, strlen(name) + 1);
  d->fd = fd;
  d->up = r->top;
  r->top = d;
  r->depth++;
  return 0;
}

static void pop(removal *r) {
  doomed *d = r->top;
  r->top = d->up;
  r->depth--;
  close(d->fd);
  free(d);
  if (r->top) lseek(r->top->fd, 0, SEEK_SET);
}

/* One name in the top directory. *is_below: a directory that has something in it was opened. errno. */
static int remove_name(removal *r, const struct dirent64 *entry, bool *is_below) {
  int dir = r->top->fd;
  if (entry->d_type != DT_DIR) {
    if (unlinkat(dir, entry->d_name, 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR) return errno;
  }
  if (unlinkat(dir, entry->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
  if (errno != ENOTEMPTY && errno != EEXIST) return errno;
  int error = push(r, entry->d_name);
  *is_below = error == 0;
  return error == ENOENT ? 0 : error;
}

/* The top directory seems to be empty. errno. */
static int remove_top(removal *r) {
  doomed *d = r->top;
  if (unlinkat(d->up ? d->up->fd : r->parent, d->name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
    pop(r);
    return 0;
  }
  if ((errno != ENOTEMPTY && errno != EEXIST) || ++d->refills > REFILLS_MAX) return errno;
  return lseek(d->fd, 0, SEEK_SET) == 0 ? 0 : errno;
}

static int remove_some(dml_agent *agent, removal *r) {
  uint8_t *buffer = dml_agent_scratch(agent);
  if (!buffer) return ENOMEM;
  ssize_t got = getdents64(r->top->fd, buffer, NAMES_BYTES);
  if (got < 0) return errno;
  if (got == 0) return remove_top(r);
  bool is_below = false;
  int error = 0;
  for (ssize_t i = 0; i < got && !is_below && error == 0;) {
    const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + i);
    i += entry->d_reclen;
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) error = remove_name(r, entry, &is_below);
  }
  return error;
}

static bool remove_step(dml_agent *agent, dml_stream *stream) {
  removal *r = (removal *)stream;
  int error = r->top ? remove_some(agent, r) : 0;
  if (error == 0 && r->top) return true;
  if (error) dml_channel_send_error(&agent->channel, stream->id, dml_fault_from_errno(error), 0);
  else dml_channel_send_done(&agent->channel, stream->id);
  dml_stream_close(agent, stream);
  return false;
}

static void remove_drop(dml_agent *agent, dml_stream *stream) {
  removal *r = (removal *)stream;
  (void)agent;
  while (r->top) pop(r);
  close(r->parent);
  free(r);
}

static const dml_stream_ops REMOVAL = {.step = remove_step, .drop = remove_drop};

/* Splits into the directory, which is opened, and the name in it. errno. */
static int open_parent(char *path, int *parent, const char **name) {
  size_t len = strlen(path);
  while (len > 1 && path[len - 1] == '/') path[--len] = '\0';
  char *slash = strrchr(path, '/');
  *name = slash ? slash + 1 : path;
  if (**name == '\0' || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0) return EINVAL;
  if (slash) *slash = '\0';
  *parent = open(!slash ? "." : slash == path ? "/" : path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  return *parent >= 0 ? 0 : errno;
}

void dml_file_remove(dml_agent *agent, uint32_t stream, const char *path) {
  char copy[DML_FRAME_PATH_MAX + 1];
  const char *name;
  int parent = -1;
  memcpy(copy, path, strlen(path) + 1); /* checked: at most DML_FRAME_PATH_MAX */
  int error = open_parent(copy, &parent, &name);
  if (error == 0 && unlinkat(parent, name, 0) != 0) error = errno;
  if (error == EISDIR) {
    removal *r = calloc(1, sizeof *r);
    if (r) r->parent = parent;
    error = r ? push(r, name) : ENOMEM;
    if (error == 0) {
      dml_stream_open(&agent->streams, &r->stream, stream, &REMOVAL);
      dml_stream_make_job(&agent->streams, &r->stream);
      return;
    }
    free(r);
  }
  if (parent >= 0) close(parent);
  if (error) dml_channel_send_error(&agent->channel, stream, dml_fault_from_errno(error), 0);
  else dml_channel_send_done(&agent->channel, stream);
}
