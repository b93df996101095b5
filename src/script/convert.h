/* convert.h - JSON values to Lua values and back.
 *
 * null is the light userdata NULL (the same as cjson.null). Arrays carry the array metatable, so that an empty one stays
 * one; a table without it is an array when its keys are 1..n with n > 0, else an object. Integers stay integers; a float
 * with an integral value below 2^53 is written as an integer. Strings that are not UTF-8 get U+FFFD. */
#ifndef DML_SCRIPT_CONVERT_H
#define DML_SCRIPT_CONVERT_H

#include <jansson.h>
#include <lua.h>

/* Pushes the value. Raises without memory. [-0, +1] */
void dml_push_json(lua_State *L, const json_t *value);
/* The value at `index`, new reference, or NULL with a sentence of ours in *why (a function, NaN, a cycle or too deep, a
 * key that is no string). [-0, +0] */
json_t *dml_to_json(lua_State *L, int index, const char **why);
/* Sets the metatable that marks the table on top as an array. [-0, +0] */
void dml_mark_array(lua_State *L);

#endif
