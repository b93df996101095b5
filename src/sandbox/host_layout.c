/* host_layout.c - see host_layout.h. */
#include "sandbox/host_layout.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const TOP[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};

/* Patterns of glob(7). */
static const char *const ETC[] = {
    "/etc/alternatives", "/etc/ld.so.cache",   "/etc/ld.so.conf",        "/etc/ld.so.conf.d",
    "/etc/ssl",          "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/localtime",
    "/etc/mime.types",   "/etc/fonts",         "/etc/python3*",          "/etc/R",
    "/etc/java*"};

static bool lies_in(const char *path, const char *folder) {
  size_t len = strlen(folder);
  return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* Adds `path` as it is on the host: a link that ends in /usr as a link, what lies in /etc or at the top as a bind. */
static void add(dml_host_layout *layout, const char *path) {
  struct stat st;
  size_t path_len = strlen(path);
  if (layout->count >= DML_HOST_ENTRIES_MAX || path_len >= DML_HOST_PATH_MAX_BYTES) return;
  if (lstat(path, &st) != 0) return;
  dml_host_entry *entry = &layout->entries[layout->count];
  entry->link[0] = '\0';
  if (S_ISLNK(st.st_mode)) {
    char *real = realpath(path, NULL);
    ssize_t n = readlink(path, entry->link, sizeof entry->link);
    bool is_ours = real && n > 0 && (size_t)n < sizeof entry->link && lies_in(real, "/usr");
    free(real);
    if (!is_ours) return;
    entry->link[n] = '\0';
  } else if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
    return;
  }
  memcpy(entry->path, path, path_len + 1);
  layout->count++;
}

static bool is_directory(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void dml_host_layout_init(dml_host_layout *layout) {
  layout->count = 0;
  for (size_t i = 0; i < sizeof TOP / sizeof *TOP; i++) add(layout, TOP[i]);
  layout->top_count = layout->count;
  for (size_t i = 0; i < sizeof ETC / sizeof *ETC; i++) {
    glob_t found;
    if (glob(ETC[i], 0, NULL, &found) != 0) continue;
    for (size_t j = 0; j < found.gl_pathc; j++) add(layout, found.gl_pathv[j]);
    globfree(&found);
  }
  layout->has_usr_local_etc = is_directory("/usr/local/etc");
  layout->has_etc_ssl_private = is_directory("/etc/ssl/private");
}
