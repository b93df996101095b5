/* bind_append.c - core.fs.append: a private file that records are added to, one write(2) each.
 *
 * Several processes may add to one file: O_APPEND keeps their records apart as long as each is one write that succeeds. A
 * write that is cut short by a full disk is taken back while the file still ends in it, under a lock (flock(2)) that all
 * writers share; where it cannot be, the next record begins with a line end, so that only the piece is lost. */
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "script/bind.h"
#include "script/task.h"

#define APPENDER_T "demilune.appender"
/* A lock is held for one system call or two; who holds it longer is not waited for. */
#define LOCK_TRIES_MAX 20
#define LOCK_NAP_NS 100000

/* The path is user value 1. */
typedef struct appender {
  int fd;             /* -1: closed */
  bool needs_newline; /* the file may end in a piece of a record */
} appender;

static int fail_errno(lua_State *L, int err) { return dml_push_error(L, dml_status_from_errno(err)); }

static int succeed(lua_State *L) {
  lua_pushboolean(L, 1);
  return 1;
}

static bool take_lock(int fd, int kind) {
  for (int i = 0; i < LOCK_TRIES_MAX; i++) {
    if (flock(fd, kind | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    nanosleep(&(struct timespec){.tv_nsec = LOCK_NAP_NS}, NULL);
  }
  return false;
}

/* Whether the file ends in a piece of a record, and not in the middle of one that is being written: a write that is under
 * way can be seen in part, so it is waited for. A file that somebody keeps locked is taken for whole. */
static bool ends_in_piece(int fd) {
  if (!take_lock(fd, LOCK_EX)) return false;
  struct stat st;
  char last = '\n';
  bool is_read = fstat(fd, &st) == 0 && (st.st_size == 0 || pread(fd, &last, 1, st.st_size - 1) == 1);
  flock(fd, LOCK_UN);
  return !is_read || last != '\n';
}

/* Opens the file and looks whether it may be added to. Returns the descriptor, or -1 and why. */
static int open_checked(const char *path, dml_status *status, bool *needs_newline) {
  int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    *status = errno == ELOOP ? DML_FILE_PERMISSION : dml_status_from_errno(errno);
  } else if (!S_ISREG(st.st_mode)) {
    *status = DML_UNSUPPORTED;
  } else if (st.st_uid != geteuid() || (st.st_mode & 022)) {
    *status = DML_FILE_PERMISSION;
  } else {
    *needs_newline = ends_in_piece(fd);
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

/* fs.append(path) -> Appender | nil, err */
static int l_append(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  appender *a = lua_newuserdatauv(L, sizeof *a, 1);
  *a = (appender){.fd = -1};
  luaL_setmetatable(L, APPENDER_T);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  dml_status status;
  a->fd = open_checked(path, &status, &a->needs_newline);
  return a->fd >= 0 ? 1 : dml_push_error(L, status);
}

static appender *check_open(lua_State *L) {
  appender *a = luaL_checkudata(L, 1, APPENDER_T);
  luaL_argcheck(L, a->fd >= 0, 1, "it is closed");
  return a;
}

/* Takes back the `len` bytes that were just written, if nothing stands behind them. */
static bool take_back(int fd, off_t len) {
  struct stat st;
  off_t end = lseek(fd, 0, SEEK_CUR); /* behind our own piece, since O_APPEND moves it there */
  return end >= len && take_lock(fd, LOCK_EX) && fstat(fd, &st) == 0 && st.st_size == end && ftruncate(fd, end - len) == 0;
}

static dml_status write_record(appender *a, const char *bytes, size_t len) {
  struct iovec parts[2] = {{(char[]){'\n'}, 1}, {(void *)(uintptr_t)bytes, len}};
  size_t whole = len + a->needs_newline;
  ssize_t n;
  do n = writev(a->fd, a->needs_newline ? parts : parts + 1, a->needs_newline ? 2 : 1);
  while (n < 0 && errno == EINTR);
  if (n < 0) return dml_status_from_errno(errno);
  if ((size_t)n == whole) {
    a->needs_newline = false;
    return DML_OK;
  }
  if (!take_back(a->fd, n)) a->needs_newline = true;
  return DML_DISK_FULL;
}

/* Appender:write(bytes) -> true | nil, err. One write, whole or not at all. */
static int appender_write(lua_State *L) {
  appender *a = check_open(L);
  size_t len;
  const char *bytes = luaL_checklstring(L, 2, &len);
  struct stat st;
  if (fstat(a->fd, &st) != 0) return fail_errno(L, errno);
  if (st.st_nlink == 0) return dml_push_error(L, DML_FILE_NOT_FOUND);
  if (len == 0) return succeed(L);
  bool is_locked = take_lock(a->fd, LOCK_SH);
  dml_status status = write_record(a, bytes, len);
  if (is_locked || status != DML_OK) flock(a->fd, LOCK_UN);
  return status == DML_OK ? succeed(L) : dml_push_error(L, status);
}

/* ---- sync ---- */

/* Outlives its appender and its task: libuv's thread may still be at it. */
typedef struct sync_op {
  uv_fs_t request;
  int fd;          /* a descriptor of its own */
  dml_wait *wait;  /* NULL: nobody waits any more */
} sync_op;

static int push_synced(lua_State *co, void *ud) {
  sync_op *op = ud;
  if (op->request.result < 0) return fail_errno(co, (int)-op->request.result);
  return succeed(co);
}

static void free_sync(sync_op *op) {
  uv_fs_req_cleanup(&op->request);
  if (op->fd >= 0) close(op->fd);
  free(op);
}

static void on_synced(uv_fs_t *request) {
  sync_op *op = request->data;
  if (op->wait) dml_wait_wake(op->wait, push_synced, op);
  free_sync(op);
}

static void drop_sync(void *ud) { ((sync_op *)ud)->wait = NULL; }

/* Appender:sync() async -> true | nil, err */
static int appender_sync(lua_State *L) {
  appender *a = check_open(L);
  dml_wait *wait = dml_wait_new(L, NULL, NULL);
  sync_op *op = calloc(1, sizeof *op);
  if (op) op->fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 3);
  if (!op || op->fd < 0) {
    int err = op ? errno : ENOMEM;
    free(op);
    dml_wait_forget(wait);
    return fail_errno(L, err);
  }
  op->wait = wait;
  op->request.data = op;
  dml_wait_bind(wait, drop_sync, op);
  int rc = uv_fs_fdatasync(dml_loop_uv(dml_script_loop(dml_script_of(L))), &op->request, op->fd, on_synced);
  if (rc == 0) return dml_wait_yield(L);
  dml_wait_forget(wait);
  free_sync(op);
  return fail_errno(L, -rc);
}

/* ---- the file and its name ---- */

/* Appender:size() -> bytes | nil, err */
static int appender_size(lua_State *L) {
  appender *a = check_open(L);
  struct stat st;
  if (fstat(a->fd, &st) != 0) return fail_errno(L, errno);
  lua_pushinteger(L, (lua_Integer)st.st_size);
  return 1;
}

/* Appender:is_current() -> whether the path still names this file */
static int appender_is_current(lua_State *L) {
  appender *a = check_open(L);
  struct stat open_file, named;
  lua_getiuservalue(L, 1, 1);
  bool is_current = fstat(a->fd, &open_file) == 0 && lstat(lua_tostring(L, -1), &named) == 0 &&
                    open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
  lua_pushboolean(L, is_current);
  return 1;
}

/* Appender:reopen() -> true | nil, err; then the file that was open stays */
static int appender_reopen(lua_State *L) {
  appender *a = check_open(L);
  lua_getiuservalue(L, 1, 1);
  dml_status status;
  bool needs_newline = false;
  int fd = open_checked(lua_tostring(L, -1), &status, &needs_newline);
  if (fd < 0) return dml_push_error(L, status);
  close(a->fd);
  *a = (appender){fd, needs_newline};
  return succeed(L);
}

/* Appender:close(); twice is fine */
static int appender_close(lua_State *L) {
  appender *a = luaL_checkudata(L, 1, APPENDER_T);
  if (a->fd >= 0) close(a->fd);
  a->fd = -1;
  return 0;
}

static const luaL_Reg METHODS[] = {{"write", appender_write},           {"sync", appender_sync},
                                   {"size", appender_size},             {"is_current", appender_is_current},
                                   {"reopen", appender_reopen},         {"close", appender_close},
                                   {NULL, NULL}};

void dml_open_append(lua_State *L) {
  if (luaL_newmetatable(L, APPENDER_T)) {
    luaL_newlib(L, METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, appender_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, appender_close);
    lua_setfield(L, -2, "__close");
  }
  lua_pop(L, 1);
  lua_pushcfunction(L, l_append);
  lua_setfield(L, -2, "append");
}
