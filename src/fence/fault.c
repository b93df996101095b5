/* fault.c - see fault.h. */
#include "fence/fault.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

static const dml_chunk *find_chunk(const dml_policy *policy, const char *name, size_t len) {
  for (size_t i = 0; i < policy->chunk_count; i++) {
    const char *own = policy->chunks[i].name;
    if (strlen(own) == len && memcmp(own, name, len) == 0) return &policy->chunks[i];
  }
  return NULL;
}

void dml_fault_place(lua_State *L, const char **file, int *line) {
  const dml_policy *policy = dml_policy_of(L);
  lua_Debug ar;
  *file = NULL;
  *line = 0;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    if (!lua_getinfo(L, "Sl", &ar) || ar.currentline <= 0) continue;
    const dml_chunk *chunk = find_chunk(policy, ar.short_src, strlen(ar.short_src));
    if (!chunk) continue;
    *file = chunk->name;
    *line = ar.currentline;
    return;
  }
}

/* "policy.lua:12: " at the front of a text: takes it off and says what it said. */
static const dml_chunk *take_place(const dml_policy *policy, const char **text, size_t *len, int *line) {
  const char *colon = memchr(*text, ':', *len);
  const dml_chunk *chunk = colon ? find_chunk(policy, *text, (size_t)(colon - *text)) : NULL;
  if (!chunk) return NULL;
  const char *at = colon + 1, *end = *text + *len;
  int number = 0;
  while (at < end && *at >= '0' && *at <= '9' && number < 100000000) number = number * 10 + (*at++ - '0');
  if (at == colon + 1 || end - at < 2 || at[0] != ':' || at[1] != ' ') return NULL;
  *line = number;
  *text = at + 2;
  *len = (size_t)(end - *text);
  return chunk;
}

static void set_text(dml_fault *fault, const char *text, size_t len) {
  fault->len = len < sizeof fault->text ? len : sizeof fault->text;
  memcpy(fault->text, text, fault->len);
}

void dml_fault_of_text(lua_State *L, int index) {
  dml_policy *policy = dml_policy_of(L);
  dml_fault *fault = &policy->fault;
  size_t len;
  const char *text = lua_tolstring(L, index, &len);
  const dml_chunk *chunk = take_place(policy, &text, &len, &fault->line);
  if (chunk) fault->file = chunk->name;
  fault->kind = chunk && !chunk->is_compiled ? DML_WIRE_SYNTAX : DML_WIRE_ERROR;
  set_text(fault, text, len);
}

int dml_fault_on_error(lua_State *L) {
  dml_policy *policy = dml_policy_of(L);
  dml_fault *fault = &policy->fault;
  *fault = (dml_fault){.kind = DML_WIRE_ERROR};
  dml_fault_place(L, &fault->file, &fault->line);
  if (lua_type(L, 1) == LUA_TSTRING) {
    dml_fault_of_text(L, 1);
    return 1;
  }
  char text[64];
  if (lua_type(L, 1) == LUA_TNUMBER) /* converted here: in Lua it would need memory */
    snprintf(text, sizeof text, "%.14g was raised", (double)lua_tonumber(L, 1));
  else if (lua_isnoneornil(L, 1))
    snprintf(text, sizeof text, "nil was raised");
  else if (lua_isuserdata(L, 1))
    snprintf(text, sizeof text, "a value of the fence was raised");
  else
    snprintf(text, sizeof text, "a %s was raised", luaL_typename(L, 1));
  set_text(fault, text, strlen(text));
  return 1;
}

void dml_fault_set(dml_policy *policy, dml_wire_fault kind, const char *text) {
  policy->fault = (dml_fault){.kind = kind};
  if (policy->chunk_count > 0) policy->fault.file = policy->chunks[0].name;
  set_text(&policy->fault, text, strlen(text));
}
