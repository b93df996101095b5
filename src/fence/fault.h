/* fault.h - what went wrong in policy code: file, line and a sentence without addresses. */
#ifndef DML_FENCE_FAULT_H
#define DML_FENCE_FAULT_H

#include "fence/policy.h"

/* Where Lua code of the policy is: the innermost function that has a line. NULL and 0 without one. Allocates nothing. */
void dml_fault_place(lua_State *L, const char **file, int *line);
/* A message handler for lua_pcall: notes the error in the policy's `fault` while the stack still stands. [-1, +1] */
int dml_fault_on_error(lua_State *L);
/* Notes an error whose text is at `index`; an own "FILE:LINE:" at its front moves to where that belongs. [-0, +0] */
void dml_fault_of_text(lua_State *L, int index);
/* Notes a fault of ours; `file` NULL is the policy's own. */
void dml_fault_set(dml_policy *policy, dml_wire_fault kind, const char *text);

#endif
