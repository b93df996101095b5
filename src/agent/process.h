/* process.h - the commands that run in the sandbox, from START to the last leftover that holds their pipes.
 *
 * A process is over when its leader has exited: what its pipes hold at that moment is still delivered, then EXIT. What
 * children left behind write later is read and thrown away, so that they neither block nor die of it. The entry stays
 * for a while, so that CONNECT still gets the exit and SIGNAL still reaches the group. */
#ifndef DML_AGENT_PROCESS_H
#define DML_AGENT_PROCESS_H

#include <sys/types.h>

#include "agent/agent.h"
#include "agent/keep.h"
#include "agent/line.h"
#include "agent/spawn.h"

typedef enum dml_process_state { DML_PROCESS_RUNNING, DML_PROCESS_EXITED, DML_PROCESS_ENDED } dml_process_state;

/* A stream that follows a process: the one that started it, or one that connected later. */
typedef struct dml_subscriber {
  dml_stream stream;
  dml_process *process;
  bool is_starter;
  struct dml_subscriber *next;
} dml_subscriber;

/* stdout or stderr. */
typedef struct dml_output {
  dml_watch watch;
  dml_process *process;
  int which;
  size_t pending; /* of EXITED: what was in the pipe at the exit and is not delivered yet */
  bool is_kept;   /* the starter gets live bytes and the tail, not everything */
  dml_keep keep;
  dml_line *line; /* NULL without progress */
} dml_output;

/* Bytes on their way to stdin, in order; each remembers who gets its credit back. */
typedef struct dml_input_chunk {
  struct dml_input_chunk *next;
  uint32_t stream;
  size_t at;
  size_t len;
  uint8_t bytes[];
} dml_input_chunk;

typedef struct dml_input {
  dml_watch watch;
  dml_process *process;
  dml_input_chunk *first, *last;
  size_t queued;  /* bytes of all chunks */
  bool has_ended; /* close it once the chunks are written */
} dml_input;

struct dml_process {
  pid_t pid;
  dml_process_state state;
  int wait_status;
  bool has_timed_out;
  int64_t deadline_ms; /* 0: none */
  int64_t ended_ms;
  dml_output outputs[2];
  dml_input input;
  dml_subscriber *subscribers;
  dml_line *newest_line; /* not sent yet */
  int64_t line_sent_ms;
  char *tag;          /* NULL: none */
  uint8_t *shown;     /* fields of PROCESSES: cmd, args, cwd, tag */
  size_t shown_len;
  dml_process *next, **back;
};

/* Answers STARTED or ERROR on `stream`. `start` is borrowed. */
void dml_process_start(dml_agent *agent, uint32_t stream, const dml_start *start);
/* CONNECT: `tag` NULL means by pid. */
void dml_process_connect(dml_agent *agent, uint32_t stream, pid_t pid, const char *tag);
/* SIGNAL: to the process group, leftovers of an ended process included. */
void dml_process_signal(dml_agent *agent, uint32_t stream, pid_t pid, int signo);
/* PROCESSES: an ENTRY for each running one, then DONE. */
void dml_process_list(dml_agent *agent, uint32_t stream);
/* Collects all children that have exited. */
void dml_process_reap(dml_agent *agent);
/* Enforces deadlines, sends lines and exits that are due, forgets old entries. Returns when to come again, or -1. */
int64_t dml_process_tick(dml_agent *agent, int64_t now_ms);
/* Kills the groups of all processes. */
void dml_process_kill_all(dml_agent *agent);

/* output.c */
void dml_output_open(dml_agent *agent, dml_output *output, dml_process *process, int which, int fd);
/* Reads what may be read now: one piece of a running process, all that is pending of an exited one. */
void dml_output_pump(dml_agent *agent, dml_output *output);
/* Watches the pipe exactly while there is somewhere to put its bytes. */
void dml_output_rearm(dml_agent *agent, dml_output *output);
/* The leader has exited: fixes how much still counts. */
void dml_output_settle(dml_output *output);

/* input.c */
void dml_input_open(dml_input *input, dml_process *process, int fd);
void dml_input_add(dml_agent *agent, dml_input *input, dml_stream *from, const uint8_t *bytes, size_t len);
void dml_input_end(dml_agent *agent, dml_input *input);
void dml_input_close(dml_agent *agent, dml_input *input);

#endif
