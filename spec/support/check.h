/* check.h - what a C test needs: cases with names, checks that go on, one closing line.
 *
 *   static void test_empty(void) { CHECK(dml_thing_len(NULL) == 0); }
 *   int main(void) { CHECK_RUN(test_empty); return check_end(); }
 *
 * A case fails when one of its checks does. spec/run.lua reads the closing line `N passed, N failed`; a case that cannot
 * run here calls CHECK_SKIP with the reason. For one program with one thread: the counters are file-local. */
#ifndef DML_SPEC_CHECK_H
#define DML_SPEC_CHECK_H

#include <stdbool.h>
#include <stdio.h>

static int check_passed, check_failed;
static bool check_case_failed, check_case_skipped;

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      check_case_failed = true;                                                 \
      printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);          \
    }                                                                           \
  } while (0)

#define CHECK_SKIP(reason)                        \
  do {                                            \
    check_case_skipped = true;                    \
    printf("skip: %s: %s\n", __func__, reason);   \
    return;                                       \
  } while (0)

#define CHECK_RUN(test)                                     \
  do {                                                      \
    check_case_failed = check_case_skipped = false;         \
    test();                                                 \
    if (check_case_failed) printf("failed: %s\n", #test);   \
    check_failed += check_case_failed;                      \
    check_passed += !check_case_failed && !check_case_skipped; \
  } while (0)

static inline int check_end(void) {
  printf("%d passed, %d failed\n", check_passed, check_failed);
  return check_failed > 0;
}

#endif
