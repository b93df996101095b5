/* members.c - see members.h. */
#include "sandbox/members.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAT_MAX_BYTES 1024
#define ROOM_FIRST 64u

static bool read_text(const char *path, char *out, size_t out_bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, out, out_bytes - 1);
  close(fd);
  if (n <= 0) return false;
  out[n] = '\0';
  return true;
}

bool dml_member_read(dml_member *member, pid_t pid) {
  char path[32], text[STAT_MAX_BYTES];
  unsigned long long user, kernel, start;
  long long child_user, child_kernel, rss;
  int parent;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (!read_text(path, text, sizeof text)) return false;
  /* The name may hold anything, so the fields are counted from its closing parenthesis (proc(5)). */
  const char *at = strrchr(text, ')');
  char state;
  if (!at ||
      sscanf(at + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld %*d %*d %*d %*d %llu %*u %lld",
             &state, &parent, &user, &kernel, &child_user, &child_kernel, &start, &rss) != 8)
    return false;
  *member = (dml_member){
      .pid = pid,
      .parent = (pid_t)parent,
      .state = state,
      .start = start,
      .cpu_ticks = user + kernel + (uint64_t)child_user + (uint64_t)child_kernel,
      .rss_pages = rss > 0 ? (uint64_t)rss : 0,
  };
  return true;
}

bool dml_member_stands(const dml_member *member) { return strchr("TtZXx", member->state) != NULL; }

void dml_member_signal(const dml_member *member, int signo) {
  dml_member now;
  int pidfd = (int)syscall(SYS_pidfd_open, member->pid, 0);
  if (pidfd < 0) return;
  /* Held now, so what is read is of the same process. */
  if (dml_member_read(&now, member->pid) && now.start == member->start)
    syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0);
  close(pidfd);
}

/* ---- all of them ---- */

typedef struct room {
  dml_member *list;
  size_t count, size;
} room;

static dml_status add(room *all, pid_t pid) {
  if (all->count == all->size) {
    size_t size = all->size ? all->size * 2 : ROOM_FIRST;
    if (size > DML_MEMBERS_MAX) return DML_NO_CAPACITY;
    dml_member *list = realloc(all->list, size * sizeof *list);
    if (!list) return DML_NO_CAPACITY;
    all->list = list;
    all->size = size;
  }
  if (dml_member_read(&all->list[all->count], pid)) all->count++;
  return DML_OK;
}

static dml_status read_listed(room *all, const char *procs) {
  FILE *file = fopen(procs, "re");
  if (!file) return DML_INTERNAL;
  char line[32];
  dml_status status = DML_OK;
  while (status == DML_OK && fgets(line, sizeof line, file)) {
    long pid = strtol(line, NULL, 10);
    if (pid > 0) status = add(all, (pid_t)pid);
  }
  fclose(file);
  return status;
}

static dml_status read_all(room *all) {
  DIR *dir = opendir("/proc");
  if (!dir) return DML_INTERNAL;
  const struct dirent *entry;
  dml_status status = DML_OK;
  while (status == DML_OK && (entry = readdir(dir))) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    status = add(all, (pid_t)strtol(entry->d_name, NULL, 10));
  }
  closedir(dir);
  return status;
}

static int by_parent(const void *a, const void *b) {
  const dml_member *left = a, *right = b;
  return (left->parent > right->parent) - (left->parent < right->parent);
}

/* The first of those with that parent, or `all->count`. */
static size_t first_child(const room *all, pid_t parent) {
  size_t low = 0, high = all->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (all->list[middle].parent < parent)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Takes out of `all`, which is sorted, the root and what is below it. `list` has room for all of them: each has one
 * parent, so none is taken twice. */
static size_t take_tree(const room *all, pid_t root, dml_member *list) {
  size_t count = 0;
  for (size_t i = 0; i < all->count && count == 0; i++)
    if (all->list[i].pid == root) list[count++] = all->list[i];
  for (size_t done = 0; done < count; done++)
    for (size_t i = first_child(all, list[done].pid); i < all->count && all->list[i].parent == list[done].pid; i++)
      if (count < all->count && all->list[i].pid != root) list[count++] = all->list[i];
  return count;
}

dml_status dml_members_init(dml_members *members, pid_t root, const char *procs) {
  room all = {0};
  *members = (dml_members){0};
  dml_status status = procs ? read_listed(&all, procs) : read_all(&all);
  if (status == DML_OK && all.count > 0) {
    members->list = calloc(all.count, sizeof *members->list);
    if (!members->list) status = DML_NO_CAPACITY;
  }
  if (members->list) {
    qsort(all.list, all.count, sizeof *all.list, by_parent);
    members->count = take_tree(&all, root, members->list);
  }
  free(all.list);
  return status;
}

void dml_members_deinit(dml_members *members) {
  free(members->list);
  *members = (dml_members){0};
}
