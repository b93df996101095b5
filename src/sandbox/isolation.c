/* isolation.c - see isolation.h. */
#include "sandbox/isolation.h"

#include <stdlib.h>
#include <unistd.h>

#include "sandbox/memfd.h"
#include "sandbox/reaper.h"

/* A uid of its own is not a matter of choice: without one a root engine's sandboxes would be root to the kernel. */
static dml_status open_uids(dml_isolation *isolation) {
  isolation->uids.dir_fd = -1;
  isolation->is_root = geteuid() == 0;
  if (!isolation->is_root) return DML_OK;
  return dml_uid_range_open(&isolation->uids) == DML_OK ? DML_OK : DML_LOCAL_ISOLATION_UNAVAILABLE;
}

dml_status dml_isolation_new(dml_loop *loop, const char *agent_path, dml_isolation **out) {
  dml_status status = DML_OK;
  *out = NULL;
  const char *bwrap = dml_bubblewrap_find();
  if (!bwrap) return DML_LOCAL_ISOLATION_UNAVAILABLE;
  dml_isolation *isolation = calloc(1, sizeof *isolation);
  if (!isolation) return DML_INTERNAL;
  isolation->refs = 1;
  isolation->loop = loop;
  isolation->agent_fd = -1;
  isolation->uids.dir_fd = -1;

  status = dml_engine_id_self(&isolation->self);
  if (status != DML_OK) goto failed;
  if (agent_path) status = dml_memfd_from_program(agent_path, &isolation->agent_fd);
  if (status == DML_OK) status = open_uids(isolation);
  if (status != DML_OK) goto failed;
  status = dml_bubblewrap_init(&isolation->bubblewrap, bwrap, &isolation->self);
  if (status != DML_OK) goto failed;
  dml_reaper_run(&isolation->self);
  dml_cgroups_open(&isolation->cgroups, &isolation->self);
  *out = isolation;
  return DML_OK;
failed:
  dml_uid_range_close(&isolation->uids);
  if (isolation->agent_fd >= 0) close(isolation->agent_fd);
  free(isolation);
  return status;
}

void dml_isolation_ref(dml_isolation *isolation) { isolation->refs++; }

void dml_isolation_unref(dml_isolation *isolation) {
  if (!isolation || --isolation->refs > 0) return;
  dml_uid_range_close(&isolation->uids);
  dml_bubblewrap_deinit(&isolation->bubblewrap);
  if (isolation->agent_fd >= 0) close(isolation->agent_fd);
  free(isolation);
}
