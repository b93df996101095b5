/* zone.h - when a time zone changes its offset, asked of the C library in a process of its own.
 *
 * In a process of its own because TZ belongs to a whole process: the server's is its host's. */
#ifndef DML_FENCE_ZONE_H
#define DML_FENCE_ZONE_H

#define DML_FENCE_ZONE_UNKNOWN 2

/* `demilune-fence --zone NAME FROM TO`, times in seconds since 1970 and at most 4000 days apart: prints lines
 * "EPOCH OFFSET_SECONDS", the first for FROM, the others for the changes in ]FROM, TO]. Returns the exit code:
 * DML_FENCE_ZONE_UNKNOWN where there is no such zone, 64 for other arguments, 74 when it could not print. */
int dml_fence_zone(int argc, char **argv);

#endif
