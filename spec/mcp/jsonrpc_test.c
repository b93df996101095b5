/* jsonrpc_test.c - mcp/jsonrpc, mcp/calls and mcp/asks: what each message is taken for, which call a cancel means, and which
 * question an answer. */
#include "mcp/jsonrpc.h"

#include <stdlib.h>
#include <string.h>

#include "mcp/asks.h"
#include "mcp/calls.h"
#include "support/check.h"

#define REQUEST DML_RPC_REQUEST
#define NOTICE DML_RPC_NOTIFICATION
#define RESPONSE DML_RPC_RESPONSE
#define IGNORED DML_RPC_IGNORED
#define INVALID DML_RPC_INVALID
#define HEAD "{\"jsonrpc\":\"2.0\","
#define BIG "123456789012345678901234567890"

static const struct {
  const char *text;
  dml_rpc_kind kind;
  const char *id; /* "" is null */
  int code;
} MESSAGES[] = {
    {HEAD "\"id\":1,\"method\":\"m\"}", REQUEST, "1", 0},
    {HEAD "\"id\":\"a\\nb\",\"method\":\"m\",\"params\":{}}", REQUEST, "\"a\\nb\"", 0},
    {HEAD "\"id\":" BIG ",\"method\":\"m\"}", REQUEST, BIG, 0},
    {HEAD "\"id\":-0,\"method\":\"m\"}", REQUEST, "-0", 0},
    {HEAD "\"\\u0069d\":5,\"method\":\"m\"}", REQUEST, "5", 0},
    {HEAD "\"id\":1,\"method\":\"\"}", REQUEST, "1", 0},
    {HEAD "\"method\":\"m\"}", NOTICE, "", 0},
    {HEAD "\"method\":\"m\",\"params\":{}}", NOTICE, "", 0},
    {HEAD "\"method\":\"m\",\"params\":[]}", IGNORED, "", 0},
    {HEAD "\"method\":\"m\",\"params\":null}", IGNORED, "", 0},
    {"{\"method\":\"m\"}", IGNORED, "", 0},
    {HEAD "\"method\":\"m\",\"params\":{\"requestId\":" BIG "}}", IGNORED, "", 0},
    {HEAD "\"id\":1,\"result\":{}}", IGNORED, "1", 0},
    {HEAD "\"id\":null,\"error\":{}}", IGNORED, "", 0},
    {HEAD "\"result\":{}}", IGNORED, "", 0},
    {HEAD "\"id\":\"dml-1\",\"result\":{}}", RESPONSE, "\"dml-1\"", 0},
    {HEAD "\"id\":\"dml-1\",\"error\":7}", RESPONSE, "\"dml-1\"", 0},
    {HEAD "\"id\":\"a\",\"result\":{},\"method\":\"m\"}", REQUEST, "\"a\"", 0},
    {"{\"id\":1,\"method\":\"m\"}", INVALID, "1", -32600},
    {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", INVALID, "1", -32600},
    {"{\"jsonrpc\":\"2.0\\u0000\",\"id\":1,\"method\":\"m\"}", INVALID, "1", -32600},
    {"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"m\"}", INVALID, "1", -32600},
    {HEAD "\"id\":1}", INVALID, "1", -32600},
    {HEAD "\"id\":1,\"method\":7}", INVALID, "1", -32600},
    {HEAD "\"id\":1,\"method\":\"a\\u0000b\"}", INVALID, "1", -32600},
    {HEAD "\"id\":1,\"method\":\"m\",\"params\":[]}", INVALID, "1", -32602},
    {HEAD "\"id\":1,\"method\":\"m\",\"params\":null}", INVALID, "1", -32602},
    {HEAD "\"id\":1,\"method\":\"m\",\"params\":7}", INVALID, "1", -32602},
    {HEAD "\"id\":1,\"method\":\"m\",\"params\":{\"n\":" BIG "}}", INVALID, "1", -32600},
    {HEAD "\"id\":1,\"method\":\"m\",\"params\":{\"n\":1e999}}", INVALID, "1", -32600},
    {HEAD "\"id\":null,\"method\":\"m\"}", INVALID, "", -32600},
    {HEAD "\"id\":1.0,\"method\":\"m\"}", INVALID, "", -32600},
    {HEAD "\"id\":true,\"method\":\"m\"}", INVALID, "", -32600},
    {HEAD "\"id\":{},\"method\":\"m\"}", INVALID, "", -32600},
    {HEAD "\"id\":1,\"id\":2,\"method\":\"m\"}", INVALID, "", -32600},
    {"{}", INVALID, "", -32600},
    {"[]", INVALID, "", -32600},
    {"[" HEAD "\"id\":1,\"method\":\"m\"}]", INVALID, "", -32600},
    {"[", INVALID, "", -32600},
    {"7", INVALID, "", -32600},
    {"\"x\"", INVALID, "", -32600},
    {"null", INVALID, "", -32600},
    {"nonsense", INVALID, "", -32700},
    {"", INVALID, "", -32700},
    {HEAD "\"id\":1,\"method\":\"m\"", INVALID, "", -32700},
    {HEAD "\"id\":1,\"method\":\"m\"}}", INVALID, "", -32700},
    {HEAD "\"id\":1,\"method\":\"m\",}", INVALID, "1", -32700},
    {HEAD "\"id\":1,\"method\":\"\xFF\"}", INVALID, "1", -32700},
    {HEAD "\"id\":1,\"method\":\"\\ud83d\"}", INVALID, "1", -32700},
    {HEAD "\"id\":\"\\ud83d\",\"method\":\"m\"}", INVALID, "", -32700},
    {HEAD "\"id\":\"\xC0\x80\",\"method\":\"m\"}", INVALID, "", -32700},
    {HEAD "\"id\":01,\"method\":\"m\"}", INVALID, "", -32700},
};

/* Jansson overlooks a NUL behind a number. */
static void test_a_nul_is_no_message(void) {
  static const char with_nul[] = HEAD "\"id\":1\0,\"method\":\"m\"}";
  char text[sizeof with_nul];
  memcpy(text, with_nul, sizeof text);
  dml_rpc_message message;
  dml_rpc_read(text, sizeof text - 1, &message);
  CHECK(message.kind == DML_RPC_INVALID && message.error_code == DML_RPC_PARSE_ERROR && message.id_len == 0);
  dml_rpc_release(&message);
}

static void test_messages(void) {
  for (size_t i = 0; i < sizeof MESSAGES / sizeof *MESSAGES; i++) {
    char *text = strdup(MESSAGES[i].text);
    dml_rpc_message message;
    dml_rpc_read(text, strlen(text), &message);
    bool same = message.kind == MESSAGES[i].kind && message.id_len == strlen(MESSAGES[i].id) &&
                memcmp(message.id, MESSAGES[i].id, message.id_len) == 0;
    if (message.kind == DML_RPC_INVALID && message.error_code != MESSAGES[i].code) same = false;
    if (!same)
      printf("%s: kind %d, id %.*s, code %d\n", MESSAGES[i].text, message.kind, (int)message.id_len, message.id,
             message.error_code);
    CHECK(same);
    dml_rpc_release(&message);
    free(text);
  }
}

static void test_the_id_in_a_head(void) {
  static const struct {
    const char *head;
    const char *id;
  } cases[] = {{HEAD "\"id\":12,\"method\":\"m", "12"}, {HEAD "\"id\":12", ""},  {HEAD "\"id\":\"a\"", ""},
               {HEAD "\"id\":\"a\",", "\"a\""},           {HEAD "\"id\":\"a", ""}, {HEAD "\"params\":{\"id\":1,", ""},
               {"[{\"id\":1,", ""},                       {"", ""},                {HEAD "\"id\":1,\"id\":2,", ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dml_rpc_message message;
    dml_rpc_read_id(cases[i].head, strlen(cases[i].head), &message);
    CHECK(message.id_len == strlen(cases[i].id) && memcmp(message.id, cases[i].id, message.id_len) == 0);
  }
}

static void test_answers(void) {
  dml_buffer out;
  dml_buffer_init(&out, 200);
  CHECK(dml_rpc_append_result(&out, "7", 1, "{}", 2) == DML_OK);
  CHECK(dml_rpc_append_error(&out, "", 0, -32700, "a \"b\"", "[1]", 3) == DML_OK);
  CHECK(dml_rpc_append_notification(&out, "n", "{}", 2) == DML_OK);
  const char *expected =
      "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}"
      "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"a \\\"b\\\"\",\"data\":[1]}}"
      "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{}}";
  CHECK(out.len == strlen(expected) && memcmp(out.data, expected, out.len) == 0);
  size_t before = out.len;
  char large[200] = {0};
  CHECK(dml_rpc_append_result(&out, "8", 1, large, sizeof large) == DML_TOO_LARGE);
  CHECK(dml_rpc_append_error(&out, "8", 1, -32600, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", NULL, 0) ==
        DML_TOO_LARGE);
  CHECK(out.len == before);
  dml_buffer_deinit(&out);
}

static void read_line(const char *line, dml_rpc_message *message) {
  static char text[4096]; /* the message borrows nothing from it */
  strcpy(text, line);
  dml_rpc_read(text, strlen(text), message);
}

static dml_call *find(dml_calls *calls, const char *params) {
  json_t *value = json_loads(params, JSON_ALLOW_NUL, NULL);
  dml_call *call = dml_calls_find_cancelled(calls, value);
  json_decref(value);
  return call;
}

static void test_cancels(void) {
  static const char *const LINES[] = {
      HEAD "\"id\":1,\"method\":\"m\"}", HEAD "\"id\":\"1\",\"method\":\"m\"}", HEAD "\"id\":\"\",\"method\":\"m\"}",
      HEAD "\"id\":\"\\u0061\\u0000\",\"method\":\"m\"}", HEAD "\"id\":-5,\"method\":\"m\"}"};
  static const struct {
    const char *params;
    int found; /* -1: none */
  } cancels[] = {{"{\"requestId\":1}", 0},
                 {"{\"requestId\":\"1\"}", 1},
                 {"{\"requestId\":\"\"}", 2},
                 {"{\"requestId\":\"a\\u0000\"}", 3},
                 {"{\"requestId\":\"a\"}", -1},
                 {"{\"requestId\":-5}", 4},
                 {"{\"requestId\":1.0}", -1},
                 {"{\"requestId\":null}", -1},
                 {"{\"requestId\":[1]}", -1},
                 {"{\"requestId\":true}", -1},
                 {"{}", -1},
                 {"{\"requestId\":2}", -1}};
  dml_calls calls;
  dml_calls_init(&calls);
  dml_call list[5];
  dml_rpc_message messages[5];
  for (int i = 0; i < 5; i++) {
    read_line(LINES[i], &messages[i]);
    CHECK(dml_calls_add(&calls, &messages[i], &list[i], NULL) == DML_OK);
    dml_rpc_release(&messages[i]);
  }
  for (size_t i = 0; i < sizeof cancels / sizeof *cancels; i++)
    CHECK(find(&calls, cancels[i].params) == (cancels[i].found < 0 ? NULL : &list[cancels[i].found]));
  CHECK(dml_calls_find_cancelled(&calls, NULL) == NULL);
  for (int i = 0; i < 5; i++) dml_calls_remove(&calls, &list[i]);
  dml_calls_remove(&calls, &list[0]);
  CHECK(calls.count == 0 && !find(&calls, "{\"requestId\":1}"));
}

static void test_responses(void) {
  static const struct {
    const char *rest;
    bool has_result, is_error;
  } cases[] = {{"\"result\":{\"a\":1}", true, false}, {"\"error\":{\"code\":-1}", false, true},
               {"\"error\":null", false, true},         {"\"result\":[]", false, false},
               {"\"result\":null", false, false},       {"\"result\":{},\"error\":{}", false, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[128];
    dml_rpc_message message;
    snprintf(line, sizeof line, HEAD "\"id\":\"dml-7\",%s}", cases[i].rest);
    read_line(line, &message);
    CHECK(message.kind == DML_RPC_RESPONSE && strcmp(json_string_value(message.id_string), "dml-7") == 0);
    CHECK((message.result != NULL) == cases[i].has_result && message.is_error == cases[i].is_error);
    dml_rpc_release(&message);
  }
}

static void test_asks(void) {
  dml_asks asks;
  dml_asks_init(&asks);
  dml_ask list[DML_ASKS_MAX + 1] = {0};
  for (int i = 0; i < DML_ASKS_MAX; i++) CHECK(dml_asks_add(&asks, &list[i], &list[i]) == DML_OK);
  CHECK(dml_asks_add(&asks, &list[DML_ASKS_MAX], NULL) == DML_QUOTA_EXCEEDED && asks.count == DML_ASKS_MAX);
  CHECK(dml_asks_find(&asks, "dml-1", 5) == &list[0] && dml_asks_find(&asks, "dml-64", 6) == &list[63]);
  CHECK(!dml_asks_find(&asks, "dml-1\0", 6) && !dml_asks_find(&asks, "", 0) && !dml_asks_find(&asks, "dml-65", 6));
  dml_asks_remove(&asks, &list[0]);
  dml_asks_remove(&asks, &list[0]);
  dml_asks_remove(&asks, &list[DML_ASKS_MAX]);
  CHECK(asks.count == DML_ASKS_MAX - 1 && !dml_asks_find(&asks, "dml-1", 5));
  CHECK(dml_asks_add(&asks, &list[0], NULL) == DML_OK && strcmp(list[0].id, "dml-65") == 0);
  for (int i = 0; i < DML_ASKS_MAX; i++) dml_asks_remove(&asks, &list[i]);
  CHECK(asks.count == 0 && !asks.first);
  dml_buffer out;
  dml_buffer_init(&out, 100);
  CHECK(dml_rpc_append_request(&out, "dml-1", "m/n", "{}", 2) == DML_OK);
  const char *expected = "{\"jsonrpc\":\"2.0\",\"id\":\"dml-1\",\"method\":\"m/n\",\"params\":{}}";
  CHECK(out.len == strlen(expected) && memcmp(out.data, expected, out.len) == 0);
  dml_buffer_deinit(&out);
}

static void test_the_table_has_an_end(void) {
  static dml_call list[DML_CALLS_MAX + 1];
  dml_calls calls;
  dml_calls_init(&calls);
  dml_rpc_message message;
  read_line(HEAD "\"id\":1,\"method\":\"m\"}", &message);
  for (int i = 0; i < DML_CALLS_MAX; i++) CHECK(dml_calls_add(&calls, &message, &list[i], NULL) == DML_OK);
  CHECK(dml_calls_add(&calls, &message, &list[DML_CALLS_MAX], NULL) == DML_QUOTA_EXCEEDED);
  dml_calls_remove(&calls, &list[DML_CALLS_MAX]);
  CHECK(calls.count == DML_CALLS_MAX);
  for (int i = 0; i < DML_CALLS_MAX; i++) dml_calls_remove(&calls, &list[i]);
  CHECK(calls.count == 0);
  dml_rpc_release(&message);
}

int main(void) {
  CHECK_RUN(test_messages);
  CHECK_RUN(test_a_nul_is_no_message);
  CHECK_RUN(test_the_id_in_a_head);
  CHECK_RUN(test_answers);
  CHECK_RUN(test_cancels);
  CHECK_RUN(test_responses);
  CHECK_RUN(test_asks);
  CHECK_RUN(test_the_table_has_an_end);
  return check_end();
}
