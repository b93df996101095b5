/* folders.c - the folders that one watcher looks at, see watcher.h.
 *
 * A watch belongs to an inode, not to a path: so a folder knows the one above it, and paths are put together when they
 * are needed. What is moved keeps its watches and takes what is below it along. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/watcher.h"

#define IN_NAMES (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define IN_ROOT (IN_DELETE_SELF | IN_MOVE_SELF)

/* Where a wd is, or belongs; the kernel counts them upwards. */
static size_t place_of(const dml_folders *folders, int wd) {
  size_t from = 0, to = folders->count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (folders->all[middle]->wd < wd) from = middle + 1;
    else to = middle;
  }
  return from;
}

dml_folder *dml_folders_find(const dml_folders *folders, int wd) {
  size_t at = place_of(folders, wd);
  return at < folders->count && folders->all[at]->wd == wd ? folders->all[at] : NULL;
}

dml_folder *dml_folders_child(const dml_folders *folders, const dml_folder *up, const char *name) {
  for (size_t i = 0; i < folders->count; i++)
    if (folders->all[i]->up == up && strcmp(folders->all[i]->name, name) == 0) return folders->all[i];
  return NULL;
}

dml_folder *dml_folders_unscanned(const dml_folders *folders) {
  for (size_t i = 0; i < folders->count; i++)
    if (folders->all[i]->is_unscanned) return folders->all[i];
  return NULL;
}

bool dml_folders_path(const dml_folder *folder, const char *name, bool is_whole, char *out) {
  char text[DML_FRAME_PATH_MAX + 1];
  size_t at = sizeof text - 1;
  text[at] = '\0';
  for (;;) {
    size_t len = strlen(name);
    bool has_slash = text[at] != '\0' && len && name[len - 1] != '/';
    if (len + has_slash > at) return false;
    if (has_slash) text[--at] = '/';
    at -= len;
    memcpy(text + at, name, len);
    if (!folder || (!folder->up && !is_whole)) break;
    name = folder->name;
    folder = folder->up;
  }
  memcpy(out, text + at, sizeof text - at);
  return true;
}

static bool is_above(const dml_folder *folder, const dml_folder *below) {
  while (below && below != folder) below = below->up;
  return below != NULL;
}

bool dml_folders_move(dml_folder *folder, dml_folder *up, const char *name) {
  if (!folder->up || is_above(folder, up)) return false;
  if (folder->up == up && strcmp(folder->name, name) == 0) return true;
  char *copy = strdup(name);
  if (!copy) return false;
  free(folder->name);
  folder->name = copy;
  folder->up = up;
  return true;
}

static bool has_room(const dml_agent *agent, dml_folders *folders, const dml_folder *up) {
  size_t depth = 0;
  for (; up; up = up->up) depth++;
  if (depth > DML_FRAME_DEPTH_MAX || agent->folder_count >= DML_WATCHER_FOLDERS_MAX) return false;
  if (folders->count < folders->capacity) return true;
  size_t capacity = folders->capacity ? folders->capacity * 2 : 4;
  dml_folder **all = realloc(folders->all, capacity * sizeof *all);
  if (!all) return false;
  folders->all = all;
  folders->capacity = capacity;
  return true;
}

static dml_folder *put(dml_agent *agent, dml_folders *folders, dml_folder *up, const char *name, int wd) {
  dml_folder *folder = calloc(1, sizeof *folder);
  char *copy = folder ? strdup(name) : NULL;
  if (!copy) {
    free(folder);
    return NULL;
  }
  *folder = (dml_folder){.wd = wd, .up = up, .name = copy};
  size_t at = place_of(folders, wd);
  memmove(folders->all + at + 1, folders->all + at, (folders->count - at) * sizeof *folders->all);
  folders->all[at] = folder;
  folders->count++;
  agent->folder_count++;
  return folder;
}

int dml_folders_add(dml_agent *agent, dml_folders *folders, dml_folder *up, const char *name, dml_folder **out) {
  char path[DML_FRAME_PATH_MAX + 1];
  *out = NULL;
  if (!has_room(agent, folders, up)) return ENOSPC;
  if (!dml_folders_path(up, name, true, path)) return EMLINK;
  uint32_t mask = IN_NAMES | IN_ONLYDIR | (up ? IN_DONT_FOLLOW : IN_ROOT);
  int wd = inotify_add_watch(folders->inotify_fd, path, mask);
  if (wd < 0) return up && (errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP) ? 0 : errno;
  dml_folder *known = dml_folders_find(folders, wd);
  if (known) { /* seen at another place, where it is no more */
    dml_folders_move(known, up, name);
    return 0;
  }
  *out = put(agent, folders, up, name, wd);
  if (!*out) inotify_rm_watch(folders->inotify_fd, wd);
  return *out ? 0 : ENOMEM;
}

void dml_folders_remove(dml_agent *agent, dml_folders *folders, dml_folder *folder) {
  folder->is_gone = true;
  for (size_t i = 0; i < folders->count; i++)
    folders->all[i]->is_gone = is_above(folder, folders->all[i]);
  size_t kept = 0;
  for (size_t i = 0; i < folders->count; i++) {
    dml_folder *one = folders->all[i];
    if (!one->is_gone) {
      folders->all[kept++] = one;
      continue;
    }
    inotify_rm_watch(folders->inotify_fd, one->wd); /* EINVAL where the kernel did that */
    free(one->name);
    free(one);
    agent->folder_count--;
  }
  folders->count = kept;
}

void dml_folders_deinit(dml_agent *agent, dml_folders *folders) {
  for (size_t i = 0; i < folders->count; i++) {
    free(folders->all[i]->name);
    free(folders->all[i]);
  }
  agent->folder_count -= folders->count;
  free(folders->all);
  if (folders->inotify_fd >= 0) close(folders->inotify_fd);
  *folders = (dml_folders){.inotify_fd = -1};
}
