/* vault.c - see vault.h. */
#include "vault/vault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dml_status dml_vault_init(dml_vault *vault) {
  memset(vault, 0, sizeof *vault);
  return dml_secrets_init(&vault->secrets);
}

static void clear(dml_credential *credential) {
  dml_source_deinit(&credential->source);
  free(credential->cause);
  *credential = (dml_credential){.secret = DML_SECRET_NONE, .definition = credential->definition};
}

void dml_vault_deinit(dml_vault *vault) {
  for (size_t i = 0; i < vault->count; i++) clear(&vault->credentials[i]);
  vault->count = 0;
  dml_secrets_deinit(&vault->secrets);
}

bool dml_vault_is_name(const char *name, size_t len) {
  static const char ALLOWED[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
  return len > 0 && len <= DML_VAULT_NAME_MAX_BYTES && strspn(name, ALLOWED) == len;
}

dml_credential *dml_vault_find(dml_vault *vault, const char *name) {
  for (size_t i = 0; i < vault->count; i++)
    if (strcmp(vault->credentials[i].name, name) == 0) return &vault->credentials[i];
  return NULL;
}

static void drop_secret(dml_vault *vault, dml_credential *credential) {
  if (credential->secret != DML_SECRET_NONE) dml_secrets_drop(&vault->secrets, credential->secret);
  credential->secret = DML_SECRET_NONE;
}

dml_status dml_vault_define(dml_vault *vault, const char *name, const char *source, size_t source_len, bool may_wipe,
                            const char **why) {
  dml_source parsed;
  *why = "has a name that is not 1 to 64 letters, digits, _, - and .";
  if (!dml_vault_is_name(name, strlen(name))) return DML_INVALID_ARGUMENT;
  dml_status status = dml_source_parse(&parsed, source, source_len, why);
  if (status != DML_OK) return status;
  dml_credential *credential = dml_vault_find(vault, name);
  if (credential && dml_source_is_same(&credential->source, &parsed)) {
    dml_source_deinit(&parsed);
    return DML_OK;
  }
  if (credential) {
    drop_secret(vault, credential);
    clear(credential);
  } else if (vault->count < DML_VAULT_CREDENTIALS_MAX) {
    credential = &vault->credentials[vault->count++];
  } else {
    dml_source_deinit(&parsed);
    return DML_QUOTA_EXCEEDED;
  }
  unsigned definition = credential->definition + 1;
  *credential = (dml_credential){.source = parsed, .secret = DML_SECRET_NONE, .definition = definition};
  snprintf(credential->name, sizeof credential->name, "%s", name);
  if (parsed.kind != DML_SOURCE_ENV) return DML_OK;
  (void)dml_vault_read(vault, credential, NULL);
  if (may_wipe) dml_source_wipe_variable(&credential->source);
  return DML_OK;
}

void dml_vault_fail(dml_credential *credential, const char *cause) {
  free(credential->cause);
  credential->cause = strdup(cause);
  if (credential->secret == DML_SECRET_NONE) credential->state = DML_CREDENTIAL_FAILED;
}

static dml_status refuse(dml_credential *credential, const char *fault) {
  char cause[128];
  snprintf(cause, sizeof cause, "The secret %s.", fault);
  dml_vault_fail(credential, cause);
  return DML_AUTHENTICATION_FAILED;
}

dml_status dml_vault_store(dml_vault *vault, dml_credential *credential, const unsigned char *bytes, size_t len,
                           bool *is_changed) {
  dml_secret_id id;
  const char *fault = dml_secret_fault(bytes, len);
  if (is_changed) *is_changed = false;
  if (fault) return refuse(credential, fault);
  if (dml_secrets_add(&vault->secrets, bytes, len, &id) != DML_OK)
    return refuse(credential, "finds no more room in the vault");
  if (is_changed) *is_changed = id != credential->secret;
  drop_secret(vault, credential);
  free(credential->cause);
  credential->cause = NULL;
  credential->secret = id;
  credential->state = DML_CREDENTIAL_LOADED;
  return DML_OK;
}

dml_status dml_vault_read(dml_vault *vault, dml_credential *credential, bool *is_changed) {
  char cause[DML_SOURCE_CAUSE_BYTES];
  const unsigned char *bytes;
  size_t len;
  if (is_changed) *is_changed = false;
  if (credential->secret != DML_SECRET_NONE && credential->source.kind == DML_SOURCE_PIPE) return DML_OK;
  /* A variable that was wiped cannot change any more: what was wrong with it stays what is told. */
  if (credential->source.kind == DML_SOURCE_ENV && !getenv(credential->source.target)) {
    if (credential->secret != DML_SECRET_NONE) return DML_OK;
    if (credential->state == DML_CREDENTIAL_FAILED) return DML_AUTHENTICATION_FAILED;
  }
  dml_arena_enter(&vault->secrets.arena);
  dml_status status = dml_source_read(&credential->source, &vault->secrets.arena, &bytes, &len, cause);
  if (status == DML_OK)
    status = dml_vault_store(vault, credential, bytes, len, is_changed);
  else
    dml_vault_fail(credential, cause);
  dml_arena_leave(&vault->secrets.arena);
  return status;
}
