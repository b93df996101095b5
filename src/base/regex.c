/* regex.c - see regex.h; the only file that knows PCRE2.
 *
 * PCRE2's own limit counts steps back at one place where a match may begin, and neither the length of a run nor how many
 * such places there are. So a text is searched few places at a time, each with a bounded view of what follows, and the
 * thread's clock is looked at in between. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/regex.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

/* Steps back at one place; enough for a lazy run over all of a mask's view. */
#define STEPS_MAX 10000
#define STEPS_MIN 100
/* Steps times bytes in view, at one place: what a pattern made to be slow can cost, some tenths of a second. */
#define STEP_BYTES_MAX 500000000
#define HEAP_KIB_MAX 8192
#define NEST_MAX 100
/* Places at which a match may begin that are tried in one call of PCRE2. */
#define PLACES 64
/* As many are tried at first even where each has much in view. */
#define PLACES_TOGETHER 16
/* How far a match is followed that reaches the end of its view. */
#define FOLLOW_MAX 65536
/* CPU time for one text: this, and some for each MiB of it. */
#define TIME_MS 50
#define TIME_MS_A_MIB 50

struct dml_regex {
  pcre2_code *code;
  pcre2_match_data *found;
  pcre2_match_context *limits;
  bool is_anchored; /* it matches at the start of the text or not at all */
};

/* ---- compiling ---- */

static void describe(int code, char *why, size_t why_len) {
  if (why_len == 0) return;
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) snprintf(why, why_len, "it cannot be compiled");
  else snprintf(why, why_len, "%s", (const char *)text);
}

static pcre2_code *compile(const char *pattern, size_t len, int *code, size_t *offset) {
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  *code = PCRE2_ERROR_NOMEMORY;
  *offset = 0;
  if (!context) return NULL;
  pcre2_set_parens_nest_limit(context, NEST_MAX);
  pcre2_set_max_pattern_length(context, DML_REGEX_BYTES_MAX);
  uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, len, options, code, offset, context);
  pcre2_compile_context_free(context);
  return compiled;
}

dml_status dml_regex_new(const char *pattern, size_t len, dml_regex **out, size_t *offset, char *why, size_t why_len) {
  int code;
  *out = NULL;
  pcre2_code *compiled = compile(pattern, len, &code, offset);
  if (!compiled) {
    describe(code, why, why_len);
    return code == PCRE2_ERROR_NOMEMORY ? DML_INTERNAL : DML_INVALID_ARGUMENT;
  }
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* without it the interpreter matches */
  dml_regex *regex = calloc(1, sizeof *regex);
  pcre2_match_data *found = pcre2_match_data_create(1, NULL);
  pcre2_match_context *limits = pcre2_match_context_create(NULL);
  if (!regex || !found || !limits) {
    pcre2_match_context_free(limits);
    pcre2_match_data_free(found);
    free(regex);
    pcre2_code_free(compiled);
    describe(PCRE2_ERROR_NOMEMORY, why, why_len);
    return DML_INTERNAL;
  }
  pcre2_set_heap_limit(limits, HEAP_KIB_MAX);
  uint32_t all_options = 0;
  pcre2_pattern_info(compiled, PCRE2_INFO_ALLOPTIONS, &all_options);
  *regex = (dml_regex){compiled, found, limits, (all_options & PCRE2_ANCHORED) != 0};
  *out = regex;
  return DML_OK;
}

void dml_regex_free(dml_regex *regex) {
  if (!regex) return;
  pcre2_match_context_free(regex->limits);
  pcre2_match_data_free(regex->found);
  pcre2_code_free(regex->code);
  free(regex);
}

/* ---- searching ---- */

/* One text under search. `view` is how many bytes from a place on a match may look at. */
typedef struct search {
  const dml_regex *regex;
  const char *s;
  size_t len, view;
  uint32_t options;
  double deadline_ms, spent_from_ms, allowed_ms;
} search;

static double clock_ms(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static search begin(const dml_regex *regex, const char *s, size_t len, size_t view, uint32_t options) {
  double allowed_ms = TIME_MS + (double)len / (1024 * 1024) * TIME_MS_A_MIB;
  return (search){regex, s, len, view, options | PCRE2_NO_UTF_CHECK, clock_ms(CLOCK_MONOTONIC) + allowed_ms,
                  clock_ms(CLOCK_THREAD_CPUTIME_ID), allowed_ms};
}

/* Wall time is cheap to read; only when that is over, the thread's own time is asked for: a busy machine is no limit. */
static bool is_out_of_time(search *q) {
  double now_ms = clock_ms(CLOCK_MONOTONIC);
  if (now_ms < q->deadline_ms) return false;
  double left_ms = q->allowed_ms - (clock_ms(CLOCK_THREAD_CPUTIME_ID) - q->spent_from_ms);
  q->deadline_ms = now_ms + left_ms;
  return left_ms <= 0;
}

/* The next place at or after `at` where a character begins; the text is UTF-8. */
static size_t to_character(const char *s, size_t len, size_t at) {
  while (at < len && ((unsigned char)s[at] & 0xC0) == 0x80) at++;
  return at;
}

/* Steps back at one place that is followed by so many bytes. */
static uint32_t steps_for(size_t seen) {
  size_t steps = STEP_BYTES_MAX / (seen + 1);
  return (uint32_t)(steps > STEPS_MAX ? STEPS_MAX : steps < STEPS_MIN ? STEPS_MIN : steps);
}

/* One call of PCRE2 for matches that begin in [at, last]. Returns 1, 0 or -1. */
static int try_places(search *q, size_t at, size_t last, size_t end, uint32_t steps, uint32_t options) {
  const dml_regex *regex = q->regex;
  pcre2_set_match_limit(regex->limits, steps);
  pcre2_set_offset_limit(regex->limits, last);
  options |= q->options | (end < q->len ? PCRE2_NOTEOL : 0);
  int rc = pcre2_match(regex->code, (PCRE2_SPTR)q->s, end, at, options, regex->found, regex->limits);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(regex->code, (PCRE2_SPTR)q->s, end, at, options | PCRE2_NO_JIT, regex->found, regex->limits);
  return rc >= 0 ? 1 : rc == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

/* The end of what a match that begins at `place` may look at. */
static size_t view_end(const search *q, size_t place, size_t view) {
  return q->len - place <= view ? q->len : to_character(q->s, q->len, place + view);
}

/* Tries the places from *at on that are cheap enough to be tried together, and moves *at behind them. Where much is in
 * view, that is one alone; then some are tried with few steps first, which decides most texts. */
static int try_next(search *q, size_t *at) {
  size_t seen = view_end(q, *at, q->view) - *at;
  size_t places = PLACES * (size_t)DML_REGEX_MASK_SPAN / (seen + 1);
  uint32_t steps = steps_for(seen);
  int rc = -1;
  if (places < PLACES_TOGETHER) {
    places = PLACES_TOGETHER;
    rc = try_places(q, *at, *at + places - 1, view_end(q, *at, q->view), STEPS_MIN, 0);
    if (rc < 0) places = 1;
  }
  if (places > PLACES) places = PLACES;
  size_t last = q->len - *at < places ? q->len : *at + places - 1;
  if (rc < 0) rc = try_places(q, *at, last, view_end(q, last, q->view), steps, 0);
  *at = to_character(q->s, q->len, last + 1);
  return rc;
}

/* The first match that begins at `at` or later: 1 with its bounds, 0, or -1: a limit. */
static int find(search *q, size_t at, size_t *from, size_t *to) {
  while (at <= q->len) {
    int rc = try_next(q, &at);
    if (rc < 0) return -1;
    if (rc == 1) {
      const size_t *bounds = pcre2_get_ovector_pointer(q->regex->found);
      *from = bounds[0];
      *to = bounds[1];
      return 1;
    }
    if (q->regex->is_anchored) return 0;
    if (is_out_of_time(q)) return -1;
  }
  return 0;
}

/* Gives a text that is UTF-8: the text itself, or one that is mended, in `mended`. */
static dml_status as_utf8(const char **s, size_t *len, dml_buffer *mended) {
  dml_buffer_init(mended, *len * 3 + 3);
  if (dml_utf8_is_valid(*s, *len)) return DML_OK;
  dml_status status = dml_utf8_append_mended(mended, *s, *len);
  *s = mended->data;
  *len = mended->len;
  return status;
}

int dml_regex_match(const dml_regex *regex, const char *s, size_t len) {
  dml_buffer mended;
  int rc = -1;
  if (as_utf8(&s, &len, &mended) == DML_OK) {
    search q = begin(regex, s, len, SIZE_MAX, 0);
    size_t from, to;
    rc = find(&q, 0, &from, &to);
  }
  dml_buffer_deinit(&mended);
  return rc;
}

/* ---- masking ---- */

/* Follows a match that reached the end of its view, as far as FOLLOW_MAX. Returns 1 with the end, 0 where there is none
 * when more is in view (it took that end for the text's), or -1. */
static int follow(search *q, size_t from, size_t *to) {
  if (*to < view_end(q, from, q->view) || *to == q->len) return 1;
  size_t end = view_end(q, from, FOLLOW_MAX);
  int rc = try_places(q, from, from, end, steps_for(end - from), PCRE2_ANCHORED);
  if (rc == 1) *to = pcre2_get_ovector_pointer(q->regex->found)[1];
  return rc;
}

/* The next match to be masked, at `*at` or later, which moves behind it: 1 with its bounds, 0, or -1. */
static int next_match(search *q, size_t *at, size_t *from, size_t *to) {
  int rc;
  while ((rc = find(q, *at, from, to)) > 0) {
    rc = follow(q, *from, to);
    if (rc < 0 || is_out_of_time(q)) return -1;
    *at = rc > 0 ? *to : to_character(q->s, q->len, *from + 1);
    if (rc > 0) return 1;
  }
  return rc;
}

static dml_status mask_utf8(search *q, const char *with, dml_buffer *out, size_t *count) {
  size_t done = 0, at = 0, from, to;
  int rc;
  while ((rc = next_match(q, &at, &from, &to)) > 0) {
    dml_status status = dml_buffer_append(out, q->s + done, from - done);
    if (status == DML_OK) status = dml_buffer_append(out, with, strlen(with));
    if (status != DML_OK) return status;
    done = to;
    ++*count;
  }
  return rc < 0 ? DML_TOO_LARGE : dml_buffer_append(out, q->s + done, q->len - done);
}

dml_status dml_regex_mask(const dml_regex *regex, const char *s, size_t len, const char *with, dml_buffer *out, size_t *count) {
  dml_buffer mended;
  const char *text = s;
  size_t text_len = len, before = out->len;
  *count = 0;
  dml_status status = as_utf8(&text, &text_len, &mended);
  if (status == DML_OK) {
    search q = begin(regex, text, text_len, DML_REGEX_MASK_SPAN, PCRE2_NOTEMPTY);
    status = mask_utf8(&q, with, out, count);
  }
  if (status == DML_OK && *count == 0 && text != s) {
    out->len = before;
    status = dml_buffer_append(out, s, len);
  }
  dml_buffer_deinit(&mended);
  return status;
}

/* A copy in which every byte that is no UTF-8 is `?`. */
static dml_status as_placeholders(const char *s, size_t len, dml_buffer *copy) {
  dml_buffer_init(copy, len + 1);
  dml_status status = dml_buffer_append(copy, s, len);
  for (size_t at = 0; status == DML_OK && at < len;) {
    int step = dml_utf8_step(s + at, len - at);
    if (step <= 0) copy->data[at] = '?';
    at += step > 0 ? (size_t)step : 1;
  }
  return status;
}

dml_status dml_regex_blank(const dml_regex *regex, const char *s, size_t len, dml_buffer *out) {
  dml_buffer copy;
  size_t start = out->len, at = 0, from, to;
  int rc = 0;
  dml_status status = as_placeholders(s, len, &copy);
  if (status == DML_OK) status = dml_buffer_append(out, s, len);
  if (status == DML_OK && len > 0) {
    search q = begin(regex, copy.data, len, DML_REGEX_MASK_SPAN, PCRE2_NOTEMPTY);
    while ((rc = next_match(&q, &at, &from, &to)) > 0) memset(out->data + start + from, '*', to - from);
  }
  dml_buffer_deinit(&copy);
  return rc < 0 ? DML_TOO_LARGE : status;
}
