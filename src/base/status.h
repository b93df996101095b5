/* status.h - the one table of failures: what a tool result may say went wrong.
 *
 * The rows are the error contract of the tools: wire name, whether the same call, unchanged, may work later and does no
 * harm when repeated, a sentence that stands alone, and what its reader may do where the category alone says that.
 * Foreign codes (errno, HTTP, Connect's, those of services) are turned into these once, at the edge where they arise, by
 * the dml_status_from_* functions; what the tables here do not know goes no further. */
#ifndef DML_BASE_STATUS_H
#define DML_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* Columns: C suffix, wire name, retryable, message, suggestion ("" for none). */
#define DML_STATUS_MAP(X)                                                                                             \
  X(OK, "ok", false, "Done.", "")                                                                                     \
  X(INVALID_ARGUMENT, "invalid_argument", false, "An argument is not valid.", "")                                     \
  X(UNSUPPORTED, "unsupported", false, "This provider or sandbox cannot do that.", "")                                \
  X(NO_DEFAULT_SANDBOX, "no_default_sandbox", false, "There is no default sandbox to act on.", "")                    \
  X(NOT_FOUND, "not_found", false, "There is no such sandbox, task or template.", "")                                 \
  X(SANDBOX_GONE, "sandbox_gone", false, "The sandbox has ended; its files are gone.", "")                            \
  X(SANDBOX_PAUSED, "sandbox_paused", false, "The sandbox is paused and is not resumed on use.", "")                  \
  X(FILE_NOT_FOUND, "file_not_found", false, "There is no such file or directory in the sandbox.", "")                \
  X(IS_DIRECTORY, "is_directory", false, "The path is a directory.", "")                                              \
  X(NOT_A_DIRECTORY, "not_a_directory", false, "The path is not a directory.", "")                                    \
  X(NOT_TEXT, "not_text", false, "The file is not text in that encoding.", "")                                        \
  X(TOO_LARGE, "too_large", false, "That is larger than the limit.", "")                                              \
  X(FILE_PERMISSION, "file_permission", false, "The sandbox's user may not do that to this path.", "")                \
  X(DISK_FULL, "disk_full", false, "The sandbox's disk is full.", "")                                                 \
  X(POLICY_DENIED, "policy_denied", false, "The operator's policy refuses this call.", "")                            \
  X(APPROVAL_REQUIRED, "approval_required", false, "A person must approve this call first.", "")                      \
  X(APPROVAL_REFUSED, "approval_refused", false, "A person refused this call.", "")                                   \
  X(QUOTA_EXCEEDED, "quota_exceeded", false, "A quota is used up.",                                                   \
    "Stay below the limit, end what is no longer needed, or ask the operator for more.")                              \
  X(RATE_LIMITED, "rate_limited", true, "Too many calls in a short time.",                                            \
    "Wait as long as retry_after says, then try again.")                                                              \
  X(AUTHENTICATION_FAILED, "authentication_failed", false, "The provider did not accept the credential.",             \
    "Ask the operator to check the credential of this provider; `demilune doctor` says whether it can be read.")      \
  X(PROVIDER_FORBIDDEN, "provider_forbidden", false, "The provider does not allow this with the credential.",         \
    "Ask the operator whether this credential may do that.")                                                          \
  X(PROVIDER_REJECTED, "provider_rejected", false, "The provider refused the request.", "")                           \
  X(NO_CAPACITY, "no_capacity", true, "The provider has no capacity for another sandbox now.",                        \
    "Try again in a minute, ask for less, or use another provider.")                                                  \
  X(CONFLICT, "conflict", false, "The present state does not allow that.", "")                                        \
  X(PROVIDER_TIMEOUT, "provider_timeout", false, "The provider did not answer in time.", "")                          \
  X(CONNECTION_FAILED, "connection_failed", false, "The provider could not be reached.", "")                          \
  X(UNAVAILABLE, "unavailable", false, "The provider is not available now.", "")                                      \
  X(INVALID_RESPONSE, "invalid_response", false, "The provider answered something that its protocol does not allow.", \
    "")                                                                                                               \
  X(LOCAL_ISOLATION_UNAVAILABLE, "local_isolation_unavailable", false,                                                \
    "This machine cannot isolate a sandbox; `demilune doctor` says why and how to mend it.", "")                      \
  X(COMMAND_FAILED, "command_failed", false, "The command ended with a non-zero exit code.", "")                      \
  X(COMMAND_TIMEOUT, "command_timeout", false, "The command was stopped at its timeout.", "")                         \
  X(STOPPED, "stopped", false, "The call was stopped.", "")                                                           \
  X(INTERNAL, "internal", false, "A fault inside demilune; the log says more.", "")

typedef enum dml_status {
#define X(id, name, retryable, text, suggestion) DML_##id,
  DML_STATUS_MAP(X)
#undef X
      DML_STATUS_COUNT
} dml_status;

/* Whose words a code is of. */
typedef enum dml_code_family {
  DML_CODES_CONNECT,   /* the Connect protocol's: "not_found"; of E2B's data plane */
  DML_CODES_E2B,       /* `error_code` of E2B's control plane and of our engine */
  DML_CODES_VERYFRONT, /* `slug` or `code` of Veryfront's errors */
  DML_CODE_FAMILY_COUNT
} dml_code_family;

/* The wire name, e.g. "not_found". Static storage. */
const char *dml_status_name(dml_status status);
/* One sentence of ours. Static storage. */
const char *dml_status_text(dml_status status);
/* What the reader of an error may do, in a sentence of ours; "" where the category alone does not say. Static storage. */
const char *dml_status_suggestion(dml_status status);
/* Whether the same call, unchanged, may work later and does no harm (before what the tool itself adds). */
bool dml_status_is_retryable(dml_status status);
/* The status with that wire name, or DML_STATUS_COUNT. */
dml_status dml_status_from_name(const char *name);
/* What an HTTP status of a control plane means; `is_create` picks the rows that differ for a creation. */
dml_status dml_status_from_http(int http_status, bool is_create);
/* The family of that name ("connect", "e2b", "veryfront"), or DML_CODE_FAMILY_COUNT. */
dml_code_family dml_code_family_from_name(const char *name);
/* What a code of a service means; `code` is borrowed, may hold any bytes and needs no NUL. DML_STATUS_COUNT for one that
 * the table lacks: such a code is foreign text and must not be shown. */
dml_status dml_status_from_code(dml_code_family family, const char *code, size_t len);
/* What an errno of this process means; EINTR and EAGAIN are the caller's to handle. */
dml_status dml_status_from_errno(int err);

#endif
