/* stream.h - what the engine has opened and the agent has not ended yet.
 *
 * A stream is the first member of what serves it (a read, a write, a listing, a subscriber of a process). A stream with
 * work to do is a job: the loop calls its step once a turn until the step says that it has to wait. */
#ifndef DML_AGENT_STREAM_H
#define DML_AGENT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DML_STREAM_BUCKETS 64

typedef struct dml_agent dml_agent;
typedef struct dml_stream dml_stream;

/* Any but `drop` may be NULL, which makes that frame a violation (`data`, `end`) or nothing (`credit`). */
typedef struct dml_stream_ops {
  void (*data)(dml_agent *agent, dml_stream *stream, const uint8_t *bytes, size_t len);
  void (*end)(dml_agent *agent, dml_stream *stream);
  void (*credit)(dml_agent *agent, dml_stream *stream); /* stream->credit has grown */
  /* One bounded piece of work. May end the stream; else returns whether there is more to do now. */
  bool (*step)(dml_agent *agent, dml_stream *stream);
  /* Releases all and the memory; the stream is out of the set already. */
  void (*drop)(dml_agent *agent, dml_stream *stream);
} dml_stream_ops;

struct dml_stream {
  uint32_t id;
  uint32_t credit; /* what the engine still takes; see DML_FRAME_COST */
  uint32_t window; /* what the engine may still send */
  const dml_stream_ops *ops;
  dml_stream *next;      /* in its bucket */
  dml_stream *next_job;
  dml_stream **back_job; /* NULL: not a job */
};

typedef struct dml_stream_set {
  dml_stream *buckets[DML_STREAM_BUCKETS];
  dml_stream *jobs;
  size_t count;
} dml_stream_set;

/* The open stream with that id, or NULL. */
dml_stream *dml_stream_find(const dml_stream_set *set, uint32_t id);
/* Puts a stream into the set. The caller has checked id and count. */
void dml_stream_open(dml_stream_set *set, dml_stream *stream, uint32_t id, const dml_stream_ops *ops);
/* Takes the stream out of the set and drops it. Says nothing to the engine. */
void dml_stream_close(dml_agent *agent, dml_stream *stream);
/* From now on its step is called once a turn. Twice is fine. */
void dml_stream_make_job(dml_stream_set *set, dml_stream *stream);
/* No more steps until it is made a job again. Twice is fine. */
void dml_stream_rest(dml_stream *stream);
/* Makes `first` the first job, those before it the last. */
void dml_stream_rotate_jobs(dml_stream_set *set, dml_stream *first);
/* Largest DATA payload that the credit pays for now. */
size_t dml_stream_allowance(const dml_stream *stream);
/* Sends DATA and takes its cost off the credit. `len` must be within the allowance. */
void dml_stream_send_data(dml_agent *agent, dml_stream *stream, uint8_t flags, const uint8_t *bytes, size_t len);
/* Takes the cost of received DATA off the window; false when the engine sent more than it may. */
bool dml_stream_take_window(dml_stream *stream, size_t len);
/* Gives `cost` back to the engine. */
void dml_stream_give_window(dml_agent *agent, dml_stream *stream, uint32_t cost);

#endif
