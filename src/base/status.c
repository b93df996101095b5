/* status.c - names, texts and translations of the table in status.h. */
#include "base/status.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

typedef struct status_row {
  const char *name;
  const char *text;
  const char *suggestion;
  bool retryable;
} status_row;

static const status_row ROWS[] = {
#define X(id, name, retryable, text, suggestion) {name, text, suggestion, retryable},
    DML_STATUS_MAP(X)
#undef X
};

static const status_row *row(dml_status status) {
  return (unsigned)status < DML_STATUS_COUNT ? &ROWS[status] : &ROWS[DML_INTERNAL];
}

const char *dml_status_name(dml_status status) { return row(status)->name; }

const char *dml_status_text(dml_status status) { return row(status)->text; }

const char *dml_status_suggestion(dml_status status) { return row(status)->suggestion; }

bool dml_status_is_retryable(dml_status status) { return row(status)->retryable; }

dml_status dml_status_from_name(const char *name) {
  for (size_t i = 0; i < DML_STATUS_COUNT; i++)
    if (strcmp(ROWS[i].name, name) == 0) return (dml_status)i;
  return DML_STATUS_COUNT;
}

typedef struct code_row {
  const char *code;
  dml_status status;
} code_row;

/* connectrpc.com/docs/protocol, "error codes". Only the data plane speaks Connect, so what is not found or not permitted
 * there is a path. */
static const code_row CONNECT_CODES[] = {
    {"canceled", DML_UNAVAILABLE},
    {"unknown", DML_UNAVAILABLE},
    {"invalid_argument", DML_PROVIDER_REJECTED},
    {"deadline_exceeded", DML_PROVIDER_TIMEOUT},
    {"not_found", DML_FILE_NOT_FOUND},
    {"already_exists", DML_CONFLICT},
    {"permission_denied", DML_FILE_PERMISSION},
    {"resource_exhausted", DML_QUOTA_EXCEEDED},
    {"failed_precondition", DML_CONFLICT},
    {"aborted", DML_CONFLICT},
    {"out_of_range", DML_PROVIDER_REJECTED},
    {"unimplemented", DML_UNSUPPORTED},
    {"internal", DML_UNAVAILABLE},
    {"unavailable", DML_UNAVAILABLE},
    {"data_loss", DML_UNAVAILABLE},
    {"unauthenticated", DML_AUTHENTICATION_FAILED},
};

static const code_row E2B_CODES[] = {
    /* E2B's own: an open set, of which these are known. */
    {"sandbox_capacity_unavailable", DML_NO_CAPACITY},
    {"sandbox_placement_timeout", DML_NO_CAPACITY},
    {"sandbox_no_compatible_node", DML_NO_CAPACITY},
    {"sandbox_create_failed", DML_UNAVAILABLE},
    {"internal_server_error", DML_UNAVAILABLE},
    /* Our engine's: docs/engine.md, "Errors". */
    {"invalid_argument", DML_PROVIDER_REJECTED},
    {"unsupported", DML_UNSUPPORTED},
    {"unimplemented", DML_UNSUPPORTED},
    {"forbidden", DML_PROVIDER_FORBIDDEN},
    {"unauthenticated", DML_AUTHENTICATION_FAILED},
    {"bad_key", DML_AUTHENTICATION_FAILED},
    {"bad_token", DML_AUTHENTICATION_FAILED},
    {"bad_signature", DML_AUTHENTICATION_FAILED},
    {"not_found", DML_NOT_FOUND},
    {"method_not_allowed", DML_PROVIDER_REJECTED},
    {"unsupported_media_type", DML_PROVIDER_REJECTED},
    {"too_large", DML_TOO_LARGE},
    {"internal", DML_UNAVAILABLE},
    {"sandbox_not_found", DML_NOT_FOUND},
    {"sandbox_gone", DML_SANDBOX_GONE},
    {"sandbox_paused", DML_SANDBOX_PAUSED},
    {"sandbox_moving", DML_CONFLICT},
    {"pause_failed", DML_UNAVAILABLE},
    {"port_closed", DML_UNAVAILABLE},
    {"template_not_found", DML_NOT_FOUND},
    {"lease_gone", DML_PROVIDER_REJECTED},
    {"lease_taken", DML_CONFLICT},
    {"too_many_sandboxes", DML_QUOTA_EXCEEDED},
    {"local_isolation_unavailable", DML_LOCAL_ISOLATION_UNAVAILABLE},
    {"no_capacity", DML_NO_CAPACITY},
    {"agent_timeout", DML_NO_CAPACITY},
    {"engine_stopping", DML_UNAVAILABLE},
    {"file_not_found", DML_FILE_NOT_FOUND},
    {"is_directory", DML_IS_DIRECTORY},
    {"not_a_directory", DML_NOT_A_DIRECTORY},
    {"file_permission", DML_FILE_PERMISSION},
    {"exists", DML_CONFLICT},
    {"disk_full", DML_DISK_FULL},
    {"conflict", DML_CONFLICT},
    {"range_not_satisfiable", DML_PROVIDER_REJECTED},
    {"process_not_found", DML_NOT_FOUND},
    {"command_not_found", DML_UNSUPPORTED},
    {"command_not_runnable", DML_FILE_PERMISSION},
    {"cwd_not_found", DML_FILE_NOT_FOUND},
    {"exhausted", DML_QUOTA_EXCEEDED},
    {"deadline_exceeded", DML_PROVIDER_TIMEOUT},
};

/* Of the registry in its published source (veryfront/veryfront-code, src/errors), those that a sandbox's API can mean. */
static const code_row VERYFRONT_CODES[] = {
    {"authentication-required", DML_AUTHENTICATION_FAILED},
    {"permission-denied", DML_PROVIDER_FORBIDDEN},
    {"resource-not-found", DML_NOT_FOUND},
    {"file-not-found", DML_FILE_NOT_FOUND},
    {"invalid-argument", DML_PROVIDER_REJECTED},
    {"input-validation-failed", DML_PROVIDER_REJECTED},
    {"not-supported", DML_UNSUPPORTED},
    {"timeout-error", DML_PROVIDER_TIMEOUT},
    {"cost-limit-exceeded", DML_QUOTA_EXCEEDED},
    {"insufficient-credits", DML_QUOTA_EXCEEDED},
    {"resource-limit-exceeded", DML_QUOTA_EXCEEDED},
};

typedef struct code_table {
  const char *name;
  const code_row *rows;
  size_t count;
} code_table;

/* In the order of dml_code_family. */
static const code_table FAMILIES[] = {
    {"connect", CONNECT_CODES, sizeof CONNECT_CODES / sizeof *CONNECT_CODES},
    {"e2b", E2B_CODES, sizeof E2B_CODES / sizeof *E2B_CODES},
    {"veryfront", VERYFRONT_CODES, sizeof VERYFRONT_CODES / sizeof *VERYFRONT_CODES},
};
_Static_assert(sizeof FAMILIES / sizeof *FAMILIES == DML_CODE_FAMILY_COUNT, "one table a family");

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

dml_code_family dml_code_family_from_name(const char *name) {
  for (size_t i = 0; i < DML_CODE_FAMILY_COUNT; i++)
    if (strcmp(FAMILIES[i].name, name) == 0) return (dml_code_family)i;
  return DML_CODE_FAMILY_COUNT;
}

dml_status dml_status_from_code(dml_code_family family, const char *code, size_t len) {
  if ((unsigned)family >= DML_CODE_FAMILY_COUNT) return DML_STATUS_COUNT;
  const code_table *table = &FAMILIES[family];
  for (size_t i = 0; i < table->count; i++)
    if (strlen(table->rows[i].code) == len && memcmp(table->rows[i].code, code, len) == 0) return table->rows[i].status;
  return DML_STATUS_COUNT;
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
