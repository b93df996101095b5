/* main.c - the program: process-wide measures, and nothing else. What embeds us takes none of these. */
#include <fcntl.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime.h"

#define PIPE_FD 3
#define DESCRIPTORS_MAX 16384

/* A program started with 0, 1 or 2 closed would hand these numbers to its first files. */
static void fill_standard_descriptors(void) {
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

/* A connection for each command that runs: the usual soft limit of 1,024 is for programs that call select(2). */
static void raise_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* No other process of this user reads our memory or environment. The leak check of a sanitizer traces its own process,
 * which this would refuse. */
static void forbid_dumps(void) {
#if !defined(__SANITIZE_ADDRESS__)
  prctl(PR_SET_DUMPABLE, 0);
#endif
}

static void set_process_wide(void) {
  fill_standard_descriptors();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its write */
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  forbid_dumps();
  raise_descriptors();
  umask(077);
  /* Large blocks go back to the system when they are freed. By itself glibc raises these with every large block that is
   * freed (mallopt(3)), so that one message of 16 MiB would stay with us for good. */
  mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 2 * 1024 * 1024);
  setlocale(LC_CTYPE, "C.UTF-8");
}

/* `demilune engine --detach`, `demilune reap --detach`: leaves session, terminal, parent and open files behind, the second
 * fork so that no terminal can become ours again (daemon(7)). Descriptor 3 may be a pipe: to whoever waits for the engine,
 * or with what is to be reaped. The engine leaves the working directory too; what reap is told may name files relative to
 * its server's, and it is soon over. Returns in the daemon only. */
static void detach(bool is_engine) {
  for (int turn = 0; turn < 2; turn++) {
    pid_t pid = fork();
    if (pid != 0) _exit(pid < 0 ? 1 : 0);
    if (turn == 0) setsid();
  }
  if (is_engine) (void)!chdir("/");
  close_range(PIPE_FD + 1, ~0u, 0);
  for (int fd = 0; fd < 3; fd++) close(fd);
  fill_standard_descriptors();
}

static bool is_detaching(int argc, char **argv) {
  if (argc < 3 || (strcmp(argv[1], "engine") != 0 && strcmp(argv[1], "reap") != 0)) return false;
  for (int i = 2; i < argc; i++)
    if (strcmp(argv[i], "--detach") == 0) return true;
  return false;
}

int main(int argc, char **argv) {
  set_process_wide();
  if (is_detaching(argc, argv)) detach(strcmp(argv[1], "engine") == 0);
  return dml_runtime_main(argc - 1, argv + 1, true);
}
