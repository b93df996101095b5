/* frame.h - the wire format between the engine and the agent in a sandbox.
 *
 * One SOCK_STREAM socketpair carries frames both ways: a 12-byte little-endian header (u32 payload length, u8 type,
 * u8 flags, u16 zero, u32 stream id) and the payload. The engine opens every stream with a request under an id that it
 * never used before; the agent ends it with DONE, ERROR or EXIT, or the engine does with DROP. Frames for a stream that
 * has ended are in flight, not wrong: both ends ignore them.
 *
 * Credit: a DATA frame costs its length plus DML_FRAME_COST of the window that its receiver opened, so that a flood of
 * one-byte frames costs the receiver no more memory than whole ones. A stream starts with DML_FRAME_WINDOW both ways.
 *
 * Shared by both programs; needs nothing but libc. Neither end trusts the other: every reader here checks lengths and
 * never reads outside what it was given. No threads, no globals. */
#ifndef DML_BASE_FRAME_H
#define DML_BASE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DML_FRAME_VERSION 2
#define DML_FRAME_HEADER_BYTES 12
#define DML_FRAME_PAYLOAD_MAX (256 * 1024)
#define DML_FRAME_DATA_MAX (64 * 1024)
#define DML_FRAME_COST 64
#define DML_FRAME_WINDOW (4 * (DML_FRAME_DATA_MAX + DML_FRAME_COST))
#define DML_FRAME_START_MAX (2 * 1024 * 1024) /* all fields of one START, its parts included */
#define DML_FRAME_STREAMS_MAX 1024
#define DML_FRAME_PATH_MAX 4096
#define DML_FRAME_TAG_MAX 256
#define DML_FRAME_LINE_MAX 200
#define DML_FRAME_KEEP_MAX (1024 * 1024) /* live bytes, or tail bytes, of one output */
#define DML_FRAME_LIST_MAX 10000         /* entries of one LIST */
#define DML_FRAME_DEPTH_MAX 64           /* levels of one LIST or WATCH */

typedef enum dml_frame_type {
  /* Requests of the engine. Each opens a stream. */
  DML_FRAME_START_PART = 1, /* a run of START's fields; the same stream's START must be the next frame but parts */
  DML_FRAME_START,
  DML_FRAME_CONNECT,
  DML_FRAME_SIGNAL,
  DML_FRAME_PROCESSES,
  DML_FRAME_READ,
  DML_FRAME_WRITE,
  DML_FRAME_STAT,
  DML_FRAME_LIST,
  DML_FRAME_MKDIR,
  DML_FRAME_REMOVE,
  DML_FRAME_MOVE,
  DML_FRAME_WATCH, /* OPENED, DATA of whole events (EVENT, NAME), and at its end DONE or ERROR */
  /* On an open stream, from the engine. */
  DML_FRAME_END = 16, /* no more DATA: closes stdin, commits a WRITE */
  DML_FRAME_DROP,     /* forget the stream: aborts file work, leaves a process running */
  /* On an open stream, both ways. */
  DML_FRAME_DATA = 24, /* raw bytes; flags: DML_FRAME_STDOUT, DML_FRAME_STDERR, or 0 */
  DML_FRAME_CREDIT,    /* u32 */
  /* From the agent. */
  DML_FRAME_HELLO = 32, /* stream 0, once, first */
  DML_FRAME_STARTED,
  DML_FRAME_LINE,   /* raw bytes */
  DML_FRAME_TAIL,   /* raw bytes of the tail, in order; flags as DATA */
  DML_FRAME_OUTPUT, /* ends the tail of one output; flags as DATA */
  DML_FRAME_EXIT,   /* terminal */
  DML_FRAME_OPENED,
  DML_FRAME_ENTRY,
  DML_FRAME_DONE, /* terminal */
  DML_FRAME_ERROR /* terminal */
} dml_frame_type;

#define DML_FRAME_STDOUT 1
#define DML_FRAME_STDERR 2

/* Field tags. Text is sent with its final NUL, numbers as 8 bytes (int64). */
typedef enum dml_field_tag {
  DML_FIELD_VERSION = 1,
  DML_FIELD_CMD,
  DML_FIELD_ARG, /* repeated */
  DML_FIELD_ENV, /* repeated, "NAME=value" */
  DML_FIELD_CWD,
  DML_FIELD_TAG,
  DML_FIELD_TIMEOUT_MS,
  DML_FIELD_STDIN,
  DML_FIELD_PROGRESS,
  DML_FIELD_LIVE,     /* with STREAM: the output it is for follows the latest STREAM */
  DML_FIELD_TAIL,     /* the same */
  DML_FIELD_SPOOL_AT, /* the same: total bytes from which on a spool file is kept; at most LIVE + TAIL */
  DML_FIELD_STREAM,   /* DML_FRAME_STDOUT or DML_FRAME_STDERR */
  DML_FIELD_PID,
  DML_FIELD_SIGNO,
  DML_FIELD_PATH,
  DML_FIELD_OFFSET,
  DML_FIELD_LENGTH,
  DML_FIELD_APPEND_AT,
  DML_FIELD_DEPTH,
  DML_FIELD_LIMIT,
  DML_FIELD_TOTAL,
  DML_FIELD_CODE, /* of EXIT: the exit code; of ERROR: dml_fault */
  DML_FIELD_TIMED_OUT,
  DML_FIELD_NAME,
  DML_FIELD_TYPE, /* dml_entry_type */
  DML_FIELD_SIZE,
  DML_FIELD_MODE,
  DML_FIELD_MTIME_MS,
  DML_FIELD_OWNER,
  DML_FIELD_GROUP,
  DML_FIELD_TARGET,
  DML_FIELD_WHICH, /* of ERROR: the field of the request that is at fault */
  DML_FIELD_TO,
  DML_FIELD_RECURSIVE,
  DML_FIELD_EVENT /* dml_event; the NAME it is for follows */
} dml_field_tag;

typedef enum dml_entry_type { DML_ENTRY_FILE, DML_ENTRY_DIRECTORY, DML_ENTRY_SYMLINK, DML_ENTRY_OTHER } dml_entry_type;

/* What happened to a NAME in a watched folder, or to the folder itself, whose name is ".". */
typedef enum dml_event {
  DML_EVENT_CREATE,
  DML_EVENT_WRITE,
  DML_EVENT_REMOVE,
  DML_EVENT_RENAME, /* the name is gone; a CREATE tells the new one if that is watched too */
  DML_EVENT_CHMOD,
  DML_EVENT_COUNT
} dml_event;

/* What can go wrong with a request. Columns: C suffix, name in Lua. */
#define DML_FAULT_MAP(X)                  \
  X(NOT_FOUND, "not_found")               \
  X(PERMISSION, "permission")             \
  X(IS_DIRECTORY, "is_directory")         \
  X(NOT_A_DIRECTORY, "not_a_directory")   \
  X(NO_SPACE, "no_space")                 \
  X(EXISTS, "exists")                     \
  X(INVALID, "invalid")                   \
  X(UNSUPPORTED, "unsupported")           \
  X(CONFLICT, "conflict")                 \
  X(TOO_LARGE, "too_large")               \
  X(CLOSED, "closed")                     \
  X(TIMEOUT, "timeout")                   \
  X(EXHAUSTED, "exhausted") /* no process, descriptor, stream or memory left */ \
  X(FAILED, "failed")       /* the kernel said something else */ \
  X(CROSS_DEVICE, "cross_device")

typedef enum dml_fault {
  DML_FAULT_NONE,
#define X(id, name) DML_FAULT_##id,
  DML_FAULT_MAP(X)
#undef X
      DML_FAULT_COUNT
} dml_fault;

/* The name in Lua; "failed" for what is not in the table. Static storage. */
const char *dml_fault_name(int64_t fault);

/* One frame; `payload` is borrowed. */
typedef struct dml_frame {
  uint8_t type;
  uint8_t flags;
  uint32_t stream;
  const uint8_t *payload;
  size_t len;
} dml_frame;

typedef enum dml_frame_result { DML_FRAME_MORE, DML_FRAME_WHOLE, DML_FRAME_BAD } dml_frame_result;

/* Little-endian, 4 bytes. */
void dml_frame_put_u32(uint8_t *out, uint32_t value);
/* The number that put_u32 wrote. */
uint32_t dml_frame_get_u32(const uint8_t *in);
/* Writes the 12 bytes of a header. `len` must be at most DML_FRAME_PAYLOAD_MAX. */
void dml_frame_put_header(uint8_t *out, const dml_frame *frame);
/* Reads a frame from the start of `bytes`. WHOLE: `out` is set and borrows from `bytes`. MORE: *need is how many bytes
 * in all must be there before it pays to ask again. BAD: length or reserved bits are not ours. */
dml_frame_result dml_frame_parse(const uint8_t *bytes, size_t len, dml_frame *out, size_t *need);

/* Received bytes on their way to becoming frames; grows to one frame, lazily. Do not touch the fields. */
typedef struct dml_inbox {
  uint8_t *data;
  size_t start;
  size_t len;
  size_t capacity;
} dml_inbox;

/* Empty; allocates nothing. */
void dml_inbox_init(dml_inbox *inbox);
/* Releases all; the inbox may be used again. */
void dml_inbox_deinit(dml_inbox *inbox);
/* A place for at least one more byte, *room long, or NULL when there is no memory. Ends the loan of the last frame. */
uint8_t *dml_inbox_reserve(dml_inbox *inbox, size_t *room);
/* Says that `len` bytes were put into the reserved place. */
void dml_inbox_commit(dml_inbox *inbox, size_t len);
/* The next frame, borrowed until the next reserve or trim. After BAD the inbox is of no use any more. */
dml_frame_result dml_inbox_next(dml_inbox *inbox, dml_frame *out);
/* Whether dml_inbox_next has something to say now. While it has, do not reserve. */
bool dml_inbox_has_frame(const dml_inbox *inbox);
/* Gives the memory back when no byte waits. */
void dml_inbox_trim(dml_inbox *inbox);

/* A growing list of fields: tag (u8), length (u32), bytes. A failure sticks, so check `failed` once at the end. */
typedef struct dml_fields {
  uint8_t *data;
  size_t len;
  size_t capacity;
  size_t limit;
  bool failed; /* over the limit or no memory */
} dml_fields;

/* Empty; allocates nothing. The list fails where it would pass limit_bytes. */
void dml_fields_init(dml_fields *fields, size_t limit_bytes);
/* Releases all; the list may be used again. */
void dml_fields_deinit(dml_fields *fields);
/* Adds raw bytes. */
void dml_fields_put(dml_fields *fields, dml_field_tag tag, const void *bytes, size_t len);
/* Adds a number. */
void dml_fields_put_int(dml_fields *fields, dml_field_tag tag, int64_t value);
/* Adds the final NUL that dml_field_text wants. */
void dml_fields_put_text(dml_fields *fields, dml_field_tag tag, const char *text);

typedef struct dml_field {
  uint8_t tag;
  const uint8_t *bytes;
  size_t len;
} dml_field;

/* What is left to read; `len` counts down. */
typedef struct dml_field_reader {
  const uint8_t *bytes;
  size_t len;
} dml_field_reader;

/* 1: *out is the next field, borrowed. 0: the end. -1: malformed. */
int dml_field_next(dml_field_reader *reader, dml_field *out);
/* False unless the field is a number. */
bool dml_field_int(const dml_field *field, int64_t *out);
/* The field as a C string, borrowed; NULL unless it is at most max_len bytes, ends with its only NUL. */
const char *dml_field_text(const dml_field *field, size_t max_len);

#endif
