/* limits.c - see limits.h. */
#include "fence/limits.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/channel.h"
#include "fence/fault.h"

#define HOOK_INSTRUCTIONS 100
/* Garbage that may lie about when a call begins. */
#define TIDY_SLACK_BYTES ((size_t)1024 * 1024)
#define GC_PAUSE_PERCENT 150
#define GC_STEP_PERCENT 200
/* From the soft end of CPU time, where a hook can still say the line, to the hard one. */
#define CPU_GRACE_MS 5

static const char NO_MEMORY[] = "not enough memory";

static void note_refusal(dml_policy *policy) {
  dml_limits *limits = &policy->limits;
  limits->refusals++;
  if (policy->L) dml_fault_place(policy->L, &limits->refused_file, &limits->refused_line);
}

static void *allocate(void *ud, void *block, size_t old_size, size_t size) {
  dml_policy *policy = ud;
  dml_limits *limits = &policy->limits;
  size_t old = block ? old_size : 0;
  if (size == 0) {
    free(block);
    limits->used_bytes -= old;
    return NULL;
  }
  if (size > old && size - old > limits->ceiling_bytes - limits->used_bytes) {
    note_refusal(policy);
    return NULL;
  }
  void *place = realloc(block, size);
  if (!place && size <= old) return block; /* Lua counts on it */
  if (!place) {
    note_refusal(policy);
    return NULL;
  }
  limits->used_bytes = limits->used_bytes - old + size;
  return place;
}

static void on_count(lua_State *L, lua_Debug *ar) {
  (void)ar;
  dml_policy *policy = dml_policy_of(L);
  if (policy->limits.is_cpu_over) dml_limits_hit(policy, DML_WIRE_CPU);
  policy->limits.instructions += HOOK_INSTRUCTIONS;
  if (policy->limits.instructions > policy->limits.instructions_max) dml_limits_hit(policy, DML_WIRE_INSTRUCTIONS);
}

/* The first time Lua code gets a chance to be asked where it is (lua.c sets its hook from a handler, too); the second time
 * it is a C function that runs on. */
static void on_cpu_time(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)context;
  dml_policy *policy = info->si_value.sival_ptr;
  if (policy->limits.is_cpu_over) _exit(DML_WIRE_EXIT_LIMIT + DML_WIRE_CPU);
  policy->limits.is_cpu_over = 1;
  lua_sethook(policy->L, on_count, LUA_MASKCOUNT, 1);
}

static int on_panic(lua_State *L) {
  (void)L;
  _exit(DML_WIRE_EXIT_LIMIT + DML_WIRE_MEMORY); /* all else runs in protected calls */
}

bool dml_limits_open(dml_policy *policy) {
  policy->limits.ceiling_bytes = DML_LIMITS_STATE_MAX_BYTES;
  lua_State *L = lua_newstate(allocate, policy);
  if (!L) return false;
  *(dml_policy **)lua_getextraspace(L) = policy;
  policy->L = L;
  lua_atpanic(L, on_panic);
  lua_gc(L, LUA_GCINC, GC_PAUSE_PERCENT, GC_STEP_PERCENT, 0);
  struct sigaction action = {.sa_sigaction = on_cpu_time, .sa_flags = SA_SIGINFO | SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGXCPU, .sigev_value.sival_ptr = policy};
  return sigaction(SIGXCPU, &action, NULL) == 0 && timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &policy->limits.timer) == 0;
}

/* The thread's, which is the process's: while a timer runs, Linux says the process's only as of the last tick. */
static int64_t cpu_us(void) {
  struct timespec now = {0};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void dml_limits_begin(dml_policy *policy, const dml_allowance *allowance) {
  dml_limits *limits = &policy->limits;
  size_t room = DML_LIMITS_STATE_MAX_BYTES - limits->used_bytes;
  limits->ceiling_bytes = limits->used_bytes + ((size_t)allowance->bytes < room ? (size_t)allowance->bytes : room);
  limits->refusals = 0;
  limits->instructions = HOOK_INSTRUCTIONS; /* of the hundred that has begun */
  limits->instructions_max = allowance->instructions;
  limits->is_cpu_over = 0;
  limits->cpu_started_us = cpu_us();
  struct itimerspec spec = {.it_value = {allowance->cpu_ms / 1000, allowance->cpu_ms % 1000 * 1000000},
                            .it_interval = {0, CPU_GRACE_MS * 1000000}};
  timer_settime(limits->timer, 0, &spec, NULL);
  lua_sethook(policy->L, on_count, LUA_MASKCOUNT, HOOK_INSTRUCTIONS);
}

void dml_limits_measure(dml_policy *policy) { policy->limits.cpu_us = cpu_us() - policy->limits.cpu_started_us; }

static void stop_counting(dml_policy *policy) {
  struct itimerspec never = {0};
  timer_settime(policy->limits.timer, 0, &never, NULL);
  lua_sethook(policy->L, NULL, 0, 0);
  policy->limits.ceiling_bytes = DML_LIMITS_STATE_MAX_BYTES;
}

void dml_limits_end(dml_policy *policy) {
  stop_counting(policy);
  /* it ran out in the very end */
  if (policy->limits.is_cpu_over) dml_limits_hit(policy, DML_WIRE_CPU);
}

void dml_limits_tidy(dml_policy *policy) {
  dml_limits *limits = &policy->limits;
  if (limits->used_bytes < limits->live_bytes + limits->live_bytes / 2 + TIDY_SLACK_BYTES) return;
  lua_gc(policy->L, LUA_GCCOLLECT);
  limits->live_bytes = limits->used_bytes;
}

noreturn void dml_limits_hit(dml_policy *policy, dml_wire_limit limit) {
  static const char *const TEXTS[] = {"", "it ran too many instructions", "it used too much memory", "it took too much CPU time"};
  stop_counting(policy);
  dml_limits_measure(policy);
  dml_fault *fault = &policy->fault;
  *fault = (dml_fault){.kind = DML_WIRE_LIMIT, .limit = limit};
  if (limit == DML_WIRE_MEMORY) {
    fault->file = policy->limits.refused_file;
    fault->line = policy->limits.refused_line;
  } else {
    dml_fault_place(policy->L, &fault->file, &fault->line);
  }
  fault->len = strlen(TEXTS[limit]);
  memcpy(fault->text, TEXTS[limit], fault->len);
  dml_channel_send_fault(policy);
  _exit(DML_WIRE_EXIT_LIMIT + (int)limit);
}

bool dml_limits_is_memory(lua_State *L, int status) {
  if (status == LUA_ERRMEM) return true;
  if (status == LUA_OK || dml_policy_of(L)->limits.refusals == 0 || lua_type(L, -1) != LUA_TSTRING) return false;
  size_t len;
  const char *text = lua_tolstring(L, -1, &len);
  return len == sizeof NO_MEMORY - 1 && memcmp(text, NO_MEMORY, len) == 0;
}
