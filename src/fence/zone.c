/* zone.c - see zone.h. */
#include "fence/zone.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ZONE_FOLDER "/usr/share/zoneinfo/"
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/-"
#define NAME_BYTES_MAX 64
#define SPAN_SECONDS_MAX (4000LL * 86400)
/* Two changes that undo each other are further apart. */
#define STEP_SECONDS (6 * 3600)
/* Years 0 to 9999. */
#define EPOCH_MIN (-62167219200LL)
#define EPOCH_MAX 253402300799LL
#define EXIT_USAGE 64   /* sysexits.h */
#define EXIT_IO_FAULT 74

/* A name that the C library could not take for a path elsewhere or a rule in POSIX's form, and a file of zone data
 * (tzfile(5)): for anything else it would quietly mean UTC. */
static bool is_zone(const char *name) {
  size_t len = strlen(name);
  if (len == 0 || len > NAME_BYTES_MAX || name[0] == '/' || strspn(name, NAME_CHARACTERS) != len) return false;
  char path[sizeof ZONE_FOLDER + NAME_BYTES_MAX];
  snprintf(path, sizeof path, ZONE_FOLDER "%s", name);
  FILE *file = fopen(path, "re");
  char magic[4];
  bool is_data = file && fread(magic, 1, sizeof magic, file) == sizeof magic && memcmp(magic, "TZif", sizeof magic) == 0;
  if (file) fclose(file);
  return is_data;
}

static bool read_epoch(const char *text, long long *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return errno == 0 && end != text && *end == '\0' && *out >= EPOCH_MIN && *out <= EPOCH_MAX;
}

static long offset_at(long long epoch) {
  time_t seconds = (time_t)epoch;
  struct tm fields;
  return localtime_r(&seconds, &fields) ? fields.tm_gmtoff : 0;
}

/* The first second in ]low, high] that has not the offset of `low`; that of `high` differs. */
static long long find_change(long long low, long long high) {
  long before = offset_at(low);
  while (high - low > 1) {
    long long middle = low + (high - low) / 2;
    if (offset_at(middle) == before) low = middle;
    else high = middle;
  }
  return high;
}

static void print_changes(FILE *out, long long from, long long to) {
  fprintf(out, "%lld %ld\n", from, offset_at(from));
  for (long long at = from; at < to;) {
    long long next = to - at > STEP_SECONDS ? at + STEP_SECONDS : to;
    if (offset_at(next) != offset_at(at)) {
      next = find_change(at, next);
      fprintf(out, "%lld %ld\n", next, offset_at(next));
    }
    at = next;
  }
}

int dml_fence_zone(int argc, char **argv) {
  long long from, to;
  if (argc != 5 || !read_epoch(argv[3], &from) || !read_epoch(argv[4], &to)) return EXIT_USAGE;
  if (to < from || to - from > SPAN_SECONDS_MAX) return EXIT_USAGE;
  if (!is_zone(argv[2])) return DML_FENCE_ZONE_UNKNOWN;
  char variable[NAME_BYTES_MAX + sizeof "TZ="];
  snprintf(variable, sizeof variable, "TZ=%s", argv[2]);
  environ = (char *[]){variable, NULL}; /* all that this process needs: no TZDIR either */
  tzset();
  print_changes(stdout, from, to);
  return fflush(stdout) == 0 ? 0 : EXIT_IO_FAULT;
}
