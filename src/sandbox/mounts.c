/* mounts.c - see mounts.h. */
#include "sandbox/mounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOUNTS_MAX 10000

/* Blank, tab, newline and backslash come as \ooo. */
static void unescape(char *text) {
  char *to = text;
  for (const char *from = text; *from;) {
    if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3]) {
      *to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
      from += 4;
    } else {
      *to++ = *from++;
    }
  }
  *to = '\0';
}

/* 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue */
static bool parse(char *line, dml_mount *mount) {
  char *save = NULL, *fields[6];
  char *dash = strstr(line, " - ");
  if (!dash) return false;
  *dash = '\0';
  char *at = line;
  for (int i = 0; i < 6; i++, at = NULL)
    if (!(fields[i] = strtok_r(at, " ", &save))) return false;
  save = NULL;
  mount->type = strtok_r(dash + 3, " \n", &save);
  const char *source = strtok_r(NULL, " \n", &save);
  mount->super_options = strtok_r(NULL, " \n", &save);
  if (!mount->type || !source || !mount->super_options) return false;
  unescape(fields[3]);
  unescape(fields[4]);
  mount->root = fields[3];
  mount->point = fields[4];
  mount->options = fields[5];
  return true;
}

bool dml_mounts_each(dml_mount_cb cb, void *ud) {
  FILE *file = fopen("/proc/self/mountinfo", "re");
  if (!file) return false;
  char *line = NULL;
  size_t capacity = 0;
  for (int i = 0; i < MOUNTS_MAX && getline(&line, &capacity, file) > 0; i++) {
    dml_mount mount;
    if (parse(line, &mount) && !cb(&mount, ud)) break;
  }
  free(line);
  fclose(file);
  return true;
}
