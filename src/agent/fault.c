/* fault.c - see fault.h. */
#include "agent/fault.h"

#include <errno.h>

dml_fault dml_fault_from_errno(int err) {
  switch (err) {
  case 0: return DML_FAULT_NONE;
  case ENOENT: return DML_FAULT_NOT_FOUND;
  case EACCES:
  case EPERM:
  case EROFS:
  case ETXTBSY:
  case EBUSY: return DML_FAULT_PERMISSION; /* EBUSY: a mount point, which the sandbox may not replace */
  case EISDIR: return DML_FAULT_IS_DIRECTORY;
  case ENOTDIR: return DML_FAULT_NOT_A_DIRECTORY;
  case ENOSPC:
  case EDQUOT: return DML_FAULT_NO_SPACE;
  case EEXIST: return DML_FAULT_EXISTS;
  case ENXIO:
  case ENODEV:
  case ESPIPE:
  case EOPNOTSUPP: return DML_FAULT_UNSUPPORTED;
  case EXDEV: return DML_FAULT_CROSS_DEVICE;
  case ENOTEMPTY: return DML_FAULT_CONFLICT;
  case E2BIG:
  case EFBIG:
  case ENAMETOOLONG: return DML_FAULT_TOO_LARGE;
  case EINVAL:
  case ELOOP:
  case ENOEXEC: return DML_FAULT_INVALID;
  case EAGAIN:
  case EMFILE:
  case ENFILE:
  case ENOMEM: return DML_FAULT_EXHAUSTED;
  default: return DML_FAULT_FAILED;
  }
}
