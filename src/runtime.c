/* runtime.c - the only file that knows every folder. */
#include "runtime.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "loop/loop.h"
#include "script/core.h"
#include "script/program.h"

#define EXIT_FAULT 70 /* sysexits.h: EX_SOFTWARE */

/* The Lua files: beside the executable in a build tree, else in the installed data folder. */
static bool find_lua(char *out, size_t size) {
  static const char *const PLACES[] = {"lua", "../share/demilune"};
  char *self = realpath("/proc/self/exe", NULL);
  char *slash = self ? strrchr(self, '/') : NULL;
  bool found = false;
  if (slash) *slash = '\0';
  for (size_t i = 0; slash && !found && i < sizeof PLACES / sizeof *PLACES; i++) {
    char probe[DML_CORE_PATH_MAX];
    int n = snprintf(probe, sizeof probe, "%s/%s/demilune/cli/init.lua", self, PLACES[i]);
    if (n <= 0 || (size_t)n >= sizeof probe || access(probe, R_OK) != 0) continue;
    found = (size_t)snprintf(out, size, "%s/%s", self, PLACES[i]) < size;
  }
  free(self);
  return found;
}

int dml_runtime_main(int argc, char *const *argv, bool may_wipe_environment) {
  char library_dir[DML_CORE_PATH_MAX], lua_dir[DML_CORE_PATH_MAX];
  if (!find_lua(lua_dir, sizeof lua_dir) || !dml_core_find_dir(library_dir)) {
    fprintf(stderr, "demilune: its files are not beside the program; build it anew or install it\n");
    return EXIT_FAULT;
  }
  dml_log log;
  dml_log_init(&log, DML_LOG_WARN);
  dml_loop *loop;
  int code = EXIT_FAULT;
  if (dml_loop_new(NULL, &loop) == DML_OK) {
    dml_program program = {loop, &log, library_dir, lua_dir, argc, argv, may_wipe_environment};
    code = dml_program_run(&program);
    dml_loop_free(loop);
  }
  dml_log_deinit(&log);
  return code;
}
