/* text.c - glob and path.normalize: the same judgement of names and paths that the data rules have. */
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "fence/library.h"

#define WHY_BYTES 160
#define GLOBS_KEPT 64
#define GLOBS_T "globs"
#define PATH_MAX_BYTES 4096
/* Where relative paths of sandboxes begin. */
#define HOME "/home/user"

typedef struct kept_glob {
  dml_glob *glob; /* NULL: none */
  char *pattern;
  size_t len;
  bool is_path;
} kept_glob;

static kept_glob *globs_of(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, GLOBS_T);
  kept_glob *kept = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return kept;
}

static size_t slot_of(const char *pattern, size_t len, bool is_path) {
  uint32_t hash = 2166136261u + is_path; /* FNV-1a */
  for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)pattern[i]) * 16777619u;
  return hash % GLOBS_KEPT;
}

/* A policy asks for the same few on every call, so they are kept, each in the one slot that it can lie in. */
static const dml_glob *find_glob(lua_State *L, const char *pattern, size_t len, bool is_path) {
  kept_glob *slot = &globs_of(L)[slot_of(pattern, len, is_path)];
  if (slot->glob && slot->len == len && slot->is_path == is_path && memcmp(slot->pattern, pattern, len) == 0)
    return slot->glob;
  char why[WHY_BYTES];
  dml_glob *glob = NULL;
  if (dml_glob_new(pattern, len, is_path, &glob, why, sizeof why) != DML_OK) luaL_error(L, "the glob is none: %s", why);
  char *copy = malloc(len + 1);
  if (!copy) {
    dml_glob_free(glob);
    luaL_error(L, "there is no memory for the glob");
  }
  memcpy(copy, pattern, len);
  dml_glob_free(slot->glob);
  free(slot->pattern);
  *slot = (kept_glob){.glob = glob, .pattern = copy, .len = len, .is_path = is_path};
  return glob;
}

/* glob(pattern, text): a text that begins with `/` is a path, in which `*` and `?` do not match `/`. */
int dml_library_glob(lua_State *L) {
  size_t pattern_len, len;
  const char *pattern = luaL_checklstring(L, 1, &pattern_len), *text = luaL_checklstring(L, 2, &len);
  int matches = dml_glob_match(find_glob(L, pattern, pattern_len, len > 0 && text[0] == '/'), text, len);
  if (matches < 0) return luaL_error(L, "the glob would take too long");
  lua_pushboolean(L, matches);
  return 1;
}

/* Appends the components of `path` to the absolute path in `out`; `..` of the root is the root. */
static size_t append_components(char *out, size_t at, const char *path, size_t len) {
  for (size_t i = 0; i < len;) {
    size_t n = 0;
    while (i + n < len && path[i + n] != '/') n++;
    if (n == 2 && memcmp(path + i, "..", 2) == 0) {
      while (at > 0 && out[--at] != '/') continue;
    } else if (n > 0 && !(n == 1 && path[i] == '.')) {
      out[at++] = '/';
      memcpy(out + at, path + i, n);
      at += n;
    }
    i += n + 1;
  }
  return at;
}

/* path.normalize(p): absolute, without `.`, `..`, `//` and a `/` at the end; a relative path begins at home. */
static int l_normalize(lua_State *L) {
  size_t len;
  const char *path = luaL_checklstring(L, 1, &len);
  luaL_argcheck(L, len <= PATH_MAX_BYTES, 1, "a path has at most 4096 bytes");
  char out[sizeof HOME + PATH_MAX_BYTES + 2];
  size_t at = 0;
  if (len == 0 || path[0] != '/') at = append_components(out, 0, HOME, sizeof HOME - 1);
  at = append_components(out, at, path, len);
  if (at == 0) out[at++] = '/';
  lua_pushlstring(L, out, at);
  return 1;
}

void dml_library_push_path(lua_State *L) {
  kept_glob *kept = lua_newuserdatauv(L, GLOBS_KEPT * sizeof *kept, 0);
  memset(kept, 0, GLOBS_KEPT * sizeof *kept);
  lua_setfield(L, LUA_REGISTRYINDEX, GLOBS_T);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, l_normalize);
  lua_setfield(L, -2, "normalize");
}
