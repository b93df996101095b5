/* library.h - what policy code finds: the standard functions that cannot leave the fence, and our own. */
#ifndef DML_FENCE_LIBRARY_H
#define DML_FENCE_LIBRARY_H

#include "fence/policy.h"

#define DML_DECISION_T "decision"
#define DML_DECISION_REASON_MAX_BYTES 2048

/* What allow, deny and ask make; the reason is its user value 1, a string or nil. */
typedef struct dml_decision {
  dml_wire_decision kind;
} dml_decision;

/* Builds all of it and makes it the environment of chunks that are loaded from then on. Runs in a protected call. */
void dml_library_open(lua_State *L);

/* Tables that library_open takes functions from; each is pushed. [-0, +1] */
void dml_library_push_base(lua_State *L);  /* tostring, pcall, log, require, the decisions */
void dml_library_push_string(lua_State *L);
void dml_library_push_math(lua_State *L);
void dml_library_push_os(lua_State *L);
void dml_library_push_path(lua_State *L);  /* normalize; glob stands beside it */

/* glob(pattern, text) -> boolean */
int dml_library_glob(lua_State *L);
/* Makes the metatable of views. [-0, +0] */
void dml_view_open(lua_State *L);
/* require(name), while the policy loads. */
int dml_module_require(lua_State *L);
/* Loads text as the chunk `name`; raises what is wrong with it. Pushes its function. [-0, +1] */
void dml_module_compile(lua_State *L, const char *name, const char *source, size_t len);
/* The name of a value's type, which stands where Lua would show an address. */
const char *dml_library_type_text(lua_State *L, int index);

#endif
