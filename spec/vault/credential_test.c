/* credential_test.c - script/credential: headers only where they may go, tokens out of answers before Lua sees them. */
#include "script/credential.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "script/bind.h"
#include "script/vault_face.h"
#include "support/check.h"

static lua_State *L;

static dml_span span(const char *text) { return (dml_span){text, strlen(text)}; }

static void run(const char *code) {
  if (luaL_dostring(L, code) != LUA_OK) {
    CHECK(!"the Lua code of a test runs");
    printf("%s\n", lua_tostring(L, -1));
  }
}

static size_t live(void) { return dml_vault_face_of(L)->vault.secrets.count; }

/* ---- into requests ---- */

typedef struct add {
  const char *code, *url;
  bool is_unix;
  dml_headers headers;
  dml_status status;
} add;

static int add_protected(lua_State *co) {
  add *a = lua_touserdata(co, 1);
  if (luaL_dostring(co, a->code) != LUA_OK) return lua_error(co);
  int top = lua_gettop(co);
  a->status = dml_credentials_add(co, top, span(a->url), a->is_unix, &a->headers);
  if (lua_gettop(co) != top) return luaL_error(co, "the stack is not balanced");
  return 0;
}

/* Whether the call went through; its raise is dropped. */
static bool adds(add *a, const char *code, const char *url, bool is_unix) {
  dml_headers_init(&a->headers, 65536);
  a->code = code;
  a->url = url;
  a->is_unix = is_unix;
  lua_pushcfunction(L, add_protected);
  lua_pushlightuserdata(L, a);
  bool done = lua_pcall(L, 1, 0, 0) == LUA_OK;
  if (!done) lua_pop(L, 1);
  if (!done || a->status != DML_OK) dml_headers_deinit(&a->headers);
  return done;
}

static bool has_header(add *a, const char *name, const char *want) {
  dml_span value;
  bool found = dml_headers_find(&a->headers, name, &value) && value.len == strlen(want) &&
               memcmp(value.data, want, value.len) == 0;
  dml_headers_deinit(&a->headers);
  return found;
}

static void test_a_header_goes_where_it_may(void) {
  add a;
  CHECK(adds(&a, "return nil", "https://x.y", false) && a.status == DML_OK && a.headers.count == 0);
  CHECK(adds(&a, "return {key}", "https://api.e2b.app/sandboxes", false) &&
        has_header(&a, "x-api-key", "the-secret-of-the-test"));
  CHECK(adds(&a, "return {bearer}", "http://127.0.0.1:3000/x", false));
  CHECK(has_header(&a, "authorization", "Bearer the-secret-of-the-test"));
  CHECK(adds(&a, "return {key}", "https://49983-abc.e2b.app/files", false) &&
        has_header(&a, "x-api-key", "the-secret-of-the-test"));
  CHECK(adds(&a, "return {bearer}", "http://localhost/x", true) &&
        has_header(&a, "authorization", "Bearer the-secret-of-the-test"));
  static const char *const ELSEWHERE[] = {"https://evil.x",
                                          "http://api.e2b.app",
                                          "https://api.e2b.app:8443",
                                          "https://api.e2b.app@evil.x",
                                          "https://e2b.app",
                                          "https://api.e2b.app.evil.x",
                                          "nonsense",
                                          ""};
  for (size_t i = 0; i < sizeof ELSEWHERE / sizeof *ELSEWHERE; i++)
    CHECK(!adds(&a, "return {key}", ELSEWHERE[i], false));
  CHECK(!adds(&a, "return {key}", "https://api.e2b.app", true)); /* not for unix sockets */
  CHECK(!adds(&a, "return {bearer}", "http://127.0.0.1:3001/x", false));
  CHECK(!adds(&a, "return {{}}", "https://api.e2b.app", false) &&
        !adds(&a, "return 'key'", "https://api.e2b.app", false));
  CHECK(!adds(&a, "return {io.stdout}", "https://api.e2b.app", false));
  CHECK(!adds(&a, "return {key,key,key,key,key,key,key,key,key}", "https://api.e2b.app", false));
}

static void test_what_is_not_loaded_fails(void) {
  add a;
  run("v.define('later', 'cred:not-there') later = v.bind('later', {header = 'X-Y', origins = {'https://x.y'}})");
  CHECK(adds(&a, "return {later}", "https://x.y", false) && a.status == DML_AUTHENTICATION_FAILED);
}

/* ---- out of answers ---- */

typedef struct lifting {
  const char *bindings, *body;
  size_t len;
  int results;
} lifting;

static int lift_protected(lua_State *co) {
  lifting *l = lua_touserdata(co, 1);
  if (luaL_dostring(co, l->bindings) != LUA_OK) return lua_error(co);
  int top = lua_gettop(co);
  l->results = dml_push_lifted(co, top, l->body, l->len);
  if (lua_gettop(co) != top + l->results) return luaL_error(co, "the stack is not balanced");
  lua_pushvalue(co, top + 1);
  lua_setglobal(co, "value");
  if (l->results == 2)
    lua_pushvalue(co, top + 2);
  else
    lua_pushnil(co);
  lua_setglobal(co, "err");
  return 0;
}

/* Lifts at the pointers; the value is the global `value` then. */
static bool lifts(const char *bindings, const char *body, size_t len) {
  lifting l = {bindings, body, len, 0};
  lua_pushcfunction(L, lift_protected);
  lua_pushlightuserdata(L, &l);
  bool done = lua_pcall(L, 1, 0, 0) == LUA_OK;
  if (!done) printf("%s\n", lua_tostring(L, -1)), lua_pop(L, 1);
  return done && l.results == 1;
}

static bool lifts_text(const char *bindings, const char *body) { return lifts(bindings, body, strlen(body)); }

#define TOKENS "return {['/envdAccessToken'] = binding, ['/trafficAccessToken'] = binding}"
#define LISTED "return {['/*/envdAccessToken'] = binding}"

static void collect(void) { run("value = nil err = nil collectgarbage() collectgarbage()"); }

static void test_tokens_become_handles(void) {
  add a;
  size_t before = live();
  CHECK(lifts_text(
      TOKENS,
      "{\"sandboxID\":\"abc\", \"envdAccessToken\" : \"ea_1234567890abcdef\", \"trafficAccessToken\":null,\"n\":[1,{}]}"));
  run("assert(value.sandboxID == 'abc' and tostring(value.envdAccessToken) == 'credential(token)')"
      "assert(value.trafficAccessToken == json.null and value.n[1] == 1)"
      "assert(type(value.envdAccessToken) == 'userdata' and getmetatable(value.envdAccessToken) == 'credential')"
      "assert(v.redact('x ea_1234567890abcdef y') == 'x [redacted] y')"
      "assert(v.allows(value.envdAccessToken, 'https://49983-abc.e2b.app'))");
  CHECK(adds(&a, "return {value.envdAccessToken}", "https://49983-abc.e2b.app/x", false) &&
        has_header(&a, "x-access-token", "ea_1234567890abcdef"));
  CHECK(live() == before + 1);
  collect();
  CHECK(live() == before);
  run("assert(v.redact('x ea_1234567890abcdef y') == 'x ea_1234567890abcdef y')");
}

static void test_the_same_token_is_kept_once(void) {
  size_t before = live();
  CHECK(lifts_text(TOKENS, "{\"envdAccessToken\":\"token-of-two-0002\"}"));
  run("first = value");
  CHECK(lifts_text(TOKENS, "{\"envdAccessToken\":\"token-of-two-0002\"}") && live() == before + 1);
  collect();
  CHECK(live() == before + 1);
  run("first = nil collectgarbage() collectgarbage()");
  CHECK(live() == before);
}

static void test_every_element_of_a_list(void) {
  CHECK(lifts_text(LISTED,
                   " [ {\"envdAccessToken\":\"token-number-001\"}, {\"x\":\"envdAccessToken\"}, null, 5, \"s\", [],"
                   " {\"envdAccessToken\":\"token-number-002\"} ] "));
  run("assert(tostring(value[1].envdAccessToken) == 'credential(token)' and value[2].x == 'envdAccessToken')"
      "assert(value[3] == json.null and value[4] == 5 and value[5] == 's' and #value == 7)"
      "assert(value[1].envdAccessToken ~= value[7].envdAccessToken)");
  CHECK(lifts_text("return {['/a/1/~1~0'] = binding}", "{\"a\":[\"no token here\",{\"/~\":\"token-number-003\"}]}"));
  run("assert(value.a[1] == 'no token here' and tostring(value.a[2]['/~']) == 'credential(token)')");
  CHECK(
      lifts_text("return {['/*'] = binding, ['/a'] = binding}", "{\"a\":\"token-number-004\",\"b\":\"token-number-005\"}"));
  run("assert(tostring(value.a) == 'credential(token)' and tostring(value.b) == 'credential(token)')");
  CHECK(lifts_text(TOKENS, "[]") && lifts_text(TOKENS, "5") && lifts_text(TOKENS, "\"text\"") &&
        lifts_text(TOKENS, "{}"));
  CHECK(lifts_text("return {}", "{\"envdAccessToken\":\"seen by Lua\"}"));
  run("assert(value.envdAccessToken == 'seen by Lua')");
  collect();
}

static void test_names_and_tokens_in_any_spelling(void) {
  CHECK(lifts_text(TOKENS, "{\"\\u0065nvdAccessToken\":\"t\\u006fken\\/number\\u002d0001\"}"));
  run("assert(tostring(value.envdAccessToken) == 'credential(token)' and v.redact([[token/number-0001]]) == '[redacted]')");
  CHECK(lifts_text(TOKENS, "{\"envdAccessToken\":\"the-first-token-1\",\"envdAccessToken\":\"the-second-token-2\"}"));
  run("assert(tostring(value.envdAccessToken) == 'credential(token)' and v.redact('the-second-token-2') == "
      "'[redacted]')");
  collect();
}

static void test_a_bad_token_makes_a_bad_answer(void) {
  size_t before = live();
  static const char *const BAD[] = {
      "{\"envdAccessToken\":\"\\\"type\\\":\\\"object-1\\\"\"}",
      "{\"envdAccessToken\":\"structuredContent\"}",
      "{\"envdAccessToken\":\"with a blank 12345\"}",
      "{\"envdAccessToken\":\"fifteen-bytes-1\"}",
      "{\"envdAccessToken\":\"short\"}",
      "{\"envdAccessToken\":\"\"}",
      "{\"envdAccessToken\":12345678}",
      "{\"envdAccessToken\":true}",
      "{\"envdAccessToken\":[\"long-enough-token-1\"]}",
      "{\"envdAccessToken\":{\"a\":\"long-enough-token-1\"}}",
      "{\"envdAccessToken\":\"with\\nline-end\"}",
      "{\"envdAccessToken\":\"with\\u0000zero-byte\"}",
      "{\"envdAccessToken\":\"long-enough-token-1\"",
      "{\"envdAccessToken\":\"long-enough-token-1\"}}",
      "{\"envdAccessToken\":\"long-enough-token-1\",}",
      "{\"envdAccessToken\" \"long-enough-token-1\"}",
      "{\"envdAccessToken\":\"long-enough-tok",
      "{\"envdAccessToken\":\"long-enough-token-1\\",
      "{\"x\":nonsense,\"envdAccessToken\":\"long-enough-token-1\"}",
      "{'envdAccessToken':'long-enough-token-1'}",
      "",
      "<html>",
  };
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
    bool done = lifts_text(TOKENS, BAD[i]);
    CHECK(!done);
    run("assert(value == nil and err.category == 'invalid_response' and not tostring(err):find('long', 1, true))");
    if (done) printf("%s\n", BAD[i]);
  }
  collect();
  CHECK(live() == before);
}

static void test_a_longest_token_and_a_longer_one(void) {
  static char body[DML_SECRET_MAX_BYTES + 64];
  for (int more = 0; more < 2; more++) {
    size_t len = (size_t)snprintf(body, sizeof body, "{\"envdAccessToken\":\"");
    memset(body + len, 'q', DML_SECRET_MAX_BYTES + (size_t)more);
    len += DML_SECRET_MAX_BYTES + (size_t)more;
    memcpy(body + len, "\"}", 2);
    CHECK(lifts(TOKENS, body, len + 2) == (more == 0));
  }
  collect();
}

/* Handles that nobody has any more give their room to new ones before the vault says that it is full. */
static void test_the_room_comes_back_when_it_is_needed(void) {
  char body[600];
  for (int i = 0; i < 5000; i++) {
    int len = snprintf(body, sizeof body, "{\"envdAccessToken\":\"token-%08d-%0240d\"}", i, 0);
    if (!lifts(TOKENS, body, (size_t)len)) {
      CHECK(!"a token finds room");
      return;
    }
  }
  run("kept = {}");
  int count = 0;
  for (; count < 5000; count++) {
    int len = snprintf(body, sizeof body, "{\"envdAccessToken\":\"token-%08d-%0240d\"}", count, 1);
    if (!lifts(TOKENS, body, (size_t)len)) break;
    run("kept[#kept + 1] = value");
  }
  CHECK(count >= 512 && count < 5000);
  run("assert(err.category == 'internal')");
  run("kept = nil");
  CHECK(lifts_text(TOKENS, "{\"envdAccessToken\":\"long-enough-token-1\"}"));
  collect();
}

/* Any bytes: nothing crashes, and no token is ever a string of Lua. */
static void test_damaged_answers(void) {
  static const char WHOLE[] = "[{\"envdAccessToken\":\"token-number-001\",\"n\":{\"a\":[1,2.5e3,true,\"\\u0041\"]}},{"
                              "\"envdAccessToken\":\"token-number-002\"}]";
  static const char BYTES[] = "{}[]\":,\\0x \n\xFF";
  unsigned state = 7;
  for (int i = 0; i < 20000; i++) {
    char body[sizeof WHOLE];
    size_t len = sizeof WHOLE - 1;
    memcpy(body, WHOLE, sizeof WHOLE);
    for (int edits = 0; edits < 3; edits++) {
      state = state * 1103515245 + 12345;
      body[(state >> 8) % len] = BYTES[(state >> 20) % (sizeof BYTES - 1)];
    }
    if (i % 3 == 0) len = (state >> 5) % len;
    if (!lifts(LISTED, body, len)) continue;
    run("for _, one in ipairs(type(value) == 'table' and value or {}) do"
        "  if type(one) == 'table' then local t = rawget(one, 'envdAccessToken')"
        "    assert(t == nil or t == json.null or type(t) == 'userdata') end end");
    if (check_case_failed) break;
  }
  collect();
}

static void test_malformed_bindings_raise(void) {
  static const char *const BAD[] = {"5",
                                    "{}",
                                    "{header = 'a b'}",
                                    "{header = 5}",
                                    "{header = 'X', prefix = 'a\\nb'}",
                                    "{header = 'X', prefix = ('x'):rep(33)}",
                                    "{header = 'X', origins = 'https://a'}",
                                    "{header = 'X', origins = {5}}",
                                    "{header = 'X', origins = {'http://a.b'}}",
                                    "{header = 'X', origins = {'https://u@a'}}",
                                    "{header = 'X', suffixes = {'app'}}",
                                    "{header = 'X', suffixes = {'1.2.3.4'}}",
                                    "{header = 'X', suffixes = {'E2B.app'}}",
                                    "{header = 'X', suffixes = {'a.b:443'}}"};
  for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
    char code[300];
    snprintf(code, sizeof code, "assert(not pcall(v.bind, 'key', %s))", BAD[i]);
    run(code);
    snprintf(code, sizeof code, "return {['/a'] = %s}", BAD[i]);
    lifting l = {code, "{}", 2, 0};
    lua_pushcfunction(L, lift_protected);
    lua_pushlightuserdata(L, &l);
    CHECK(lua_pcall(L, 1, 0, 0) != LUA_OK);
    lua_pop(L, 1);
  }
  run("assert(not pcall(v.bind, 'nobody', {header = 'X'}))");
  static const char *const POINTERS[] = {"", "a", "/a~2", "/", "/a//b", "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"};
  for (size_t i = 0; i < sizeof POINTERS / sizeof *POINTERS; i++) {
    char code[200];
    snprintf(code, sizeof code, "return {['%s'] = binding}", POINTERS[i]);
    lifting l = {code, "{}", 2, 0};
    lua_pushcfunction(L, lift_protected);
    lua_pushlightuserdata(L, &l);
    CHECK(lua_pcall(L, 1, 0, 0) != LUA_OK);
    lua_pop(L, 1);
  }
}

/* A handle may outlive the state's vault: the order of finalizers is not ours. */
int main(void) {
  setenv("DML_SPEC_KEY", "the-secret-of-the-test", 1);
  L = luaL_newstate();
  luaL_openlibs(L);
  luaL_requiref(L, "demilune.core", luaopen_demilune_core, 0);
  lua_setglobal(L, "core");
  run("v, json = core.vault, core.json assert(v.open{}) assert(v.define('key', 'env:DML_SPEC_KEY'))"
      "key = v.bind('key', {header = 'X-API-KEY', origins = {'https://api.e2b.app'}, suffixes = {'e2b.app'}})"
      "bearer = v.bind('key', {header = 'Authorization', prefix = 'Bearer ', origins = {'http://127.0.0.1:3000'}, "
      "is_unix = true})"
      "binding = {header = 'X-Access-Token', suffixes = {'e2b.app'}}");
  CHECK_RUN(test_a_header_goes_where_it_may);
  CHECK_RUN(test_what_is_not_loaded_fails);
  CHECK_RUN(test_tokens_become_handles);
  CHECK_RUN(test_the_same_token_is_kept_once);
  CHECK_RUN(test_every_element_of_a_list);
  CHECK_RUN(test_names_and_tokens_in_any_spelling);
  CHECK_RUN(test_a_bad_token_makes_a_bad_answer);
  CHECK_RUN(test_a_longest_token_and_a_longer_one);
  CHECK_RUN(test_the_room_comes_back_when_it_is_needed);
  CHECK_RUN(test_damaged_answers);
  CHECK_RUN(test_malformed_bindings_raise);
  lifts_text(TOKENS, "{\"envdAccessToken\":\"left-in-the-state\"}");
  lua_close(L);
  return check_end();
}
