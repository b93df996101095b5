/* source.c - see source.h. */
#include "vault/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vault/secrets.h"

/* A secret, "\r\n", and one more that tells a longer one. */
#define READ_MAX_BYTES (DML_SECRET_MAX_BYTES + 3)

static const char *const KINDS[] = {"env", "file", "cred", "cmd", "pipe"};

const char *dml_source_kind_name(dml_source_kind kind) { return KINDS[kind]; }

/* ---- parsing ---- */

static bool is_variable(const char *text) {
  if (*text >= '0' && *text <= '9') return false;
  size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
  return len > 0 && text[len] == '\0';
}

static bool is_file_name(const char *text) {
  return *text && !strchr(text, '/') && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

static size_t count_words(const char *text) {
  size_t count = 0;
  while (*(text += strspn(text, " "))) {
    count++;
    text += strcspn(text, " ");
  }
  return count;
}

static const char *fault_of(dml_source_kind kind, const char *target) {
  switch (kind) {
  case DML_SOURCE_ENV: return is_variable(target) ? NULL : "must name a variable of the environment";
  case DML_SOURCE_FILE: return *target == '/' ? NULL : "must name a file by its whole path";
  case DML_SOURCE_CRED:
    return is_file_name(target) ? NULL : "must name a file in the credentials directory, without a /";
  default:
    if (*target != '/') return "must name a program by its whole path";
    return count_words(target) <= DML_SOURCE_WORDS_MAX ? NULL : "has too many words";
  }
}

static bool has_control(const char *text, size_t len) {
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F) return true;
  return false;
}

dml_status dml_source_parse(dml_source *source, const char *text, size_t len, const char **why) {
  *why = "must begin with env:, file:, cred: or cmd:";
  const char *colon = memchr(text, ':', len);
  size_t kind = 0, head = colon ? (size_t)(colon - text) : 0;
  while (kind < DML_SOURCE_PIPE && (strlen(KINDS[kind]) != head || memcmp(KINDS[kind], text, head) != 0)) kind++;
  if (!colon || kind == DML_SOURCE_PIPE) return DML_INVALID_ARGUMENT;
  *why = "is too long, or holds a control character";
  if (len >= DML_SOURCE_MAX_BYTES || has_control(text, len)) return DML_INVALID_ARGUMENT;
  char *target = strndup(colon + 1, len - head - 1);
  if (!target) return DML_INTERNAL;
  *why = fault_of((dml_source_kind)kind, target);
  *source = (dml_source){.kind = (dml_source_kind)kind, .target = target};
  if (*why) dml_source_deinit(source);
  return *why ? DML_INVALID_ARGUMENT : DML_OK;
}

void dml_source_deinit(dml_source *source) {
  free(source->target);
  source->target = NULL;
}

bool dml_source_is_same(const dml_source *a, const dml_source *b) {
  if (a->kind != b->kind || !a->target || !b->target) return false;
  return strcmp(a->target, b->target) == 0;
}

void dml_source_words(const dml_source *source, char *copy, char *words[DML_SOURCE_WORDS_MAX + 1]) {
  size_t count = 0;
  char *rest = NULL;
  snprintf(copy, DML_SOURCE_MAX_BYTES, "%s", source->target);
  for (char *word = strtok_r(copy, " ", &rest); word && count < DML_SOURCE_WORDS_MAX; word = strtok_r(NULL, " ", &rest))
    words[count++] = word;
  words[count] = NULL;
}

/* ---- reading ---- */

size_t dml_source_trim(const unsigned char *bytes, size_t len) {
  if (len > 0 && bytes[len - 1] == '\n')
    len--;
  else
    return len;
  return len > 0 && bytes[len - 1] == '\r' ? len - 1 : len;
}

static dml_status fail(char *cause, const char *format, const char *target) __attribute__((format(printf, 2, 0)));
static dml_status fail(char *cause, const char *format, const char *target) {
  snprintf(cause, DML_SOURCE_CAUSE_BYTES, format, target);
  return DML_AUTHENTICATION_FAILED;
}

static dml_status read_variable(const char *name, const unsigned char **bytes, size_t *len, char *cause) {
  const char *value = getenv(name);
  if (!value) return fail(cause, "The environment variable %s is not set.", name);
  *bytes = (const unsigned char *)value;
  *len = strlen(value);
  return DML_OK;
}

static const char *cause_of_open(int err) {
  switch (err) {
  case ENOENT:
  case ENOTDIR: return "The file %s is not there.";
  case EACCES:
  case EPERM: return "The file %s may not be read by this user.";
  case ELOOP: return "The file %s is a symbolic link; name the file itself.";
  default: return "The file %s cannot be opened.";
  }
}

/* systemd gives a service's user access by an ACL, whose mask shows as the group's bits; its folder is private. */
static const char *fault_of_file(const struct stat *st, dml_source_kind kind) {
  mode_t forbidden = kind == DML_SOURCE_CRED ? 026 : 066;
  if (!S_ISREG(st->st_mode)) return "The file %s is no regular file.";
  if (st->st_uid != geteuid() && st->st_uid != 0) return "The file %s belongs to another user.";
  if (st->st_mode & forbidden) return "The file %s may be read or written by group or others; `chmod 600` mends it.";
  return NULL;
}

/* A regular file gives what it has at once. */
static ssize_t read_all(int fd, unsigned char *out) {
  size_t len = 0;
  while (len < READ_MAX_BYTES) {
    ssize_t n = read(fd, out + len, READ_MAX_BYTES - len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    len += (size_t)n;
  }
  return (ssize_t)len;
}

static dml_status read_file(const char *path, dml_source_kind kind, dml_arena *arena, const unsigned char **bytes,
                            size_t *len, char *cause) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return fail(cause, cause_of_open(errno), path);
  const char *fault = fstat(fd, &st) == 0 ? fault_of_file(&st, kind) : "The file %s cannot be looked at.";
  unsigned char *room = dml_arena_scratch(arena);
  ssize_t n = fault ? 0 : read_all(fd, room);
  close(fd);
  if (fault) return fail(cause, fault, path);
  if (n < 0) return fail(cause, "The file %s cannot be read.", path);
  *bytes = room;
  *len = dml_source_trim(room, (size_t)n);
  return DML_OK;
}

static dml_status read_cred(const char *name, dml_arena *arena, const unsigned char **bytes, size_t *len, char *cause) {
  const char *folder = getenv("CREDENTIALS_DIRECTORY");
  char path[PATH_MAX];
  if (!folder || *folder != '/')
    return fail(cause, "There is no $CREDENTIALS_DIRECTORY for %s; systemd sets it for services that load credentials.",
                name);
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
    return fail(cause, "The path of the credential file %s is too long.", name);
  return read_file(path, DML_SOURCE_CRED, arena, bytes, len, cause);
}

dml_status dml_source_read(const dml_source *source, dml_arena *arena, const unsigned char **bytes, size_t *len,
                           char *cause) {
  switch (source->kind) {
  case DML_SOURCE_ENV: return read_variable(source->target, bytes, len, cause);
  case DML_SOURCE_FILE: return read_file(source->target, DML_SOURCE_FILE, arena, bytes, len, cause);
  case DML_SOURCE_CRED: return read_cred(source->target, arena, bytes, len, cause);
  default: return fail(cause, "%s cannot be read again.", "It");
  }
}

void dml_source_wipe_variable(const dml_source *source) {
  size_t len = strlen(source->target);
  for (char **entry = environ; entry && *entry; entry++)
    if (strncmp(*entry, source->target, len) == 0 && (*entry)[len] == '=')
      sodium_memzero(*entry + len + 1, strlen(*entry + len + 1));
  unsetenv(source->target);
}
