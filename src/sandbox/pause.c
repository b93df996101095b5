/* pause.c - see pause.h. Parents are stopped before their children and continued after them, so that none sees a child
 * stop. */
#include "sandbox/pause.h"

#include <signal.h>
#include <time.h>

#define CLEAN_LOOKS 2
#define FREEZE_TRIES_MAX 20

static dml_status look(const dml_pause_subject *subject, dml_members *members) {
  char procs[DML_CGROUP_PATH_BYTES];
  bool is_listed = dml_cgroup_procs_path(subject->group, subject->groups, procs);
  return dml_members_init(members, subject->root, is_listed ? procs : NULL);
}

static bool stood_before(const dml_pause *pause, const dml_member *member) {
  for (size_t i = 0; i < pause->before.count; i++)
    if (pause->before.list[i].pid == member->pid && pause->before.list[i].start == member->start) return true;
  return false;
}

/* Keeps those of `pause->before` that stand. */
static dml_status note_before(dml_pause *pause, const dml_pause_subject *subject) {
  dml_status status = look(subject, &pause->before);
  if (status != DML_OK) return status;
  size_t count = 0;
  for (size_t i = 0; i < pause->before.count; i++)
    if (dml_member_stands(&pause->before.list[i])) pause->before.list[count++] = pause->before.list[i];
  pause->before.count = count;
  return DML_OK;
}

static dml_status stop_all(const dml_pause_subject *subject, size_t *moving) {
  dml_members members;
  *moving = 0;
  dml_status status = look(subject, &members);
  for (size_t i = 0; i < members.count; i++) {
    if (dml_member_stands(&members.list[i])) continue;
    (*moving)++;
    dml_member_signal(&members.list[i], SIGSTOP);
  }
  dml_members_deinit(&members);
  return status;
}

static void freeze_briefly(const dml_pause_subject *subject) {
  const struct timespec ms = {.tv_nsec = 1000000};
  if (dml_cgroup_freeze(subject->group, subject->groups, true) != DML_OK) return;
  for (int i = 0; i < FREEZE_TRIES_MAX && !dml_cgroup_is_frozen(subject->group, subject->groups); i++)
    nanosleep(&ms, NULL);
}

static dml_status begin_signals(dml_pause *pause, const dml_pause_subject *subject) {
  size_t moving;
  dml_status status = note_before(pause, subject);
  if (status != DML_OK) return status;
  bool is_held = dml_cgroups_freezer(subject->groups) == DML_FREEZER_BRIEF;
  if (is_held) freeze_briefly(subject);
  status = stop_all(subject, &moving);
  if (is_held) dml_cgroup_freeze(subject->group, subject->groups, false);
  return status;
}

static dml_status go_on_signals(dml_pause *pause, const dml_pause_subject *subject, bool *is_done) {
  size_t moving;
  dml_status status = stop_all(subject, &moving);
  if (status != DML_OK) return status;
  pause->clean_looks = moving == 0 ? pause->clean_looks + 1 : 0;
  *is_done = pause->clean_looks >= CLEAN_LOOKS;
  return DML_OK;
}

dml_status dml_pause_on(dml_pause *pause, const dml_pause_subject *subject, bool *is_done) {
  bool is_first = !pause->is_on;
  *is_done = false;
  pause->is_on = true;
  if (dml_cgroups_freezer(subject->groups) == DML_FREEZER_LASTING) {
    dml_status status = is_first ? dml_cgroup_freeze(subject->group, subject->groups, true) : DML_OK;
    *is_done = status == DML_OK && dml_cgroup_is_frozen(subject->group, subject->groups);
    return status;
  }
  return is_first ? begin_signals(pause, subject) : go_on_signals(pause, subject, is_done);
}

dml_status dml_pause_off(dml_pause *pause, const dml_pause_subject *subject) {
  if (!pause->is_on) return DML_OK;
  if (dml_cgroups_freezer(subject->groups) == DML_FREEZER_LASTING) {
    dml_status status = dml_cgroup_freeze(subject->group, subject->groups, false);
    if (status == DML_OK) dml_pause_deinit(pause);
    return status;
  }
  dml_members members;
  dml_status status = look(subject, &members);
  if (status != DML_OK) {
    dml_members_deinit(&members);
    return status;
  }
  for (size_t i = members.count; i-- > 0;)
    if (!stood_before(pause, &members.list[i])) dml_member_signal(&members.list[i], SIGCONT);
  dml_members_deinit(&members);
  dml_pause_deinit(pause);
  return DML_OK;
}

void dml_pause_deinit(dml_pause *pause) {
  dml_members_deinit(&pause->before);
  *pause = (dml_pause){0};
}
