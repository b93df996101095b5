/* pack_test.c - src/fence/pack.c: what is packed comes back, and no bytes whatever make the reader stumble. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "fence/pack.h"
#include "support/check.h"

#define ROUNDS 200000

static int function(lua_State *L) {
  (void)L;
  return 0;
}

static bool pack(lua_State *L, const char *expression, dml_buffer *out, dml_packer *packer) {
  dml_buffer_init(out, 1 << 20);
  lua_settop(L, 0);
  CHECK(luaL_dostring(L, expression) == LUA_OK);
  packer->out = out;
  return dml_pack_value(L, -1, packer);
}

static void test_round_trip(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  dml_buffer bytes;
  dml_packer packer = {0};
  CHECK(pack(L, "return { a = { 1, 2.5, 'x', true, false, {} }, ['k\\0'] = { b = -1 } }", &bytes, &packer));
  dml_unpacker u = {.at = bytes.data, .end = bytes.data + bytes.len};
  CHECK(dml_unpack_check(&u, 1));
  CHECK(!dml_unpack_check(&u, 2));
  lua_settop(L, 0);
  dml_unpack_value(L, &u);
  CHECK(u.at == u.end);
  lua_setglobal(L, "v");
  CHECK(luaL_dostring(L, "assert(#v.a == 6 and v.a[2] == 2.5 and v.a[5] == false and next(v.a[6]) == nil and v['k\\0'].b == -1)") ==
        LUA_OK);
  dml_buffer_deinit(&bytes);
  lua_close(L);
}

static void test_places(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  dml_buffer bytes;
  dml_packer packer = {0};
  CHECK(!pack(L, "return { rules = { {}, { limit = { cpu = 0/0 } } } }", &bytes, &packer));
  CHECK(strcmp(packer.place, ".rules[2].limit.cpu") == 0);
  dml_buffer_deinit(&bytes);
  CHECK(!pack(L, "local t = { [('k'):rep(500)] = { [('l'):rep(500)] = print } } return t", &bytes, &packer));
  CHECK(strlen(packer.place) == sizeof packer.place - 1);
  dml_buffer_deinit(&bytes);
  lua_close(L);
}

/* Every prefix is refused, and so is what stands behind a whole value. */
static void test_prefixes(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  dml_buffer bytes;
  dml_packer packer = {.allows_functions = true};
  CHECK(pack(L, "return { 'abc', { x = 1, y = { 1.5, print } }, false }", &bytes, &packer));
  for (size_t len = 0; len < bytes.len; len++) {
    dml_unpacker u = {.at = bytes.data, .end = bytes.data + len, .allows_functions = true};
    CHECK(!dml_unpack_check(&u, 1));
  }
  dml_unpacker none = {.at = bytes.data, .end = bytes.data + bytes.len};
  CHECK(!dml_unpack_check(&none, 1));
  dml_buffer_deinit(&bytes);
  lua_close(L);
}

/* Random bytes, and good ones with one byte changed: what passes the check can be read to its very end. */
static void test_hostile_bytes(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  dml_buffer bytes;
  dml_packer packer = {0};
  CHECK(pack(L, "return { a = { 1, 2, 'xyz' }, b = { c = {}, d = 0.5 }, e = true }", &bytes, &packer));
  unsigned seed = 1;
  int passed = 0;
  for (int i = 0; i < ROUNDS; i++) {
    char copy[256];
    size_t len = bytes.len;
    memcpy(copy, bytes.data, len);
    for (int changes = 1 + i % 3; changes > 0; changes--) {
      seed = seed * 1103515245u + 12345u;
      copy[(seed >> 16) % len] = (char)(i % 2 ? (seed >> 8) % 12 : seed >> 8);
    }
    dml_unpacker u = {.at = copy, .end = copy + len, .allows_functions = true, .function = function, .view_count = 1};
    if (!dml_unpack_check(&u, 1)) continue;
    passed++;
    lua_settop(L, 0);
    dml_unpack_value(L, &u);
    CHECK(u.at == u.end && lua_gettop(L) == 1);
  }
  CHECK(passed > ROUNDS / 100);
  dml_buffer_deinit(&bytes);
  lua_close(L);
}

int main(void) {
  CHECK_RUN(test_round_trip);
  CHECK_RUN(test_places);
  CHECK_RUN(test_prefixes);
  CHECK_RUN(test_hostile_bytes);
  return check_end();
}
