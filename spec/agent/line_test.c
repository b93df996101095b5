/* line_test.c - agent/line: the newest whole line, however the output is cut. The agent is a program of its own, so the
 * file under test is compiled in here. */
#include "agent/line.c"

#include "support/check.h"

static bool add(dml_line *line, const char *text) { return dml_line_add(line, (const uint8_t *)text, strlen(text)); }

static bool is_text(const dml_line *line, const char *text) {
  return line->text_len == strlen(text) && memcmp(line->text, text, line->text_len) == 0;
}

static void test_pieces(void) {
  dml_line line = {0};
  CHECK(!add(&line, "fir"));
  CHECK(!add(&line, "st"));
  CHECK(add(&line, "\nsec") && is_text(&line, "first"));
  CHECK(add(&line, "ond\nthird\nfour") && is_text(&line, "third"));
  CHECK(add(&line, "th\r\n") && is_text(&line, "fourth"));
  CHECK(!add(&line, "\n\r\n\n"));
  CHECK(is_text(&line, "fourth"));
}

static void test_blank_lines(void) {
  dml_line line = {0};
  CHECK(add(&line, "a\nb\n\n\r\n") && is_text(&line, "b"));
  CHECK(!add(&line, "c"));
  CHECK(add(&line, "d\n\n") && is_text(&line, "cd"));
}

static void test_cut_at_a_character(void) {
  dml_line line = {0};
  char text[512];
  memset(text, 'x', sizeof text);
  text[300] = '\n';
  CHECK(dml_line_add(&line, (uint8_t *)text, 301) && line.text_len == DML_FRAME_LINE_MAX);
  memcpy(text + 199, "\xc3\xa9", 2);
  CHECK(dml_line_add(&line, (uint8_t *)text, 301) && line.text_len == 199);
  memcpy(text + 197, "\xf0\x9f\x8c\x99", 4);
  CHECK(dml_line_add(&line, (uint8_t *)text, 301) && line.text_len == 197);
  memcpy(text + 196, "\xf0\x9f\x8c\x99\n", 5);
  CHECK(dml_line_add(&line, (uint8_t *)text, 201) && line.text_len == 200);
  memset(text, 0x80, 300); /* no UTF-8 at all: cut all the same */
  CHECK(dml_line_add(&line, (uint8_t *)text, 301) && line.text_len == 197);
}

static void test_long_line_in_pieces(void) {
  dml_line line = {0};
  for (int i = 0; i < 100; i++) CHECK(!add(&line, "0123456789"));
  CHECK(add(&line, "\n") && line.text_len == DML_FRAME_LINE_MAX);
  CHECK(add(&line, "ok\n") && is_text(&line, "ok"));
}

int main(void) {
  CHECK_RUN(test_pieces);
  CHECK_RUN(test_blank_lines);
  CHECK_RUN(test_cut_at_a_character);
  CHECK_RUN(test_long_line_in_pieces);
  return check_end();
}
