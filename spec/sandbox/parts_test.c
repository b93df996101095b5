/* parts_test.c - sandbox/: what can be told without a sandbox: causes, engine ids, argument vectors, memory files. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/args.h"
#include "sandbox/cause.h"
#include "sandbox/cgroup.h"
#include "sandbox/engine_id.h"
#include "sandbox/memfd.h"
#include "sandbox/seccomp.h"
#include "support/check.h"

static dml_cause of(const char *message) { return dml_cause_of_trial(message, strlen(message)); }

static void test_trial_messages(void) {
  CHECK(of("bwrap: Unknown option --disable-userns\n") == DML_CAUSE_BWRAP_OLD);
  CHECK(of("bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n") == DML_CAUSE_PROC_MASKED);
  CHECK(of("bwrap: pivot_root: Invalid argument\n") == DML_CAUSE_CHROOT);
  CHECK(of("bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)\n") ==
        DML_CAUSE_USERNS_ZERO);
  CHECK(of("bwrap: prctl(PR_SET_SECCOMP): Invalid argument\n") == DML_CAUSE_SECCOMP_MISSING);
  CHECK(of("bwrap: execvp /proc/self/fd/3: Permission denied\n") == DML_CAUSE_MEMFD_NOEXEC);
  CHECK(of("bwrap: Creating new namespace failed: Resource temporarily unavailable\n") != DML_CAUSE_UNKNOWN);
  CHECK(of("bwrap: something new\n") == DML_CAUSE_UNKNOWN);
  CHECK(of("") == DML_CAUSE_UNKNOWN);
  CHECK(dml_cause_of_trial("\0\xff", 2) == DML_CAUSE_UNKNOWN);
}

static void test_refusals_blame_somebody(void) {
  static const char *const MESSAGES[] = {
      "bwrap: No permissions to create new namespace, likely because the kernel does not allow it",
      "bwrap: setting up uid map: Permission denied", "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
      "bwrap: Creating new namespace failed: Operation not permitted"};
  for (size_t i = 0; i < sizeof MESSAGES / sizeof *MESSAGES; i++) {
    const dml_cause_row *row = dml_cause_peek(of(MESSAGES[i]));
    CHECK(row && row->check != DML_CHECK_TRIAL);
  }
}

static void test_every_cause_has_sentences(void) {
  CHECK(dml_cause_peek(DML_CAUSE_NONE) == NULL);
  for (int cause = DML_CAUSE_NONE + 1; cause < DML_CAUSE_COUNT; cause++) {
    const dml_cause_row *row = dml_cause_peek((dml_cause)cause);
    CHECK(row && row->text && row->fix && row->fix[0]);
    if (row && row->text) CHECK(row->text[strlen(row->text) - 1] == '.');
  }
  CHECK(dml_cause_of_bubblewrap(NULL) == DML_CAUSE_NO_BWRAP);
  CHECK(dml_cause_of_bubblewrap("/nonexistent") == DML_CAUSE_NO_BWRAP);
}

static void test_engine_id(void) {
  dml_engine_id self, other;
  char text[DML_ENGINE_ID_TEXT_BYTES + 8];
  CHECK(dml_engine_id_self(&self) == DML_OK);
  dml_engine_id_format(&self, text);
  strncat(text, "-name", 6);
  const char *rest = dml_engine_id_parse(text, &other);
  CHECK(rest && strcmp(rest, "-name") == 0);
  CHECK(other.pid == self.pid && other.start_ticks == self.start_ticks && other.pid_namespace == self.pid_namespace);
  CHECK(!dml_engine_id_is_dead(&other, &self));
  other.start_ticks++;
  CHECK(dml_engine_id_is_dead(&other, &self));
  other.pid_namespace++; /* another namespace's pids say nothing */
  CHECK(!dml_engine_id_is_dead(&other, &self));
  static const char *const BAD[] = {"", "-", "a-b", "a-0-1", "a-ffffffff-1", "x-1-1", "1--1", "1-1", " 1-1-1",
                                    "1-1-fffffffffffffffff"};
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) CHECK(dml_engine_id_parse(BAD[i], &other) == NULL);
}

static void test_args_limit(void) {
  static dml_args args;
  char *const *argv;
  dml_args_init(&args);
  dml_args_add(&args, "a", "b", NULL);
  dml_args_addf(&args, "%d", 7);
  CHECK(dml_args_finish(&args, &argv) == DML_OK);
  CHECK(strcmp(argv[0], "a") == 0 && strcmp(argv[2], "7") == 0 && argv[3] == NULL);
  for (int i = 0; i < DML_ARGS_MAX; i++) dml_args_add(&args, "x", NULL);
  CHECK(dml_args_finish(&args, &argv) == DML_TOO_LARGE);
  dml_args_init(&args);
  dml_args_addf(&args, "%*d", DML_ARGS_TEXT_MAX_BYTES + 1, 1);
  CHECK(dml_args_finish(&args, &argv) == DML_TOO_LARGE);
}

static void test_memfd(void) {
  int fd, again;
  char bytes[8];
  CHECK(dml_memfd_new("test", "hello", 5, &fd) == DML_OK);
  CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  CHECK(write(fd, "x", 1) < 0 && ftruncate(fd, 0) != 0);
  CHECK(dml_memfd_reopen(fd, &again) == DML_OK);
  CHECK(read(again, bytes, sizeof bytes) == 5 && memcmp(bytes, "hello", 5) == 0);
  close(again);
  close(fd);
  CHECK(dml_memfd_fixed("test", 4, &fd) == DML_OK);
  CHECK(write(fd, "1234567", 7) <= 4); /* what does not fit is lost */
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && st.st_size == 4);
  close(fd);
  CHECK(dml_memfd_from_program("/nonexistent", &fd) == DML_FILE_NOT_FOUND && fd == -1);
  CHECK(dml_memfd_from_program("/", &fd) != DML_OK && fd == -1);
}

static void test_seccomp_program(void) {
  int fd;
  struct stat st;
  CHECK(dml_seccomp_program(&fd) == DML_OK);
  CHECK(fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size % 8 == 0); /* struct sock_filter */
  close(fd);
}

static void test_words(void) {
  CHECK(dml_cgroup_has_word("cpuset cpu io\n", "cpu", " \n"));
  CHECK(dml_cgroup_has_word("rw,cpu,cpuacct", "cpuacct", ","));
  CHECK(!dml_cgroup_has_word("cpuset", "cpu", " \n"));
  CHECK(!dml_cgroup_has_word("", "cpu", " \n"));
}

int main(void) {
  CHECK_RUN(test_trial_messages);
  CHECK_RUN(test_refusals_blame_somebody);
  CHECK_RUN(test_every_cause_has_sentences);
  CHECK_RUN(test_engine_id);
  CHECK_RUN(test_args_limit);
  CHECK_RUN(test_memfd);
  CHECK_RUN(test_seccomp_program);
  CHECK_RUN(test_words);
  return check_end();
}
