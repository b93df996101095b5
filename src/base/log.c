/* log.c - see log.h. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

static const char *const LEVELS[] = {"debug", "info", "warn", "error", "off"};

void dml_log_init(dml_log *log, dml_log_level level) { *log = (dml_log){.fd = STDERR_FILENO, .level = level}; }

static void close_file(dml_log *log) {
  if (log->path && log->fd >= 0) close(log->fd);
  log->fd = -1;
}

void dml_log_deinit(dml_log *log) {
  close_file(log);
  free(log->path);
  log->path = NULL;
}

static dml_status open_file(dml_log *log, const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
  if (fd < 0) return dml_status_from_errno(errno);
  struct stat st;
  log->is_rotated = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  log->written_bytes = log->is_rotated ? (long)st.st_size : 0;
  close_file(log);
  log->fd = fd;
  return DML_OK;
}

dml_status dml_log_open(dml_log *log, const char *path) {
  char *copy = strdup(path);
  if (!copy) return DML_INTERNAL;
  dml_status status = open_file(log, path);
  if (status != DML_OK) {
    free(copy);
    return status;
  }
  free(log->path);
  log->path = copy;
  return DML_OK;
}

dml_status dml_log_reopen(dml_log *log) { return log->path ? open_file(log, log->path) : DML_OK; }

static void rotate(dml_log *log) {
  char older[4096];
  if ((size_t)snprintf(older, sizeof older, "%s.1", log->path) >= sizeof older) return;
  if (rename(log->path, older) == 0) (void)open_file(log, log->path);
}

void dml_log_set_filter(dml_log *log, dml_log_filter filter, void *ud) {
  log->filter = filter;
  log->filter_ud = ud;
}

static void write_record(dml_log *log, dml_log_level level, const char *text, size_t len, bool is_cut) {
  if (log->fd < 0 || level < log->level || level >= DML_LOG_OFF) return;
  if (log->filter) {
    if (len > DML_LOG_FILTER_MAX_BYTES) is_cut = true;
    if (len > DML_LOG_FILTER_MAX_BYTES) len = DML_LOG_FILTER_MAX_BYTES;
    text = log->filter(log->filter_ud, text, &len, is_cut);
  }
  char stamp[DML_CLOCK_ISO_BYTES];
  char line[DML_LOG_LINE_MAX_BYTES];
  dml_clock_iso(dml_clock_epoch_ms(), stamp);
  int head = snprintf(line, sizeof line, "%s %s ", stamp, LEVELS[level]);
  size_t room = sizeof line - (size_t)head - 1;
  size_t take = len < room ? len : room;
  for (size_t i = 0; i < take; i++) {
    unsigned char c = (unsigned char)text[i];
    line[(size_t)head + i] = c < 0x20 || c == 0x7F ? ' ' : (char)c;
  }
  size_t total = (size_t)head + take;
  line[total++] = '\n';
  ssize_t n = write(log->fd, line, total);
  if (n > 0) log->written_bytes += n;
  if (log->is_rotated && log->written_bytes > DML_LOG_FILE_MAX_BYTES) rotate(log);
}

void dml_log_write(dml_log *log, dml_log_level level, const char *text, size_t len) {
  write_record(log, level, text, len, false);
}

void dml_log_printf(dml_log *log, dml_log_level level, const char *format, ...) {
  char text[DML_LOG_LINE_MAX_BYTES];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n < 0) return;
  bool is_cut = (size_t)n >= sizeof text;
  write_record(log, level, text, is_cut ? sizeof text - 1 : (size_t)n, is_cut);
}

int dml_log_level_from_name(const char *name) {
  for (int i = 0; i <= DML_LOG_OFF; i++)
    if (strcmp(LEVELS[i], name) == 0) return i;
  return -1;
}
