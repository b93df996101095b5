/* pause_test.c - sandbox/pause and members on real processes, by each way of stopping that this machine has: none but
 * signals, what the engine would choose here, and the freezer of cgroup v2 where a group may be made. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/pause.h"
#include "sandbox/usage.h"
#include "support/check.h"

#define TRIES_MAX 1000

/* A busy loop, one in a session of its own, a waiting process and a stopped one. */
static const char SCRIPT[] = "setsid sh -c 'while :; do :; done' & sleep 1000 & sleep 1001 & kill -STOP $!; "
                             "while :; do :; done";

static void sleep_ms(long ms) {
  const struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&span, NULL);
}

static pid_t start(const dml_cgroup *group) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  for (size_t i = 0; i < group->procs_count; i++)
    if (write(group->procs_fds[i], "0", 1) != 1) _exit(126);
  execl("/bin/sh", "sh", "-c", SCRIPT, (char *)NULL);
  _exit(127);
}

static dml_members look(pid_t root) {
  dml_members members;
  CHECK(dml_members_init(&members, root, NULL) == DML_OK);
  return members;
}

static uint64_t ticks_of(pid_t root) {
  dml_members members = look(root);
  uint64_t sum = 0;
  for (size_t i = 0; i < members.count; i++) sum += members.list[i].cpu_ticks;
  dml_members_deinit(&members);
  return sum;
}

static size_t count_standing(pid_t root, size_t *count) {
  dml_members members = look(root);
  size_t standing = 0;
  for (size_t i = 0; i < members.count; i++) standing += dml_member_stands(&members.list[i]);
  *count = members.count;
  dml_members_deinit(&members);
  return standing;
}

static bool pause_all(dml_pause *pause, const dml_pause_subject *subject) {
  bool is_done = false;
  for (int i = 0; i < TRIES_MAX && !is_done; i++) {
    if (dml_pause_on(pause, subject, &is_done) != DML_OK) return false;
    if (!is_done) sleep_ms(2);
  }
  return is_done;
}

/* Ends the whole tree, the sleepers too. */
static void end(pid_t root) {
  dml_members members = look(root);
  for (size_t i = 0; i < members.count; i++) dml_member_signal(&members.list[i], SIGKILL);
  dml_members_deinit(&members);
  CHECK(waitpid(root, NULL, 0) == root);
}

static void try_pausing(const dml_cgroups *groups, const char *name) {
  const dml_cgroup_limits limits = {0};
  dml_cgroup group;
  dml_pause pause = {0};
  size_t count;
  CHECK(dml_cgroup_init(&group, groups, name, &limits) == DML_OK);
  pid_t root = start(&group);
  const dml_pause_subject subject = {.root = root, .groups = groups, .group = &group};
  for (int i = 0; i < TRIES_MAX && count_standing(root, &count) < 1; i++) sleep_ms(5);
  CHECK(count == 4);

  CHECK(pause_all(&pause, &subject));
  uint64_t before = ticks_of(root);
  sleep_ms(150);
  CHECK(ticks_of(root) == before);
  bool is_lasting = dml_cgroups_freezer(groups) == DML_FREEZER_LASTING;
  CHECK(dml_cgroup_is_frozen(&group, groups) == is_lasting);
  if (!is_lasting) CHECK(count_standing(root, &count) == 4);

  CHECK(dml_pause_off(&pause, &subject) == DML_OK);
  CHECK(dml_pause_off(&pause, &subject) == DML_OK);
  CHECK(!dml_cgroup_is_frozen(&group, groups));
  sleep_ms(150);
  CHECK(ticks_of(root) > before);
  CHECK(count_standing(root, &count) == 1); /* what stood before */

  dml_usage usage;
  CHECK(dml_usage_read(&usage, root, 0, groups, &group) == DML_OK);
  CHECK(usage.process_count == 4 && usage.memory_bytes > 0 && !usage.has_disk);

  CHECK(pause_all(&pause, &subject));
  end(root); /* SIGKILL ends what stands */
  dml_pause_deinit(&pause);
  dml_cgroup_deinit(&group, groups);
}

static void test_signals_alone(void) {
  const dml_cgroups none = {.freezer_at = -1};
  CHECK(dml_cgroups_freezer(&none) == DML_FREEZER_NONE);
  try_pausing(&none, "pausea");
}

static void test_what_the_engine_chooses(void) {
  static dml_cgroups groups;
  dml_engine_id self;
  CHECK(dml_engine_id_self(&self) == DML_OK);
  dml_cgroups_open(&groups, &self);
  try_pausing(&groups, "pauseb");
}

/* Without controllers, which another hierarchy may have: freezing needs none. */
static void test_v2(void) {
  static const char *const PLACES[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
  static dml_cgroups groups;
  CHECK(dml_engine_id_self(&groups.self) == DML_OK);
  groups.backend = &DML_CGROUP_V2;
  for (int c = 0; c < DML_CGROUP_CONTROLLERS; c++) groups.at[c] = -1;
  for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES && groups.dirs_count == 0; i++) {
    snprintf(groups.dirs[0], sizeof groups.dirs[0], "%s/cgroup.controllers", PLACES[i]);
    if (access(groups.dirs[0], R_OK) != 0 || access(PLACES[i], W_OK) != 0) continue;
    snprintf(groups.dirs[0], sizeof groups.dirs[0], "%s", PLACES[i]);
    groups.dirs_count = 1;
  }
  if (groups.dirs_count == 0) CHECK_SKIP("no group of cgroup v2 may be made here");
  CHECK(dml_cgroups_freezer(&groups) == DML_FREEZER_LASTING);
  try_pausing(&groups, "pausec");
}

/* A group that a killed engine left frozen: v1 lets nothing in it die before it is thawed. */
static void test_frozen_group_is_removed(void) {
  static dml_cgroups groups;
  const dml_cgroup_limits limits = {0};
  dml_engine_id self;
  dml_cgroup group;
  CHECK(dml_engine_id_self(&self) == DML_OK);
  dml_cgroups_open(&groups, &self);
  if (dml_cgroups_freezer(&groups) == DML_FREEZER_NONE) CHECK_SKIP("no freezer may be used here");
  CHECK(dml_cgroup_init(&group, &groups, "paused", &limits) == DML_OK);
  pid_t root = start(&group);
  sleep_ms(50);
  CHECK(dml_cgroup_freeze(&group, &groups, true) == DML_OK);
  for (int i = 0; i < TRIES_MAX && !dml_cgroup_is_frozen(&group, &groups); i++) sleep_ms(1);
  CHECK(dml_cgroup_is_frozen(&group, &groups));
  char place[DML_CGROUP_PATH_BYTES];
  snprintf(place, sizeof place, "%s/%s", groups.dirs[groups.freezer_at], group.name);
  dml_cgroup_deinit(&group, &groups);
  CHECK(waitpid(root, NULL, 0) == root);
  CHECK(access(place, F_OK) != 0);
}

static void test_members(void) {
  dml_member self, gone;
  CHECK(dml_member_read(&self, getpid()) && self.parent == getppid() && self.state == 'R');
  CHECK(!dml_member_read(&gone, 4194305));
  dml_members members;
  CHECK(dml_members_init(&members, 4194305, NULL) == DML_OK && members.count == 0);
  dml_members_deinit(&members);
  CHECK(dml_members_init(&members, getpid(), "/nonexistent") == DML_INTERNAL);
  dml_members_deinit(&members);
  /* Another process that has the pid now gets nothing. */
  dml_member other = self;
  other.start++;
  dml_member_signal(&other, SIGKILL);
}

int main(void) {
  CHECK_RUN(test_members);
  CHECK_RUN(test_signals_alone);
  CHECK_RUN(test_what_the_engine_chooses);
  CHECK_RUN(test_v2);
  CHECK_RUN(test_frozen_group_is_removed);
  return check_end();
}
