/* bind_sys.c - core.sys: what a command needs of the process it runs in. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <lauxlib.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "script/bind.h"
#include "script/task.h"

#define OPTIONS_MAX 32
#define ARGUMENTS_MAX 4096
/* As many as there are calls in flight, which may all connect at once: a full queue refuses (connect(2), EAGAIN). */
#define LISTEN_BACKLOG 1024
#define WATCH_T "demilune.watch"
#define SIGNAL_T "demilune.signal"

/* sys.env(name) -> value | nothing */
static int l_env(lua_State *L) {
  const char *value = getenv(luaL_checkstring(L, 1));
  if (!value) return 0;
  lua_pushstring(L, value);
  return 1;
}

static int l_pid(lua_State *L) {
  lua_pushinteger(L, getpid());
  return 1;
}

static int l_uid(lua_State *L) {
  lua_pushinteger(L, geteuid());
  return 1;
}

/* sys.user() -> login name of the effective user, or "uid-N" */
static int l_user(lua_State *L) {
  struct passwd entry, *found = NULL;
  char space[4096];
  if (getpwuid_r(geteuid(), &entry, space, sizeof space, &found) == 0 && found) lua_pushstring(L, entry.pw_name);
  else lua_pushfstring(L, "uid-%d", (int)geteuid());
  return 1;
}

/* sys.home() -> home folder from the user database | nothing */
static int l_home(lua_State *L) {
  struct passwd entry, *found = NULL;
  char space[4096];
  if (getpwuid_r(geteuid(), &entry, space, sizeof space, &found) != 0 || !found || !entry.pw_dir[0]) return 0;
  lua_pushstring(L, entry.pw_dir);
  return 1;
}

static int l_isatty(lua_State *L) {
  lua_pushboolean(L, isatty((int)luaL_checkinteger(L, 1)));
  return 1;
}

/* sys.executable() -> absolute path of the running program */
static int l_executable(lua_State *L) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) return 0;
  lua_pushlstring(L, path, (size_t)n);
  return 1;
}

/* sys.library_dir() -> folder of back ends and the agent program */
static int l_library_dir(lua_State *L) {
  lua_pushstring(L, dml_script_dir(dml_script_of(L)));
  return 1;
}

/* ---- options ---- */

static const char *option_at(lua_State *L, int list, int i, bool *takes_value, char *name, size_t size) {
  lua_rawgeti(L, list, i);
  const char *spec = lua_tostring(L, -1);
  lua_pop(L, 1);
  size_t len = spec ? strlen(spec) : 0;
  if (!spec || len >= size) return NULL;
  memcpy(name, spec, len + 1);
  *takes_value = len > 0 && name[len - 1] == ':';
  if (*takes_value) name[len - 1] = '\0';
  return name;
}

/* What stands in argv where getopt stopped: our own argument, so it may be repeated to the person who typed it. Inside a
 * cluster of letters getopt has not moved on yet, but says the letter. */
static int bad_option(lua_State *L, char **argv, int rc) {
  lua_pushnil(L);
  if (rc == '?' && optopt > ' ' && optopt < 0x7F && optopt != 'h') lua_pushfstring(L, "there is no option -%c", optopt);
  else lua_pushfstring(L, rc == ':' ? "option %s needs a value" : "there is no option %s", argv[optind - 1]);
  return 2;
}

static int parse(lua_State *L, int argc, char **argv, const struct option *options) {
  lua_newtable(L);
  int rc, index = 0;
  optind = 0; /* glibc: start over (getopt(3)) */
  opterr = 0;
  while ((rc = getopt_long(argc, argv, ":h", options, &index)) != -1) {
    if (rc == 'h') {
      lua_pushboolean(L, 1);
      lua_setfield(L, -2, "help");
    } else if (rc == 0) {
      if (optarg) lua_pushstring(L, optarg);
      else lua_pushboolean(L, 1);
      lua_setfield(L, -2, options[index].name);
    } else {
      return bad_option(L, argv, rc);
    }
  }
  lua_newtable(L);
  for (int i = optind; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - optind + 1);
  }
  return 2;
}

/* sys.options(args, { "json", "config:" }) -> options, rest | nil, message. Long options by getopt_long(3); a name that
 * ends in ":" takes a value; -h is --help; "--" ends options. */
static int l_options(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checktype(L, 2, LUA_TTABLE);
  int argc = (int)lua_rawlen(L, 1), count = (int)lua_rawlen(L, 2);
  luaL_argcheck(L, argc < ARGUMENTS_MAX, 1, "too many arguments");
  luaL_argcheck(L, count < OPTIONS_MAX - 1, 2, "too many options");
  struct option options[OPTIONS_MAX] = {{0}};
  char names[OPTIONS_MAX][48];
  for (int i = 0; i < count; i++) {
    bool takes_value;
    options[i].name = option_at(L, 2, i + 1, &takes_value, names[i], sizeof names[i]);
    if (!options[i].name) return luaL_argerror(L, 2, "an option must be a short string");
    options[i].has_arg = takes_value ? required_argument : no_argument;
  }
  options[count] = (struct option){"help", no_argument, NULL, 'h'};
  char **argv = lua_newuserdatauv(L, ((size_t)argc + 2) * sizeof *argv, 0);
  argv[0] = names[OPTIONS_MAX - 1]; /* getopt may write there */
  memcpy(argv[0], "demilune", sizeof "demilune");
  for (int i = 1; i <= argc; i++) {
    lua_rawgeti(L, 1, i);
    argv[i] = (char *)luaL_checkstring(L, -1); /* kept alive by the table */
    lua_pop(L, 1);
  }
  argv[argc + 1] = NULL;
  return parse(L, argc + 1, argv, options);
}

/* ---- descriptors ---- */

static int push_pair(lua_State *L, int a, int b) {
  lua_pushinteger(L, a);
  lua_pushinteger(L, b);
  return 2;
}

/* sys.pipe() -> read_fd, write_fd | nil, err */
static int l_pipe(lua_State *L) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return dml_push_error(L, dml_status_from_errno(errno));
  return push_pair(L, fds[0], fds[1]);
}

/* sys.socketpair() -> fd, fd | nil, err */
static int l_socketpair(lua_State *L) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return dml_push_error(L, dml_status_from_errno(errno));
  return push_pair(L, fds[0], fds[1]);
}

/* sys.close(fd) */
static int l_close(lua_State *L) {
  close((int)luaL_checkinteger(L, 1));
  return 0;
}

/* sys.take(fd) -> the same open file under a new private number; the old number becomes /dev/null (0) or stderr (1) */
static int l_take(lua_State *L) {
  int fd = (int)luaL_checkinteger(L, 1);
  luaL_argcheck(L, fd == 0 || fd == 1, 1, "0 or 1");
  int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return dml_push_error(L, dml_status_from_errno(errno));
  int other = fd == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : STDERR_FILENO;
  if (other >= 0) dup2(other, fd);
  if (fd == 0 && other > 2) close(other);
  lua_pushinteger(L, copy);
  return 1;
}

/* sys.write(fd, bytes) -> true | nil, err; blocks */
static int l_write(lua_State *L) {
  int fd = (int)luaL_checkinteger(L, 1);
  size_t len;
  const char *bytes = luaL_checklstring(L, 2, &len);
  while (len > 0) {
    ssize_t n = write(fd, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return dml_push_error(L, dml_status_from_errno(errno));
    bytes += n;
    len -= (size_t)n;
  }
  lua_pushboolean(L, 1);
  return 1;
}

static bool fill_address(struct sockaddr_un *address, const char *path) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  size_t len = strlen(path);
  if (len >= sizeof address->sun_path) return false; /* unix(7): 108 bytes with the NUL */
  memcpy(address->sun_path, path, len + 1);
  return true;
}

/* sys.listen_unix(path) -> fd | nil, err ("too_large": the path has over 107 bytes). Mode 0600; a stale socket is
 * replaced, so hold a lock. */
static int l_listen_unix(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  struct sockaddr_un address;
  if (!fill_address(&address, path)) return dml_push_error(L, DML_TOO_LARGE);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return dml_push_error(L, dml_status_from_errno(errno));
  unlink(path);
  mode_t before = umask(0177);
  int rc = bind(fd, (struct sockaddr *)&address, sizeof address);
  umask(before);
  if (rc == 0) rc = listen(fd, LISTEN_BACKLOG);
  if (rc != 0) {
    int err = errno;
    close(fd);
    return dml_push_error(L, dml_status_from_errno(err));
  }
  lua_pushinteger(L, fd);
  return 1;
}

/* ---- readers: descriptors that a task waits for ---- */

typedef struct watch {
  uv_poll_t *poll;
  uv_timer_t *timer;
  int fd;
  dml_wait *wait;
} watch;

static void free_handle(uv_handle_t *handle) { free(handle); }

static void stop_watch(watch *w) {
  if (w->poll) uv_poll_stop(w->poll);
  if (w->timer) uv_timer_stop(w->timer);
  w->wait = NULL;
}

static void close_watch(watch *w) {
  stop_watch(w);
  if (w->poll) uv_close((uv_handle_t *)w->poll, free_handle);
  if (w->timer) uv_close((uv_handle_t *)w->timer, free_handle);
  w->poll = NULL;
  w->timer = NULL;
  if (w->fd >= 0) close(w->fd);
  w->fd = -1;
}

/* Pushes bytes, nothing (end), or nil and an error. */
static int push_read(lua_State *co, void *ud) {
  watch *w = ud;
  char bytes[65536];
  ssize_t n = w->fd >= 0 ? read(w->fd, bytes, sizeof bytes) : 0;
  if (n > 0) {
    lua_pushlstring(co, bytes, (size_t)n);
    return 1;
  }
  if (n < 0) return dml_push_error(co, dml_status_from_errno(errno));
  lua_pushnil(co);
  return 1;
}

static int push_timeout(lua_State *co, void *ud) {
  (void)ud;
  return dml_push_error(co, DML_PROVIDER_TIMEOUT);
}

static void drop_watch(void *ud) { stop_watch(ud); }

static void on_readable(uv_poll_t *poll, int status, int events) {
  (void)status, (void)events;
  watch *w = poll->data;
  dml_wait *wait = w->wait;
  stop_watch(w);
  if (wait) dml_wait_wake(wait, push_read, w);
}

static void on_timeout(uv_timer_t *timer) {
  watch *w = timer->data;
  dml_wait *wait = w->wait;
  stop_watch(w);
  if (wait) dml_wait_wake(wait, push_timeout, w);
}

/* sys.reader(fd) -> reader | nil, err; takes the descriptor */
static int l_reader(lua_State *L) {
  int fd = (int)luaL_checkinteger(L, 1);
  watch *w = lua_newuserdatauv(L, sizeof *w, 0);
  *w = (watch){.fd = -1};
  luaL_setmetatable(L, WATCH_T);
  uv_loop_t *loop = dml_loop_uv(dml_script_loop(dml_script_of(L)));
  w->poll = calloc(1, sizeof *w->poll);
  if (!w->poll || uv_poll_init(loop, w->poll, fd) != 0) {
    free(w->poll);
    w->poll = NULL;
    return dml_push_error(L, DML_INTERNAL);
  }
  w->poll->data = w;
  w->fd = fd;
  w->timer = calloc(1, sizeof *w->timer);
  if (!w->timer) return dml_push_error(L, DML_INTERNAL);
  uv_timer_init(loop, w->timer);
  w->timer->data = w;
  return 1;
}

/* reader:read(timeout_ms?) -> bytes | nil (end) | nil, err */
static int l_reader_read(lua_State *L) {
  watch *w = luaL_checkudata(L, 1, WATCH_T);
  lua_Number timeout_ms = luaL_optnumber(L, 2, -1);
  if (w->fd < 0 || w->wait) return luaL_error(L, "the reader is closed, or another task reads it");
  lua_settop(L, 1);
  w->wait = dml_wait_new(L, drop_watch, w);
  uv_poll_start(w->poll, UV_READABLE, on_readable);
  if (timeout_ms >= 0) dml_timer_start(w->timer, on_timeout, timeout_ms);
  return dml_wait_yield(L);
}

/* reader:close() */
static int l_reader_close(lua_State *L) {
  close_watch(luaL_checkudata(L, 1, WATCH_T));
  return 0;
}

/* ---- signals ---- */

/* On the heap, since it is closed asynchronously. A userdata that points to it stands in the registry under its address,
 * with the function as user value 1, and closes it when the state ends. */
typedef struct signal_watch {
  uv_signal_t handle;
  dml_script *script;
} signal_watch;

static int signal_gc(lua_State *L) {
  signal_watch **box = lua_touserdata(L, 1);
  if (*box) uv_close((uv_handle_t *)*box, free_handle);
  *box = NULL;
  return 0;
}

static int run_signal(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, lua_touserdata(L, 1));
  lua_getiuservalue(L, -1, 1);
  dml_task_spawn(L, 0);
  return 0;
}

static void on_signal(uv_signal_t *handle, int number) {
  (void)number;
  signal_watch *w = (signal_watch *)handle;
  dml_script_enter(w->script, run_signal, w);
}

/* sys.on_signal("TERM" | "INT" | "HUP", fn): fn runs as a task each time. For the program alone. */
static int l_on_signal(lua_State *L) {
  static const char *const NAMES[] = {"TERM", "INT", "HUP", NULL};
  static const int NUMBERS[] = {SIGTERM, SIGINT, SIGHUP};
  int number = NUMBERS[luaL_checkoption(L, 1, NULL, NAMES)];
  luaL_checktype(L, 2, LUA_TFUNCTION);
  signal_watch **box = lua_newuserdatauv(L, sizeof *box, 1);
  *box = NULL;
  luaL_setmetatable(L, SIGNAL_T);
  lua_pushvalue(L, 2);
  lua_setiuservalue(L, -2, 1);
  dml_script *script = dml_script_of(L);
  signal_watch *w = calloc(1, sizeof *w);
  if (!w || uv_signal_init(dml_loop_uv(dml_script_loop(script)), &w->handle) != 0) {
    free(w);
    return luaL_error(L, "a signal cannot be watched");
  }
  w->script = script;
  *box = w;
  lua_rawsetp(L, LUA_REGISTRYINDEX, w);
  uv_signal_start(&w->handle, on_signal, number);
  uv_unref((uv_handle_t *)&w->handle);
  return 0;
}

/* sys.kill(pid, "TERM" | "KILL" | 0) -> true | nil, err */
static int l_kill(lua_State *L) {
  static const char *const NAMES[] = {"TERM", "KILL", "HUP", "NONE", NULL};
  static const int NUMBERS[] = {SIGTERM, SIGKILL, SIGHUP, 0};
  pid_t pid = (pid_t)luaL_checkinteger(L, 1);
  luaL_argcheck(L, pid > 1, 1, "a process id");
  if (kill(pid, NUMBERS[luaL_checkoption(L, 2, "TERM", NAMES)]) != 0)
    return dml_push_error(L, dml_status_from_errno(errno));
  lua_pushboolean(L, 1);
  return 1;
}

/* sys.trim(): what malloc keeps of freed memory goes back to the system (malloc_trim(3)); takes milliseconds */
static int l_trim(lua_State *L) {
  (void)L;
  malloc_trim(0);
  return 0;
}

static const luaL_Reg FUNCTIONS[] = {{"env", l_env},
                                     {"pid", l_pid},
                                     {"uid", l_uid},
                                     {"user", l_user},
                                     {"home", l_home},
                                     {"isatty", l_isatty},
                                     {"executable", l_executable},
                                     {"library_dir", l_library_dir},
                                     {"options", l_options},
                                     {"pipe", l_pipe},
                                     {"socketpair", l_socketpair},
                                     {"close", l_close},
                                     {"take", l_take},
                                     {"write", l_write},
                                     {"listen_unix", l_listen_unix},
                                     {"reader", l_reader},
                                     {"on_signal", l_on_signal},
                                     {"kill", l_kill},
                                     {"trim", l_trim},
                                     {NULL, NULL}};

static const luaL_Reg READER_METHODS[] = {{"read", l_reader_read}, {"close", l_reader_close}, {NULL, NULL}};

int dml_open_sys(lua_State *L) {
  if (luaL_newmetatable(L, WATCH_T)) {
    luaL_newlib(L, READER_METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, l_reader_close);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  if (luaL_newmetatable(L, SIGNAL_T)) {
    lua_pushcfunction(L, signal_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  luaL_newlib(L, FUNCTIONS);
  dml_open_unix(L);
  lua_pushliteral(L, DML_VERSION);
  lua_setfield(L, -2, "version");
  return 1;
}
