/* clock.h - the two clocks that lifetimes and messages use. */
#ifndef DML_BASE_CLOCK_H
#define DML_BASE_CLOCK_H

#include <stdint.h>

/* Milliseconds since boot, time asleep included (CLOCK_BOOTTIME): what lifetimes and deadlines count on. */
int64_t dml_clock_monotonic_ms(void);
/* Milliseconds since the epoch, UTC. */
int64_t dml_clock_epoch_ms(void);

#define DML_CLOCK_ISO_BYTES 32
/* "2026-11-30T21:00:00.123Z" (RFC 3339) into `out` of DML_CLOCK_ISO_BYTES; before 1970 and after 9999 the nearest end. */
void dml_clock_iso(int64_t epoch_ms, char *out);

#endif
