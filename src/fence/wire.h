/* wire.h - the frames between the server and the worker that runs policy code.
 *
 * A frame is a u32 length of its payload, a byte for its kind, and the payload: packed values (pack.h) one after the other,
 * in the order given here. The server sends one frame and waits for its answer; the worker sends nothing unasked. */
#ifndef DML_FENCE_WIRE_H
#define DML_FENCE_WIRE_H

#define DML_WIRE_HEADER_BYTES 5
#define DML_WIRE_FRAME_MAX_BYTES (32 * 1024 * 1024)
/* The worker's end of the channel. */
#define DML_WIRE_FD 3

#define DML_WIRE_MODULES_MAX 64
/* Those that are not there are asked for each time. */
#define DML_WIRE_NEEDS_MAX 1024
#define DML_WIRE_SOURCE_MAX_BYTES (1024 * 1024)
#define DML_WIRE_MODULE_NAME_MAX_BYTES 48
/* With its end; longer ones would be cut by Lua in messages (LUA_IDSIZE). */
#define DML_WIRE_FILE_BYTES 60
#define DML_WIRE_ARGS_MAX 2
#define DML_WIRE_LOGS_MAX 4
#define DML_WIRE_LOG_MAX_BYTES 256
#define DML_WIRE_TEXT_MAX_BYTES 2048

typedef enum dml_wire_kind {
  /* From the server. LOAD: instructions, bytes, CPU milliseconds of loading; the same of a call; whether the data is
   * wanted; file name; source. Answered by NEED, LOADED or FAULT. */
  DML_WIRE_LOAD = 1,
  DML_WIRE_MODULE, /* answers NEED: whether there is one, source */
  DML_WIRE_CALL,   /* name, number of arguments, arguments. Answered by RESULT or FAULT */
  /* From the worker. COUNTERS are: instructions, CPU microseconds, bytes of its Lua state, number of log
   * lines, the lines. */
  DML_WIRE_NEED,   /* module name */
  DML_WIRE_LOADED, /* COUNTERS, the returned table or null */
  DML_WIRE_RESULT, /* COUNTERS, decision, whether it has a reason, reason, whether nothing was returned, number of
                      arguments; the first result, the arguments */
  DML_WIRE_FAULT   /* COUNTERS, fault kind, limit, line or 0, file or "", text */
} dml_wire_kind;

typedef enum dml_wire_decision { DML_WIRE_NONE, DML_WIRE_ALLOW, DML_WIRE_DENY, DML_WIRE_ASK } dml_wire_decision;

typedef enum dml_wire_fault {
  DML_WIRE_SYNTAX,
  DML_WIRE_ERROR,
  DML_WIRE_LIMIT,
  DML_WIRE_VALUE,
  DML_WIRE_CRASH, /* only the server says so */
  DML_WIRE_FAULT_COUNT
} dml_wire_fault;

typedef enum dml_wire_limit {
  DML_WIRE_NO_LIMIT,
  DML_WIRE_INSTRUCTIONS,
  DML_WIRE_MEMORY,
  DML_WIRE_CPU,
  DML_WIRE_WALL, /* only the server says so */
  DML_WIRE_LIMIT_COUNT
} dml_wire_limit;

/* How the worker exits; with a limit, for the case that its frame could not be sent. */
#define DML_WIRE_EXIT_UNCONFINED 79
#define DML_WIRE_EXIT_BROKEN 78
#define DML_WIRE_EXIT_LIMIT 80 /* + dml_wire_limit */

#endif
