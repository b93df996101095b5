/* redact_test.c - vault/redact: every form, any pieces, against texts whose masks are known and a naive search. */
#include "vault/redact.h"

#include "support/check.h"
#include "vault/forms.h"

#define ROUNDS 400

static text input, expected;
static dml_secrets set;
static uint64_t state;

static void add(const char *secret) {
  dml_secret_id id;
  CHECK(dml_secrets_add(&set, (const unsigned char *)secret, strlen(secret), &id) == DML_OK);
}

static bool is_equal(const dml_buffer *out, const text *t) {
  return out->len == t->len && memcmp(out->data, t->bytes, t->len) == 0;
}

static void show(const char *what, const char *bytes, size_t len) { printf("%s: %.*s\n", what, (int)len, bytes); }

/* In one piece. */
static bool gives_whole(const text *in, const text *want) {
  dml_buffer out;
  bool is_changed;
  dml_buffer_init(&out, 1 << 20);
  bool done = dml_redact(&set, in->bytes, in->len, false, &out, &is_changed) == DML_OK;
  done = done &&
         (is_changed ? is_equal(&out, want) : in->len == want->len && memcmp(in->bytes, want->bytes, in->len) == 0);
  if (!done) show("in", in->bytes, in->len), show("want", want->bytes, want->len), show("got", out.data, out.len);
  dml_buffer_deinit(&out);
  return done;
}

/* In pieces of 1 to `most` bytes. */
static bool gives_in_pieces(const text *in, const text *want, uint32_t most) {
  dml_buffer out;
  dml_redactor redactor;
  dml_buffer_init(&out, 1 << 20);
  dml_redactor_init(&redactor);
  bool done = true;
  for (size_t at = 0; at < in->len && done;) {
    size_t take = 1 + roll(&state, most);
    if (take > in->len - at) take = in->len - at;
    done = dml_redactor_feed(&redactor, &set, in->bytes + at, take, &out) == DML_OK;
    done = done && redactor.held.len <= DML_REDACT_HELD_MAX_BYTES;
    at += take;
  }
  done = done && dml_redactor_finish(&redactor, &set, &out) == DML_OK && is_equal(&out, want);
  if (!done) show("in", in->bytes, in->len), show("want", want->bytes, want->len), show("got", out.data, out.len);
  dml_redactor_deinit(&redactor);
  dml_buffer_deinit(&out);
  return done;
}

static void fresh(uint64_t seed) {
  CHECK(dml_secrets_init(&set) == DML_OK);
  input.len = expected.len = 0;
  state = seed;
}

static void test_nothing_live_changes_nothing(void) {
  fresh(1);
  put_text(&input, "sk-0123456789abcdef %41 \\u0041");
  CHECK(gives_whole(&input, &input) && gives_in_pieces(&input, &input, 3));
  dml_secrets_deinit(&set);
}

static void test_each_place_of_a_text(void) {
  fresh(2);
  add("sk-0123456789");
  put_text(&input, "sk-0123456789,sk-0123456789sk-0123456789 sk-012345678 k-0123456789 sk-0123456789");
  put_text(&expected, "[redacted],[redacted][redacted] sk-012345678 k-0123456789 [redacted]");
  CHECK(gives_whole(&input, &expected) && gives_in_pieces(&input, &expected, 1) &&
        gives_in_pieces(&input, &expected, 9));
  dml_secrets_deinit(&set);
}

static void test_the_longest_counts_and_overlaps_are_one(void) {
  fresh(3);
  add("abcdefgh");
  add("abcdefghij");
  add("efghijklmnop");
  add("cdefghijk");
  put_text(&input, "abcdefghijklmnop.abcdefghi.abcdefghij.abcdefghijk");
  put_text(&expected, "[redacted].[redacted]i.[redacted].[redacted]");
  CHECK(gives_whole(&input, &expected) && gives_in_pieces(&input, &expected, 1) &&
        gives_in_pieces(&input, &expected, 5));
  dml_secrets_deinit(&set);
}

/* ---- all forms ---- */

/* Letters, digits and signs that keys have; at times a space, a quote, a two-byte character. */
static size_t make_secret(unsigned char *out, size_t most) {
  static const char SIGNS[] = "-_.=/+:~%\\\" @";
  size_t want = DML_SECRET_MIN_BYTES + roll(&state, (uint32_t)(most - DML_SECRET_MIN_BYTES)), n = 0;
  while (n < want) {
    uint32_t kind = roll(&state, 30);
    if (kind == 0 && n > 0 && n + 2 < want) {
      out[n++] = 0xC3;
      out[n++] = (unsigned char)(0x80 + roll(&state, 64));
    } else if (kind < 4 && n > 0 && n + 1 < want) {
      out[n++] = (unsigned char)SIGNS[roll(&state, sizeof SIGNS - 1)];
    } else {
      out[n++] = (unsigned char)"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[roll(&state, 62)];
    }
  }
  return n;
}

/* What no form of a secret begins, ends or goes on with. */
static void put_filler(void) {
  size_t n = 1 + roll(&state, 12);
  for (size_t i = 0; i < n; i++) {
    char c = "#!|<>\n\t;,()"[roll(&state, 11)];
    put(&input, &c, 1);
    put(&expected, &c, 1);
  }
}

static void put_masked(const unsigned char *secret, size_t len) {
  size_t start = input.len, end;
  switch (roll(&state, 5)) {
  case 0: put(&input, secret, len); break;
  case 1: put_hex(&input, secret, len, &state); break;
  case 2: put_url(&input, secret, len, &state); break;
  case 3: put_json(&input, secret, len, &state); break;
  default:
    put_base64(&input, secret, len, roll(&state, 7), roll(&state, 7), &state, &start, &end);
    size_t before = start, all = input.len;
    while (before > 0 &&
           strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_", input.bytes[before - 1]))
      before--;
    put(&expected, input.bytes + before, start - before);
    put_text(&expected, DML_REDACT_MARK);
    put(&expected, input.bytes + end, all - end);
    return;
  }
  put_text(&expected, DML_REDACT_MARK);
}

static bool is_ascii(const unsigned char *bytes, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (bytes[i] >= 0x80) return false;
  return true;
}

static void all_forms(size_t count, size_t longest, uint64_t seed) {
  static unsigned char secrets[512][DML_SECRET_MAX_BYTES];
  static size_t lens[512];
  fresh(seed);
  for (size_t i = 0; i < count; i++) {
    dml_secret_id id;
    lens[i] = make_secret(secrets[i], longest);
    if (i % 3 == 1 && is_ascii(secrets[i], 8) && is_ascii(secrets[i - 1], 7))
      memcpy(secrets[i], secrets[i - 1], 7); /* as keys do */
    CHECK(dml_secrets_add(&set, secrets[i], lens[i], &id) == DML_OK);
  }
  put_filler();
  for (size_t i = 0; i < 8; i++) {
    size_t which = roll(&state, (uint32_t)count);
    put_masked(secrets[which], lens[which]);
    put_filler();
  }
  if (!gives_whole(&input, &expected) || !gives_in_pieces(&input, &expected, 1 + roll(&state, 40))) {
    CHECK(!"a form was missed, or too much was masked");
    printf("seed %llu\n", (unsigned long long)seed);
  }
  dml_secrets_deinit(&set);
}

static void test_every_form_is_masked_and_nothing_else(void) {
  for (uint64_t seed = 1; seed <= ROUNDS && !check_case_failed; seed++) all_forms(1 + seed % 6, 60, seed);
  for (uint64_t seed = 1; seed <= ROUNDS / 20 && !check_case_failed; seed++) all_forms(300, 200, seed);
  for (uint64_t seed = 1; seed <= ROUNDS / 20 && !check_case_failed; seed++) all_forms(2, 1500, seed);
}

static void test_forms_in_forms_of_base64(void) {
  fresh(5);
  add("ab?>cd?>ef?>gh");
  put_text(&input, "YWI%2FPmNkPz5lZj8%2BZ2g= YWI\\/PmNkPz5lZj8+Z2g= xYWI_PmNkPz5lZj8-Z2g");
  put_text(&expected, "[redacted]= [redacted]= x[redacted]");
  CHECK(gives_whole(&input, &expected) && gives_in_pieces(&input, &expected, 2));
  dml_secrets_deinit(&set);
}

/* Only the characters that the secret alone decides, and whole quartets of them. */
static void test_base64_without_its_borders(void) {
  for (uint64_t seed = 1; seed <= ROUNDS && !check_case_failed; seed++) {
    unsigned char secret[64];
    dml_secret_id id;
    size_t start, end;
    fresh(seed * 1009);
    size_t len = make_secret(secret, sizeof secret), before = seed % 3;
    CHECK(dml_secrets_add(&set, secret, len, &id) == DML_OK);
    put_base64(&input, secret, len, before, 0, &state, &start, &end);
    size_t whole = (before + len) / 3 * 4, first = before == 0 ? 0 : before + 1;
    memmove(input.bytes + 1, input.bytes + first, whole - first);
    input.bytes[0] = '|';
    input.len = 1 + whole - first;
    put_text(&input, "|after");
    put_text(&expected, "|[redacted]|after");
    CHECK(gives_whole(&input, &expected) && gives_in_pieces(&input, &expected, 1 + roll(&state, 9)));
    dml_secrets_deinit(&set);
  }
}

static void test_a_plus_may_be_a_space(void) {
  fresh(6);
  add("pass word one");
  put_text(&input, "q=pass+word%20one&r=pass word+one");
  put_text(&expected, "q=[redacted]&r=[redacted]");
  CHECK(gives_whole(&input, &expected) && gives_in_pieces(&input, &expected, 2));
  dml_secrets_deinit(&set);
}

/* ---- a naive search over two letters, where everything overlaps ---- */

static void mask_naively(unsigned char secrets[][16], const size_t *lens, size_t count) {
  size_t masked = 0, is_open = 0;
  for (size_t i = 0; i < input.len; i++) {
    for (size_t k = 0; k < count; k++)
      if (lens[k] <= input.len - i && memcmp(input.bytes + i, secrets[k], lens[k]) == 0) {
        if (i >= masked) put_text(&expected, DML_REDACT_MARK);
        if (i + lens[k] > masked) masked = i + lens[k];
      }
    is_open = i < masked;
    if (!is_open) put(&expected, input.bytes + i, 1);
  }
}

static void test_overlaps_as_a_naive_search_finds_them(void) {
  unsigned char secrets[8][16];
  size_t lens[8];
  for (uint64_t seed = 1; seed <= ROUNDS && !check_case_failed; seed++) {
    fresh(seed * 77);
    size_t count = 1 + roll(&state, 8);
    for (size_t i = 0; i < count; i++) {
      dml_secret_id id;
      lens[i] = 8 + roll(&state, 6);
      for (size_t j = 0; j < lens[i]; j++) secrets[i][j] = roll(&state, 3) ? 'y' : 'z';
      CHECK(dml_secrets_add(&set, secrets[i], lens[i], &id) == DML_OK);
    }
    for (size_t i = 0; i < 300; i++) put(&input, roll(&state, 40) == 0 ? "." : roll(&state, 3) ? "y" : "z", 1);
    mask_naively(secrets, lens, count);
    CHECK(gives_whole(&input, &expected) && gives_in_pieces(&input, &expected, 1 + roll(&state, 20)));
    dml_secrets_deinit(&set);
  }
}

/* ---- anything at all, and cuts ---- */

static void test_pieces_never_matter(void) {
  static const char PARTS[][12] = {"%",     "\\",       "\\u",       "%4",      "%41", "\\\"",  "\\/",
                                   "00e9",  "\xC3\xA9", "a%b\\c/d+", "YSVi",    "+",   " ",     "_",
                                   "61256", "f5c632",   "\\ud83d",   "\\ude00", "a%b", "\\c/d", "\xF0\x9F\x98\x80"};
  for (uint64_t seed = 1; seed <= ROUNDS && !check_case_failed; seed++) {
    fresh(seed * 131);
    add("a%b\\c/d+e\xC3\xA9 f");
    add("a%b\\c/d+");
    add("\xF0\x9F\x98\x80%41\\u00");
    for (size_t i = 0; i < 60; i++) put_text(&input, PARTS[roll(&state, sizeof PARTS / sizeof *PARTS)]);
    dml_buffer out;
    bool is_changed;
    dml_buffer_init(&out, 1 << 20);
    CHECK(dml_redact(&set, input.bytes, input.len, false, &out, &is_changed) == DML_OK);
    put(&expected, is_changed ? out.data : input.bytes, is_changed ? out.len : input.len);
    CHECK(gives_in_pieces(&input, &expected, 1) && gives_in_pieces(&input, &expected, 1 + roll(&state, 30)));
    CHECK(memmem(expected.bytes, expected.len, "a%b\\c/d+", 8) == NULL);
    dml_buffer_deinit(&out);
    dml_secrets_deinit(&set);
  }
}

static void test_a_cut_leaves_no_half(void) {
  fresh(9);
  unsigned char secret[40];
  size_t len = make_secret(secret, sizeof secret), start, end;
  dml_secret_id id;
  CHECK(dml_secrets_add(&set, secret, len, &id) == DML_OK);
  for (int form = 0; form < 5; form++) {
    text *t = &input;
    t->len = 0;
    put_text(t, "##");
    if (form == 0) put(t, secret, len);
    if (form == 1) put_hex(t, secret, len, &state);
    if (form == 2) put_url(t, secret, len, &state);
    if (form == 3) put_json(t, secret, len, &state);
    if (form == 4) put_base64(t, secret, len, 0, 0, &state, &start, &end);
    for (size_t cut = 3; cut < t->len; cut++) {
      dml_buffer out;
      bool is_changed;
      dml_buffer_init(&out, 1 << 20);
      CHECK(dml_redact(&set, t->bytes, cut, true, &out, &is_changed) == DML_OK && is_changed);
      bool is_clean = out.len == 2 || (out.len >= 12 && memcmp(out.data, "##[redacted]", 12) == 0);
      CHECK(is_clean);
      dml_buffer_deinit(&out);
    }
  }
  dml_secrets_deinit(&set);
}

/* ---- what goes, and the room ---- */

static void test_a_secret_that_is_gone_is_no_longer_masked(void) {
  dml_secret_id one, two, again;
  fresh(10);
  CHECK(dml_secrets_add(&set, (const unsigned char *)"first-secret", 12, &one) == DML_OK);
  CHECK(dml_secrets_add(&set, (const unsigned char *)"second-secret", 13, &two) == DML_OK);
  CHECK(dml_secrets_add(&set, (const unsigned char *)"first-secret", 12, &again) == DML_OK && again == one &&
        set.count == 2);
  put_text(&input, "first-secret second-secret");
  put_text(&expected, "[redacted] [redacted]");
  CHECK(gives_whole(&input, &expected));
  dml_secrets_drop(&set, one);
  CHECK(gives_whole(&input, &expected));
  dml_secrets_drop(&set, one);
  expected.len = 0;
  put_text(&expected, "first-secret [redacted]");
  CHECK(set.count == 1 && set.arena.used == 13 && gives_whole(&input, &expected));
  dml_secrets_drop(&set, two);
  CHECK(gives_whole(&input, &input) && set.arena.used == 0);
  dml_secrets_deinit(&set);
}

static void test_what_is_no_secret(void) {
  unsigned char bytes[DML_SECRET_MAX_BYTES + 1];
  dml_secret_id id;
  fresh(11);
  memset(bytes, 'x', sizeof bytes);
  CHECK(dml_secrets_add(&set, bytes, 7, &id) == DML_INVALID_ARGUMENT);
  CHECK(dml_secrets_add(&set, bytes, sizeof bytes, &id) == DML_INVALID_ARGUMENT);
  CHECK(dml_secrets_add(&set, (const unsigned char *)"abcd\nefgh", 9, &id) == DML_INVALID_ARGUMENT);
  CHECK(dml_secrets_add(&set, (const unsigned char *)"abcd\0efgh", 9, &id) == DML_INVALID_ARGUMENT);
  CHECK(dml_secrets_add(&set, bytes, sizeof bytes - 1, &id) == DML_OK &&
        dml_secrets_add(&set, bytes, 8, &id) == DML_OK);
  dml_secrets_deinit(&set);
}

static void test_the_room_is_bounded_and_comes_back(void) {
  static dml_secret_id ids[DML_SECRETS_MAX];
  unsigned char bytes[256];
  size_t count = 0;
  fresh(12);
  memset(bytes, 'q', sizeof bytes);
  for (; count < DML_SECRETS_MAX; count++) {
    snprintf((char *)bytes, 9, "%08zu", count * 7919 % 99991);
    bytes[8] = 'q';
    if (dml_secrets_add(&set, bytes, sizeof bytes, &ids[count]) != DML_OK) break;
  }
  CHECK(count >= 512);
  if (count < DML_SECRETS_MAX) CHECK(dml_secrets_add(&set, bytes, sizeof bytes, &ids[0]) == DML_TOO_LARGE);
  for (size_t i = 0; i < count; i += 2) dml_secrets_drop(&set, ids[i]);
  for (size_t i = 1; i < count; i += 2) {
    char want[9];
    size_t len;
    snprintf(want, sizeof want, "%08zu", i * 7919 % 99991);
    dml_arena_enter(&set.arena);
    CHECK(memcmp(dml_secrets_peek(&set, ids[i], &len), want, 8) == 0 && len == sizeof bytes);
    dml_arena_leave(&set.arena);
  }
  CHECK(set.arena.used == count / 2 * sizeof bytes);
  dml_secrets_deinit(&set);
}

int main(void) {
  CHECK_RUN(test_nothing_live_changes_nothing);
  CHECK_RUN(test_each_place_of_a_text);
  CHECK_RUN(test_the_longest_counts_and_overlaps_are_one);
  CHECK_RUN(test_every_form_is_masked_and_nothing_else);
  CHECK_RUN(test_forms_in_forms_of_base64);
  CHECK_RUN(test_base64_without_its_borders);
  CHECK_RUN(test_a_plus_may_be_a_space);
  CHECK_RUN(test_overlaps_as_a_naive_search_finds_them);
  CHECK_RUN(test_pieces_never_matter);
  CHECK_RUN(test_a_cut_leaves_no_half);
  CHECK_RUN(test_a_secret_that_is_gone_is_no_longer_masked);
  CHECK_RUN(test_what_is_no_secret);
  CHECK_RUN(test_the_room_is_bounded_and_comes_back);
  return check_end();
}
