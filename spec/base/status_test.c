/* status_test.c - base/status: the table of failures against the error contract of the tools. */
#include "base/status.h"

#include <errno.h>
#include <string.h>

#include "support/check.h"

static void test_names_are_unique_and_found(void) {
  for (int i = 0; i < DML_STATUS_COUNT; i++) {
    const char *name = dml_status_name((dml_status)i);
    CHECK(dml_status_from_name(name) == (dml_status)i);
    CHECK(strspn(name, "abcdefghijklmnopqrstuvwxyz_") == strlen(name));
  }
  CHECK(dml_status_from_name("no_such_status") == DML_STATUS_COUNT);
}

static void test_texts_stand_alone(void) {
  for (int i = 0; i < DML_STATUS_COUNT; i++) {
    const char *text = dml_status_text((dml_status)i);
    size_t len = strlen(text);
    CHECK(len > 2 && text[len - 1] == '.');
  }
}

static void test_suggestions_are_sentences_or_nothing(void) {
  size_t count = 0;
  for (int i = 0; i < DML_STATUS_COUNT; i++) {
    const char *text = dml_status_suggestion((dml_status)i);
    size_t len = strlen(text);
    CHECK(len == 0 || (len > 10 && text[len - 1] == '.' && text[0] >= 'A' && text[0] <= 'Z'));
    if (len > 0) count++;
  }
  CHECK(count == 5);
  CHECK(*dml_status_suggestion(DML_OK) == 0);
  CHECK(strstr(dml_status_suggestion(DML_AUTHENTICATION_FAILED), "credential") != NULL);
}

static void test_out_of_range_is_internal(void) {
  CHECK(strcmp(dml_status_name((dml_status)9999), "internal") == 0);
  CHECK(strcmp(dml_status_name((dml_status)-1), "internal") == 0);
}

static void test_only_harmless_repeats_are_retryable(void) {
  for (int i = 0; i < DML_STATUS_COUNT; i++) {
    bool expected = i == DML_RATE_LIMITED || i == DML_NO_CAPACITY;
    CHECK(dml_status_is_retryable((dml_status)i) == expected);
  }
}

static void test_http(void) {
  static const struct {
    int http;
    dml_status otherwise, on_create;
  } cases[] = {
      {200, DML_OK, DML_OK},
      {204, DML_OK, DML_OK},
      {302, DML_PROVIDER_REJECTED, DML_PROVIDER_REJECTED},
      {400, DML_PROVIDER_REJECTED, DML_PROVIDER_REJECTED},
      {401, DML_AUTHENTICATION_FAILED, DML_AUTHENTICATION_FAILED},
      {402, DML_QUOTA_EXCEEDED, DML_QUOTA_EXCEEDED},
      {403, DML_PROVIDER_FORBIDDEN, DML_PROVIDER_FORBIDDEN},
      {404, DML_NOT_FOUND, DML_NOT_FOUND},
      {409, DML_CONFLICT, DML_PROVIDER_REJECTED},
      {410, DML_SANDBOX_GONE, DML_SANDBOX_GONE},
      {422, DML_PROVIDER_REJECTED, DML_PROVIDER_REJECTED},
      {500, DML_UNAVAILABLE, DML_UNAVAILABLE},
      {502, DML_UNAVAILABLE, DML_UNAVAILABLE},
      {503, DML_UNAVAILABLE, DML_NO_CAPACITY},
      {504, DML_UNAVAILABLE, DML_NO_CAPACITY},
      {0, DML_INVALID_RESPONSE, DML_INVALID_RESPONSE},
      {700, DML_INVALID_RESPONSE, DML_INVALID_RESPONSE},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK(dml_status_from_http(cases[i].http, false) == cases[i].otherwise);
    CHECK(dml_status_from_http(cases[i].http, true) == cases[i].on_create);
  }
}

static void test_codes(void) {
  static const struct {
    dml_code_family family;
    const char *code;
    dml_status status;
  } cases[] = {
      {DML_CODES_CONNECT, "not_found", DML_FILE_NOT_FOUND},
      {DML_CODES_CONNECT, "data_loss", DML_UNAVAILABLE},
      {DML_CODES_CONNECT, "sandbox_gone", DML_STATUS_COUNT},
      {DML_CODES_E2B, "not_found", DML_NOT_FOUND},
      {DML_CODES_E2B, "sandbox_capacity_unavailable", DML_NO_CAPACITY},
      {DML_CODES_E2B, "sandbox_gone", DML_SANDBOX_GONE},
      {DML_CODES_E2B, "insufficient-credits", DML_STATUS_COUNT},
      {DML_CODES_VERYFRONT, "insufficient-credits", DML_QUOTA_EXCEEDED},
      {DML_CODES_VERYFRONT, "", DML_STATUS_COUNT},
      {DML_CODES_E2B, "Sandbox_gone", DML_STATUS_COUNT},
      {DML_CODES_E2B, "sandbox_gon", DML_STATUS_COUNT},
      {DML_CODES_E2B, "sandbox_gonee", DML_STATUS_COUNT},
      {DML_CODE_FAMILY_COUNT, "sandbox_gone", DML_STATUS_COUNT},
      {(dml_code_family)-1, "sandbox_gone", DML_STATUS_COUNT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK(dml_status_from_code(cases[i].family, cases[i].code, strlen(cases[i].code)) == cases[i].status);
  CHECK(dml_status_from_code(DML_CODES_E2B, "sandbox_gone\0x", 14) == DML_STATUS_COUNT);
  CHECK(dml_status_from_code(DML_CODES_E2B, "sandbox_gone, and more", 12) == DML_SANDBOX_GONE);
  CHECK(dml_code_family_from_name("connect") == DML_CODES_CONNECT);
  CHECK(dml_code_family_from_name("e2b") == DML_CODES_E2B);
  CHECK(dml_code_family_from_name("veryfront") == DML_CODES_VERYFRONT);
  CHECK(dml_code_family_from_name("e2") == DML_CODE_FAMILY_COUNT);
}

static void test_errno(void) {
  CHECK(dml_status_from_errno(0) == DML_OK);
  CHECK(dml_status_from_errno(ENOENT) == DML_FILE_NOT_FOUND);
  CHECK(dml_status_from_errno(ENOSPC) == DML_DISK_FULL);
  CHECK(dml_status_from_errno(EROFS) == DML_FILE_PERMISSION);
  CHECK(dml_status_from_errno(ECONNREFUSED) == DML_CONNECTION_FAILED);
  CHECK(dml_status_from_errno(99999) == DML_INTERNAL);
}

int main(void) {
  CHECK_RUN(test_names_are_unique_and_found);
  CHECK_RUN(test_texts_stand_alone);
  CHECK_RUN(test_suggestions_are_sentences_or_nothing);
  CHECK_RUN(test_out_of_range_is_internal);
  CHECK_RUN(test_only_harmless_repeats_are_retryable);
  CHECK_RUN(test_http);
  CHECK_RUN(test_codes);
  CHECK_RUN(test_errno);
  return check_end();
}
