/* bind_text.c - core.text: what bytes of a sandbox become before anyone reads them. */
#include <lauxlib.h>

#include "base/utf8.h"
#include "script/bind.h"

/* text.is_utf8(bytes) -> boolean */
static int l_is_utf8(lua_State *L) {
  size_t len;
  const char *s = luaL_checklstring(L, 1, &len);
  lua_pushboolean(L, dml_utf8_is_valid(s, len));
  return 1;
}

/* text.mend(bytes) -> text with U+FFFD for what is not UTF-8 */
static int l_mend(lua_State *L) {
  size_t len;
  const char *s = luaL_checklstring(L, 1, &len);
  if (dml_utf8_is_valid(s, len)) {
    lua_settop(L, 1);
    return 1;
  }
  dml_buffer out;
  dml_buffer_init(&out, len * 3 + 3);
  dml_status status = dml_utf8_append_mended(&out, s, len);
  if (status == DML_OK) lua_pushlstring(L, out.data, out.len);
  dml_buffer_deinit(&out);
  return status == DML_OK ? 1 : luaL_error(L, "out of memory");
}

/* Argument 2: a number of bytes. */
static size_t check_limit(lua_State *L) {
  lua_Integer n = luaL_checkinteger(L, 2);
  luaL_argcheck(L, n >= 0, 2, "must not be negative");
  return (size_t)n;
}

/* Whether a byte continues a character. */
static bool continues(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

/* text.head(bytes, max) -> at most max bytes from the start, no character cut in two */
static int l_head(lua_State *L) {
  size_t len;
  const char *s = luaL_checklstring(L, 1, &len);
  size_t max = check_limit(L);
  if (len > max) {
    size_t at = max;
    for (int back = 0; back < 3 && at > 0 && continues(s[at]); back++) at--;
    len = continues(s[at]) ? max : at;
  }
  lua_pushlstring(L, s, len);
  return 1;
}

/* text.tail(bytes, max) -> at most max bytes from the end, no character cut in two */
static int l_tail(lua_State *L) {
  size_t len;
  const char *s = luaL_checklstring(L, 1, &len);
  size_t max = check_limit(L);
  size_t at = len > max ? len - max : 0;
  size_t start = at;
  if (at > 0)
    for (int ahead = 0; ahead < 3 && at < len && continues(s[at]); ahead++) at++;
  if (at < len && continues(s[at])) at = start;
  lua_pushlstring(L, s + at, len - at);
  return 1;
}

/* text.latin1(bytes) -> UTF-8 of bytes that are ISO 8859-1 */
static int l_latin1(lua_State *L) {
  size_t len;
  const char *s = luaL_checklstring(L, 1, &len);
  luaL_Buffer out;
  luaL_buffinit(L, &out);
  for (size_t i = 0; i < len; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c < 0x80) {
      luaL_addchar(&out, (char)c);
    } else {
      luaL_addchar(&out, (char)(0xC0 | (c >> 6)));
      luaL_addchar(&out, (char)(0x80 | (c & 0x3F)));
    }
  }
  luaL_pushresult(&out);
  return 1;
}

static const luaL_Reg FUNCTIONS[] = {{"is_utf8", l_is_utf8}, {"mend", l_mend},     {"head", l_head},
                                     {"tail", l_tail},       {"latin1", l_latin1}, {NULL, NULL}};

int dml_open_text(lua_State *L) {
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
