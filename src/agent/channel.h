/* channel.h - the agent's end of the socketpair: frames out, frames in.
 *
 * Small frames gather in the outbox until the end of the turn; large ones are written at once from where they lie, and
 * only what the socket does not take is copied. Nobody may send much while dml_channel_is_full; what little is sent
 * regardless (answers, exits) is bounded by one turn's input. */
#ifndef DML_AGENT_CHANNEL_H
#define DML_AGENT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/frame.h"

#define DML_CHANNEL_FULL_BYTES (256 * 1024)

/* Do not touch the fields. */
typedef struct dml_channel {
  int fd;
  bool is_broken; /* the peer is gone or memory is; the loop ends the agent */
  dml_inbox inbox;
  uint8_t *out;
  size_t out_start;
  size_t out_len;
  size_t out_capacity;
} dml_channel;

/* Takes the descriptor, which lives as long as the program. */
void dml_channel_init(dml_channel *channel, int fd);
/* Queues or writes one frame; `payload` may be forgotten afterwards. */
void dml_channel_send(dml_channel *channel, dml_frame_type type, uint8_t flags, uint32_t stream, const void *payload,
                      size_t len);
/* Sends the fields as payload and deinits them. Fields that failed break the channel: all of them are bounded. */
void dml_channel_send_fields(dml_channel *channel, dml_frame_type type, uint8_t flags, uint32_t stream,
                             dml_fields *fields);
/* ERROR for `fault`; `which` is the request's field at fault, or 0. Ends the stream on the wire. */
void dml_channel_send_error(dml_channel *channel, uint32_t stream, dml_fault fault, int which);
/* DONE without fields. Ends the stream on the wire. */
void dml_channel_send_done(dml_channel *channel, uint32_t stream);
/* Lets the engine send `bytes` more on the stream. */
void dml_channel_send_credit(dml_channel *channel, uint32_t stream, uint32_t bytes);
/* Writes what the socket takes of what is queued. */
void dml_channel_flush(dml_channel *channel);
/* Whether producers are to stop. */
bool dml_channel_is_full(const dml_channel *channel);
/* Whether anything is queued. */
bool dml_channel_has_output(const dml_channel *channel);
/* Receives once; frames then come from dml_inbox_next(&channel->inbox). */
void dml_channel_receive(dml_channel *channel);
/* Gives idle memory back. */
void dml_channel_trim(dml_channel *channel);

#endif
