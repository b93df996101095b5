/* agent_channel.h - the engine's end of the socketpair to an agent: frames, streams, credit, deadlines.
 *
 * What comes from the agent is hostile: a compromised sandbox may say anything. A frame that breaks the protocol shuts
 * the channel, and with it ends every stream; nothing is ever kept beyond the window that a stream opened. The engine
 * reads always, so an agent that waits for its output to be taken cannot block it.
 *
 * Streams are the caller's storage. Callbacks may do anything, closing the channel included, but run no Lua: what comes
 * in one turn of the loop is served inside dml_script_enter, so that the tasks it wakes run afterwards, and nothing
 * that a callback holds can be collected under it. One thread, the loop's. */
#ifndef DML_SCRIPT_AGENT_CHANNEL_H
#define DML_SCRIPT_AGENT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/frame.h"
#include "base/status.h"
#include "script/task.h"

#define DML_AGENT_CHANNEL_BUCKETS 64
#define DML_AGENT_CHANNEL_OUT_MAX (16 * 1024 * 1024) /* queued requests: beyond, they fail */
#define DML_AGENT_CHANNEL_OUT_HIGH (256 * 1024)      /* beyond, DATA waits */

typedef struct dml_agent_channel dml_agent_channel;
typedef struct dml_agent_stream dml_agent_stream;
typedef struct dml_agent_timer dml_agent_timer;

typedef struct dml_agent_stream_ops {
  /* A frame of this stream but CREDIT, in order; DATA is within the window. False: it breaks the protocol. After DONE,
   * ERROR and EXIT the stream has ended already when this runs. */
  bool (*frame)(dml_agent_stream *stream, const dml_frame *frame);
  /* There may be room to write: credit came or the queue went down. May be NULL. */
  void (*writable)(dml_agent_stream *stream);
  /* The channel is gone before the stream ended. */
  void (*closed)(dml_agent_stream *stream);
} dml_agent_stream_ops;

/* Zeroed by the caller; do not touch the fields. `is_open` may be read: false before open and once ended. */
struct dml_agent_stream {
  dml_agent_channel *channel;
  const dml_agent_stream_ops *ops;
  uint32_t id;
  uint32_t credit;   /* what the agent still takes */
  uint32_t window;   /* what the agent may still send */
  uint32_t consumed; /* cost of what was taken, not given back yet */
  bool is_open;
  dml_agent_stream *next;
};

/* A deadline; zeroed by the caller. */
struct dml_agent_timer {
  void (*fired)(dml_agent_timer *timer); /* the timer is stopped already */
  uint64_t at_ms;
  dml_agent_timer *next, **back;
};

/* HELLO has come, or the channel is gone (once). */
typedef void (*dml_agent_channel_cb)(dml_agent_channel *channel, void *ud);

/* Takes `fd` in any case. Errors: DML_INTERNAL. */
dml_status dml_agent_channel_new(dml_script *script, int fd, dml_agent_channel_cb on_change, void *ud,
                                 dml_agent_channel **out);
/* Shuts it without callbacks to `on_change`; streams still get `closed`. Memory goes when the loop has run. NULL is
 * fine. */
void dml_agent_channel_free(dml_agent_channel *channel);
/* Ends it now, on our side: streams get `closed`, then `on_change` runs. Twice is fine. */
void dml_agent_channel_shut(dml_agent_channel *channel);
/* HELLO has come and the channel is not shut. */
bool dml_agent_channel_is_ready(const dml_agent_channel *channel);
/* It has ended, by whichever end. */
bool dml_agent_channel_is_shut(const dml_agent_channel *channel);

/* Sends a request as a new stream; START is split as needed. DML_FAULT_NONE, or CLOSED, EXHAUSTED, TOO_LARGE: then the
 * stream is not open and no callback runs. */
dml_fault dml_agent_stream_open(dml_agent_channel *channel, dml_agent_stream *stream, const dml_agent_stream_ops *ops,
                                dml_frame_type type, const dml_fields *fields);
/* Forgets the stream on both ends; no callback runs any more. Does nothing when it is not open. */
void dml_agent_stream_drop(dml_agent_stream *stream);
/* Sends as much of `bytes` as credit and queue allow now; returns how much. */
size_t dml_agent_stream_write(dml_agent_stream *stream, const void *bytes, size_t len);
/* No more DATA. */
void dml_agent_stream_end(dml_agent_stream *stream);
/* Says that one received DATA of `len` bytes needs no room any more. Fine after the end. */
void dml_agent_stream_consume(dml_agent_stream *stream, size_t len);

/* Starts, or starts anew. */
void dml_agent_timer_start(dml_agent_channel *channel, dml_agent_timer *timer, uint64_t timeout_ms,
                           void (*fired)(dml_agent_timer *timer));
/* Twice is fine, also after the channel is gone. */
void dml_agent_timer_stop(dml_agent_channel *channel, dml_agent_timer *timer);

#endif
