/* pack.h - Lua values as bytes and back, between the server and the worker that runs policy code.
 *
 * Not JSON: strings go as they are, a long one is not copied into a tree first, and the reader finds every fault before it
 * makes a value. Both ends run on one machine, so numbers are in its byte order. A packed value is a tag and what belongs
 * to it; see dml_pack_tag. Whoever reads must call dml_unpack_check first: bytes from a worker are hostile, and
 * dml_unpack_value trusts what was checked. */
#ifndef DML_FENCE_PACK_H
#define DML_FENCE_PACK_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* Deeper than any message of a client (base/json.h), since a call stands in tables of ours. */
#define DML_PACK_DEPTH_MAX 136
#define DML_PACK_VALUES_MAX 262144
/* Longer strings reach policy code as views. */
#define DML_PACK_SHORT_MAX_BYTES (64 * 1024)
#define DML_PACK_PLACE_BYTES 160
/* The metatables of lists (script/convert.h has the same) and of views. */
#define DML_PACK_ARRAY_T "demilune.array"
#define DML_PACK_VIEW_T "view"

typedef enum dml_pack_tag {
  DML_PACK_NULL,
  DML_PACK_FALSE,
  DML_PACK_TRUE,
  DML_PACK_INTEGER,  /* 8 bytes */
  DML_PACK_NUMBER,   /* 8 bytes */
  DML_PACK_STRING,   /* u32 length, bytes */
  DML_PACK_VIEW,     /* u32: the n-th long string, from 0, of what was sent before; only from the worker */
  DML_PACK_FUNCTION, /* stands where the worker's table has a function; only from the worker, only when it loads */
  DML_PACK_LIST,     /* u32 count, values */
  DML_PACK_MAP       /* u32 count, then for each a u32 length and bytes of its key, and its value */
} dml_pack_tag;

/* A long string as policy code has it: it lies in the frame that brought it, and is good for one call. */
typedef struct dml_pack_view {
  const char *data;
  size_t len;
  uint32_t number;
  uint64_t call; /* which call it is of */
} dml_pack_view;

/* One packing. Set `out` and what is not false or 0, leave the rest zero. */
typedef struct dml_packer {
  dml_buffer *out;
  bool allows_functions;
  int longs;     /* stack index of a table that gets every string over DML_PACK_SHORT_MAX_BYTES, or 0 */
  int nulls;     /* stack index of a table {[table] = {key, …}}: what was null and is nil still is null again; or 0 */
  uint64_t call; /* views of this call may go back */
  uint32_t long_count;
  size_t values;
  bool is_too_large;              /* the buffer's limit is why it failed */
  const char *why;                /* a sentence without its place, after a failure */
  char place[DML_PACK_PLACE_BYTES]; /* ".rules[3].limit" */
} dml_packer;

/* Appends the value at `index`; false with `why` and `place` set when it is no data (a function, NaN, a key that is neither
 * a string nor one of 1..n, a table in itself), and then `out` holds half a value. Calls no metamethod. [-0, +0] */
bool dml_pack_value(lua_State *L, int index, dml_packer *packer);

/* One reading. `at` moves on; `end` is where the bytes end. */
typedef struct dml_unpacker {
  const char *at, *end;
  bool allows_functions;
  uint32_t view_count; /* views below this number may stand there */
  lua_CFunction function; /* what stands for DML_PACK_FUNCTION */
  int longs;           /* stack index of the table that dml_packer.longs filled, or 0 */
  bool makes_views;    /* long strings become views of the bytes, which must live as long as `call` is the present one */
  uint64_t call;
  uint32_t long_count;
  int nulls;           /* stack index of the table for dml_packer.nulls; nulls in maps are left out then. Or 0 */
} dml_unpacker;

/* Whether `count` whole values of the allowed kinds stand at `at` and nothing behind them, within depth and number. Makes
 * nothing and moves nothing. */
bool dml_unpack_check(const dml_unpacker *unpacker, unsigned count);
/* Pushes the value at `at`, which was checked. Raises without memory. [-0, +1] */
void dml_unpack_value(lua_State *L, dml_unpacker *unpacker);

/* Integers and short strings of frames, in the same form as in values. Errors: the buffer's. */
dml_status dml_pack_integer(dml_buffer *out, int64_t value);
dml_status dml_pack_string(dml_buffer *out, const char *s, size_t len);

/* Reads one integer or one string; false when there is none. The string lies in the bytes. */
bool dml_unpack_integer(dml_unpacker *unpacker, int64_t *out);
bool dml_unpack_string(dml_unpacker *unpacker, const char **out, size_t *len);

#endif
