/* watcher.c - WATCH, see watcher.h: from the kernel's events to DATA, and the walk that finds the folders.
 *
 * The instance is read only while nothing waits for credit, so the queue that grows is the kernel's, which has a limit
 * and tells when it was passed. It is not read during a walk either: no folder goes away under it. */
#include "agent/watcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/fault.h"
#include "agent/file.h"

#define EVENTS_BYTES 4096 /* read at a time */
#define SCAN_BYTES 16384
#define EVENT_FIELDS_BYTES (5 + 8 + 5 + 1) /* what an event takes beside its name */

typedef struct watcher {
  dml_watch watch; /* first; of the inotify instance, which `folders` owns */
  dml_stream stream;
  dml_folders folders;
  bool is_recursive;
  bool is_open;   /* OPENED was sent */
  bool has_ended; /* no more events; `fault` says how, once the queue is empty */
  dml_fault fault;
  int scan_fd; /* of `scanned`, or -1 */
  dml_folder *scanned;
  dml_folder *moving; /* taken from its place by the event before this one */
  uint32_t moving_cookie;
  uint32_t hidden_cookie; /* of what left a hidden name last; 0: nothing yet */
  bool is_hidden_new, is_hidden_again;
  dml_fields queue; /* events that wait for credit */
} watcher;

static watcher *of_stream(dml_stream *stream) {
  return (watcher *)(void *)((char *)stream - offsetof(watcher, stream));
}

/* ---- out ---- */

static void flush(dml_agent *agent, watcher *w) {
  if (w->queue.len == 0 || w->queue.len > dml_stream_allowance(&w->stream)) return;
  dml_stream_send_data(agent, &w->stream, 0, w->queue.data, w->queue.len);
  dml_fields_deinit(&w->queue);
}

static void end(watcher *w, dml_fault fault) {
  if (w->has_ended) return;
  w->has_ended = true;
  w->fault = fault;
}

static void tell(dml_agent *agent, watcher *w, dml_event event, const char *name) {
  size_t len = EVENT_FIELDS_BYTES + strlen(name);
  if (w->has_ended) return;
  if (w->queue.len + len > w->queue.limit) flush(agent, w);
  if (w->queue.len + len > w->queue.limit) {
    end(w, DML_FAULT_EXHAUSTED);
    return;
  }
  dml_fields_put_int(&w->queue, DML_FIELD_EVENT, event);
  dml_fields_put_text(&w->queue, DML_FIELD_NAME, name);
  if (w->queue.failed) end(w, DML_FAULT_EXHAUSTED);
}

static bool is_hidden(const char *name) { return strncmp(name, DML_HIDDEN_PREFIX, strlen(DML_HIDDEN_PREFIX)) == 0; }

/* Whether the path or a folder in it is hidden. */
static bool is_below_hidden(const char *path) {
  while (path && !is_hidden(path)) {
    path = strchr(path, '/');
    if (path) path++;
  }
  return path != NULL;
}

static void tell_in(dml_agent *agent, watcher *w, dml_event event, const dml_folder *folder, const char *name) {
  char path[DML_FRAME_PATH_MAX + 1];
  if (!dml_folders_path(folder, name, false, path)) end(w, DML_FAULT_EXHAUSTED);
  else if (!is_below_hidden(path)) tell(agent, w, event, path);
}

/* Sends what can be sent; at the end of the watcher closes it, and then returns false. */
static bool settle(dml_agent *agent, watcher *w) {
  flush(agent, w);
  if (!w->has_ended) {
    bool wants_events = w->is_open && !w->stream.back_job && w->queue.len == 0;
    if (dml_agent_watch(agent, &w->watch, wants_events ? EPOLLIN : 0)) return true;
    end(w, DML_FAULT_EXHAUSTED);
  }
  dml_agent_watch(agent, &w->watch, 0);
  if (w->queue.len && !w->queue.failed) return true;
  if (w->fault) dml_channel_send_error(&agent->channel, w->stream.id, w->fault, 0);
  else dml_channel_send_done(&agent->channel, w->stream.id);
  dml_stream_close(agent, &w->stream);
  return false;
}

/* ---- the walk ---- */

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* Looks at a folder below as well; what is in it is found by the walk. */
static void add_folder(dml_agent *agent, watcher *w, dml_folder *up, const char *name) {
  dml_folder *folder;
  int error = dml_folders_add(agent, &w->folders, up, name, &folder);
  if (error) end(w, DML_FAULT_EXHAUSTED);
  if (!folder) return;
  folder->is_unscanned = true;
  dml_stream_make_job(&agent->streams, &w->stream);
}

/* What is in a new folder came before it was watched, or is told twice: better than never. */
static void take_name(dml_agent *agent, watcher *w, const struct dirent64 *entry) {
  if (is_dots(entry->d_name)) return;
  if (w->is_open) tell_in(agent, w, DML_EVENT_CREATE, w->scanned, entry->d_name);
  if (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN) add_folder(agent, w, w->scanned, entry->d_name);
}

static void open_next(watcher *w) {
  char path[DML_FRAME_PATH_MAX + 1];
  w->scanned = dml_folders_unscanned(&w->folders);
  if (!w->scanned) return;
  w->scanned->is_unscanned = false;
  if (dml_folders_path(w->scanned, "", true, path))
    w->scan_fd = open(path, O_RDONLY | O_DIRECTORY | (w->scanned->up ? O_NOFOLLOW : 0) | O_CLOEXEC);
}

static void scan_some(dml_agent *agent, watcher *w) {
  uint8_t *buffer = dml_agent_scratch(agent);
  ssize_t got = buffer ? getdents64(w->scan_fd, buffer, SCAN_BYTES) : 0;
  for (ssize_t i = 0; i < got;) {
    const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + i);
    i += entry->d_reclen;
    take_name(agent, w, entry);
  }
  if (got > 0) return;
  close(w->scan_fd);
  w->scan_fd = -1;
}

static bool walk_step(dml_agent *agent, dml_stream *stream) {
  watcher *w = of_stream(stream);
  if (w->queue.len) flush(agent, w);
  if (w->queue.len && !w->has_ended) return false; /* until there is credit */
  if (w->scan_fd < 0) open_next(w);
  if (w->scan_fd >= 0) scan_some(agent, w);
  bool has_more = !w->has_ended && (w->scan_fd >= 0 || dml_folders_unscanned(&w->folders));
  if (has_more) return true;
  dml_stream_rest(stream);
  if (!w->has_ended && !w->is_open) {
    w->is_open = true;
    dml_channel_send(&agent->channel, DML_FRAME_OPENED, 0, stream->id, NULL, 0);
  }
  settle(agent, w);
  return false;
}

/* ---- events ---- */

static void take_root_event(dml_agent *agent, watcher *w, uint32_t mask) {
  if (mask & IN_ATTRIB) tell(agent, w, DML_EVENT_CHMOD, ".");
  if (mask & IN_DELETE_SELF) tell(agent, w, DML_EVENT_REMOVE, ".");
  if (mask & IN_MOVE_SELF) tell(agent, w, DML_EVENT_RENAME, ".");
  if (mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)) end(w, DML_FAULT_NONE);
}

/* A folder came into `up`: a new one, or the one that the event before took away elsewhere in the tree. */
static void take_folder(dml_agent *agent, watcher *w, dml_folder *up, const struct inotify_event *event) {
  dml_folder *moving = w->moving;
  w->moving = NULL;
  if (moving && dml_folders_move(moving, up, event->name)) return;
  if (moving) dml_folders_remove(agent, &w->folders, moving);
  add_folder(agent, w, up, event->name);
}

static bool ends_with(const char *text, const char *ending) {
  size_t len = strlen(text), of_ending = strlen(ending);
  return len >= of_ending && strcmp(text + len - of_ending, ending) == 0;
}

static void note_hidden(watcher *w, const struct inotify_event *event) {
  w->hidden_cookie = event->cookie;
  w->is_hidden_new = ends_with(event->name, DML_HIDDEN_NEW);
  w->is_hidden_again = ends_with(event->name, DML_HIDDEN_AGAIN);
}

/* A file that was written beside its place is told as if it had been written there. */
static void tell_arrival(dml_agent *agent, watcher *w, dml_folder *folder, const struct inotify_event *event) {
  bool was_hidden = w->hidden_cookie && event->cookie == w->hidden_cookie;
  if (!was_hidden || !w->is_hidden_again) tell_in(agent, w, DML_EVENT_CREATE, folder, event->name);
  if (was_hidden && (w->is_hidden_again || w->is_hidden_new)) tell_in(agent, w, DML_EVENT_WRITE, folder, event->name);
}

static void take_name_event(dml_agent *agent, watcher *w, dml_folder *folder, const struct inotify_event *event) {
  static const struct {
    uint32_t mask;
    dml_event event;
  } EVENTS[] = {{IN_CREATE, DML_EVENT_CREATE},
                {IN_MODIFY, DML_EVENT_WRITE},
                {IN_DELETE, DML_EVENT_REMOVE},
                {IN_MOVED_FROM, DML_EVENT_RENAME},
                {IN_ATTRIB, DML_EVENT_CHMOD}};
  for (size_t i = 0; i < sizeof EVENTS / sizeof *EVENTS; i++)
    if (event->mask & EVENTS[i].mask) tell_in(agent, w, EVENTS[i].event, folder, event->name);
  if (event->mask & IN_MOVED_TO) tell_arrival(agent, w, folder, event);
  if ((event->mask & IN_MOVED_FROM) && is_hidden(event->name)) note_hidden(w, event);
  if (!w->is_recursive || !(event->mask & IN_ISDIR)) return;
  if (event->mask & IN_MOVED_FROM) {
    w->moving = dml_folders_child(&w->folders, folder, event->name);
    w->moving_cookie = event->cookie;
  } else if (event->mask & (IN_CREATE | IN_MOVED_TO)) {
    take_folder(agent, w, folder, event);
  }
}

static void take_event(dml_agent *agent, watcher *w, const struct inotify_event *event) {
  if (event->mask & IN_Q_OVERFLOW) {
    end(w, DML_FAULT_EXHAUSTED);
    return;
  }
  bool is_arrival = (event->mask & IN_MOVED_TO) && event->cookie == w->moving_cookie;
  if (w->moving && !is_arrival) { /* it left the tree */
    dml_folders_remove(agent, &w->folders, w->moving);
    w->moving = NULL;
  }
  dml_folder *folder = dml_folders_find(&w->folders, event->wd);
  if (!folder) return;
  if (event->len > 0) take_name_event(agent, w, folder, event);
  else if (!folder->up) take_root_event(agent, w, event->mask);
  else if (event->mask & IN_IGNORED) dml_folders_remove(agent, &w->folders, folder);
}

static void on_ready(dml_agent *agent, dml_watch *watch) {
  watcher *w = (watcher *)watch;
  _Alignas(struct inotify_event) char buffer[EVENTS_BYTES];
  ssize_t got = read(w->folders.inotify_fd, buffer, sizeof buffer);
  if (got < 0 && errno != EAGAIN && errno != EINTR) end(w, DML_FAULT_FAILED);
  for (ssize_t i = 0; i < got && !w->has_ended;) {
    const struct inotify_event *event = (const struct inotify_event *)(const void *)(buffer + i);
    i += (ssize_t)(sizeof *event + event->len);
    take_event(agent, w, event);
  }
  settle(agent, w);
}

/* ---- life ---- */

static void watch_credit(dml_agent *agent, dml_stream *stream) {
  watcher *w = of_stream(stream);
  if (w->scan_fd >= 0 || dml_folders_unscanned(&w->folders)) dml_stream_make_job(&agent->streams, stream);
  settle(agent, w);
}

static void watch_drop(dml_agent *agent, dml_stream *stream) {
  watcher *w = of_stream(stream);
  dml_agent_watch(agent, &w->watch, 0);
  if (w->scan_fd >= 0) close(w->scan_fd);
  dml_folders_deinit(agent, &w->folders);
  dml_fields_deinit(&w->queue);
  agent->watcher_count--;
  free(w);
}

static const dml_stream_ops WATCHING = {.credit = watch_credit, .step = walk_step, .drop = watch_drop};

void dml_watcher_open(dml_agent *agent, uint32_t stream, const char *path, bool is_recursive) {
  watcher *w = agent->watcher_count < DML_WATCHERS_MAX ? calloc(1, sizeof *w) : NULL;
  int fd = w ? inotify_init1(IN_NONBLOCK | IN_CLOEXEC) : -1;
  int error = w && fd < 0 ? errno : ENOMEM;
  dml_folder *root = NULL;
  if (fd >= 0) {
    *w = (watcher){.watch = {.fd = fd, .ready = on_ready}, .is_recursive = is_recursive, .scan_fd = -1};
    w->folders = (dml_folders){.inotify_fd = fd};
    error = dml_folders_add(agent, &w->folders, NULL, path, &root);
  }
  if (!root) {
    if (fd >= 0) dml_folders_deinit(agent, &w->folders);
    free(w);
    /* ENOSPC of inotify is no full disk */
    dml_fault fault = error == ENOSPC ? DML_FAULT_EXHAUSTED : dml_fault_from_errno(error);
    dml_channel_send_error(&agent->channel, stream, fault, 0);
    return;
  }
  dml_fields_init(&w->queue, DML_WATCHER_QUEUE_MAX);
  agent->watcher_count++;
  root->is_unscanned = is_recursive;
  dml_stream_open(&agent->streams, &w->stream, stream, &WATCHING);
  dml_stream_make_job(&agent->streams, &w->stream); /* also answers */
}
