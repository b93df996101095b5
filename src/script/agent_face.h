/* agent_face.h - a stream to the agent as Lua waits on it; shared by the files that bind core.agent.
 *
 * A face is a userdata: the stream first, then what has come for it and who waits. User value 1 keeps the channel
 * alive. While a task waits, the face lies on its stack, so nothing here is collected under a wait. The kinds
 * (request, process, file, watcher) differ in what they do with frames. */
#ifndef DML_SCRIPT_AGENT_FACE_H
#define DML_SCRIPT_AGENT_FACE_H

#include <lauxlib.h>
#include <lua.h>

#include "script/agent_channel.h"
#include "script/task.h"

#define DML_AGENT_CHANNEL_T "demilune.agent.channel"
#define DML_AGENT_REQUEST_T "demilune.agent.request"
#define DML_AGENT_PROC_T "demilune.agent.proc"
#define DML_AGENT_READER_T "demilune.agent.reader"
#define DML_AGENT_WRITER_T "demilune.agent.writer"
#define DML_AGENT_WATCHER_T "demilune.agent.watcher"

#define DML_AGENT_REPLY_MS 60000 /* an agent that says nothing for so long does not answer any more */
#define DML_AGENT_REPLY_BYTES (4 * 1024 * 1024) /* entries of one reply, all together */
#define DML_AGENT_ENTRY_BYTES (64 * 1024)

typedef struct dml_agent_face dml_agent_face;

/* One task that waits on a face, or nobody. */
typedef struct dml_agent_waiter {
  dml_agent_timer timer; /* first */
  dml_agent_face *face;
  dml_wait *wait;
  dml_wait_push push; /* pushes what the task waited for; `ud` is the face */
  bool has_timed_out;
} dml_agent_waiter;

/* Bytes that came and nobody took yet. */
typedef struct dml_agent_chunk {
  struct dml_agent_chunk *next;
  uint8_t flags;
  size_t len;
  char bytes[];
} dml_agent_chunk;

/* The end of one kept output. */
typedef struct dml_agent_tail {
  char *bytes;
  size_t len, most;
  int64_t total;
  char *path;
  bool is_whole;
} dml_agent_tail;

struct dml_agent_face {
  dml_agent_stream stream; /* first */
  dml_agent_channel *channel;
  dml_agent_waiter reading, writing;
  /* what the agent said */
  bool is_started, is_done;
  dml_fault fault; /* of ERROR, or CLOSED */
  int64_t fault_size;
  int64_t fault_which;
  int64_t pid, size, mode, total;
  dml_agent_chunk *first, *last; /* DATA, or the payloads of ENTRY */
  size_t entries_left, entry_bytes_left; /* how much of ENTRY may still come */
  /* process */
  bool has_spool, has_exited, is_exit_taken, is_output_taken, is_detached;
  int64_t exit_code, exit_signal; /* -1: none */
  bool has_timed_out;
  dml_agent_tail tails[2];
  char line[DML_FRAME_LINE_MAX];
  size_t line_len;
  /* write in progress; the bytes are on the stack of the task that waits */
  const char *out;
  size_t out_left;
  bool is_ending; /* END was sent */
  dml_fields fields;
};

/* Pushes a zeroed face of that class; the channel's userdata is at index 1. [-0, +1] */
dml_agent_face *dml_agent_face_new(lua_State *L, dml_agent_channel *channel, const char *type);
/* Sends face->fields as a request and yields until `reading` wakes with `push`; or pushes nil, err at once. */
int dml_agent_face_ask(lua_State *L, dml_agent_face *face, const dml_agent_stream_ops *ops, dml_frame_type type,
                       dml_wait_push push);
/* Makes the running task wait on `waiter`, to be followed by dml_wait_yield; timeout_ms < 0: no deadline. A cancel
 * drops only the wait, and what was to be written. Raises where a task cannot wait; so take `out` only afterwards. */
void dml_agent_face_begin_wait(lua_State *L, dml_agent_face *face, dml_agent_waiter *waiter, dml_wait_push push,
                               double timeout_ms);
/* Wakes whoever waits there; the push is called later, with the face. */
void dml_agent_face_wake(dml_agent_waiter *waiter);
/* Sends DROP if the stream is open and releases what was received. Twice is fine. */
void dml_agent_face_release(dml_agent_face *face);
int dml_agent_face_gc(lua_State *L);

/* nil, {category = "agent", code, message, retryable, size?, field?} [-0, +2] */
int dml_agent_push_fault(lua_State *L, dml_fault fault, int64_t size, int64_t which);
/* The same for what the face knows; a timeout of `waiter` counts first. */
int dml_agent_push_face_fault(lua_State *L, const dml_agent_face *face);

/* The parts of frames that several kinds share. Each returns false when the frame breaks the protocol. */
bool dml_agent_face_take_error(dml_agent_face *face, const dml_frame *frame);
bool dml_agent_face_take_numbers(dml_agent_face *face, const dml_frame *frame);
/* Keeps the payload at the end of the queue; false also when there is no memory for it. */
bool dml_agent_face_take_chunk(dml_agent_face *face, const dml_frame *frame);
/* The first chunk, which is the caller's to free, or NULL. */
dml_agent_chunk *dml_agent_face_pop(dml_agent_face *face);
/* `closed` of all faces. */
void dml_agent_face_closed(dml_agent_stream *stream);

/* Puts the path at `index` of the stack as that field; false when it is empty, too long or has a NUL. Raises when it is
 * no string. */
bool dml_agent_put_path(lua_State *L, int index, dml_field_tag tag, dml_fields *fields);
/* The face of that type at index 1; raises otherwise. */
dml_agent_face *dml_agent_check(lua_State *L, const char *type);
/* Registers a class; `index` looks a field up (object, name) or leaves it to the methods by pushing nothing. It may be
 * NULL, and `methods` too. [-0, +0] */
void dml_agent_class(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction index);

/* bind_agent_proc.c */
int dml_agent_start(lua_State *L, dml_agent_channel *channel);
int dml_agent_connect(lua_State *L, dml_agent_channel *channel);
void dml_open_agent_proc(lua_State *L);
/* bind_agent_file.c */
int dml_agent_open_read(lua_State *L, dml_agent_channel *channel);
int dml_agent_open_write(lua_State *L, dml_agent_channel *channel);
void dml_open_agent_file(lua_State *L);
/* bind_agent_watch.c */
int dml_agent_watch(lua_State *L, dml_agent_channel *channel);
void dml_open_agent_watch(lua_State *L);

#endif
