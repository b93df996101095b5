/* credential.c - see credential.h. */
#include "script/credential.h"

#include <lauxlib.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "script/convert.h"
#include "script/vault_face.h"
#include "vault/lift.h"
#include "vault/origin.h"

#define CREDENTIAL_T "demilune.credential"
#define LIFT_T "demilune.lift"
#define PREFIX_MAX_BYTES 32u
#define HEADER_MAX_BYTES 64u
/* Origins, and domains, of one binding. */
#define PLACES_MAX 16

/* Which header, and where to. A userdata that handles share. */
typedef struct binding {
  bool is_unix;
  char header[HEADER_MAX_BYTES + 1];
  char prefix[PREFIX_MAX_BYTES + 1];
  size_t origin_count, domain_count;
  dml_origin places[]; /* the origins, then the domains as hosts */
} binding;

/* User value 1: the binding. */
typedef struct credential {
  dml_vault_face *face;
  dml_credential *named; /* or NULL: a token, the handle's own */
  dml_secret_id token;
} credential;

/* ---- bindings ---- */

static void get_text(lua_State *L, int index, const char *name, const char *otherwise, char *out, size_t size) {
  size_t len = strlen(otherwise);
  const char *text = otherwise;
  int type = lua_getfield(L, index, name);
  if (type == LUA_TSTRING)
    text = lua_tolstring(L, -1, &len);
  else if (type != LUA_TNIL)
    luaL_error(L, "%s of a binding must be a string", name);
  if (len >= size || !dml_header_is_value((dml_span){text, len}))
    luaL_error(L, "%s of a binding cannot stand in a header", name);
  memcpy(out, text, len + 1);
  lua_pop(L, 1);
}

/* Pushes the list in a field; an empty one for nil. Returns its length. [-0, +1] */
static size_t push_list(lua_State *L, int index, const char *name) {
  int type = lua_getfield(L, index, name);
  if (type == LUA_TNIL) {
    lua_pop(L, 1);
    lua_newtable(L);
  } else if (type != LUA_TTABLE) {
    luaL_error(L, "%s of a binding must be a list", name);
  }
  size_t n = lua_rawlen(L, -1);
  if (n > PLACES_MAX) luaL_error(L, "%s of a binding is too long", name);
  return n;
}

static const char *text_at(lua_State *L, int list, size_t i, size_t *len) {
  *len = 0;
  const char *text = lua_rawgeti(L, list, (lua_Integer)i + 1) == LUA_TSTRING ? lua_tolstring(L, -1, len) : "";
  lua_pop(L, 1); /* the list keeps it */
  return text;
}

/* Pushes the binding of the table at `index`, taken apart. [-0, +1] */
static binding *push_binding(lua_State *L, int index) {
  size_t len;
  index = lua_absindex(L, index);
  if (!lua_istable(L, index)) luaL_error(L, "a binding must be a table");
  size_t origins = push_list(L, index, "origins"), domains = push_list(L, index, "suffixes");
  int lists = lua_gettop(L) - 1;
  binding *b = lua_newuserdatauv(L, sizeof *b + (origins + domains) * sizeof *b->places, 0);
  memset(b, 0, sizeof *b);
  get_text(L, index, "header", "", b->header, sizeof b->header);
  get_text(L, index, "prefix", "", b->prefix, sizeof b->prefix);
  if (!dml_header_is_token((dml_span){b->header, strlen(b->header)}))
    luaL_error(L, "header of a binding is no header's name");
  b->origin_count = origins;
  b->domain_count = domains;
  for (size_t i = 0; i < origins; i++) {
    const char *text = text_at(L, lists, i, &len);
    if (!dml_origin_of_url(text, len, &b->places[i]))
      luaL_error(L, "origins of a binding must be origins of http or https");
    if (!dml_origin_is_safe(&b->places[i])) luaL_error(L, "http origins of a binding must be of this machine");
  }
  for (size_t i = 0; i < domains; i++) {
    const char *text = text_at(L, lists + 1, i, &len);
    if (!dml_origin_is_domain(text, len)) luaL_error(L, "suffixes of a binding must be domains in small letters");
    memcpy(b->places[origins + i].host, text, len + 1);
  }
  lua_getfield(L, index, "is_unix");
  b->is_unix = lua_toboolean(L, -1);
  lua_pop(L, 1);
  lua_replace(L, lists);
  lua_settop(L, lists);
  return b;
}

static bool is_allowed(const binding *b, dml_span url) {
  dml_origin origin;
  if (!dml_origin_of_url(url.data, url.len, &origin)) return false;
  for (size_t i = 0; i < b->origin_count; i++)
    if (dml_origin_is_same(&origin, &b->places[i])) return true;
  for (size_t i = 0; i < b->domain_count; i++)
    if (dml_origin_is_below(&origin, b->places[b->origin_count + i].host)) return true;
  return false;
}

/* ---- handles ---- */

static int credential_gc(lua_State *L) {
  credential *c = lua_touserdata(L, 1);
  if (!c->face) return 0;
  if (c->token != DML_SECRET_NONE) dml_secrets_drop(&c->face->vault.secrets, c->token);
  dml_vault_face_unref(c->face);
  *c = (credential){.token = DML_SECRET_NONE};
  return 0;
}

static int credential_tostring(lua_State *L) {
  credential *c = luaL_checkudata(L, 1, CREDENTIAL_T);
  lua_pushfstring(L, "credential(%s)", c->named ? c->named->name : "token");
  return 1;
}

/* Pushes a handle with the binding at `index`; takes the reference to the token. [-0, +1] */
static void push_handle(lua_State *L, dml_vault_face *face, dml_credential *named, dml_secret_id *token, int index) {
  index = lua_absindex(L, index);
  credential *c = lua_newuserdatauv(L, sizeof *c, 1);
  *c = (credential){.face = face, .named = named, .token = DML_SECRET_NONE};
  face->refs++;
  luaL_setmetatable(L, CREDENTIAL_T);
  if (token) {
    c->token = *token;
    *token = DML_SECRET_NONE;
  }
  lua_pushvalue(L, index);
  lua_setiuservalue(L, -2, 1);
}

int dml_credential_bind(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  dml_vault_face *face = dml_vault_face_of(L);
  dml_credential *named = face ? dml_vault_find(&face->vault, name) : NULL;
  luaL_argcheck(L, named, 1, "no such credential is defined");
  push_binding(L, 2);
  push_handle(L, face, named, NULL, -1);
  return 1;
}

/* The binding of a handle. [-0, +0] */
static const binding *binding_of(lua_State *L, int index) {
  lua_getiuservalue(L, index, 1);
  const binding *b = lua_touserdata(L, -1);
  lua_pop(L, 1); /* the handle keeps it */
  return b;
}

int dml_credential_allows(lua_State *L) {
  luaL_checkudata(L, 1, CREDENTIAL_T);
  dml_span url;
  url.data = luaL_checklstring(L, 2, &url.len);
  lua_pushboolean(L, is_allowed(binding_of(L, 1), url));
  return 1;
}

/* ---- into requests ---- */

static dml_status add_header(const credential *c, const binding *b, dml_headers *headers) {
  dml_secret_id id = c->named ? c->named->secret : c->token;
  if (id == DML_SECRET_NONE) return DML_AUTHENTICATION_FAILED;
  dml_secrets *secrets = &c->face->vault.secrets;
  size_t len, prefix = strlen(b->prefix);
  dml_arena_enter(&secrets->arena);
  char *value = (char *)dml_arena_scratch(&secrets->arena);
  const unsigned char *bytes = dml_secrets_peek(secrets, id, &len);
  memcpy(value, b->prefix, prefix);
  memcpy(value + prefix, bytes, len);
  dml_status status =
      dml_headers_add(headers, (dml_span){b->header, strlen(b->header)}, (dml_span){value, prefix + len});
  dml_arena_leave(&secrets->arena);
  return status;
}

dml_status dml_credentials_add(lua_State *L, int index, dml_span url, bool is_unix, dml_headers *headers) {
  if (lua_isnoneornil(L, index)) return DML_OK;
  index = lua_absindex(L, index);
  if (!lua_istable(L, index)) luaL_error(L, "credentials must be a list of handles");
  size_t count = lua_rawlen(L, index);
  if (count > DML_CREDENTIALS_MAX) luaL_error(L, "too many credentials");
  dml_status status = DML_OK;
  for (size_t i = 0; i < count && status == DML_OK; i++) {
    lua_rawgeti(L, index, (lua_Integer)i + 1);
    const credential *c = luaL_testudata(L, -1, CREDENTIAL_T);
    if (!c || !c->face) luaL_error(L, "credentials must be a list of handles");
    const binding *b = binding_of(L, lua_gettop(L));
    if (!(is_unix ? b->is_unix : is_allowed(b, url))) luaL_error(L, "a credential is not for this place");
    status = add_header(c, b, headers);
    lua_pop(L, 1);
  }
  return status;
}

/* ---- out of answers ---- */

/* A copy of the body, and the tokens that were taken from it and have no handle yet. */
typedef struct lift {
  dml_vault_face *face;
  char *text;
  size_t len, count;
  dml_lift_pointer pointers[DML_LIFT_POINTERS_MAX];
  size_t pointer_count;
  dml_secret_id tokens[DML_LIFT_COUNT_MAX];
} lift;

static void empty_lift(lift *l) {
  for (size_t i = 0; i < l->count; i++)
    if (l->tokens[i] != DML_SECRET_NONE) dml_secrets_drop(&l->face->vault.secrets, l->tokens[i]);
  l->count = 0;
  if (l->text) sodium_memzero(l->text, l->len);
  free(l->text);
  l->text = NULL;
}

static int lift_gc(lua_State *L) {
  lift *l = lua_touserdata(L, 1);
  empty_lift(l);
  if (l->face) dml_vault_face_unref(l->face);
  l->face = NULL;
  return 0;
}

/* The mark is the token's number. */
static size_t take_token(void *ud, size_t pointer, const unsigned char *bytes, size_t len, char *mark, size_t room,
                         dml_status *status) {
  (void)pointer;
  lift *l = ud;
  char digits[16];
  if (dml_token_fault(bytes, len))
    *status = DML_INVALID_RESPONSE;
  else
    *status = dml_secrets_add(&l->face->vault.secrets, bytes, len, &l->tokens[l->count]);
  if (*status != DML_OK) return 0;
  size_t size = (size_t)snprintf(digits, sizeof digits, "%zu", l->count++);
  if (size > room) return 0;
  memcpy(mark, digits, size);
  return size;
}

static dml_status lift_all(lift *l, const char *body, size_t len) {
  dml_json_scan_result scan;
  dml_secrets *secrets = &l->face->vault.secrets;
  empty_lift(l);
  dml_json_scan(body, len, &scan);
  if (!scan.is_balanced || scan.is_too_deep || scan.is_too_many) return DML_INVALID_RESPONSE;
  l->text = malloc(len + 1);
  if (!l->text) return DML_INTERNAL;
  l->len = len;
  memcpy(l->text, body, len);
  dml_arena_enter(&secrets->arena);
  dml_status status = dml_lift(l->text, len, l->pointers, l->pointer_count, dml_arena_scratch(&secrets->arena),
                               DML_SECRET_MAX_BYTES + 1, take_token, l);
  dml_arena_leave(&secrets->arena);
  return status;
}

/* Pushes the state of a lift, its pointers taken apart, and a table of their bindings. [-0, +2] */
static lift *push_lift(lua_State *L, int index, dml_vault_face *face) {
  lift *l = lua_newuserdatauv(L, sizeof *l, 0);
  memset(l, 0, sizeof *l);
  l->face = face;
  face->refs++;
  luaL_setmetatable(L, LIFT_T);
  lua_newtable(L);
  if (!lua_istable(L, index)) luaL_error(L, "tokens must be a table of bindings by JSON pointer");
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    size_t len = 0;
    const char *text = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &len) : "";
    if (l->pointer_count >= DML_LIFT_POINTERS_MAX) luaL_error(L, "too many tokens");
    if (!dml_lift_parse(&l->pointers[l->pointer_count], text, len))
      luaL_error(L, "tokens must have JSON pointers as keys");
    push_binding(L, -1);
    lua_rawseti(L, -4, (lua_Integer)++l->pointer_count);
  }
  return l;
}

/* Pushes a handle for the mark on top; false, and nothing, where it is none. */
static bool push_lifted(lua_State *L, lift *l, size_t pointer, int bindings) {
  const char *mark = lua_tostring(L, -1);
  char *end;
  unsigned long number = strtoul(mark, &end, 10);
  if (end == mark || number >= l->count || l->tokens[number] == DML_SECRET_NONE) return false;
  lua_rawgeti(L, bindings, (lua_Integer)pointer + 1);
  push_handle(L, l->face, NULL, &l->tokens[number], -1);
  lua_remove(L, -2);
  return true;
}

static bool is_covered(lua_State *L, const dml_lift_pointer *p, size_t depth, int key) {
  char index[24];
  if (lua_type(L, key) == LUA_TSTRING) return dml_lift_covers(p, depth, lua_tostring(L, key));
  snprintf(index, sizeof index, "%lld", (long long)lua_tointeger(L, key) - 1);
  return dml_lift_covers(p, depth, index);
}

/* Follows a pointer down the table on top, and puts handles where marks are. False when something else than a mark or
 * null is at its end: then nobody may see the value. [-0, +0] */
static bool fill(lua_State *L, lift *l, size_t pointer, size_t depth, int bindings) {
  const dml_lift_pointer *p = &l->pointers[pointer];
  int table = lua_gettop(L), key = table + 1, item = table + 2;
  bool done = true;
  luaL_checkstack(L, 8, "JSON pointer");
  for (lua_pushnil(L); lua_next(L, table); lua_settop(L, key)) {
    if (!is_covered(L, p, depth, key)) continue;
    bool is_end = depth + 1 == p->depth;
    if (!is_end && lua_istable(L, item)) {
      done = fill(L, l, pointer, depth + 1, bindings);
    } else if (is_end && lua_type(L, item) == LUA_TSTRING) {
      lua_pushvalue(L, key);
      lua_pushvalue(L, item);
      done = push_lifted(L, l, pointer, bindings);
      lua_remove(L, done ? -2 : -1);
      if (done) lua_rawset(L, table);
    } else if (is_end) {
      done = (lua_islightuserdata(L, item) && !lua_touserdata(L, item)) || luaL_testudata(L, item, CREDENTIAL_T);
    }
    if (!done) break;
  }
  lua_settop(L, table);
  return done;
}

/* Pushes the value of the lifted text; false, and nothing, where it is no JSON, or not as it should be. */
static bool push_value(lua_State *L, lift *l, int bindings) {
  json_t *value;
  if (dml_json_decode(l->text, l->len, NULL, &value) != DML_JSON_FINE) return false;
  dml_push_json(L, value);
  json_decref(value);
  if (!lua_istable(L, -1)) return true;
  for (size_t i = 0; i < l->pointer_count; i++)
    if (!fill(L, l, i, 0, bindings)) {
      lua_pop(L, 1);
      return false;
    }
  return true;
}

int dml_push_lifted(lua_State *L, int index, const char *body, size_t len) {
  index = lua_absindex(L, index);
  dml_vault_face *face = dml_vault_face_open(L);
  if (!face) return dml_push_error(L, DML_INTERNAL);
  lift *l = push_lift(L, index, face);
  int bindings = lua_gettop(L);
  dml_status status = lift_all(l, body, len);
  if (status == DML_TOO_LARGE) { /* tokens whose handles nobody has any more keep their room until they are collected */
    empty_lift(l);
    lua_gc(L, LUA_GCCOLLECT, 0);
    status = lift_all(l, body, len);
  }
  bool done = status == DML_OK && push_value(L, l, bindings);
  empty_lift(l);
  if (done) {
    lua_replace(L, bindings - 1);
    lua_settop(L, bindings - 1);
    return 1;
  }
  lua_settop(L, bindings - 2);
  return dml_push_error(L, status == DML_OK || status == DML_INVALID_RESPONSE ? DML_INVALID_RESPONSE : DML_INTERNAL);
}

/* ---- classes ---- */

static void make_class(lua_State *L, const char *name, lua_CFunction gc) {
  if (luaL_newmetatable(L, name)) {
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, credential_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushliteral(L, "credential");
    lua_setfield(L, -2, "__metatable");
  }
  lua_pop(L, 1);
}

void dml_open_credential(lua_State *L) {
  make_class(L, CREDENTIAL_T, credential_gc);
  make_class(L, LIFT_T, lift_gc);
}
