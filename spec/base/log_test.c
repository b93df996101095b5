/* log_test.c - base/log: one line a record, rotation, reopening. */
#include "base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/check.h"

static char folder[64], path[96], older[96];

static size_t size_of(const char *file) {
  struct stat st;
  return stat(file, &st) == 0 ? (size_t)st.st_size : (size_t)-1;
}

/* The whole of a file that is shorter than `size`. */
static void read_all(const char *file, char *out, size_t size) {
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
  out[n > 0 ? n : 0] = '\0';
  if (fd >= 0) close(fd);
}

static size_t lines_of(const char *text) {
  size_t count = 0;
  for (; *text; text++) count += *text == '\n';
  return count;
}

static void test_a_record_is_one_line(void) {
  char text[16384];
  dml_log log;
  dml_log_init(&log, DML_LOG_INFO);
  CHECK(dml_log_open(&log, path) == DML_OK);
  dml_log_write(&log, DML_LOG_INFO, "a\nb\rc\x1B[31m\x7F\0d", 13);
  dml_log_write(&log, DML_LOG_DEBUG, "below the level", 15);
  dml_log_printf(&log, DML_LOG_ERROR, "%d%s", 7, "\n");
  char large[10000];
  memset(large, 'x', sizeof large);
  dml_log_write(&log, DML_LOG_WARN, large, sizeof large);
  dml_log_printf(&log, DML_LOG_WARN, "%.*s", (int)sizeof large, large);
  read_all(path, text, sizeof text);
  CHECK(lines_of(text) == 4);
  CHECK(strstr(text, "Z info a b c [31m  d\n") != NULL);
  CHECK(strstr(text, "Z error 7 \n") != NULL);
  CHECK(strstr(text, "below") == NULL);
  CHECK(strlen(text) < 2 * DML_LOG_LINE_MAX_BYTES + 100);
  struct stat st;
  CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
  CHECK((fcntl(log.fd, F_GETFD) & FD_CLOEXEC) != 0);
  dml_log_deinit(&log);
  unlink(path);
}

static void test_a_large_file_is_begun_anew(void) {
  dml_log log;
  dml_log_init(&log, DML_LOG_INFO);
  CHECK(dml_log_open(&log, path) == DML_OK);
  char large[4000];
  memset(large, 'x', sizeof large);
  for (int i = 0; i < 5000; i++) dml_log_write(&log, DML_LOG_INFO, large, sizeof large);
  CHECK(size_of(older) > DML_LOG_FILE_MAX_BYTES && size_of(older) <= DML_LOG_FILE_MAX_BYTES + DML_LOG_LINE_MAX_BYTES);
  CHECK(size_of(path) <= DML_LOG_FILE_MAX_BYTES + DML_LOG_LINE_MAX_BYTES);
  dml_log_deinit(&log);
  /* what is there counts when it is opened again */
  dml_log_init(&log, DML_LOG_INFO);
  CHECK(truncate(path, DML_LOG_FILE_MAX_BYTES) == 0 && dml_log_open(&log, path) == DML_OK);
  dml_log_write(&log, DML_LOG_INFO, "x", 1);
  CHECK(size_of(path) == 0);
  dml_log_deinit(&log);
  unlink(path);
  unlink(older);
}

/* `log.file = "/dev/null"` of root: the device must stay where it is. */
static void test_what_is_no_file_is_not_renamed(void) {
  CHECK(mkfifo(path, 0600) == 0);
  int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  dml_log log;
  dml_log_init(&log, DML_LOG_INFO);
  CHECK(dml_log_open(&log, path) == DML_OK);
  char large[4000], sink[65536];
  memset(large, 'x', sizeof large);
  for (int i = 0; i < 2500; i++) {
    dml_log_write(&log, DML_LOG_INFO, large, sizeof large);
    while (read(reader, sink, sizeof sink) > 0) continue;
  }
  CHECK(size_of(older) == (size_t)-1 && size_of(path) != (size_t)-1);
  dml_log_deinit(&log);
  close(reader);
  unlink(path);
  unlink(older);
}

static void test_reopen_follows_the_name(void) {
  char text[1024];
  dml_log log;
  dml_log_init(&log, DML_LOG_INFO);
  CHECK(dml_log_reopen(&log) == DML_OK && log.fd == STDERR_FILENO);
  CHECK(dml_log_open(&log, path) == DML_OK);
  dml_log_write(&log, DML_LOG_INFO, "before", 6);
  CHECK(rename(path, older) == 0);
  dml_log_write(&log, DML_LOG_INFO, "moved", 5);
  CHECK(dml_log_reopen(&log) == DML_OK);
  dml_log_write(&log, DML_LOG_INFO, "after", 5);
  read_all(older, text, sizeof text);
  CHECK(strstr(text, "before") && strstr(text, "moved") && !strstr(text, "after"));
  read_all(path, text, sizeof text);
  CHECK(strstr(text, "after") && lines_of(text) == 1);
  unlink(path);
  unlink(older);
  /* a failure keeps what is there */
  CHECK(symlink("elsewhere", path) == 0);
  int before = log.fd;
  CHECK(dml_log_reopen(&log) != DML_OK && log.fd == before);
  CHECK(dml_log_open(&log, "/nonexistent/x") == DML_FILE_NOT_FOUND && log.fd == before);
  dml_log_deinit(&log);
  CHECK(log.fd == -1);
  dml_log_write(&log, DML_LOG_ERROR, "x", 1);
  unlink(path);
}

typedef struct filtering {
  size_t len;
  bool is_cut;
} filtering;

/* Says what it was given, and gives something longer than a line. */
static const char *filter(void *ud, const char *text, size_t *len, bool is_cut) {
  static char out[2 * DML_LOG_LINE_MAX_BYTES];
  *(filtering *)ud = (filtering){*len, is_cut};
  memset(out, 'y', sizeof out);
  memcpy(out, *len > 5 && memcmp(text, "quiet", 5) == 0 ? "masked\n" : "other \n", 7);
  *len = sizeof out;
  return out;
}

static void test_a_filter_sees_every_record_before_it_is_cut(void) {
  char text[4 * DML_LOG_LINE_MAX_BYTES];
  static char large[2 * DML_LOG_FILTER_MAX_BYTES];
  filtering seen;
  dml_log log;
  dml_log_init(&log, DML_LOG_INFO);
  CHECK(dml_log_open(&log, path) == DML_OK);
  dml_log_set_filter(&log, filter, &seen);
  dml_log_write(&log, DML_LOG_INFO, "quiet words", 11);
  CHECK(seen.len == 11 && !seen.is_cut);
  memset(large, 'x', sizeof large);
  dml_log_write(&log, DML_LOG_INFO, large, DML_LOG_FILTER_MAX_BYTES);
  CHECK(seen.len == DML_LOG_FILTER_MAX_BYTES && !seen.is_cut);
  dml_log_write(&log, DML_LOG_INFO, large, sizeof large);
  CHECK(seen.len == DML_LOG_FILTER_MAX_BYTES && seen.is_cut);
  dml_log_printf(&log, DML_LOG_INFO, "%s", "short");
  CHECK(seen.len == 5 && !seen.is_cut);
  dml_log_printf(&log, DML_LOG_INFO, "%.*s", 2 * DML_LOG_LINE_MAX_BYTES, large);
  CHECK(seen.len == DML_LOG_LINE_MAX_BYTES - 1 && seen.is_cut);
  seen.len = 0;
  dml_log_write(&log, DML_LOG_DEBUG, "below the level", 15);
  CHECK(seen.len == 0);
  read_all(path, text, sizeof text);
  CHECK(strstr(text, " info masked yyyy") != NULL && strstr(text, "quiet") == NULL && strstr(text, "xxxx") == NULL);
  dml_log_set_filter(&log, NULL, NULL);
  dml_log_write(&log, DML_LOG_INFO, "plain again", 11);
  CHECK(seen.len == 0 && size_of(path) > 5 * DML_LOG_LINE_MAX_BYTES);
  dml_log_deinit(&log);
  unlink(path);
}

static void test_levels(void) {
  CHECK(dml_log_level_from_name("debug") == DML_LOG_DEBUG && dml_log_level_from_name("off") == DML_LOG_OFF);
  CHECK(dml_log_level_from_name("") == -1 && dml_log_level_from_name("INFO") == -1);
}

static void test_times(void) {
  char stamp[DML_CLOCK_ISO_BYTES];
  dml_clock_iso(1796065234567, stamp);
  CHECK(strcmp(stamp, "2026-11-30T19:00:34.567Z") == 0);
  dml_clock_iso(0, stamp);
  CHECK(strcmp(stamp, "1970-01-01T00:00:00.000Z") == 0);
  dml_clock_iso(INT64_MIN, stamp);
  CHECK(strcmp(stamp, "1970-01-01T00:00:00.000Z") == 0);
  dml_clock_iso(INT64_MAX, stamp);
  CHECK(strcmp(stamp, "9999-12-31T23:59:59.999Z") == 0);
}

int main(void) {
  const char *base = getenv("DML_SPEC_TMP");
  snprintf(folder, sizeof folder, "%s/log-XXXXXX", base ? base : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/log", folder);
  snprintf(older, sizeof older, "%s/log.1", folder);
  CHECK_RUN(test_a_record_is_one_line);
  CHECK_RUN(test_a_large_file_is_begun_anew);
  CHECK_RUN(test_what_is_no_file_is_not_renamed);
  CHECK_RUN(test_reopen_follows_the_name);
  CHECK_RUN(test_a_filter_sees_every_record_before_it_is_cut);
  CHECK_RUN(test_levels);
  CHECK_RUN(test_times);
  rmdir(folder);
  return check_end();
}
