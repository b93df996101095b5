/* json_test.c - base/json: what the scan finds of the id, and the limits. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/check.h"

#define ABSENT DML_JSON_ID_ABSENT
#define NONE DML_JSON_ID_NULL
#define INTEGER DML_JSON_ID_INTEGER
#define STRING DML_JSON_ID_STRING
#define BAD DML_JSON_ID_BAD

static const struct {
  const char *text;
  dml_json_id_kind kind;
  const char *id;
} IDS[] = {
    {"{}", ABSENT, ""},
    {"{\"method\":\"id\"}", ABSENT, ""},
    {"{\"params\":{\"id\":1},\"x\":[{\"id\":2}]}", ABSENT, ""},
    {"[{\"id\":1}]", ABSENT, ""},
    {"{\"Id\":1,\"iD\":2,\"id \":3,\"\\u00e9id\":4,\"i\\u0064d\":5}", ABSENT, ""},
    {"{\"id\":null}", NONE, ""},
    {"{\"id\":7}", INTEGER, "7"},
    {" \t{ \"id\" : 7 , \"a\":1}\r", INTEGER, "7"},
    {"{\"a\":1,\"id\":-12}", INTEGER, "-12"},
    {"{\"id\":0}", INTEGER, "0"},
    {"{\"id\":-0}", INTEGER, "-0"},
    {"{\"id\":9223372036854775807}", INTEGER, "9223372036854775807"},
    {"{\"id\":-123456789012345678901234567890}", INTEGER, "-123456789012345678901234567890"},
    {"{\"id\":\"\"}", STRING, "\"\""},
    {"{\"id\":\"a\\\"b\\\\\"}", STRING, "\"a\\\"b\\\\\""},
    {"{\"id\":\"{,}\",\"x\":1}", STRING, "\"{,}\""},
    {"{\"\\u0069d\":1}", INTEGER, "1"},
    {"{\"i\\u0064\":\"x\"}", STRING, "\"x\""},
    {"{\"\\u0069\\u0064\":3}", INTEGER, "3"},
    {"{\"id\":1.0}", BAD, ""},
    {"{\"id\":1e3}", BAD, ""},
    {"{\"id\":01}", BAD, ""},
    {"{\"id\":-}", BAD, ""},
    {"{\"id\":true}", BAD, ""},
    {"{\"id\":[1]}", BAD, ""},
    {"{\"id\":{\"id\":1}}", BAD, ""},
    {"{\"id\":1,\"id\":1}", BAD, ""},
    {"{\"id\":1,\"\\u0069d\":2}", BAD, ""},
    {"{\"id\":null,\"id\":2}", BAD, ""},
};

static void test_ids(void) {
  for (size_t i = 0; i < sizeof IDS / sizeof *IDS; i++) {
    dml_json_scan_result scan;
    const char *text = IDS[i].text;
    dml_json_scan(text, strlen(text), &scan);
    bool same = scan.id_kind == IDS[i].kind;
    if (same && *IDS[i].id)
      same = scan.id_len == strlen(IDS[i].id) && memcmp(text + scan.id_start, IDS[i].id, scan.id_len) == 0;
    if (!same) printf("%s: kind %d\n", text, scan.id_kind);
    CHECK(same);
    CHECK(scan.is_balanced);
  }
}

static void test_id_length(void) {
  char text[DML_JSON_ID_MAX_BYTES + 32];
  for (int over = 0; over < 2; over++) {
    size_t digits = DML_JSON_ID_MAX_BYTES + (size_t)over;
    memcpy(text, "{\"id\":", 6);
    memset(text + 6, '9', digits);
    text[6 + digits] = '}';
    dml_json_scan_result scan;
    dml_json_scan(text, 7 + digits, &scan);
    CHECK(scan.id_kind == (over ? DML_JSON_ID_BAD : DML_JSON_ID_INTEGER));
  }
}

static void test_balance(void) {
  static const struct {
    const char *text;
    bool is_balanced;
  } cases[] = {{"", false},    {" ", false},   {"1", true},     {"{", false},      {"}", false},
               {"[]]", false}, {"\"a", false}, {"\"\\", false}, {"\"\\\"", false}, {"{\"a\":\"}\"}", true},
               {"{]", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dml_json_scan_result scan;
    dml_json_scan(cases[i].text, strlen(cases[i].text), &scan);
    if (scan.is_balanced != cases[i].is_balanced) printf("%s\n", cases[i].text);
    CHECK(scan.is_balanced == cases[i].is_balanced);
  }
}

/* The id is found behind what is too deep or too much as well as before it. */
static void test_limits_keep_the_id(void) {
  size_t size = 3 * 1024 * 1024;
  char *text = malloc(size);
  for (int deep = 0; deep < 2; deep++)
    for (int behind = 0; behind < 2; behind++) {
      size_t len = (size_t)sprintf(text, "{%s\"a\":[", behind ? "" : "\"id\":42,");
      size_t count = deep ? 1000 : 2 * DML_JSON_VALUES_MAX;
      for (size_t i = 0; i < count; i++) len += (size_t)sprintf(text + len, "%s", deep ? "[" : "1,");
      if (!deep) len += (size_t)sprintf(text + len, "1");
      for (size_t i = 0; deep && i < count; i++) text[len++] = ']';
      len += (size_t)sprintf(text + len, "]%s}", behind ? ",\"id\":42" : "");
      dml_json_scan_result scan;
      dml_json_scan(text, len, &scan);
      CHECK(scan.is_balanced && scan.is_too_deep == (deep == 1) && scan.is_too_many == (deep == 0));
      CHECK(scan.id_kind == DML_JSON_ID_INTEGER && scan.id_len == 2 && memcmp(text + scan.id_start, "42", 2) == 0);
      json_t *value;
      CHECK(dml_json_decode(text, len, NULL, &value) == DML_JSON_OVER_LIMIT && !value);
    }
  free(text);
}

/* Processor milliseconds: other work on the machine does not count. */
static long spent_ms(clock_t since) { return (long)((clock() - since) * 1000 / CLOCKS_PER_SEC); }

static void test_the_worst_text_is_scanned_fast(void) {
  size_t size = 16 * 1024 * 1024;
  char *text = malloc(size);
  memset(text, ' ', size);
  text[0] = '[';
  for (size_t i = 1; i + 3 < size; i += 3) memcpy(text + i, "[],", 3);
  clock_t since = clock();
  json_t *value;
  CHECK(dml_json_decode(text, size, NULL, &value) == DML_JSON_OVER_LIMIT);
  CHECK(spent_ms(since) < 2000);
  memset(text, '"', size); /* empty strings without end */
  dml_json_scan_result scan;
  since = clock();
  dml_json_scan(text, size, &scan);
  memset(text, '\\', size);
  text[0] = '"'; /* one string of backslashes */
  dml_json_scan(text, size, &scan);
  text[size - 1] = '"'; /* one string of escapes, with its end far away */
  dml_json_scan(text, size, &scan);
  for (size_t i = 1; i + 1 < size; i++) text[i] = i % 2 ? '\\' : '"'; /* escaped quotes */
  dml_json_scan(text, size, &scan);
  CHECK(spent_ms(since) < 2000);
  free(text);
}

/* Once per separator the rest of the text moved: a megabyte of them took half a minute. */
static void test_many_separators_are_escaped_fast(void) {
  size_t count = 350000;
  char *text = malloc(count * 3);
  for (size_t i = 0; i < count; i++) memcpy(text + i * 3, i % 2 ? "\xE2\x80\xA9" : "\xE2\x80\xA8", 3);
  dml_buffer out;
  dml_buffer_init(&out, 64 * 1024 * 1024);
  clock_t since = clock();
  CHECK(dml_json_append_string(&out, text, count * 3) == DML_OK);
  CHECK(spent_ms(since) < 2000);
  CHECK(out.len == count * 6 + 2);
  CHECK(memcmp(out.data, "\"\\u2028\\u2029\\u2028", 19) == 0);
  CHECK(memcmp(out.data + out.len - 13, "\\u2028\\u2029\"", 13) == 0);
  dml_buffer_deinit(&out);
  free(text);
}

static void test_the_limit_of_the_buffer_holds(void) {
  static const struct {
    const char *text;
    size_t need;
  } cases[] = {{"12345678", 10},
               {"\xE2\x80\xA8", 8},
               {"a\xE2\x80\xA8"
                "b",
                10},
               {"\x01", 8},
               {"\xFF", 5}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t limit = 0; limit <= cases[i].need; limit++) {
      dml_buffer out;
      dml_buffer_init(&out, limit);
      dml_status status = dml_json_append_string(&out, cases[i].text, strlen(cases[i].text));
      if ((status == DML_OK) != (limit >= cases[i].need)) printf("case %zu at limit %zu\n", i, limit);
      CHECK((status == DML_OK) == (limit >= cases[i].need));
      CHECK(out.len <= limit);
      dml_buffer_deinit(&out);
    }
}

/* Only what was appended is looked at, and a separator that a cut divides is none. */
static void test_what_stood_before_stays(void) {
  dml_buffer out;
  dml_buffer_init(&out, 1000);
  CHECK(dml_buffer_append(&out, "\xE2\x80\xA8", 3) == DML_OK);
  CHECK(dml_json_append_string(&out, "\xE2\x80\xA7\xE2\x80\xAA", 6) == DML_OK);
  CHECK(out.len == 11 && memcmp(out.data, "\xE2\x80\xA8\"\xE2\x80\xA7\xE2\x80\xAA\"", 11) == 0);
  dml_buffer_deinit(&out);
}

int main(void) {
  CHECK_RUN(test_ids);
  CHECK_RUN(test_id_length);
  CHECK_RUN(test_balance);
  CHECK_RUN(test_limits_keep_the_id);
  CHECK_RUN(test_the_worst_text_is_scanned_fast);
  CHECK_RUN(test_many_separators_are_escaped_fast);
  CHECK_RUN(test_the_limit_of_the_buffer_holds);
  CHECK_RUN(test_what_stood_before_stays);
  return check_end();
}
