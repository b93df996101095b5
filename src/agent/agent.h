/* agent.h - the program inside a sandbox: its one state, and the loop that everything hangs on.
 *
 * One thread. A turn of the loop flushes the channel, waits, reaps children, takes frames, serves the descriptors that
 * are ready, and lets every job (a read, a listing, a removal) do one bounded step. Whatever fills the channel stops
 * while it is full, so the engine's reading is what paces the sandbox, and memory stays bounded. */
#ifndef DML_AGENT_AGENT_H
#define DML_AGENT_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "agent/channel.h"
#include "agent/spool.h"
#include "agent/stream.h"

#define DML_AGENT_PROCESSES_MAX 512     /* running at a time */
#define DML_AGENT_ENDED_MAX 64          /* ended ones whose exit is kept */
#define DML_AGENT_ENDED_MS 60000        /* for how long */
#define DML_AGENT_LEFTOVERS_MAX 512     /* ended ones whose pipes somebody still holds */
#define DML_AGENT_SUBSCRIBERS_MAX 16    /* streams on one process */
#define DML_AGENT_INPUT_MAX (1024 * 1024) /* waiting for a stdin: beyond, nobody else may connect to write more */
#define DML_AGENT_EXIT_DRAIN_BYTES (1024 * 1024)
#define DML_AGENT_LINE_INTERVAL_MS 200
#define DML_AGENT_COMMAND_LINE_MAX 16384 /* what PROCESSES shows of cmd, args, cwd and tag together */
#define DML_AGENT_NOFILE 8192            /* wanted for the agent itself */
#define DML_AGENT_IDLE_MS 1000           /* after this much silence buffers go back to the system */
#define DML_AGENT_RLIMITS_MAX 8
#define DML_AGENT_OWNER_BYTES 64

typedef struct dml_process dml_process;

/* What epoll hands back. The owner's memory must outlive the turn in which the watch is stopped. */
typedef struct dml_watch {
  int fd; /* -1: closed */
  uint32_t events;
  void (*ready)(dml_agent *agent, struct dml_watch *watch);
} dml_watch;

typedef struct dml_rlimit {
  int resource;
  struct rlimit value;
} dml_rlimit;

/* The latest answer of /etc/passwd or /etc/group. */
typedef struct dml_owner_cache {
  bool is_set;
  unsigned id;
  char name[DML_AGENT_OWNER_BYTES];
} dml_owner_cache;

struct dml_agent {
  dml_channel channel;
  int epoll_fd;
  int signal_fd;
  bool is_init;         /* pid 1 of its namespace */
  uint8_t *scratch;     /* DML_FRAME_DATA_MAX bytes, or NULL; any callee may overwrite it */
  dml_stream_set streams;
  dml_process *processes; /* newest first, running and ended */
  size_t running_count;
  size_t ended_count;
  uint32_t start_stream; /* whose START is being put together; 0: none */
  uint8_t *start_bytes;
  size_t start_len;
  dml_spool_set spools;
  size_t watcher_count;
  size_t folder_count; /* of all watchers */
  dml_owner_cache user, group;
  unsigned name_counter; /* makes names of temporary and spool files differ */
  dml_rlimit rlimits[DML_AGENT_RLIMITS_MAX];
  size_t rlimit_count;
};

typedef struct dml_agent_options {
  int channel_fd;
  dml_rlimit rlimits[DML_AGENT_RLIMITS_MAX]; /* of every child */
  size_t rlimit_count;
} dml_agent_options;

/* The whole life of `demilune-agent run`. Returns the exit code. */
int dml_agent_run(const dml_agent_options *options);
/* Kills all that was started here and does not return. For the end of the channel and for frames that are not ours. */
_Noreturn void dml_agent_die(dml_agent *agent);

/* Asks for `events` of EPOLLIN and EPOLLOUT; 0 stops. Errors: false when the kernel has no room. */
bool dml_agent_watch(dml_agent *agent, dml_watch *watch, uint32_t events);
/* Stops the watch and closes its descriptor. Twice is fine. */
void dml_agent_unwatch(dml_agent *agent, dml_watch *watch);
/* DML_FRAME_DATA_MAX bytes to work in until control is back at the loop, or NULL. */
uint8_t *dml_agent_scratch(dml_agent *agent);
/* CLOCK_BOOTTIME, so that a suspended machine does not stretch timeouts. */
int64_t dml_agent_now_ms(void);

#endif
