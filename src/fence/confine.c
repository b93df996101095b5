/* confine.c - see confine.h. The filter comes last, since what is above it needs more calls than it allows. */
#include "fence/confine.h"

#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fence/wire.h"

#if defined(__has_feature) /* clang's way to say it */
#if __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

#define ADDRESS_SPACE_BYTES ((rlim_t)512 * 1024 * 1024)

static bool keep_channel_only(void) {
  /* a sanitizer says on 2 what it found */
  unsigned last_closed = IS_SANITIZED ? 1 : DML_WIRE_FD - 1;
  return close_range(0, last_closed, 0) == 0 && close_range(DML_WIRE_FD + 1, ~0u, 0) == 0;
}

static bool limit(int resource, rlim_t value) {
  struct rlimit both = {value, value};
  return setrlimit(resource, &both) == 0;
}

static bool set_limits(void) {
  bool ok = limit(RLIMIT_CORE, 0) && limit(RLIMIT_FSIZE, 0);
  /* A sanitizer reserves terabytes, and opens files and starts a program to name places. */
  if (!IS_SANITIZED) ok = ok && limit(RLIMIT_NOFILE, 0) && limit(RLIMIT_NPROC, 0) && limit(RLIMIT_AS, ADDRESS_SPACE_BYTES);
  return ok;
}

/* A parent that died before this is set is noticed all the same: its end of the channel is closed then. */
static bool set_process(void) {
  return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_DUMPABLE, 0) == 0;
}

#if IS_SANITIZED

/* What a sanitizer's run-time library calls cannot be foreseen: here the filter only shows that it works. */
static int add_rules(scmp_filter_ctx filter) {
  static const int REFUSED[] = {SCMP_SYS(socket), SCMP_SYS(connect), SCMP_SYS(unlink), SCMP_SYS(unlinkat),
                                SCMP_SYS(mkdir),  SCMP_SYS(mkdirat), SCMP_SYS(bpf)};
  int rc = 0;
  for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED && rc == 0; i++) {
    rc = seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, REFUSED[i], 0);
    if (rc == -EDOM || rc == -EOPNOTSUPP) rc = 0;
  }
  return rc;
}

static uint32_t default_action(void) { return SCMP_ACT_ALLOW; }

#else

static int add_rules(scmp_filter_ctx filter) {
  /* Memory, time, the end. Of the rest each line says who calls it. */
  static const int ALLOWED[] = {
      SCMP_SYS(exit_group),    SCMP_SYS(exit),         SCMP_SYS(brk),         SCMP_SYS(munmap),       SCMP_SYS(mremap),
      SCMP_SYS(madvise),       SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(time),
      SCMP_SYS(timer_settime), SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall),
      SCMP_SYS(futex),         /* libc's locks */
      SCMP_SYS(rt_sigprocmask), /* libc, on its way to an abort that is then refused */
  };
  static const int OF_CHANNEL[] = {SCMP_SYS(read), SCMP_SYS(write)};
  static const int OF_MEMORY[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
  int rc = 0;
  for (size_t i = 0; i < sizeof ALLOWED / sizeof *ALLOWED && rc == 0; i++) {
    rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, ALLOWED[i], 0);
    if (rc == -EDOM || rc == -EOPNOTSUPP) rc = 0; /* an architecture that has no such call: time on aarch64 */
  }
  for (size_t i = 0; i < 2 && rc == 0; i++)
    rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, OF_CHANNEL[i], 1, SCMP_A0(SCMP_CMP_EQ, DML_WIRE_FD, 0));
  for (size_t i = 0; i < 2 && rc == 0; i++)
    rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, OF_MEMORY[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  return rc;
}

static uint32_t default_action(void) { return SCMP_ACT_KILL_PROCESS; }

#endif

static bool load_filter(void) {
  scmp_filter_ctx filter = seccomp_init(default_action());
  if (!filter) return false;
  bool ok = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) == 0 && add_rules(filter) == 0 &&
            seccomp_load(filter) == 0;
  seccomp_release(filter);
  return ok;
}

bool dml_confine(void) { return set_process() && keep_channel_only() && set_limits() && load_filter(); }
