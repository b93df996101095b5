/* stdio_face.h - a connection and its calls as Lua has them; shared by the files that bind core.stdio. */
#ifndef DML_SCRIPT_STDIO_FACE_H
#define DML_SCRIPT_STDIO_FACE_H

#include <lua.h>

#include "mcp/asks.h"
#include "mcp/calls.h"
#include "mcp/jsonrpc.h"
#include "mcp/stdio.h"
#include "script/task.h"

#define DML_STDIO_IO_T "demilune.stdio"
#define DML_STDIO_CALL_T "demilune.call"
#define DML_STDIO_ASK_T "demilune.stdio.ask"

/* A message or an answer of this size leaves so much garbage that it is collected at once: an idle server makes no more,
 * so its collector would not come by. */
#define DML_STDIO_LARGE_BYTES (1024 * 1024)

/* User value 1: the table of handlers. Anchored in the registry while open. */
typedef struct dml_stdio_face {
  dml_script *script;
  dml_stdio *io;
  dml_calls calls;
  dml_asks asks;
  bool is_open;
} dml_stdio_face;

/* User value 1: the stdio userdata. */
typedef struct dml_stdio_call {
  dml_call call; /* first: dml_call and dml_stdio_call share the address */
  dml_stdio_face *face;
  dml_task *task;
  bool is_cancelled;
  bool is_answered;
  bool is_large;
} dml_stdio_call;

/* The text at `index` as it may leave; NULL when a mask broke the JSON. [-0, +1] */
const char *dml_stdio_push_outgoing(lua_State *L, int index, size_t *len);
/* Ends the line that was appended to the output. */
void dml_stdio_end_line(dml_stdio_face *face);

/* Makes the class of what waits for a client's answer. [-0, +0] */
void dml_stdio_make_asks(lua_State *L);
/* call:request(method, params_json, timeout_ms) -> result | nil, err; waits */
int dml_stdio_l_request(lua_State *L);
/* Hands an answer to whoever waits for it; others are ignored. `is_large`: of DML_STDIO_LARGE_BYTES or more. */
void dml_stdio_answer_ask(dml_stdio_face *face, const dml_rpc_message *message, bool is_large);
/* An answer was too long to be read; false when its id, as it came, is none of ours. */
bool dml_stdio_skip_ask(dml_stdio_face *face, const char *id, size_t id_len);
/* Nobody will answer any more: ends the waits of a call, or of all (NULL). From inside Lua only. */
void dml_stdio_end_asks(dml_stdio_face *face, const dml_stdio_call *call);

#endif
