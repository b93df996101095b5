/* vault_face.h - the vault of one Lua state, as the bindings share it.
 *
 * It is opened by the first that needs it, and lives until the state is closed and the last handle is collected. */
#ifndef DML_SCRIPT_VAULT_FACE_H
#define DML_SCRIPT_VAULT_FACE_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "script/task.h"
#include "vault/redact.h"
#include "vault/vault.h"

/* Registry field: true in the program, where the environment is ours to wipe. Never set by a host. */
#define DML_MAY_WIPE_FIELD "demilune.may_wipe_environment"

typedef struct dml_command dml_command;

typedef struct dml_vault_face {
  dml_vault vault;
  size_t refs;
  dml_buffer out;                                   /* where texts are redacted */
  dml_buffer log_out;                               /* and records of the log */
  dml_command *commands[DML_VAULT_CREDENTIALS_MAX]; /* that run now, by the place of their credential */
} dml_vault_face;

/* The vault, or NULL when none was opened yet. Borrowed. [-0, +0] */
dml_vault_face *dml_vault_face_of(lua_State *L);
/* The vault, opened if need be; NULL when there is no memory for it. From then on the log is redacted. [-0, +0] */
dml_vault_face *dml_vault_face_open(lua_State *L);
void dml_vault_face_unref(dml_vault_face *face);

/* Pushes the text redacted; the string at `index` itself when nothing is in it. Raises without memory. [-0, +1] */
void dml_push_redacted(lua_State *L, int index);

/* nil and the error of a credential that cannot be read. [-0, +2] */
int dml_push_unreadable(lua_State *L, const dml_credential *credential);
/* Runs the program of a cmd credential, or joins the one that runs: `return dml_command_wait(...)`. The results are
 * true, with `wants_change` whether the secret is another now; or those of dml_push_unreadable. */
int dml_command_wait(lua_State *L, dml_vault_face *face, dml_credential *credential, bool wants_change);

/* credential.c: the handles' part of core.vault, as Lua functions: bind(name, binding) and allows(credential, url). */
void dml_open_credential(lua_State *L);
int dml_credential_bind(lua_State *L);
int dml_credential_allows(lua_State *L);

#endif
