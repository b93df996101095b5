/* pingpong.c - times one program that answers lines with lines, as an MCP client would over its pipes.
 *
 *   pingpong COUNT SETUP LINE -- PROGRAM [ARGS…]
 *
 * SETUP holds the messages before the first answer that counts (lines; one answer is awaited for each that has an "id"),
 * LINE, in which ID_MARK stands for a fresh id, is then sent COUNT times, each after the answer to the one before. Prints
 * one JSON object: first_ms (spawn to the last answer of SETUP), p50_us, p99_us, rss_kb (after SETUP), rss_end_kb. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MAX_BYTES (8u << 20)
#define COUNT_MAX 1000000
#define ID_MARK "IDIDIDI" /* seven digits take its place */
#define FIRST_ID 1000000L

extern char **environ;

typedef struct peer {
  pid_t pid;
  int in, out;
  char *buffer;
  size_t len;
} peer;

static double now_us(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void die(const char *what) {
  fprintf(stderr, "pingpong: %s\n", what);
  exit(1);
}

static void start(peer *p, char **argv) {
  int to[2], from[2];
  if (pipe(to) || pipe(from)) die("no pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  int fds[] = {to[0], to[1], from[0], from[1]};
  for (int i = 0; i < 4; i++)
    if (fds[i] > 2) posix_spawn_file_actions_addclose(&actions, fds[i]);
  if (posix_spawnp(&p->pid, argv[0], &actions, NULL, argv, environ)) die("the program could not be started");
  close(to[0]);
  close(from[1]);
  p->in = to[1];
  p->out = from[0];
  p->len = 0;
  p->buffer = malloc(ANSWER_MAX_BYTES);
  if (!p->buffer) die("no memory");
}

static void send_all(peer *p, const char *bytes, size_t len) {
  while (len > 0) {
    ssize_t n = write(p->in, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) die("the program does not read");
    bytes += n;
    len -= (size_t)n;
  }
}

/* The number behind "id": in a line, or -1. */
static long id_of(const char *line, size_t len) {
  const char *at = memmem(line, len, "\"id\":", 5);
  return at ? strtol(at + 5, NULL, 10) : -1;
}

/* Takes lines off the stream up to and with the answer to `id`; a request of the program's own is no answer. */
static void receive(peer *p, long id) {
  for (;;) {
    char *end = memchr(p->buffer, '\n', p->len);
    if (end) {
      size_t used = (size_t)(end - p->buffer) + 1;
      bool found = id_of(p->buffer, used) == id;
      memmove(p->buffer, end + 1, p->len - used);
      p->len -= used;
      if (found) return;
      continue;
    }
    if (p->len == ANSWER_MAX_BYTES) die("an answer is too long");
    ssize_t n = read(p->out, p->buffer + p->len, ANSWER_MAX_BYTES - p->len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) die("the program ended");
    p->len += (size_t)n;
  }
}

static long resident_kb(pid_t pid) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *f = fopen(path, "r");
  long kb = -1;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "VmRSS: %ld", &kb) == 1) break;
  if (f) fclose(f);
  return kb;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void set_up(peer *p, char *setup) {
  for (char *line = strtok(setup, "\n"); line; line = strtok(NULL, "\n")) {
    send_all(p, line, strlen(line));
    send_all(p, "\n", 1);
    long id = id_of(line, strlen(line));
    if (id >= 0) receive(p, id);
  }
}

int main(int argc, char **argv) {
  if (argc < 6 || strcmp(argv[4], "--") != 0) die("usage: pingpong COUNT SETUP LINE -- PROGRAM [ARGS...]");
  long count = strtol(argv[1], NULL, 10);
  if (count < 0 || count > COUNT_MAX) die("COUNT is out of range");
  signal(SIGPIPE, SIG_IGN);
  peer p;
  double t0 = now_us();
  start(&p, argv + 5);
  set_up(&p, argv[2]);
  double first_ms = (now_us() - t0) / 1e3;
  long rss = resident_kb(p.pid);
  double *times = calloc((size_t)count + 1, sizeof *times);
  if (!times) die("no memory");
  char *mark = strstr(argv[3], ID_MARK);
  if (!mark) die("LINE has no " ID_MARK);
  char *line = malloc(strlen(argv[3]) + 2);
  if (!line) die("no memory");
  size_t len = (size_t)sprintf(line, "%s\n", argv[3]);
  for (long i = 0; i < count; i++) {
    char id[sizeof ID_MARK];
    snprintf(id, sizeof id, "%07ld", FIRST_ID + i);
    memcpy(line + (mark - argv[3]), id, sizeof ID_MARK - 1);
    double t = now_us();
    send_all(&p, line, len);
    receive(&p, FIRST_ID + i);
    times[i] = now_us() - t;
  }
  qsort(times, (size_t)count, sizeof *times, ascending);
  printf("{\"first_ms\":%.3f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"rss_kb\":%ld,\"rss_end_kb\":%ld}\n", first_ms,
         times[count / 2], times[count * 99 / 100], rss, resident_kb(p.pid));
  close(p.in);
  int status;
  waitpid(p.pid, &status, 0);
  return 0;
}
