/* confine_test.c - src/fence/confine.c, which is no part of the core and is compiled in here: what a process can still do
 * after it has confined itself. */
#include "fence/confine.c"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "support/check.h"

/* Runs `act` in a confined child whose channel is one end of `ends`; returns its wait status. */
static int run(void (*act)(void), int *other_end) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return -1;
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], DML_WIRE_FD);
    if (!dml_confine()) _exit(99);
    act();
    _exit(0);
  }
  close(ends[1]);
  int status = -1;
  waitpid(pid, &status, 0);
  if (other_end)
    *other_end = ends[0];
  else
    close(ends[0]);
  return status;
}

static bool is_killed(void (*act)(void)) {
  int status = run(act, NULL);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

static bool is_fine(void (*act)(void)) {
  int status = run(act, NULL);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void nothing(void) {}
static void use_memory(void) {
  for (size_t i = 0; i < 64; i++) {
    char *block = malloc(i << 14);
    if (block) memset(block, 1, i << 14);
    free(block);
  }
}
static void ask_time(void) { time(NULL); }
static void open_file(void) { syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY); }
static void make_socket(void) { syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }
static void start_process(void) { syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static void run_program(void) {
  char *argv[] = {NULL};
  syscall(SYS_execve, "/bin/true", argv, argv);
}
static void kill_parent(void) { syscall(SYS_kill, syscall(SYS_getppid), 0); }
static void trace(void) { syscall(SYS_ptrace, 0, 0, 0, 0); }
static void duplicate(void) { syscall(SYS_dup, DML_WIRE_FD); }
static void control(void) { syscall(SYS_prctl, PR_SET_DUMPABLE, 1); }
static void use_other_descriptor(void) { syscall(SYS_read, 0, NULL, 0); }
static void make_code(void) { syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void send_descriptor(void) {
  struct msghdr message = {0};
  syscall(SYS_sendmsg, DML_WIRE_FD, &message, 0);
}
static void say(void) {
  if (write(DML_WIRE_FD, "x", 1) != 1) _exit(1);
}

static void test_what_is_left(void) {
  CHECK(is_fine(nothing));
  CHECK(is_fine(use_memory));
  CHECK(is_fine(ask_time));
  int end;
  int status = run(say, &end);
  char byte = 0;
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(read(end, &byte, 1) == 1 && byte == 'x');
  close(end);
}

static void test_what_kills(void) {
  CHECK(is_killed(make_socket));
  if (IS_SANITIZED) return;
  CHECK(is_killed(open_file));
  CHECK(is_killed(start_process));
  CHECK(is_killed(run_program));
  CHECK(is_killed(kill_parent));
  CHECK(is_killed(trace));
  CHECK(is_killed(duplicate));
  CHECK(is_killed(control));
  CHECK(is_killed(use_other_descriptor));
  CHECK(is_killed(make_code));
  CHECK(is_killed(send_descriptor));
}

int main(void) {
  CHECK_RUN(test_what_is_left);
  CHECK_RUN(test_what_kills);
  return check_end();
}
