/* bind_fs.c - core.fs: the state folder of this user. Small files, private modes, no links followed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "script/bind.h"
#include "script/task.h"

#define LOCK_T "demilune.lock"
#define LIST_MAX 65536
#define PATH_BYTES 4096

static int fail_errno(lua_State *L, int err) { return dml_push_error(L, dml_status_from_errno(err)); }

static int succeed(lua_State *L) {
  lua_pushboolean(L, 1);
  return 1;
}

/* fs.make_dir(path) -> true | nil, err. 0700, ours; made where missing (the last component only); one that is there must
 * be a real directory of this user that nobody else can write to. */
static int l_make_dir(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return fail_errno(L, errno);
  struct stat st;
  if (lstat(path, &st) != 0) return fail_errno(L, errno);
  if (!S_ISDIR(st.st_mode)) return dml_push_error(L, DML_NOT_A_DIRECTORY);
  if (st.st_uid != geteuid() || (st.st_mode & 022)) return dml_push_error(L, DML_FILE_PERMISSION);
  return succeed(L);
}

/* fs.read(path, max_bytes) -> bytes | nil, err */
static int l_read(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  lua_Integer limit = luaL_checkinteger(L, 2);
  luaL_argcheck(L, limit >= 0, 2, "must not be negative");
  size_t max = (size_t)limit;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return fail_errno(L, errno);
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > max) {
    dml_status status = S_ISDIR(st.st_mode) ? DML_IS_DIRECTORY : S_ISREG(st.st_mode) ? DML_TOO_LARGE : DML_UNSUPPORTED;
    close(fd);
    return dml_push_error(L, status);
  }
  luaL_Buffer out;
  char *place = luaL_buffinitsize(L, &out, (size_t)st.st_size + 1);
  size_t len = 0;
  int err = 0;
  while (len < (size_t)st.st_size) {
    ssize_t n = read(fd, place + len, (size_t)st.st_size - len);
    if (n > 0) len += (size_t)n;
    else if (n == 0 || errno != EINTR) {
      err = n < 0 ? errno : 0;
      break;
    }
  }
  close(fd);
  if (err) return fail_errno(L, err);
  luaL_pushresultsize(&out, len);
  return 1;
}

static int write_all(int fd, const char *bytes, size_t len) {
  while (len > 0) {
    ssize_t n = write(fd, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes += n;
    len -= (size_t)n;
  }
  return 0;
}

/* fs.write(path, bytes) -> true | nil, err. 0600, beside and then renamed: a reader sees the old file or the new one. */
static int l_write(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  size_t len;
  const char *bytes = luaL_checklstring(L, 2, &len);
  char beside[PATH_BYTES];
  if ((size_t)snprintf(beside, sizeof beside, "%s.%ld.new", path, (long)getpid()) >= sizeof beside)
    return dml_push_error(L, DML_TOO_LARGE);
  unlink(beside); /* of a process that died with our pid; made anew for its mode */
  int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno(L, errno);
  int err = write_all(fd, bytes, len);
  close(fd);
  if (!err && rename(beside, path) != 0) err = errno;
  if (err) {
    unlink(beside);
    return fail_errno(L, err);
  }
  return succeed(L);
}

/* fs.remove(path) -> true | nil, err; a missing file is fine */
static int l_remove(lua_State *L) {
  if (unlink(luaL_checkstring(L, 1)) != 0 && errno != ENOENT) return fail_errno(L, errno);
  return succeed(L);
}

/* fs.list(path) -> names, sorted by nothing, at most LIST_MAX | nil, err */
static int l_list(lua_State *L) {
  DIR *dir = opendir(luaL_checkstring(L, 1));
  if (!dir) return fail_errno(L, errno);
  lua_newtable(L);
  struct dirent *entry;
  for (int n = 0; n < LIST_MAX && (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    lua_pushstring(L, entry->d_name);
    lua_rawseti(L, -2, ++n);
  }
  closedir(dir);
  return 1;
}

static const char *type_name(mode_t mode) {
  if (S_ISREG(mode)) return "file";
  if (S_ISDIR(mode)) return "directory";
  if (S_ISSOCK(mode)) return "socket";
  return "other";
}

/* fs.real_path(path) -> path from the root, links followed | nil, err (realpath(3)) */
static int l_real_path(lua_State *L) {
  char *real = realpath(luaL_checkstring(L, 1), NULL);
  if (!real) return fail_errno(L, errno);
  lua_pushstring(L, real);
  free(real);
  return 1;
}

/* fs.stat(path) -> {type, size, mode, uid, mtime} | nil, err; a link is followed */
static int l_stat(lua_State *L) {
  struct stat st;
  if (stat(luaL_checkstring(L, 1), &st) != 0) return fail_errno(L, errno);
  lua_createtable(L, 0, 5);
  lua_pushstring(L, type_name(st.st_mode));
  lua_setfield(L, -2, "type");
  lua_pushinteger(L, (lua_Integer)st.st_size);
  lua_setfield(L, -2, "size");
  lua_pushinteger(L, (lua_Integer)(st.st_mode & 07777));
  lua_setfield(L, -2, "mode");
  lua_pushinteger(L, (lua_Integer)st.st_uid);
  lua_setfield(L, -2, "uid");
  lua_pushinteger(L, (lua_Integer)st.st_mtime);
  lua_setfield(L, -2, "mtime");
  return 1;
}

static int lock_release(lua_State *L) {
  int *fd = luaL_checkudata(L, 1, LOCK_T);
  if (*fd >= 0) close(*fd);
  *fd = -1;
  return 0;
}

/* fs.lock(path) -> lock | nil, err ("conflict": another holds it). flock(2), never waits; ends with lock:release(). */
static int l_lock(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  int *fd = lua_newuserdatauv(L, sizeof *fd, 0);
  *fd = -1;
  luaL_setmetatable(L, LOCK_T);
  *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (*fd < 0) return fail_errno(L, errno);
  if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return 1;
  int err = errno;
  close(*fd);
  *fd = -1;
  return err == EWOULDBLOCK ? dml_push_error(L, DML_CONFLICT) : fail_errno(L, err);
}

static const luaL_Reg FUNCTIONS[] = {{"make_dir", l_make_dir}, {"read", l_read}, {"write", l_write}, {"remove", l_remove},
                                     {"list", l_list},         {"stat", l_stat}, {"lock", l_lock},   {"real_path", l_real_path},
                                     {NULL, NULL}};

int dml_open_fs(lua_State *L) {
  if (luaL_newmetatable(L, LOCK_T)) {
    lua_newtable(L);
    lua_pushcfunction(L, lock_release);
    lua_setfield(L, -2, "release");
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, lock_release);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, lock_release);
    lua_setfield(L, -2, "__close");
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  dml_open_append(L);
  return 1;
}
