/* clock.c - see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

/* RFC 3339 has four digits for the year. */
#define ISO_MAX_MS INT64_C(253402300799999)

static int64_t now_ms(clockid_t id) {
  struct timespec ts;
  if (clock_gettime(id, &ts) != 0) return 0;
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t dml_clock_monotonic_ms(void) { return now_ms(CLOCK_BOOTTIME); }

int64_t dml_clock_epoch_ms(void) { return now_ms(CLOCK_REALTIME); }

void dml_clock_iso(int64_t epoch_ms, char *out) {
  if (epoch_ms < 0) epoch_ms = 0;
  if (epoch_ms > ISO_MAX_MS) epoch_ms = ISO_MAX_MS;
  time_t seconds = (time_t)(epoch_ms / 1000);
  struct tm tm = {0};
  gmtime_r(&seconds, &tm);
  char stamp[24];
  strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
  snprintf(out, DML_CLOCK_ISO_BYTES, "%s.%03dZ", stamp, (int)(epoch_ms % 1000));
}
