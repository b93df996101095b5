/* stdio.h - lines in on one descriptor, lines out on another (MCP basic/transports, "stdio").
 *
 * The reader never blocks and never waits for an answer; it stops only while DML_STDIO_OUT_HIGH_BYTES of answers wait for
 * a client that does not read. Descriptors are taken (closed at the end). Files and /dev/null, which epoll refuses, are
 * read in the loop's idle turns. */
#ifndef DML_MCP_STDIO_H
#define DML_MCP_STDIO_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "loop/loop.h"

#define DML_STDIO_OUT_HIGH_BYTES (4u * 1024 * 1024)
#define DML_STDIO_OUT_MAX_BYTES (256u * 1024 * 1024)
/* Read at a time, and buffer kept between messages. */
#define DML_STDIO_READ_BYTES (64u * 1024)
/* Of a line that is skipped, this much of its head is kept: the id may stand there. */
#define DML_STDIO_HEAD_BYTES 4096u
/* Reads in a row before the loop looks elsewhere. */
#define DML_STDIO_READS_MAX 16

typedef struct dml_stdio dml_stdio;

/* Called from the loop. Each may write, and may free the stdio. */
typedef struct dml_stdio_events {
  void (*on_line)(void *ud, char *line, size_t len); /* without its line end; may be overwritten */
  void (*on_oversize)(void *ud, const char *head, size_t len); /* a line over the limit was skipped to its end */
  void (*on_drain)(void *ud);                        /* DML_STDIO_OUT_HIGH_BYTES or fewer wait again */
  void (*on_end)(void *ud, bool is_broken);          /* end of input, or (is_broken) the client is gone; once */
} dml_stdio_events;

/* One descriptor may be both, as a socket is. Errors: DML_INTERNAL; then the descriptors are still the caller's. */
dml_status dml_stdio_new(dml_loop *loop, int in_fd, int out_fd, size_t line_max_bytes, const dml_stdio_events *events,
                         void *ud, dml_stdio **out);
/* Where to append whole messages with their line ends; it is written before the loop sleeps. */
dml_buffer *dml_stdio_out(dml_stdio *io);
/* More than DML_STDIO_OUT_HIGH_BYTES wait. */
bool dml_stdio_is_full(const dml_stdio *io);
/* Bytes that wait to be written. */
size_t dml_stdio_unsent(const dml_stdio *io);
/* No more lines. */
void dml_stdio_stop_reading(dml_stdio *io);
/* Writes what can be written without waiting, closes; no event comes any more. The memory goes in the loop's next turn.
 * NULL is fine. */
void dml_stdio_free(dml_stdio *io);

#endif
