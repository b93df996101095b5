/* main.c - demilune-fence: the process in which an operator's policy code runs. Started by the server, with the channel on
 * descriptor 3 and TZ=UTC0, and of no use otherwise. `--zone` answers for a time zone, see zone.h. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fence/confine.h"
#include "fence/worker.h"
#include "fence/zone.h"

#define EXIT_USAGE 64 /* sysexits.h: EX_USAGE */

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--zone") == 0) return dml_fence_zone(argc, argv);
  if (argc > 1) return EXIT_USAGE;
  tzset(); /* it may read a file, which is not possible later */
  dml_policy policy = {0};
  if (!dml_worker_open(&policy)) return DML_WIRE_EXIT_BROKEN;
  if (!dml_confine()) return DML_WIRE_EXIT_UNCONFINED;
  dml_worker_run(&policy);
}
