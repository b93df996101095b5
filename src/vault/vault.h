/* vault.h - credentials by name: names go in, secrets come out only towards a request.
 *
 * A credential is defined once, with its source, and read when it is first needed; environment variables are read at
 * once, so that they can be wiped. Reading again (a key was rotated) keeps the old secret when it fails. */
#ifndef DML_VAULT_VAULT_H
#define DML_VAULT_VAULT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "vault/secrets.h"
#include "vault/source.h"

#define DML_VAULT_CREDENTIALS_MAX 64u
#define DML_VAULT_NAME_MAX_BYTES 64u

typedef enum dml_credential_state {
  DML_CREDENTIAL_UNREAD,
  DML_CREDENTIAL_LOADED,
  DML_CREDENTIAL_FAILED
} dml_credential_state;

/* Do not touch the fields; all may be read. The secret's id is DML_SECRET_NONE until there is one. */
typedef struct dml_credential {
  char name[DML_VAULT_NAME_MAX_BYTES + 1];
  dml_source source;
  dml_credential_state state;
  dml_secret_id secret;
  unsigned definition; /* another number each time it gets another source */
  char *cause; /* why the last reading failed, one sentence that may name a path; else NULL */
} dml_credential;

typedef struct dml_vault {
  dml_secrets secrets;
  dml_credential credentials[DML_VAULT_CREDENTIALS_MAX]; /* in the order of their definition */
  size_t count;
} dml_vault;

/* Errors: DML_INTERNAL; then there is nothing to deinit. */
dml_status dml_vault_init(dml_vault *vault);
void dml_vault_deinit(dml_vault *vault);

/* Whether a name is 1 to DML_VAULT_NAME_MAX_BYTES letters, digits, '_', '-' and '.'. */
bool dml_vault_is_name(const char *name, size_t len);
/* The credential of that name, or NULL. Borrowed. */
dml_credential *dml_vault_find(dml_vault *vault, const char *name);
/* Defines a credential; one of that name keeps its secret when its source is the same, else it begins anew. With
 * `may_wipe` a variable is overwritten in the environment and unset. Errors: DML_INVALID_ARGUMENT, with *why a sentence
 * without a subject, static; DML_QUOTA_EXCEEDED (too many); DML_INTERNAL. A source that cannot be read is no error
 * here. */
dml_status dml_vault_define(dml_vault *vault, const char *name, const char *source, size_t source_len, bool may_wipe,
                            const char **why);

/* Reads a credential, again if it is loaded; not one of the kind cmd. *is_changed (may be NULL): another secret than
 * before. Errors: DML_AUTHENTICATION_FAILED; the cause is kept, and so is an older secret. */
dml_status dml_vault_read(dml_vault *vault, dml_credential *credential, bool *is_changed);
/* The same with bytes that somebody else has read. */
dml_status dml_vault_store(dml_vault *vault, dml_credential *credential, const unsigned char *bytes, size_t len,
                           bool *is_changed);
/* Notes why it could not be read: `cause` is copied. */
void dml_vault_fail(dml_credential *credential, const char *cause);

/* Writes the loaded ones of these credentials to a pipe whose other end a child of ours reads, and waits for it at most
 * `timeout_ms`. Errors: DML_INTERNAL (the pipe), DML_STOPPED (time). */
dml_status dml_vault_hand_over(dml_vault *vault, int fd, const char *const *names, size_t count, int timeout_ms);
/* Reads what hand_over wrote; each is then a credential of the kind pipe. *first is the place in `credentials` where
 * the new ones begin. Errors: DML_INTERNAL (the pipe), DML_STOPPED (time), DML_INVALID_RESPONSE (not what hand_over
 * writes), DML_QUOTA_EXCEEDED (more than `max`); then none of them is there. */
dml_status dml_vault_take_over(dml_vault *vault, int fd, size_t max, int timeout_ms, size_t *first);

#endif
