/* cause.h - every reason for which a machine cannot isolate sandboxes, with what mends it.
 *
 * A table of sentences, and the two functions that choose one from what the machine says. */
#ifndef DML_SANDBOX_CAUSE_H
#define DML_SANDBOX_CAUSE_H

#include <stddef.h>

/* What is looked at, in the order in which it is shown. */
typedef enum dml_check {
  DML_CHECK_BUBBLEWRAP,
  DML_CHECK_AGENT,
  DML_CHECK_USER_NAMESPACES,
  DML_CHECK_APPARMOR,
  DML_CHECK_SECCOMP,
  DML_CHECK_ROOT_DIRECTORY,
  DML_CHECK_PROC,
  DML_CHECK_IDENTITY,
  DML_CHECK_TRIAL,
  DML_CHECK_COUNT
} dml_check;

typedef enum dml_cause {
  DML_CAUSE_NONE,
  DML_CAUSE_NO_BWRAP,
  DML_CAUSE_BWRAP_SETUID,
  DML_CAUSE_BWRAP_OLD,
  DML_CAUSE_AGENT_MISSING,
  DML_CAUSE_MEMFD_NOEXEC,
  DML_CAUSE_USERNS_ZERO,
  DML_CAUSE_USERNS_CLONE,
  DML_CAUSE_USERNS_REFUSED,
  DML_CAUSE_APPARMOR,
  DML_CAUSE_SECCOMP,
  DML_CAUSE_SECCOMP_MISSING,
  DML_CAUSE_CHROOT,
  DML_CAUSE_PROC_ABSENT,
  DML_CAUSE_PROC_MASKED,
  DML_CAUSE_UID_UNMAPPED,
  DML_CAUSE_UID_LOCKS,
  DML_CAUSE_NO_CAPACITY,
  DML_CAUSE_TRIAL_TIMEOUT,
  DML_CAUSE_TRIAL_FAILED,
  DML_CAUSE_TRIAL_SKIPPED,
  DML_CAUSE_UNKNOWN,
  DML_CAUSE_COUNT
} dml_cause;

typedef struct dml_cause_row {
  dml_check check;
  const char *text; /* one plain sentence */
  const char *fix;  /* the command or setting that mends it */
} dml_cause_row;

/* Static storage; NULL for DML_CAUSE_NONE. */
const dml_cause_row *dml_cause_peek(dml_cause cause);
/* "bubblewrap", "user_namespaces", … Static storage. */
const char *dml_check_name(dml_check check);

/* What can be seen without trying, per check; DML_CAUSE_NONE where nothing is wrong. */
dml_cause dml_cause_of_bubblewrap(const char *path);
dml_cause dml_cause_of_user_namespaces(void);
/* The cause behind a failed trial, from bubblewrap's message (`len` bytes, any content) and the state of the machine. */
dml_cause dml_cause_of_trial(const char *message, size_t len);

#endif
