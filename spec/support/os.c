/* os.c - the Lua module `spec_os`: the few system calls that specs need and Lua lacks.
 *
 * Independent of the code under test on purpose: what starts, watches and counts the program must not be the program's
 * own process code. World's failures give nil, errno text, errno; misuse raises. Nothing here waits longer than it is
 * told to. Single-threaded; every descriptor it makes is CLOEXEC. */
#include <lauxlib.h>
#include <lua.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READ_MAX_BYTES = 1 << 20, POLL_MAX_FDS = 64, ARGV_MAX = 512, EXEC_FAILED = 127 };

static int fail(lua_State *L) {
  int err = errno;
  lua_pushnil(L);
  lua_pushstring(L, strerror(err));
  lua_pushinteger(L, err);
  return 3;
}

static int result(lua_State *L, long long value) {
  if (value < 0) return fail(L);
  lua_pushinteger(L, value);
  return 1;
}

static int check_fd(lua_State *L, int index) { return (int)luaL_checkinteger(L, index); }

/* now_ms() -> milliseconds of CLOCK_MONOTONIC, with a fraction */
static int l_now_ms(lua_State *L) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  lua_pushnumber(L, (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6);
  return 1;
}

/* sleep_ms(ms) */
static int l_sleep_ms(lua_State *L) {
  lua_Integer ms = luaL_checkinteger(L, 1);
  struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
  return 0;
}

/* A NULL-terminated array of the strings in the table at `index`; the strings stay owned by the table. */
static char **to_strings(lua_State *L, int index) {
  luaL_checktype(L, index, LUA_TTABLE);
  size_t n = (size_t)luaL_len(L, index);
  luaL_argcheck(L, n < ARGV_MAX, index, "too many strings");
  char **strings = lua_newuserdatauv(L, (n + 1) * sizeof *strings, 0);
  for (size_t i = 0; i < n; i++) {
    lua_geti(L, index, (lua_Integer)i + 1);
    strings[i] = (char *)luaL_checkstring(L, -1);
    lua_pop(L, 1);
  }
  strings[n] = NULL;
  return strings;
}

/* In the child: `from` becomes `to`, not CLOEXEC; -1 means /dev/null. */
static void place_fd(int from, int to) {
  if (from < 0) from = open("/dev/null", O_RDWR);
  if (from == to) fcntl(from, F_SETFD, 0);
  else dup2(from, to);
}

static void run_child(char **argv, char **envp, const char *cwd, const int fds[3]) {
  int high[3];
  struct sigaction dfl = {.sa_handler = SIG_DFL};
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  sigaction(SIGPIPE, &dfl, NULL);
  setpgid(0, 0);
  /* Out of the way of 0-2 first, so that no placing overwrites a descriptor still to be placed. */
  for (int i = 0; i < 3; i++) high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, 10);
  for (int i = 0; i < 3; i++) place_fd(high[i], i);
  if (cwd && chdir(cwd) != 0) _exit(EXEC_FAILED);
  execve(argv[0], argv, envp);
  _exit(EXEC_FAILED);
}

/* spawn(argv, env, cwd|nil, stdin_fd, stdout_fd, stderr_fd) -> pid; argv[1] is a path, env is {"K=V",...}, fd -1 is
 * /dev/null. The child leads a process group of its own. */
static int l_spawn(lua_State *L) {
  char **argv = to_strings(L, 1);
  char **envp = to_strings(L, 2);
  const char *cwd = luaL_optstring(L, 3, NULL);
  int fds[3] = {check_fd(L, 4), check_fd(L, 5), check_fd(L, 6)};
  luaL_argcheck(L, argv[0], 1, "empty");
  pid_t pid = fork();
  if (pid == 0) run_child(argv, envp, cwd, fds);
  if (pid > 0) setpgid(pid, pid);
  return result(L, pid);
}

/* pipe() -> read_fd, write_fd */
static int l_pipe(lua_State *L) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return fail(L);
  lua_pushinteger(L, fds[0]);
  lua_pushinteger(L, fds[1]);
  return 2;
}

/* socketpair() -> fd, fd (stream) */
static int l_socketpair(lua_State *L) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return fail(L);
  lua_pushinteger(L, fds[0]);
  lua_pushinteger(L, fds[1]);
  return 2;
}

/* connect_unix(path) -> fd */
static int l_connect_unix(lua_State *L) {
  size_t len;
  const char *path = luaL_checklstring(L, 1, &len);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  luaL_argcheck(L, len < sizeof address.sun_path, 1, "too long");
  memcpy(address.sun_path, path, len);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(L);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    int err = errno;
    close(fd);
    errno = err;
    return fail(L);
  }
  return result(L, fd);
}

/* connect_tcp(port) -> fd, to 127.0.0.1 */
static int l_connect_tcp(lua_State *L) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)luaL_checkinteger(L, 1))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(L);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    int err = errno;
    close(fd);
    errno = err;
    return fail(L);
  }
  return result(L, fd);
}

/* set_nonblocking(fd) */
static int l_set_nonblocking(lua_State *L) {
  int fd = check_fd(L, 1);
  return result(L, fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

/* read(fd, max?) -> bytes ("" at the end) */
static int l_read(lua_State *L) {
  int fd = check_fd(L, 1);
  lua_Integer max = luaL_optinteger(L, 2, 65536);
  luaL_argcheck(L, max > 0 && max <= READ_MAX_BYTES, 2, "out of range");
  luaL_Buffer buffer;
  char *bytes = luaL_buffinitsize(L, &buffer, (size_t)max);
  ssize_t n = read(fd, bytes, (size_t)max);
  if (n < 0) return fail(L);
  luaL_pushresultsize(&buffer, (size_t)n);
  return 1;
}

/* write(fd, bytes, from?) -> number of bytes written, starting at byte `from` (1) */
static int l_write(lua_State *L) {
  size_t len;
  int fd = check_fd(L, 1);
  const char *bytes = luaL_checklstring(L, 2, &len);
  lua_Integer from = luaL_optinteger(L, 3, 1);
  luaL_argcheck(L, from >= 1 && (size_t)from <= len + 1, 3, "out of range");
  return result(L, write(fd, bytes + from - 1, len - (size_t)from + 1));
}

/* close(fd) */
static int l_close(lua_State *L) { return result(L, close(check_fd(L, 1))); }

/* poll({[fd]="r"|"w",...}, timeout_ms) -> {[fd]=true,...} of those ready, closed or broken */
static int l_poll(lua_State *L) {
  struct pollfd fds[POLL_MAX_FDS];
  nfds_t n = 0;
  luaL_checktype(L, 1, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    luaL_argcheck(L, n < POLL_MAX_FDS, 1, "too many descriptors");
    bool is_write = *luaL_checkstring(L, -1) == 'w';
    fds[n++] = (struct pollfd){.fd = (int)lua_tointeger(L, -2), .events = is_write ? POLLOUT : POLLIN};
  }
  if (poll(fds, n, (int)luaL_checknumber(L, 2)) < 0 && errno != EINTR) return fail(L);
  lua_newtable(L);
  for (nfds_t i = 0; i < n; i++) {
    if (!fds[i].revents) continue;
    lua_pushboolean(L, 1);
    lua_rawseti(L, -2, fds[i].fd);
  }
  return 1;
}

/* kill(pid, signo): a negative pid is a group */
static int l_kill(lua_State *L) {
  lua_Integer pid = luaL_checkinteger(L, 1);
  luaL_argcheck(L, pid > 1 || pid < -1, 1, "refused");
  return result(L, kill((pid_t)pid, (int)luaL_checkinteger(L, 2)));
}

/* wait(pid) -> {code=} or {signal=} once it ended, false while it runs */
static int l_wait(lua_State *L) {
  int status;
  pid_t pid = waitpid((pid_t)luaL_checkinteger(L, 1), &status, WNOHANG);
  if (pid < 0) return fail(L);
  if (pid == 0) {
    lua_pushboolean(L, 0);
    return 1;
  }
  lua_newtable(L);
  lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  lua_setfield(L, -2, WIFEXITED(status) ? "code" : "signal");
  return 1;
}

/* mkdtemp(template) -> path */
static int l_mkdtemp(lua_State *L) {
  char path[256];
  size_t len;
  const char *template = luaL_checklstring(L, 1, &len);
  luaL_argcheck(L, len < sizeof path, 1, "too long");
  memcpy(path, template, len + 1);
  if (!mkdtemp(path)) return fail(L);
  lua_pushstring(L, path);
  return 1;
}

/* chmod(path, mode) */
static int l_chmod(lua_State *L) {
  return result(L, chmod(luaL_checkstring(L, 1), (mode_t)luaL_checkinteger(L, 2)));
}

/* ignore_sigpipe(): what main.c does for the whole process */
static int l_ignore_sigpipe(lua_State *L) {
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  return result(L, sigaction(SIGPIPE, &ignore, NULL));
}

/* ids() -> uid, gid, pid */
static int l_ids(lua_State *L) {
  lua_pushinteger(L, getuid());
  lua_pushinteger(L, getgid());
  lua_pushinteger(L, getpid());
  return 3;
}

__attribute__((visibility("default"))) int luaopen_spec_os(lua_State *L);
int luaopen_spec_os(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"now_ms", l_now_ms},
      {"sleep_ms", l_sleep_ms},
      {"spawn", l_spawn},
      {"pipe", l_pipe},
      {"socketpair", l_socketpair},
      {"connect_unix", l_connect_unix},
      {"connect_tcp", l_connect_tcp},
      {"set_nonblocking", l_set_nonblocking},
      {"read", l_read},
      {"write", l_write},
      {"close", l_close},
      {"poll", l_poll},
      {"kill", l_kill},
      {"wait", l_wait},
      {"mkdtemp", l_mkdtemp},
      {"chmod", l_chmod},
      {"ignore_sigpipe", l_ignore_sigpipe},
      {"ids", l_ids},
      {NULL, NULL},
  };
  luaL_newlib(L, functions);
  return 1;
}
