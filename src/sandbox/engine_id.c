/* engine_id.c - see engine_id.h. */
#include "sandbox/engine_id.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIELD_START_TIME 22

/* 0 where there is no such process. */
static unsigned long long start_ticks_of(pid_t pid) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  /* The name (field 2) may hold blanks and brackets: count from its last bracket. */
  const char *at = strrchr(text, ')');
  for (int field = 2; at && field < FIELD_START_TIME; field++) at = strchr(at + 1, ' ');
  return at ? strtoull(at, NULL, 10) : 0;
}

dml_status dml_engine_id_self(dml_engine_id *id) {
  struct stat st;
  if (stat("/proc/self/ns/pid", &st) != 0) return DML_INTERNAL;
  id->pid_namespace = st.st_ino;
  id->pid = getpid();
  id->start_ticks = start_ticks_of(id->pid);
  return id->start_ticks != 0 ? DML_OK : DML_INTERNAL;
}

void dml_engine_id_format(const dml_engine_id *id, char *out) {
  snprintf(out, DML_ENGINE_ID_TEXT_BYTES, "%lx-%x-%llx", id->pid_namespace, (unsigned)id->pid, id->start_ticks);
}

static const char *parse_hex(const char *text, unsigned long long *out) {
  char *end;
  if (!isxdigit((unsigned char)*text)) return NULL;
  errno = 0;
  *out = strtoull(text, &end, 16);
  return errno == 0 ? end : NULL;
}

const char *dml_engine_id_parse(const char *text, dml_engine_id *id) {
  unsigned long long fields[3];
  for (int i = 0; i < 3; i++) {
    if (i > 0 && *text++ != '-') return NULL;
    text = parse_hex(text, &fields[i]);
    if (!text) return NULL;
  }
  if (fields[1] == 0 || fields[1] > 0x7fffffff) return NULL;
  id->pid_namespace = (unsigned long)fields[0];
  id->pid = (pid_t)fields[1];
  id->start_ticks = fields[2];
  return text;
}

bool dml_engine_id_is_dead(const dml_engine_id *id, const dml_engine_id *self) {
  if (id->pid_namespace != self->pid_namespace) return false;
  return start_ticks_of(id->pid) != id->start_ticks;
}
