/* file_list.c - LIST: entries below a directory, each directory's in byte order, before its next sibling's.
 *
 * Of a directory only as many names are kept as may still be sent: the smallest, in a heap, so that a million entries
 * cost time but no memory. TOTAL counts every entry of every directory that was read; directories below names that did
 * not make it are not read. Symlinks below the given path are not followed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/fault.h"
#include "agent/file.h"
#include "agent/owner.h"

#define KEPT_BYTES_MAX (8 * 1024 * 1024) /* names kept at a time, all levels */
#define SEND_BURST 64
#define SCAN_BYTES 32768
#define DONE_BYTES 64

/* One directory that is being read or sent. A name's first byte is its d_type. */
typedef struct level {
  struct level *up;
  int fd;
  bool is_scanned;
  char **names;
  size_t count, capacity, next;
  size_t most;     /* names that may be kept */
  size_t path_len; /* of the directory in listing.path */
} level;

typedef struct listing {
  dml_stream stream;
  level *top;
  int64_t depth_left;
  size_t left; /* entries that may still be sent */
  size_t kept_bytes;
  int64_t total;
  char *path;
  size_t path_capacity;
} listing;

/* ---- the heap: the largest name on top ---- */

static int compare(const char *a, const char *b) { return strcmp(a + 1, b + 1); }

static void swap(char **a, char **b) {
  char *kept = *a;
  *a = *b;
  *b = kept;
}

static void sift_up(char **heap, size_t at) {
  while (at > 0 && compare(heap[(at - 1) / 2], heap[at]) < 0) {
    swap(&heap[(at - 1) / 2], &heap[at]);
    at = (at - 1) / 2;
  }
}

static void sift_down(char **heap, size_t count, size_t at) {
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= count) return;
    if (child + 1 < count && compare(heap[child], heap[child + 1]) < 0) child++;
    if (compare(heap[at], heap[child]) >= 0) return;
    swap(&heap[at], &heap[child]);
    at = child;
  }
}

static void sort(char **heap, size_t count) {
  while (count > 1) {
    swap(&heap[0], &heap[--count]);
    sift_down(heap, count, 0);
  }
}

static void free_name(listing *l, char *name) {
  l->kept_bytes -= strlen(name + 1) + 2;
  free(name);
}

/* ---- scanning ---- */

static bool grow(level *at) {
  if (at->count < at->capacity) return true;
  size_t capacity = at->capacity ? at->capacity * 2 : 64;
  char **names = realloc(at->names, capacity * sizeof *names);
  if (!names) return false;
  at->names = names;
  at->capacity = capacity;
  return true;
}

static void keep_name(listing *l, level *at, const struct dirent64 *entry) {
  bool has_room = at->count < at->most && l->kept_bytes < KEPT_BYTES_MAX && grow(at);
  if (!has_room && (at->count == 0 || strcmp(entry->d_name, at->names[0] + 1) >= 0)) return;
  size_t len = strlen(entry->d_name);
  char *name = malloc(len + 2);
  if (!name) return;
  name[0] = (char)entry->d_type;
  memcpy(name + 1, entry->d_name, len + 1);
  l->kept_bytes += len + 2;
  if (has_room) {
    at->names[at->count++] = name;
    sift_up(at->names, at->count - 1);
    return;
  }
  free_name(l, at->names[0]);
  at->names[0] = name;
  sift_down(at->names, at->count, 0);
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static void scan(dml_agent *agent, listing *l, level *at) {
  uint8_t *buffer = dml_agent_scratch(agent);
  ssize_t got = buffer && l->total < DML_LIST_SEEN_MAX ? getdents64(at->fd, buffer, SCAN_BYTES) : 0;
  for (ssize_t i = 0; i < got;) {
    const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + i);
    i += entry->d_reclen;
    if (is_dots(entry->d_name)) continue;
    l->total++;
    keep_name(l, at, entry);
  }
  if (got > 0) return;
  sort(at->names, at->count);
  at->is_scanned = true;
}

/* ---- levels ---- */

static void push(listing *l, int fd, size_t path_len) {
  level *at = calloc(1, sizeof *at);
  if (!at) {
    close(fd);
    return;
  }
  at->fd = fd;
  at->most = l->left;
  at->path_len = path_len;
  at->up = l->top;
  l->top = at;
  l->depth_left--;
}

static void pop(listing *l) {
  level *at = l->top;
  l->top = at->up;
  l->depth_left++;
  for (; at->next < at->count; at->next++) free_name(l, at->names[at->next]);
  free(at->names);
  close(at->fd);
  free(at);
}

/* Writes `name` behind the level's own path. Returns the length, 0 without memory. */
static size_t join(listing *l, const level *at, const char *name) {
  size_t len = strlen(name);
  size_t slash = at->path_len > 0 && l->path[at->path_len - 1] != '/';
  size_t need = at->path_len + slash + len + 1;
  if (need > l->path_capacity) {
    char *path = realloc(l->path, need + 256);
    if (!path) return 0;
    l->path = path;
    l->path_capacity = need + 256;
  }
  if (slash) l->path[at->path_len] = '/';
  memcpy(l->path + at->path_len + slash, name, len + 1);
  return need - 1;
}

/* Sends the next entry; true when it opened a level below. */
static bool send_next(dml_agent *agent, listing *l, level *at) {
  char *name = at->names[at->next++];
  size_t path_len = join(l, at, name + 1);
  bool is_sent = path_len && dml_file_send_entry(agent, l->stream.id, at->fd, name + 1, l->path) == 0;
  if (is_sent) l->left--;
  else l->total--;
  int fd = -1;
  if (is_sent && l->depth_left > 0 && (name[0] == DT_DIR || name[0] == DT_UNKNOWN))
    fd = openat(at->fd, name + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) push(l, fd, path_len);
  free_name(l, name);
  return fd >= 0;
}

static void finish(dml_agent *agent, listing *l) {
  dml_fields fields;
  dml_fields_init(&fields, DONE_BYTES);
  dml_fields_put_int(&fields, DML_FIELD_TOTAL, l->total);
  dml_channel_send_fields(&agent->channel, DML_FRAME_DONE, 0, l->stream.id, &fields);
  dml_stream_close(agent, &l->stream);
}

static bool list_step(dml_agent *agent, dml_stream *stream) {
  listing *l = (listing *)stream;
  level *at = l->top;
  if (!at) {
    finish(agent, l);
    return false;
  }
  if (!at->is_scanned) {
    scan(agent, l, at);
    return true;
  }
  for (int i = 0; i < SEND_BURST; i++) {
    if (at->next == at->count || l->left == 0) {
      pop(l);
      return true;
    }
    if (send_next(agent, l, at)) return true;
  }
  return true;
}

static void list_drop(dml_agent *agent, dml_stream *stream) {
  listing *l = (listing *)stream;
  (void)agent;
  while (l->top) pop(l);
  free(l->path);
  free(l);
}

static const dml_stream_ops LISTING = {.step = list_step, .drop = list_drop};

void dml_file_list(dml_agent *agent, uint32_t stream, const char *path, int64_t depth, int64_t limit) {
  dml_fault fault = DML_FAULT_EXHAUSTED;
  listing *l = calloc(1, sizeof *l);
  char *copy = strdup(path);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) fault = dml_fault_from_errno(errno);
  if (l && copy && fd >= 0) {
    l->path = copy;
    l->path_capacity = strlen(copy) + 1;
    l->depth_left = depth;
    l->left = (size_t)limit;
    push(l, fd, l->path_capacity - 1);
    dml_owner_forget(agent);
    dml_stream_open(&agent->streams, &l->stream, stream, &LISTING);
    dml_stream_make_job(&agent->streams, &l->stream);
    return;
  }
  if (fd >= 0) close(fd);
  free(copy);
  free(l);
  dml_channel_send_error(&agent->channel, stream, fault, 0);
}
