/* search.c - see search.h.
 *
 * The filter is asked about the eight characters at each place, as they stand and, near an escape, as they are decoded.
 * The alignments of base64 that share their first character with foreign bytes are told by the eight behind it. */
#include "vault/search.h"

#include <string.h>

#include "vault/view.h"

#define WINDOW DML_SECRETS_WINDOW
/* Characters that decide about one place: its own window, and that of the next place. */
#define REACH (WINDOW + 1)
/* Of a secret in base64 this much may be missing at its end: who takes whole quartets only leaves out as much. */
#define BASE64_LACK 2

static size_t find(const dml_search *s, char c, size_t at) {
  const unsigned char *found = memchr(s->text + at, c, s->len - at);
  return found ? (size_t)(found - s->text) : s->len;
}

void dml_search_init(dml_search *search, dml_secrets *set, const char *text, size_t len, bool is_whole) {
  *search = (dml_search){.set = set, .text = (const unsigned char *)text, .len = len, .is_whole = is_whole};
  search->percent = find(search, '%', 0);
  search->backslash = find(search, '\\', 0);
  dml_secrets_refresh(set);
}

void dml_search_deinit(dml_search *search) {
  if (search->has_entered) dml_arena_leave_reading(&search->set->arena);
  search->has_entered = false;
}

/* ---- one place, one form ---- */

/* The secrets of the sorted set, [low, high), that begin with the `depth` bytes read so far. */
typedef struct range {
  size_t low, high, depth;
} range;

static const unsigned char *bytes_of(const dml_secrets *set, size_t place, size_t *len) {
  return dml_secrets_peek(set, set->order[place], len);
}

/* The first place in [low, high) whose byte at the range's depth is not below `byte`. */
static size_t bound(const dml_secrets *set, const range *r, size_t low, int byte) {
  size_t high = r->high, len;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (bytes_of(set, middle, &len)[r->depth] < byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void narrow(const dml_secrets *set, range *r, int byte) {
  r->low = bound(set, r, r->low, byte);
  r->high = bound(set, r, r->low, byte + 1);
  r->depth++;
}

/* Whether a secret ends at the range's depth; it stands first, and leaves the range. */
static bool take_whole(const dml_secrets *set, range *r) {
  size_t len;
  if (r->low == r->high) return false;
  bytes_of(set, r->low, &len);
  if (len > r->depth) return false;
  r->low++;
  return true;
}

/* Whether the range has a secret of which at most BASE64_LACK bytes are not read yet. */
static bool has_nearly_whole(const dml_secrets *set, const range *r) {
  size_t len;
  if (r->depth + BASE64_LACK < DML_SECRET_MIN_BYTES) return false;
  for (size_t place = r->low; place < r->high; place++) {
    bytes_of(set, place, &len);
    if (len <= r->depth + BASE64_LACK) return true;
  }
  return false;
}

/* The end of the longest secret that the view reads, or 0. Sets *is_open when the text ended before it was clear that
 * there is no longer one. */
static size_t match(const dml_search *s, dml_view *view, bool *is_open) {
  range r = {0, s->set->count, 0};
  size_t end = 0;
  bool is_base64 = view->kind >= DML_VIEW_BASE64_0;
  while (r.low < r.high) {
    int byte = dml_view_next(view);
    if (byte < 0) {
      if (byte == DML_VIEW_CUT) *is_open = true;
      if (is_base64 && has_nearly_whole(s->set, &r)) end = view->at;
      break;
    }
    narrow(s->set, &r, byte);
    if (take_whole(s->set, &r)) end = view->at;
  }
  return end;
}

static size_t match_form(const dml_search *s, dml_view_kind kind, size_t start, bool *is_open) {
  dml_view view;
  dml_view_init(&view, kind, s->text, s->len, start);
  return match(s, &view, is_open);
}

/* In base64 behind one or two foreign bytes, from the first character on that is the secret's alone. */
static size_t match_behind(const dml_search *s, size_t start, bool *is_open) {
  size_t longest = 0;
  for (unsigned count = 2; count <= 4; count += 2)
    for (uint32_t bits = 0; bits < 1u << count; bits++) {
      dml_view view;
      dml_view_init_behind(&view, s->text, s->len, start, bits, count);
      size_t end = match(s, &view, is_open);
      if (end > longest) longest = end;
    }
  return longest;
}

static dml_search_found decide(dml_search *s, size_t start) {
  bool is_open = false;
  if (!s->has_entered) dml_arena_enter_reading(&s->set->arena);
  s->has_entered = true;
  s->start = start;
  s->end = match_behind(s, start, &is_open);
  for (int kind = 0; kind < DML_VIEW_COUNT; kind++) {
    if (kind == DML_VIEW_FORM && !s->set->has_blank) continue;
    size_t end = match_form(s, (dml_view_kind)kind, start, &is_open);
    if (end > s->end) s->end = end;
  }
  if (is_open && !s->is_whole) return DML_SEARCH_OPEN;
  return s->end ? DML_SEARCH_MATCH : DML_SEARCH_NONE;
}

/* ---- the filter ---- */

static uint64_t window_at(const dml_search *s, size_t at) {
  uint64_t window = 0;
  for (size_t i = 0; i < WINDOW; i++) window = window << 8 | DML_SECRETS_FOLD[s->text[at + i]];
  return window;
}

/* Where the first escaping character at `at` or behind is. Each is looked for again only when it has been passed. */
static size_t find_escape(dml_search *s, size_t at) {
  if (s->percent < at) s->percent = find(s, '%', at);
  if (s->backslash < at) s->backslash = find(s, '\\', at);
  return s->percent < s->backslash ? s->percent : s->backslash;
}

/* Whether the two windows from here on may be those of a secret by their first characters, four of them. */
static bool may_begin_with(const dml_search *s, uint32_t four) {
  return dml_secrets_may_begin_with(s->set, four >> 8) || dml_secrets_may_begin_with(s->set, four);
}

/* Whether a secret may begin at `at` when the text is read in this form, in which the first escape is at `escape`. */
static bool may_begin_decoded(const dml_search *s, dml_view_kind kind, size_t at, size_t escape, uint32_t four) {
  dml_view view;
  uint64_t window = 0;
  if (escape >= at + REACH || (escape >= at + 4 && !may_begin_with(s, four))) return false;
  dml_view_init(&view, kind, s->text, s->len, at);
  for (size_t i = 1; i <= REACH; i++) {
    int byte = dml_view_next(&view);
    if (byte == DML_VIEW_CUT) return !s->is_whole;
    if (byte < 0) return false;
    window = window << 8 | DML_SECRETS_FOLD[byte];
    if (i == 4 && !may_begin_with(s, (uint32_t)window)) return false;
    if (i >= WINDOW && dml_secrets_may_begin(s->set, window)) return true;
  }
  return false;
}

/* Near an escape; not at the end of the text. */
static bool may_begin_escaped(const dml_search *s, size_t at, uint64_t window) {
  uint32_t four = (uint32_t)(window >> 32);
  return may_begin_decoded(s, DML_VIEW_URL, at, s->percent, four) ||
         may_begin_decoded(s, DML_VIEW_JSON, at, s->backslash, four);
}

dml_search_found dml_search_next(dml_search *s, size_t from) {
  size_t escape = find_escape(s, from);
  uint64_t here, next = from + WINDOW <= s->len ? window_at(s, from) : 0;
  bool is_here, is_next = dml_secrets_may_begin(s->set, next);
  for (size_t at = from; at < s->len; at++) {
    bool may_begin;
    if (escape < at) escape = find_escape(s, at);
    if (at + REACH <= s->len) {
      here = next;
      is_here = is_next;
      next = next << 8 | DML_SECRETS_FOLD[s->text[at + WINDOW]];
      is_next = dml_secrets_may_begin(s->set, next);
      may_begin = is_here || is_next || (escape < at + REACH && may_begin_escaped(s, at, here));
    } else { /* one window is left, or less than any secret takes */
      may_begin = !s->is_whole || (at + WINDOW <= s->len && (is_next || escape < s->len));
    }
    if (!may_begin) continue;
    dml_search_found found = decide(s, at);
    if (found != DML_SEARCH_NONE) return found;
  }
  return DML_SEARCH_NONE;
}
