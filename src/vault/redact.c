/* redact.c - see redact.h. */
#include "vault/redact.h"

#include <stdint.h>

#include "vault/search.h"

/* What one pass over a text gave: all before `emitted` is in the output or masked, and [open, len) is not decided. */
typedef struct pass {
  size_t emitted, open;
  bool is_changed;
} pass;

static dml_status emit(const char *text, size_t start, size_t end, dml_buffer *out) {
  return end > start ? dml_buffer_append(out, text + start, end - start) : DML_OK;
}

/* Goes over the text up to the first place that is not decided; `p->emitted` says where the output stands at first.
 * What stands behind the last find is left to the caller. */
static dml_status run(dml_search *search, const char *text, pass *p, dml_buffer *out) {
  dml_status status = DML_OK;
  size_t from = 0;
  dml_search_found found;
  while ((found = dml_search_next(search, from)) == DML_SEARCH_MATCH && status == DML_OK) {
    from = search->start + 1;
    p->is_changed = true;
    if (search->start >= p->emitted) {
      status = emit(text, p->emitted, search->start, out);
      if (status == DML_OK) status = dml_buffer_append(out, DML_REDACT_MARK, sizeof DML_REDACT_MARK - 1);
    }
    if (search->end > p->emitted) p->emitted = search->end;
  }
  p->open = found == DML_SEARCH_OPEN ? search->start : search->len;
  return status;
}

dml_status dml_redact(dml_secrets *set, const char *text, size_t len, bool is_cut, dml_buffer *out, bool *is_changed) {
  *is_changed = false;
  if (set->count == 0 || (len < DML_SECRETS_WINDOW && !is_cut)) return DML_OK;
  dml_search search;
  pass p = {0};
  dml_search_init(&search, set, text, len, !is_cut);
  dml_status status = run(&search, text, &p, out);
  dml_search_deinit(&search);
  *is_changed = p.is_changed || p.open < len;
  if (status == DML_OK && *is_changed) status = emit(text, p.emitted, p.open, out);
  return status;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

dml_status dml_redact_part(dml_secrets *set, const char *text, size_t len, size_t first, size_t last, bool is_cut,
                           dml_buffer *out, size_t *end) {
  dml_status status = DML_OK;
  dml_search search;
  dml_search_found found;
  size_t from = 0, emitted = first;
  dml_search_init(&search, set, text, len, !is_cut);
  while ((found = dml_search_next(&search, from)) == DML_SEARCH_MATCH && search.start < last && status == DML_OK) {
    from = search.start + 1;
    if (search.start >= emitted) {
      status = emit(text, emitted, search.start, out);
      if (status == DML_OK) status = dml_buffer_append(out, DML_REDACT_MARK, sizeof DML_REDACT_MARK - 1);
    }
    if (search.end > emitted) emitted = search.end;
  }
  size_t stop = found == DML_SEARCH_OPEN ? least(search.start, last) : last;
  dml_search_deinit(&search);
  if (status == DML_OK) status = emit(text, emitted, stop, out);
  *end = emitted > stop ? least(emitted, last) : stop;
  return status;
}

void dml_redactor_init(dml_redactor *redactor) {
  *redactor = (dml_redactor){0};
  dml_buffer_init(&redactor->held, SIZE_MAX / 2);
}

void dml_redactor_deinit(dml_redactor *redactor) { dml_buffer_deinit(&redactor->held); }

/* One pass over what is held; keeps what is not decided. */
static dml_status turn(dml_redactor *redactor, dml_secrets *set, bool is_whole, dml_buffer *out) {
  dml_search search;
  pass p = {.emitted = redactor->done};
  dml_search_init(&search, set, redactor->held.data, redactor->held.len, is_whole);
  dml_status status = run(&search, redactor->held.data, &p, out);
  dml_search_deinit(&search);
  if (status == DML_OK) status = emit(redactor->held.data, p.emitted, p.open, out);
  redactor->done = p.emitted > p.open ? p.emitted - p.open : 0;
  dml_buffer_consume(&redactor->held, p.open);
  return status;
}

dml_status dml_redactor_feed(dml_redactor *redactor, dml_secrets *set, const char *piece, size_t len, dml_buffer *out) {
  if (len == 0) return DML_OK;
  if (set->count == 0 && redactor->held.len == 0) return dml_buffer_append(out, piece, len);
  dml_status status = dml_buffer_append(&redactor->held, piece, len);
  return status == DML_OK ? turn(redactor, set, false, out) : status;
}

dml_status dml_redactor_finish(dml_redactor *redactor, dml_secrets *set, dml_buffer *out) {
  dml_status status = redactor->held.len > 0 ? turn(redactor, set, true, out) : DML_OK;
  dml_buffer_reset(&redactor->held, 0);
  redactor->done = 0;
  return status;
}
