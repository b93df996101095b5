/* bubblewrap.c - see bubblewrap.h. The order of arguments matters: bubblewrap mounts in the order it is told. */
#include "sandbox/bubblewrap.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/memfd.h"
#include "sandbox/seccomp.h"

#define MIB (1024ull * 1024)
#define ETC_BYTES (1 * MIB)
#define RUN_BYTES (16 * MIB)
#define SHM_BYTES (64 * MIB)
#define SCRATCH_MIN_BYTES (64 * MIB)
#define HIDE_BYTES 4096ull

static const char *const PLACES[] = {"/usr/bin/bwrap", "/usr/local/bin/bwrap"};

const char *dml_bubblewrap_find(void) {
  for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
    if (access(PLACES[i], X_OK) == 0) return PLACES[i];
  return NULL;
}

dml_status dml_bubblewrap_init(dml_bubblewrap *bubblewrap, const char *path, const dml_engine_id *engine) {
  bubblewrap->path = path;
  dml_engine_id_format(engine, bubblewrap->engine);
  dml_host_layout_init(&bubblewrap->host);
  dml_status status = dml_seccomp_program(&bubblewrap->seccomp_fd);
  if (status != DML_OK) return status;
  status = dml_etc_files_init(&bubblewrap->etc);
  if (status != DML_OK) close(bubblewrap->seccomp_fd);
  return status;
}

void dml_bubblewrap_deinit(dml_bubblewrap *bubblewrap) {
  close(bubblewrap->seccomp_fd);
  dml_etc_files_deinit(&bubblewrap->etc);
}

/* Every tmpfs has a size: without, it is half of the machine's memory. */
static void add_tmpfs(dml_args *args, const char *perms, unsigned long long bytes, const char *path) {
  dml_args_add(args, "--perms", perms, "--size", NULL);
  dml_args_addf(args, "%llu", bytes);
  dml_args_add(args, "--tmpfs", path, NULL);
}

/* An empty, unwritable folder over one of the host's. */
static void add_hidden(dml_args *args, const char *path) {
  add_tmpfs(args, "0555", HIDE_BYTES, path);
  dml_args_add(args, "--remount-ro", path, NULL);
}

static void add_host_entries(dml_args *args, const dml_host_entry *entries, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (entries[i].link[0])
      dml_args_add(args, "--symlink", entries[i].link, entries[i].path, NULL);
    else /* it may have gone since we looked */
      dml_args_add(args, "--ro-bind-try", entries[i].path, entries[i].path, NULL);
  }
}

static void add_namespaces(dml_args *args) {
  dml_args_add(args, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
               "--unshare-cgroup", NULL);
  dml_args_add(args, "--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1", NULL);
  dml_args_add(args, "--uid", DML_SANDBOX_UID, "--gid", DML_SANDBOX_UID, "--hostname", DML_SANDBOX_HOSTNAME, NULL);
}

static void add_usr(const dml_host_layout *host, dml_args *args) {
  dml_args_add(args, "--ro-bind", "/usr", "/usr", NULL);
  if (host->has_usr_local_etc) add_hidden(args, "/usr/local/etc");
  add_host_entries(args, host->entries, host->top_count);
}

/* /dev is a tmpfs to which bubblewrap gives no size, so it is closed once its parts are there; the devices and
 * terminals are mounts of their own and stay usable. */
static void add_kernel(dml_args *args) {
  dml_args_add(args, "--proc", "/proc", "--dev", "/dev", NULL);
  add_tmpfs(args, "1777", SHM_BYTES, "/dev/shm");
  dml_args_add(args, "--remount-ro", "/dev", NULL);
}

static void add_etc(const dml_bubblewrap *bubblewrap, dml_spawn *spawn, dml_args *args) {
  const dml_host_layout *host = &bubblewrap->host;
  add_tmpfs(args, "0755", ETC_BYTES, "/etc");
  for (size_t i = 0; i < DML_ETC_FILES_COUNT; i++) {
    int fd = -1;
    dml_memfd_reopen(bubblewrap->etc.fds[i], &fd);
    dml_args_add(args, "--perms", "0444", "--file", NULL);
    dml_args_addf(args, "%d", dml_spawn_take(spawn, fd));
    dml_args_add(args, bubblewrap->etc.paths[i], NULL);
  }
  dml_args_add(args, "--symlink", "../proc/self/mounts", "/etc/mtab", NULL);
  add_host_entries(args, host->entries + host->top_count, host->count - host->top_count);
  if (host->has_etc_ssl_private) add_hidden(args, "/etc/ssl/private");
  dml_args_add(args, "--remount-ro", "/etc", NULL);
}

/* Half of the home: builds and spools need room there too, but each byte is one of memory. */
static uint64_t scratch_bytes(uint64_t disk_bytes) {
  return disk_bytes / 2 > SCRATCH_MIN_BYTES ? disk_bytes / 2 : SCRATCH_MIN_BYTES;
}

uint64_t dml_bubblewrap_writable_bytes(uint64_t disk_bytes) {
  return disk_bytes + scratch_bytes(disk_bytes) + RUN_BYTES + SHM_BYTES;
}

static void add_writable(uint64_t disk_bytes, dml_args *args) {
  add_tmpfs(args, "1777", scratch_bytes(disk_bytes), "/tmp");
  add_tmpfs(args, "0755", RUN_BYTES, "/run");
  /* One tmpfs for both: each more is as much more memory that a sandbox can hold. */
  dml_args_add(args, "--dir", "/var", "--symlink", "../tmp", "/var/tmp", "--symlink", "../run", "/var/run", NULL);
  add_tmpfs(args, "0755", disk_bytes, DML_SANDBOX_HOME);
}

void dml_bubblewrap_arguments(const dml_bubblewrap *bubblewrap, uint64_t disk_bytes, int info_fd, dml_spawn *spawn,
                              dml_args *args) {
  int seccomp_fd = -1;
  dml_args_add(args, bubblewrap->path, "--setenv", DML_BUBBLEWRAP_MARK, bubblewrap->engine, "--clearenv", NULL);
  add_namespaces(args);
  add_usr(&bubblewrap->host, args);
  add_kernel(args);
  add_etc(bubblewrap, spawn, args);
  add_writable(disk_bytes, args);
  /* The root itself is a tmpfs without a size, and belongs to the user: closed last. */
  dml_args_add(args, "--remount-ro", "/", "--chdir", DML_SANDBOX_HOME, NULL);
  dml_memfd_reopen(bubblewrap->seccomp_fd, &seccomp_fd);
  dml_args_add(args, "--seccomp", NULL);
  dml_args_addf(args, "%d", dml_spawn_take(spawn, seccomp_fd));
  dml_args_add(args, "--info-fd", NULL);
  dml_args_addf(args, "%d", info_fd);
  dml_args_add(args, "--", NULL);
}
