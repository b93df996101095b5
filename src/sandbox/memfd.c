/* memfd.c - see memfd.h. */
#include "sandbox/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux 6.3; older kernels answer EINVAL and make every memory file executable (memfd_create(2)). */
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define SEALS_ALL (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static dml_status from_errno(int err) {
  switch (err) {
  case EMFILE:
  case ENFILE:
  case ENOMEM:
  case ENOSPC: return DML_NO_CAPACITY;
  case ENOENT:
  case EACCES: return dml_status_from_errno(err);
  default: return DML_INTERNAL;
  }
}

static int create(const char *name, unsigned exec_flag) {
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | exec_flag);
  if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return fd;
}

static dml_status write_all(int fd, const char *bytes, size_t len) {
  while (len > 0) {
    ssize_t n = write(fd, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return from_errno(errno);
    bytes += n;
    len -= (size_t)n;
  }
  return DML_OK;
}

dml_status dml_memfd_begin(const char *name, int *out) {
  *out = create(name, MFD_NOEXEC_SEAL);
  return *out < 0 ? from_errno(errno) : DML_OK;
}

dml_status dml_memfd_seal(int fd) { return fcntl(fd, F_ADD_SEALS, SEALS_ALL) == 0 ? DML_OK : DML_INTERNAL; }

dml_status dml_memfd_new(const char *name, const void *bytes, size_t len, int *out) {
  int fd;
  *out = -1;
  dml_status status = dml_memfd_begin(name, &fd);
  if (status != DML_OK) return status;
  status = write_all(fd, bytes, len);
  if (status == DML_OK) status = dml_memfd_seal(fd);
  if (status != DML_OK) {
    close(fd);
    return status;
  }
  *out = fd;
  return DML_OK;
}

static dml_status copy_program(int from, int to) {
  struct stat st;
  if (fstat(from, &st) != 0) return from_errno(errno);
  if (!S_ISREG(st.st_mode)) return DML_FILE_PERMISSION;
  if (st.st_size > (off_t)DML_MEMFD_PROGRAM_MAX_BYTES) return DML_TOO_LARGE;
  off_t left = st.st_size;
  while (left > 0) {
    ssize_t n = sendfile(to, from, NULL, (size_t)left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? DML_INTERNAL : from_errno(errno);
    left -= n;
  }
  return DML_OK;
}

dml_status dml_memfd_from_program(const char *path, int *out) {
  dml_status status = DML_OK;
  int to = -1;
  *out = -1;
  int from = open(path, O_RDONLY | O_CLOEXEC);
  if (from < 0) return from_errno(errno);
  to = create("demilune-agent", MFD_EXEC);
  if (to < 0) {
    /* vm.memfd_noexec=2 answers EACCES to MFD_EXEC. */
    status = errno == EACCES ? DML_UNSUPPORTED : from_errno(errno);
    goto done;
  }
  status = copy_program(from, to);
  if (status != DML_OK) goto done;
  /* Others must be able to run it: the sandbox has a user of its own. */
  status = fchmod(to, 0555) == 0 ? dml_memfd_seal(to) : DML_INTERNAL;
  if (status != DML_OK) goto done;
  *out = to;
  to = -1;
done:
  if (to >= 0) close(to);
  close(from);
  return status;
}

dml_status dml_memfd_fixed(const char *name, size_t len, int *out) {
  *out = -1;
  int fd = create(name, MFD_NOEXEC_SEAL);
  if (fd < 0) return from_errno(errno);
  if (ftruncate(fd, (off_t)len) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    close(fd);
    return DML_INTERNAL;
  }
  *out = fd;
  return DML_OK;
}

dml_status dml_memfd_reopen(int fd, int *out) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  *out = open(path, O_RDONLY | O_CLOEXEC);
  return *out < 0 ? from_errno(errno) : DML_OK;
}
