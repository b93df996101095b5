/* file_write.c - WRITE: replaces a file atomically where that can be done, appends where the engine says at what size.
 *
 * Replacing writes a hidden sibling and renames it over the target, so that a reader sees the old file or the new one
 * and a failure leaves the old. The target's permission bits stay; set-id bits go, as with any write. A final symlink
 * is followed by hand first, or the rename would replace the link. A target that is a mount point of its own, or whose
 * directory takes no new file, or that somebody else owns, is written in place.
 *
 * A file that the user may not write is refused although its directory would allow the rename: `chmod a-w` protects. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/fault.h"
#include "agent/file.h"

#define LINKS_MAX 40 /* as the kernel: path_resolution(7) */
#define TEMP_NAME_BYTES 48
#define SMALL_FIELDS_BYTES 64

typedef enum write_kind { WRITE_BESIDE, WRITE_IN_PLACE, WRITE_APPEND } write_kind;

typedef struct writing {
  dml_stream stream;
  write_kind kind;
  int fd;
  int dir;        /* of the target, for WRITE_BESIDE */
  mode_t mode;    /* that the new file gets */
  int64_t start;  /* size before, for WRITE_APPEND */
  int64_t at;     /* where the next byte goes */
  uint32_t owed;  /* cost of DATA whose credit was not given back yet */
  char temp[TEMP_NAME_BYTES];
  char name[];    /* of the target in `dir` */
} writing;

/* Nothing of a write that did not come to its end stays: no temp file, no half-appended bytes. */
static void undo(writing *w) {
  struct stat st;
  if (w->kind == WRITE_BESIDE && w->temp[0]) unlinkat(w->dir, w->temp, 0);
  if (w->kind == WRITE_APPEND && w->fd >= 0 && fstat(w->fd, &st) == 0 && st.st_size == w->at &&
      ftruncate(w->fd, w->start) != 0)
    return; /* nothing more can be done */
}

static void write_drop(dml_agent *agent, dml_stream *stream) {
  writing *w = (writing *)stream;
  (void)agent;
  undo(w);
  if (w->fd >= 0) close(w->fd);
  if (w->dir >= 0) close(w->dir);
  free(w);
}

static void give_up(dml_agent *agent, writing *w, int error) {
  dml_channel_send_error(&agent->channel, w->stream.id, dml_fault_from_errno(error), 0);
  dml_stream_close(agent, &w->stream);
}

static void write_data(dml_agent *agent, dml_stream *stream, const uint8_t *bytes, size_t len) {
  writing *w = (writing *)stream;
  w->owed += (uint32_t)len + DML_FRAME_COST;
  while (len) {
    ssize_t put = pwrite(w->fd, bytes, len, w->at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      give_up(agent, w, put < 0 ? errno : ENOSPC);
      return;
    }
    w->at += put;
    bytes += put;
    len -= (size_t)put;
  }
  if (w->owed < DML_FRAME_WINDOW / 4) return;
  dml_stream_give_window(agent, stream, w->owed);
  w->owed = 0;
}

static int commit(writing *w) {
  if (w->kind == WRITE_APPEND) return 0;
  if (w->kind == WRITE_IN_PLACE) return ftruncate(w->fd, w->at) == 0 ? 0 : errno;
  if (fchmod(w->fd, w->mode) != 0) return errno;
  /* close reports what a disk had left to say */
  int closed = close(w->fd);
  w->fd = -1;
  if (closed != 0 && errno != EINTR) return errno;
  return renameat(w->dir, w->temp, w->dir, w->name) == 0 ? 0 : errno;
}

static void write_end(dml_agent *agent, dml_stream *stream) {
  writing *w = (writing *)stream;
  int error = commit(w);
  if (error) {
    give_up(agent, w, error);
    return;
  }
  w->kind = WRITE_IN_PLACE; /* nothing to undo any more */
  dml_fields fields;
  dml_fields_init(&fields, SMALL_FIELDS_BYTES);
  dml_fields_put_int(&fields, DML_FIELD_SIZE, w->at);
  dml_channel_send_fields(&agent->channel, DML_FRAME_DONE, 0, stream->id, &fields);
  dml_stream_close(agent, stream);
}

static const dml_stream_ops WRITING = {.data = write_data, .end = write_end, .drop = write_drop};

/* ---- opening ---- */

/* Replaces a final symlink by what it points to, until there is none. `path` has room for DML_FRAME_PATH_MAX. errno. */
static int follow_links(char *path) {
  char target[DML_FRAME_PATH_MAX + 1];
  for (int i = 0; i < LINKS_MAX; i++) {
    ssize_t len = readlink(path, target, sizeof target);
    if (len < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno;
    if (len >= (ssize_t)sizeof target) return ENAMETOOLONG;
    char *slash = strrchr(path, '/');
    size_t keep = target[0] != '/' && slash ? (size_t)(slash + 1 - path) : 0;
    if (keep + (size_t)len > DML_FRAME_PATH_MAX) return ENAMETOOLONG;
    memcpy(path + keep, target, (size_t)len);
    path[keep + (size_t)len] = '\0';
  }
  return ELOOP;
}

/* Whether `name` is mounted on its own: renaming over it would fail, or change another file system. */
static bool is_mount(int dir, const char *name) {
  struct statx in, on;
  unsigned mask = STATX_BASIC_STATS | STATX_MNT_ID;
  if (statx(dir, "", AT_EMPTY_PATH, mask, &in) != 0) return false;
  if (statx(dir, name, AT_SYMLINK_NOFOLLOW, mask, &on) != 0) return false;
  if (in.stx_dev_major != on.stx_dev_major || in.stx_dev_minor != on.stx_dev_minor) return true;
  return (in.stx_mask & on.stx_mask & STATX_MNT_ID) && in.stx_mnt_id != on.stx_mnt_id;
}

static int open_temp(dml_agent *agent, writing *w, bool exists) {
  uint32_t noise = 0;
  if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) < 0) noise = (uint32_t)dml_agent_now_ms();
  const char *ending = exists ? DML_HIDDEN_AGAIN : DML_HIDDEN_NEW;
  snprintf(w->temp, sizeof w->temp, DML_HIDDEN_PREFIX "%08x-%u%s", (unsigned)noise, ++agent->name_counter, ending);
  w->fd = openat(w->dir, w->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (w->fd >= 0) return 0;
  w->temp[0] = '\0';
  return errno;
}

static int open_in_place(writing *w) {
  w->kind = WRITE_IN_PLACE;
  w->fd = openat(w->dir, w->name, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
  return w->fd >= 0 ? 0 : errno;
}

static int open_replace(dml_agent *agent, writing *w, bool exists, const struct stat *st) {
  /* another owner's file would change hands by the rename */
  if (exists && (st->st_uid != geteuid() || is_mount(w->dir, w->name))) return open_in_place(w);
  int error = open_temp(agent, w, exists);
  if (exists && (error == EACCES || error == EPERM || error == EROFS)) return open_in_place(w);
  return error;
}

static int open_append(writing *w, bool exists, const struct stat *st, int64_t append_at, int64_t *size) {
  w->kind = WRITE_APPEND;
  *size = exists ? st->st_size : 0;
  if (!exists && append_at > 0) return ENOENT;
  if (*size != append_at) return EBADE;
  w->fd = openat(w->dir, w->name, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC, 0666);
  w->start = w->at = append_at;
  return w->fd >= 0 ? 0 : errno;
}

/* What may stand at the target: nothing, or a regular file that the user may write. errno. */
static int check_target(const writing *w, struct stat *st, bool *exists) {
  mode_t mask = umask(0);
  umask(mask);
  *exists = fstatat(w->dir, w->name, st, AT_SYMLINK_NOFOLLOW) == 0;
  if (!*exists) {
    st->st_mode = 0666 & ~mask;
    return errno == ENOENT ? 0 : errno;
  }
  if (S_ISDIR(st->st_mode)) return EISDIR;
  if (!S_ISREG(st->st_mode)) return ENXIO;
  return faccessat(w->dir, w->name, W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

static int open_target(dml_agent *agent, writing *w, char *path, int64_t append_at, int64_t *size) {
  struct stat st;
  bool exists;
  int error = append_at > 0 ? 0 : dml_file_make_parents(path);
  if (error) return error;
  char *slash = strrchr(path, '/');
  if (slash) *slash = '\0';
  w->dir = open(!slash ? "." : slash == path ? "/" : path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (slash) *slash = '/';
  if (w->dir < 0) return errno;
  error = check_target(w, &st, &exists);
  if (error) return error;
  w->mode = st.st_mode & 0777;
  if (append_at >= 0) return open_append(w, exists, &st, append_at, size);
  return open_replace(agent, w, exists, &st);
}

static bool names_directory(const char *name) {
  return name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* A new one for `path`, which is resolved in place. NULL: *error says why. */
static writing *new_writing(char *path, int *error) {
  *error = follow_links(path);
  if (*error) return NULL;
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  if (names_directory(name)) {
    *error = EISDIR;
    return NULL;
  }
  writing *w = calloc(1, sizeof *w + strlen(name) + 1);
  if (!w) {
    *error = ENOMEM;
    return NULL;
  }
  memcpy(w->name, name, strlen(name) + 1);
  w->fd = w->dir = -1;
  return w;
}

static void send_conflict(dml_agent *agent, uint32_t stream, int64_t size) {
  dml_fields fields;
  dml_fields_init(&fields, SMALL_FIELDS_BYTES);
  dml_fields_put_int(&fields, DML_FIELD_CODE, DML_FAULT_CONFLICT);
  dml_fields_put_int(&fields, DML_FIELD_SIZE, size);
  dml_channel_send_fields(&agent->channel, DML_FRAME_ERROR, 0, stream, &fields);
}

void dml_file_write(dml_agent *agent, uint32_t stream, const char *path, int64_t append_at) {
  char resolved[DML_FRAME_PATH_MAX + 1];
  int64_t size = 0;
  int error;
  memcpy(resolved, path, strlen(path) + 1); /* checked: at most DML_FRAME_PATH_MAX */
  writing *w = new_writing(resolved, &error);
  if (w) error = open_target(agent, w, resolved, append_at, &size);
  if (error == 0) {
    dml_stream_open(&agent->streams, &w->stream, stream, &WRITING);
    dml_channel_send(&agent->channel, DML_FRAME_OPENED, 0, stream, NULL, 0);
    return;
  }
  if (w) {
    w->kind = WRITE_IN_PLACE; /* nothing was written */
    write_drop(agent, &w->stream);
  }
  if (error == EBADE) send_conflict(agent, stream, size);
  else dml_channel_send_error(&agent->channel, stream, dml_fault_from_errno(error), 0);
}
