/* status.c - names, texts and translations of the table in status.h. */
#include "base/status.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

typedef struct status_row {
  const char *name;
  const char *text;
  bool retryable;
} status_row;

static const status_row ROWS[] = {
#define X(id, name, retryable, text) {name, text, retryable},
    DML_STATUS_MAP(X)
#undef X
};

static const status_row *row(dml_status status) {
  return (unsigned)status < DML_STATUS_COUNT ? &ROWS[status] : &ROWS[DML_INTERNAL];
}

const char *dml_status_name(dml_status status) { return row(status)->name; }

const char *dml_status_text(dml_status status) { return row(status)->text; }

bool dml_status_is_retryable(dml_status status) { return row(status)->retryable; }

dml_status dml_status_from_name(const char *name) {
  for (size_t i = 0; i < DML_STATUS_COUNT; i++)
    if (strcmp(ROWS[i].name, name) == 0) return (dml_status)i;
  return DML_STATUS_COUNT;
}

dml_status dml_status_from_http(int http_status, bool is_create) {
  switch (http_status) {
  case 401: return DML_AUTHENTICATION_FAILED;
  case 402: return DML_QUOTA_EXCEEDED;
  case 403: return DML_PROVIDER_FORBIDDEN;
  case 404: return DML_NOT_FOUND;
  case 408: return DML_PROVIDER_TIMEOUT;
  case 409: return is_create ? DML_PROVIDER_REJECTED : DML_CONFLICT;
  case 410: return DML_SANDBOX_GONE;
  case 429: return DML_QUOTA_EXCEEDED; /* with Retry-After the caller makes it DML_RATE_LIMITED */
  case 503:
  case 504: return is_create ? DML_NO_CAPACITY : DML_UNAVAILABLE;
  case 507: return DML_DISK_FULL;
  default: break;
  }
  if (http_status >= 200 && http_status < 300) return DML_OK;
  if (http_status >= 300 && http_status < 500) return DML_PROVIDER_REJECTED;
  if (http_status >= 500 && http_status < 600) return DML_UNAVAILABLE;
  return DML_INVALID_RESPONSE;
}

dml_status dml_status_from_errno(int err) {
  switch (err) {
  case 0: return DML_OK;
  case ENOENT: return DML_FILE_NOT_FOUND;
  case EISDIR: return DML_IS_DIRECTORY;
  case ENOTDIR: return DML_NOT_A_DIRECTORY;
  case EACCES:
  case EPERM:
  case EROFS: return DML_FILE_PERMISSION;
  case ENOSPC:
  case EDQUOT: return DML_DISK_FULL;
  case EFBIG:
  case ENAMETOOLONG: return DML_TOO_LARGE;
  case EEXIST:
  case EBUSY: return DML_CONFLICT;
  case ETIMEDOUT: return DML_PROVIDER_TIMEOUT;
  case ECONNREFUSED:
  case ECONNRESET:
  case EPIPE:
  case ENOTCONN:
  case EHOSTUNREACH:
  case ENETUNREACH: return DML_CONNECTION_FAILED;
  default: return DML_INTERNAL;
  }
}
