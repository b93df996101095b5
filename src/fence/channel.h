/* channel.h - the worker's end of the channel: whole frames in, whole frames out, and no waiting elsewhere.
 *
 * When the other end is gone, or sends what is no frame, the process ends: there is nobody to tell. */
#ifndef DML_FENCE_CHANNEL_H
#define DML_FENCE_CHANNEL_H

#include "fence/pack.h"
#include "fence/policy.h"

/* Prepares the buffers. */
void dml_channel_open(dml_policy *policy);
/* Waits for a frame; its payload is in `out` and stays until the next call of this. */
dml_wire_kind dml_channel_receive(dml_policy *policy, dml_unpacker *out);
/* Begins a frame in `policy->out`. */
void dml_channel_begin(dml_policy *policy, dml_wire_kind kind);
/* What WIRE calls COUNTERS: into the frame that was begun. */
void dml_channel_put_counters(dml_policy *policy);
/* Sends the frame that was begun. */
void dml_channel_send(dml_policy *policy);
/* Sends `policy->fault`. */
void dml_channel_send_fault(dml_policy *policy);
/* Ends the process when a value could not be put into a frame, which cannot be while the frame's limit is not reached. */
void dml_channel_must(dml_status status);

#endif
