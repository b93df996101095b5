/* bind_vault_command.c - the first line that a helper program prints, as a credential.
 *
 * No shell; standard input and error are /dev/null, the environment is ours. Tasks that want the same credential
 * meanwhile wait for the same run: a helper may ask a person. Its output lies in guarded memory until the vault has it.
 */
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loop/process.h"
#include "script/vault_face.h"

#define COMMAND_TIMEOUT_MS 10000
/* A secret and what may end its line; one more tells a longer one. */
#define LINE_MAX_BYTES (DML_SECRET_MAX_BYTES + 3)
#define READS_MAX 64

typedef struct waiter {
  dml_command *command;
  dml_wait *wait;
  dml_credential *credential;
  bool wants_change, is_changed, is_read;
  struct waiter **list; /* that it is in */
  struct waiter *next;
} waiter;

struct dml_command {
  dml_vault_face *face;
  dml_credential *credential;
  unsigned definition; /* of the credential, when it began */
  dml_process *process;
  uv_poll_t *poll;
  uv_timer_t *timer;
  int fd;
  unsigned char *line; /* LINE_MAX_BYTES */
  size_t len;
  bool has_line; /* what follows is dropped */
  waiter *waiters;
};

static void free_handle(uv_handle_t *handle) { free(handle); }

static dml_command **place_of(dml_command *command) {
  return &command->face->commands[command->credential - command->face->vault.credentials];
}

/* Ends what still runs, its group too. */
static void free_command(dml_command *command) {
  if (command->poll) {
    uv_poll_stop(command->poll);
    uv_close((uv_handle_t *)command->poll, free_handle);
  }
  if (command->timer) {
    uv_timer_stop(command->timer);
    uv_close((uv_handle_t *)command->timer, free_handle);
  }
  dml_process_free(command->process);
  if (command->fd >= 0) close(command->fd);
  sodium_free(command->line);
  *place_of(command) = NULL;
  free(command);
}

static int push_result(lua_State *co, void *ud) {
  waiter *w = ud;
  if (!w->is_read) return dml_push_unreadable(co, w->credential);
  lua_pushboolean(co, w->wants_change ? w->is_changed : true);
  return 1;
}

/* A credential that has another source by now is not this program's any more. */
static bool store(dml_command *command, const char *cause, bool *is_changed) {
  dml_credential *credential = command->credential;
  if (credential->definition != command->definition) return false;
  if (cause) {
    dml_vault_fail(credential, cause);
    return false;
  }
  size_t len = dml_source_trim(command->line, command->len);
  return dml_vault_store(&command->face->vault, credential, command->line, len, is_changed) == DML_OK;
}

/* Whoever waits goes on, and may do anything, such as cancel another that waits: so the command is gone before, and who
 * is still to be woken stays in a list. */
static void finish(dml_command *command, const char *cause) {
  bool is_changed = false, is_read = store(command, cause, &is_changed);
  waiter *list = command->waiters;
  free_command(command);
  for (waiter *w = list; w; w = w->next) {
    w->command = NULL;
    w->list = &list;
    w->is_changed = is_changed;
    w->is_read = is_read;
  }
  while (list) {
    waiter *first = list;
    list = first->next;
    dml_wait_wake(first->wait, push_result, first);
  }
}

/* Takes what is there now, up to the end of the first line. */
static void drain(dml_command *command) {
  unsigned char rest[512];
  for (int i = 0; i < READS_MAX; i++) {
    bool is_full = command->has_line || command->len == LINE_MAX_BYTES;
    unsigned char *to = is_full ? rest : command->line + command->len;
    ssize_t n = read(command->fd, to, is_full ? sizeof rest : LINE_MAX_BYTES - command->len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) uv_poll_stop(command->poll);
      break;
    }
    if (is_full) continue;
    unsigned char *end = memchr(to, '\n', (size_t)n);
    command->has_line = end != NULL;
    command->len = end ? (size_t)(end - command->line) + 1 : command->len + (size_t)n;
  }
  sodium_memzero(rest, sizeof rest);
}

static void on_output(uv_poll_t *poll, int status, int events) {
  (void)events;
  if (status < 0)
    uv_poll_stop(poll);
  else
    drain(poll->data);
}

static void on_exit_of(dml_process *process, int code, int signal_number, void *ud) {
  (void)process;
  dml_command *command = ud;
  drain(command);
  if (signal_number)
    finish(command, "The program was ended by a signal.");
  else if (code != 0)
    finish(command, "The program ended with a failure.");
  else if (command->len == 0)
    finish(command, "The program printed nothing.");
  else
    finish(command, NULL);
}

static void kill_group(dml_command *command) {
  pid_t pid = command->process ? dml_process_pid(command->process) : 0;
  if (pid > 0) kill(-pid, SIGKILL); /* not reaped yet, so the number is still its own */
}

static void on_timeout(uv_timer_t *timer) {
  kill_group(timer->data);
  finish(timer->data, "The program took longer than 10 s.");
}

static void drop_waiter(void *ud) {
  waiter *gone = ud, **at = gone->list;
  dml_command *command = gone->command;
  while (*at && *at != gone) at = &(*at)->next;
  if (*at) *at = gone->next;
  if (!command || command->waiters) return;
  kill_group(command);
  free_command(command);
}

static dml_status spawn(dml_loop *loop, dml_command *command, int out) {
  char copy[DML_SOURCE_MAX_BYTES], *words[DML_SOURCE_WORDS_MAX + 1];
  dml_source_words(&command->credential->source, copy, words);
  dml_process_fd fd = {.child_fd = STDOUT_FILENO, .parent_fd = out};
  dml_process_opts opts = {.path = words[0], .argv = words, .fds = &fd, .fd_count = 1, .is_group_leader = true};
  return dml_process_start(loop, &opts, on_exit_of, command, &command->process);
}

static bool watch(uv_loop_t *loop, dml_command *command) {
  command->poll = calloc(1, sizeof *command->poll);
  command->timer = calloc(1, sizeof *command->timer);
  if (command->timer) uv_timer_init(loop, command->timer);
  if (command->poll && uv_poll_init(loop, command->poll, command->fd) != 0) {
    free(command->poll);
    command->poll = NULL;
  }
  if (!command->poll || !command->timer) return false;
  command->poll->data = command->timer->data = command;
  dml_timer_start(command->timer, on_timeout, COMMAND_TIMEOUT_MS);
  return uv_poll_start(command->poll, UV_READABLE, on_output) == 0;
}

/* NULL when it cannot be started; the cause is noted then. */
static dml_command *start(lua_State *L, dml_vault_face *face, dml_credential *credential) {
  int fds[2] = {-1, -1};
  dml_command *command = calloc(1, sizeof *command);
  if (!command) return NULL;
  dml_loop *loop = dml_script_loop(dml_script_of(L));
  *command = (dml_command){.face = face,
                           .credential = credential,
                           .definition = credential->definition,
                           .fd = -1,
                           .line = sodium_malloc(LINE_MAX_BYTES)};
  bool is_ready = command->line && pipe2(fds, O_CLOEXEC) == 0;
  command->fd = fds[0];
  is_ready = is_ready && fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0 && watch(dml_loop_uv(loop), command);
  dml_status status = is_ready ? spawn(loop, command, fds[1]) : DML_INTERNAL;
  if (fds[1] >= 0) close(fds[1]);
  *place_of(command) = command;
  if (status == DML_OK) return command;
  dml_vault_fail(credential, status == DML_FILE_NOT_FOUND    ? "The program is not there."
                             : status == DML_FILE_PERMISSION ? "The program may not be run by this user."
                                                             : "The program cannot be started.");
  free_command(command);
  return NULL;
}

int dml_command_wait(lua_State *L, dml_vault_face *face, dml_credential *credential, bool wants_change) {
  waiter *w = lua_newuserdatauv(L, sizeof *w, 0); /* stays on the stack of the task that waits */
  *w = (waiter){.credential = credential, .wants_change = wants_change};
  w->wait = dml_wait_new(L, drop_waiter, w);
  dml_command *command = face->commands[credential - face->vault.credentials];
  if (!command) command = start(L, face, credential);
  if (!command) {
    dml_wait_forget(w->wait);
    return dml_push_unreadable(L, credential);
  }
  w->command = command;
  w->list = &command->waiters;
  w->next = command->waiters;
  command->waiters = w;
  return dml_wait_yield(L);
}
