/* file_info.c - STAT and MKDIR, and what an entry looks like on the wire. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/fault.h"
#include "agent/file.h"
#include "agent/owner.h"

#define ENTRY_BYTES (4 * DML_FRAME_PATH_MAX + DML_FRAME_DEPTH_MAX * 256 + 1024)

static dml_entry_type type_of(mode_t mode) {
  if (S_ISREG(mode)) return DML_ENTRY_FILE;
  if (S_ISDIR(mode)) return DML_ENTRY_DIRECTORY;
  return S_ISLNK(mode) ? DML_ENTRY_SYMLINK : DML_ENTRY_OTHER;
}

static void put_target(dml_fields *fields, int dir, const char *name) {
  char target[DML_FRAME_PATH_MAX + 1];
  ssize_t len = readlinkat(dir, name, target, sizeof target - 1);
  if (len < 0) return;
  target[len] = '\0';
  dml_fields_put_text(fields, DML_FIELD_TARGET, target);
}

int dml_file_send_entry(dml_agent *agent, uint32_t stream, int dir, const char *name, const char *path) {
  struct stat st;
  if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno;
  const char *slash = strrchr(path, '/');
  char owner[DML_AGENT_OWNER_BYTES];
  dml_fields fields;
  dml_fields_init(&fields, ENTRY_BYTES);
  dml_fields_put_text(&fields, DML_FIELD_NAME, slash && slash[1] ? slash + 1 : path);
  dml_fields_put_text(&fields, DML_FIELD_PATH, path);
  dml_fields_put_int(&fields, DML_FIELD_TYPE, type_of(st.st_mode));
  dml_fields_put_int(&fields, DML_FIELD_SIZE, st.st_size);
  dml_fields_put_int(&fields, DML_FIELD_MODE, st.st_mode & 07777);
  dml_fields_put_int(&fields, DML_FIELD_MTIME_MS, (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000);
  dml_owner_user(agent, st.st_uid, owner);
  dml_fields_put_text(&fields, DML_FIELD_OWNER, owner);
  dml_owner_group(agent, st.st_gid, owner);
  dml_fields_put_text(&fields, DML_FIELD_GROUP, owner);
  if (S_ISLNK(st.st_mode)) put_target(&fields, dir, name);
  dml_channel_send_fields(&agent->channel, DML_FRAME_ENTRY, 0, stream, &fields);
  return 0;
}

/* Without the slashes at its end, so that the name of "/a/b/" is "b". */
static void copy_trimmed(char *out, const char *path) {
  size_t len = strlen(path);
  while (len > 1 && path[len - 1] == '/') len--;
  memcpy(out, path, len);
  out[len] = '\0';
}

void dml_file_stat(dml_agent *agent, uint32_t stream, const char *path) {
  char shown[DML_FRAME_PATH_MAX + 1];
  copy_trimmed(shown, path);
  dml_owner_forget(agent);
  int error = dml_file_send_entry(agent, stream, AT_FDCWD, path, shown);
  if (error) dml_channel_send_error(&agent->channel, stream, dml_fault_from_errno(error), 0);
  else dml_channel_send_done(&agent->channel, stream);
}

/* mkdir that is content with a directory that is there. */
static int make_dir(const char *path) {
  struct stat st;
  if (mkdir(path, 0777) == 0) return 0;
  int error = errno;
  if (stat(path, &st) != 0) return error; /* what mkdir said is the better reason */
  return S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
}

int dml_file_make_parents(char *path) {
  struct stat st;
  char *last = strrchr(path, '/');
  if (!last || last == path) return 0;
  *last = '\0';
  int error = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : ENOENT;
  for (char *at = path + 1; error; at++) {
    if (*at != '/' && *at != '\0') continue;
    bool is_last = *at == '\0';
    *at = '\0';
    error = make_dir(path);
    if (!is_last) *at = '/';
    if (error || is_last) break;
    error = ENOENT;
  }
  *last = '/';
  return error;
}

void dml_file_mkdir(dml_agent *agent, uint32_t stream, const char *path) {
  char copy[DML_FRAME_PATH_MAX + 1];
  copy_trimmed(copy, path);
  int error = dml_file_make_parents(copy);
  if (error == 0 && mkdir(copy, 0777) != 0) error = errno;
  if (error) dml_channel_send_error(&agent->channel, stream, dml_fault_from_errno(error), 0);
  else dml_channel_send_done(&agent->channel, stream);
}
