/* bind_vault.c - core.vault: credentials by name, and the redaction of what leaves.
 *
 * Lua sees names, states and causes; of a secret it can only say where it may go. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "script/bind.h"
#include "script/vault_face.h"

#define HOLDER_T "demilune.vault"
#define REDACTOR_T "demilune.redactor"
/* Kept between texts. */
#define OUT_KEEP_BYTES (64u * 1024)
#define OUT_MAX_BYTES (256u * 1024 * 1024)
/* Values in values; JSON of ours is not deeper. */
#define VALUE_DEPTH_MAX 160
#define HAND_TIMEOUT_MS 5000

static const char VAULT_KEY = 0;

/* ---- the vault of a state ---- */

/* A record that cannot be looked over is not written. */
static const char *filter_record(void *ud, const char *text, size_t *len, bool is_cut) {
  dml_vault_face *face = ud;
  bool is_changed;
  dml_buffer_reset(&face->log_out, OUT_KEEP_BYTES);
  if (dml_redact(&face->vault.secrets, text, *len, is_cut, &face->log_out, &is_changed) != DML_OK) {
    static const char LOST[] = "a record that could not be redacted";
    *len = sizeof LOST - 1;
    return LOST;
  }
  if (!is_changed) return text;
  *len = face->log_out.len;
  return *len ? face->log_out.data : "";
}

dml_vault_face *dml_vault_face_of(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &VAULT_KEY);
  dml_vault_face **holder = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return holder ? *holder : NULL;
}

void dml_vault_face_unref(dml_vault_face *face) {
  if (--face->refs > 0) return;
  dml_vault_deinit(&face->vault);
  dml_buffer_deinit(&face->out);
  dml_buffer_deinit(&face->log_out);
  free(face);
}

/* The log outlives the state. */
static int holder_gc(lua_State *L) {
  dml_vault_face **holder = lua_touserdata(L, 1);
  dml_script *script = dml_script_of(L);
  if (*holder && script) dml_log_set_filter(dml_script_log(script), NULL, NULL);
  if (*holder) dml_vault_face_unref(*holder);
  *holder = NULL;
  return 0;
}

dml_vault_face *dml_vault_face_open(lua_State *L) {
  dml_vault_face *face = dml_vault_face_of(L);
  if (face) return face;
  dml_vault_face **holder = lua_newuserdatauv(L, sizeof *holder, 0);
  *holder = NULL;
  luaL_setmetatable(L, HOLDER_T);
  face = calloc(1, sizeof *face);
  if (face && dml_vault_init(&face->vault) != DML_OK) {
    free(face);
    face = NULL;
  }
  if (face) {
    face->refs = 1;
    dml_buffer_init(&face->out, OUT_MAX_BYTES);
    dml_buffer_init(&face->log_out, OUT_MAX_BYTES);
    *holder = face;
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &VAULT_KEY);
    dml_log_set_filter(dml_script_log(dml_script_of(L)), filter_record, face);
  }
  lua_pop(L, 1);
  return face;
}

static dml_vault_face *need_face(lua_State *L) {
  dml_vault_face *face = dml_vault_face_open(L);
  if (!face) luaL_error(L, "no memory for the vault");
  return face;
}

static dml_credential *check_credential(lua_State *L, dml_vault_face *face) {
  dml_credential *credential = dml_vault_find(&face->vault, luaL_checkstring(L, 1));
  luaL_argcheck(L, credential, 1, "no such credential is defined");
  return credential;
}

int dml_push_unreadable(lua_State *L, const dml_credential *credential) {
  dml_push_error(L, DML_AUTHENTICATION_FAILED);
  lua_pushfstring(L, "The credential %s cannot be read; `demilune doctor` says why.", credential->name);
  lua_setfield(L, -2, "message");
  return 2;
}

/* ---- opening, defining, reading ---- */

/* vault.open{ require_lock = bool } -> true | nil, err */
static int l_open(lua_State *L) {
  bool is_required = false;
  if (!lua_isnoneornil(L, 1)) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "require_lock");
    is_required = lua_toboolean(L, -1);
  }
  dml_vault_face *face = dml_vault_face_open(L);
  if (face && (face->vault.secrets.arena.is_locked || !is_required)) {
    lua_pushboolean(L, 1);
    return 1;
  }
  dml_push_error(L, DML_INTERNAL);
  lua_pushstring(
      L, face ? "The memory of the vault cannot be locked, and vault.require_lock asks for it; raise the limit of "
                "locked memory (`ulimit -l`, LimitMEMLOCK=)."
              : "There is no memory for the vault.");
  lua_setfield(L, -2, "detail");
  return 2;
}

static bool may_wipe(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, DML_MAY_WIPE_FIELD);
  bool may = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return may;
}

/* vault.define(name, source) -> true | nil, err */
static int l_define(lua_State *L) {
  size_t len;
  const char *why = "cannot be defined", *name = luaL_checkstring(L, 1), *source = luaL_checklstring(L, 2, &len);
  dml_vault_face *face = need_face(L);
  dml_status status = dml_vault_define(&face->vault, name, source, len, may_wipe(L), &why);
  if (status == DML_OK) {
    lua_pushboolean(L, 1);
    return 1;
  }
  dml_push_error(L, status);
  if (status != DML_INVALID_ARGUMENT) return 2;
  lua_pushfstring(L, "The source of a credential %s.", why);
  lua_setfield(L, -2, "message");
  return 2;
}

/* vault.load(name) -> true | nil, err; reads it unless it is loaded */
static int l_load(lua_State *L) {
  dml_vault_face *face = need_face(L);
  dml_credential *credential = check_credential(L, face);
  if (credential->secret == DML_SECRET_NONE) {
    if (credential->source.kind == DML_SOURCE_CMD) return dml_command_wait(L, face, credential, false);
    if (dml_vault_read(&face->vault, credential, NULL) != DML_OK) return dml_push_unreadable(L, credential);
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* vault.reload(name) -> whether the secret is another now | nil, err */
static int l_reload(lua_State *L) {
  bool is_changed;
  dml_vault_face *face = need_face(L);
  dml_credential *credential = check_credential(L, face);
  if (credential->source.kind == DML_SOURCE_CMD) return dml_command_wait(L, face, credential, true);
  if (dml_vault_read(&face->vault, credential, &is_changed) != DML_OK) return dml_push_unreadable(L, credential);
  lua_pushboolean(L, is_changed);
  return 1;
}

static void set_text(lua_State *L, const char *name, const char *text) {
  lua_pushstring(L, text);
  lua_setfield(L, -2, name);
}

static void push_status_of(lua_State *L, const dml_credential *credential) {
  static const char *const STATES[] = {"unread", "loaded", "failed"};
  lua_createtable(L, 0, 4);
  set_text(L, "name", credential->name);
  set_text(L, "kind", dml_source_kind_name(credential->source.kind));
  set_text(L, "state", STATES[credential->state]);
  set_text(L, "cause", credential->cause);
}

/* vault.status() -> { is_locked, used_bytes, size_bytes, credentials = {...} }; zeros when it was never opened */
static int l_status(lua_State *L) {
  const dml_vault_face *face = dml_vault_face_of(L);
  const dml_arena none = {0}, *arena = face ? &face->vault.secrets.arena : &none;
  lua_createtable(L, 0, 4);
  lua_pushboolean(L, arena->is_locked);
  lua_setfield(L, -2, "is_locked");
  lua_pushinteger(L, (lua_Integer)arena->used);
  lua_setfield(L, -2, "used_bytes");
  lua_pushinteger(L, (lua_Integer)arena->size);
  lua_setfield(L, -2, "size_bytes");
  lua_newtable(L);
  for (size_t i = 0; face && i < face->vault.count; i++) {
    push_status_of(L, &face->vault.credentials[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "credentials");
  return 1;
}

/* ---- to and from a process of ours ---- */

/* vault.hand_over(fd, names) -> true | nil, err */
static int l_hand_over(lua_State *L) {
  const char *names[DML_VAULT_CREDENTIALS_MAX];
  int fd = (int)luaL_checkinteger(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  size_t count = lua_rawlen(L, 2);
  luaL_argcheck(L, count <= DML_VAULT_CREDENTIALS_MAX, 2, "too many names");
  dml_vault_face *face = need_face(L);
  for (size_t i = 0; i < count; i++) {
    luaL_argcheck(L, lua_rawgeti(L, 2, (lua_Integer)i + 1) == LUA_TSTRING, 2, "names are strings");
    names[i] = lua_tostring(L, -1);
    lua_pop(L, 1); /* the list keeps it */
  }
  dml_status status = dml_vault_hand_over(&face->vault, fd, names, count, HAND_TIMEOUT_MS);
  if (status != DML_OK) return dml_push_error(L, status);
  lua_pushboolean(L, 1);
  return 1;
}

/* vault.take_over(fd, name_max) -> names | nil, err */
static int l_take_over(lua_State *L) {
  size_t first;
  int fd = (int)luaL_checkinteger(L, 1);
  lua_Integer max = luaL_checkinteger(L, 2);
  luaL_argcheck(L, max >= 0, 2, "a number of names");
  dml_vault_face *face = need_face(L);
  dml_status status = dml_vault_take_over(&face->vault, fd, (size_t)max, HAND_TIMEOUT_MS, &first);
  if (status != DML_OK) return dml_push_error(L, status);
  lua_newtable(L);
  for (size_t i = first; i < face->vault.count; i++) {
    lua_pushstring(L, face->vault.credentials[i].name);
    lua_rawseti(L, -2, (lua_Integer)(i - first) + 1);
  }
  return 1;
}

/* ---- redaction ---- */

static bool is_idle(const dml_vault_face *face) { return !face || face->vault.secrets.count == 0; }

static void push_out(lua_State *L, dml_buffer *out) {
  lua_pushlstring(L, out->len ? out->data : "", out->len);
  dml_buffer_reset(out, OUT_KEEP_BYTES);
}

static void push_redacted(lua_State *L, dml_vault_face *face, int index, bool is_cut) {
  size_t len;
  bool is_changed = false;
  const char *text = lua_tolstring(L, index, &len);
  dml_buffer_reset(&face->out, OUT_KEEP_BYTES);
  if (dml_redact(&face->vault.secrets, text, len, is_cut, &face->out, &is_changed) != DML_OK)
    luaL_error(L, "no memory to redact a text");
  if (is_changed)
    push_out(L, &face->out);
  else
    lua_pushvalue(L, index);
}

void dml_push_redacted(lua_State *L, int index) {
  dml_vault_face *face = dml_vault_face_of(L);
  index = lua_absindex(L, index);
  if (is_idle(face))
    lua_pushvalue(L, index);
  else
    push_redacted(L, face, index, false);
}

/* vault.redact(text, is_cut?) -> text */
static int l_redact(lua_State *L) {
  luaL_checkstring(L, 1);
  bool is_cut = lua_toboolean(L, 2);
  dml_vault_face *face = dml_vault_face_of(L);
  lua_settop(L, 1);
  if (is_idle(face)) return 1;
  push_redacted(L, face, 1, is_cut);
  return 1;
}

/* vault.is_live() -> whether there is anything to mask */
static int l_is_live(lua_State *L) {
  lua_pushboolean(L, !is_idle(dml_vault_face_of(L)));
  return 1;
}

/* vault.redact_part(text, first, last, is_cut?) -> the part, where it ends */
static int l_redact_part(lua_State *L) {
  size_t len, end;
  const char *text = luaL_checklstring(L, 1, &len);
  lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3);
  luaL_argcheck(L, first >= 1 && first <= (lua_Integer)len + 1, 2, "outside of the text");
  luaL_argcheck(L, last >= first - 1 && last <= (lua_Integer)len, 3, "outside of the text");
  dml_vault_face *face = dml_vault_face_of(L);
  if (is_idle(face)) {
    lua_pushlstring(L, text + first - 1, (size_t)(last - first + 1));
    lua_pushinteger(L, last);
    return 2;
  }
  dml_buffer_reset(&face->out, OUT_KEEP_BYTES);
  if (dml_redact_part(&face->vault.secrets, text, len, (size_t)first - 1, (size_t)last, lua_toboolean(L, 4), &face->out,
                      &end) != DML_OK)
    return luaL_error(L, "no memory to redact a text");
  push_out(L, &face->out);
  lua_pushinteger(L, (lua_Integer)end);
  return 2;
}

static void push_redacted_value(lua_State *L, dml_vault_face *face, int index, int depth);

/* Replaces the nil at `copy` by a copy of the table at `index`. */
static void copy_table(lua_State *L, int index, int copy) {
  lua_newtable(L);
  for (lua_pushnil(L); lua_next(L, index);) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -4);
  }
  if (lua_getmetatable(L, index)) lua_setmetatable(L, -2);
  lua_replace(L, copy);
}

/* The table at `index` with redacted keys and values: itself where nothing changes, else a copy. [-0, +1] */
static void push_redacted_table(lua_State *L, dml_vault_face *face, int index, int depth) {
  if (depth >= VALUE_DEPTH_MAX) luaL_error(L, "too deep to redact");
  luaL_checkstack(L, 8, "value to redact");
  lua_pushnil(L); /* the copy, once there is one */
  int copy = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, index); lua_settop(L, copy + 1)) {
    push_redacted_value(L, face, copy + 1, depth);
    push_redacted_value(L, face, copy + 2, depth);
    if (lua_rawequal(L, copy + 1, copy + 3) && lua_rawequal(L, copy + 2, copy + 4)) continue;
    if (lua_isnil(L, copy)) copy_table(L, index, copy);
    lua_pushvalue(L, copy + 1);
    lua_pushnil(L);
    lua_rawset(L, copy);
    lua_rawset(L, copy);
  }
  if (lua_isnil(L, copy)) {
    lua_pushvalue(L, index);
    lua_replace(L, copy);
  }
}

static void push_redacted_value(lua_State *L, dml_vault_face *face, int index, int depth) {
  index = lua_absindex(L, index);
  int type = lua_type(L, index);
  if (type == LUA_TSTRING)
    push_redacted(L, face, index, false);
  else if (type == LUA_TTABLE)
    push_redacted_table(L, face, index, depth + 1);
  else
    lua_pushvalue(L, index);
}

/* vault.redact_all(value) -> value */
static int l_redact_all(lua_State *L) {
  luaL_checkany(L, 1);
  lua_settop(L, 1);
  dml_vault_face *face = dml_vault_face_of(L);
  if (!is_idle(face)) push_redacted_value(L, face, 1, 0);
  return 1;
}

/* ---- redactors ---- */

typedef struct redactor_face {
  dml_redactor redactor;
  dml_vault_face *vault; /* NULL: made before there was one */
} redactor_face;

static redactor_face *check_redactor(lua_State *L) {
  redactor_face *face = luaL_checkudata(L, 1, REDACTOR_T);
  if (!face->vault && (face->vault = dml_vault_face_of(L))) face->vault->refs++;
  return face;
}

static int redactor_gc(lua_State *L) {
  redactor_face *face = lua_touserdata(L, 1);
  dml_redactor_deinit(&face->redactor);
  if (face->vault) dml_vault_face_unref(face->vault);
  face->vault = NULL;
  return 0;
}

/* vault.redactor() -> redactor */
static int l_redactor(lua_State *L) {
  redactor_face *face = lua_newuserdatauv(L, sizeof *face, 0);
  *face = (redactor_face){0};
  dml_redactor_init(&face->redactor);
  luaL_setmetatable(L, REDACTOR_T);
  return 1;
}

/* redactor:feed(piece) -> text that is decided */
static int l_feed(lua_State *L) {
  size_t len;
  redactor_face *face = check_redactor(L);
  const char *piece = luaL_checklstring(L, 2, &len);
  lua_settop(L, 2);
  if (!face->vault || (is_idle(face->vault) && face->redactor.held.len == 0)) return 1;
  dml_buffer *out = &face->vault->out;
  dml_buffer_reset(out, OUT_KEEP_BYTES);
  if (dml_redactor_feed(&face->redactor, &face->vault->vault.secrets, piece, len, out) != DML_OK)
    return luaL_error(L, "no memory to redact a text");
  push_out(L, out);
  return 1;
}

/* redactor:finish() -> what was held back */
static int l_finish(lua_State *L) {
  redactor_face *face = check_redactor(L);
  if (!face->vault) {
    lua_pushliteral(L, "");
    return 1;
  }
  dml_buffer *out = &face->vault->out;
  dml_buffer_reset(out, OUT_KEEP_BYTES);
  if (dml_redactor_finish(&face->redactor, &face->vault->vault.secrets, out) != DML_OK)
    return luaL_error(L, "no memory to redact a text");
  push_out(L, out);
  return 1;
}

static const luaL_Reg REDACTOR_METHODS[] = {{"feed", l_feed}, {"finish", l_finish}, {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {{"open", l_open},
                                     {"define", l_define},
                                     {"load", l_load},
                                     {"reload", l_reload},
                                     {"bind", dml_credential_bind},
                                     {"allows", dml_credential_allows},
                                     {"is_live", l_is_live},
                                     {"redact", l_redact},
                                     {"redact_part", l_redact_part},
                                     {"redact_all", l_redact_all},
                                     {"redactor", l_redactor},
                                     {"status", l_status},
                                     {"hand_over", l_hand_over},
                                     {"take_over", l_take_over},
                                     {NULL, NULL}};

static void make_class(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc) {
  if (luaL_newmetatable(L, name)) {
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
}

int dml_open_vault(lua_State *L) {
  static const luaL_Reg NONE[] = {{NULL, NULL}};
  make_class(L, HOLDER_T, NONE, holder_gc);
  make_class(L, REDACTOR_T, REDACTOR_METHODS, redactor_gc);
  dml_open_credential(L);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
