/* owner.c - see owner.h. */
#include "agent/owner.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES 16384 /* names behind that are not found */

/* passwd(5), group(5): name:password:id:... */
static bool line_has_id(const char *line, size_t len, unsigned id, size_t *name_len) {
  const char *name_end = memchr(line, ':', len);
  if (!name_end) return false;
  size_t rest = len - (size_t)(name_end + 1 - line);
  const char *password_end = memchr(name_end + 1, ':', rest);
  if (!password_end) return false;
  char *end;
  unsigned long value = strtoul(password_end + 1, &end, 10);
  *name_len = (size_t)(name_end - line);
  return end != password_end + 1 && *end == ':' && value == id;
}

static bool find_name(const char *text, unsigned id, char *out) {
  for (const char *line = text; *line;) {
    size_t len = strcspn(line, "\n");
    size_t name_len;
    if (line_has_id(line, len, id, &name_len) && name_len > 0 && name_len < DML_AGENT_OWNER_BYTES) {
      memcpy(out, line, name_len);
      out[name_len] = '\0';
      return true;
    }
    line += len + (line[len] == '\n');
  }
  return false;
}

static void look_up(dml_owner_cache *cache, const char *file, unsigned id, char *out) {
  if (!cache->is_set || cache->id != id) {
    char text[FILE_BYTES + 1];
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, FILE_BYTES) : 0;
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = '\0';
    if (!find_name(text, id, cache->name)) snprintf(cache->name, sizeof cache->name, "%u", id);
    cache->id = id;
    cache->is_set = true;
  }
  memcpy(out, cache->name, DML_AGENT_OWNER_BYTES);
}

void dml_owner_user(dml_agent *agent, unsigned id, char *out) { look_up(&agent->user, "/etc/passwd", id, out); }

void dml_owner_group(dml_agent *agent, unsigned id, char *out) { look_up(&agent->group, "/etc/group", id, out); }

void dml_owner_forget(dml_agent *agent) { agent->user.is_set = agent->group.is_set = false; }
