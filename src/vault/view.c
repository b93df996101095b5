/* view.c - see view.h. */
#include "vault/view.h"

void dml_view_init(dml_view *view, dml_view_kind kind, const unsigned char *text, size_t len, size_t at) {
  *view = (dml_view){.text = text, .len = len, .at = at, .kind = kind};
}

void dml_view_init_behind(dml_view *view, const unsigned char *text, size_t len, size_t at, uint32_t bits,
                          unsigned count) {
  *view = (dml_view){.text = text, .len = len, .at = at, .kind = DML_VIEW_BASE64_0, .bits = bits, .bit_count = count};
}

static int hex_digit(unsigned char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The number that `count` hex digits at `at` make; DML_VIEW_MISMATCH, or DML_VIEW_CUT when the text ends among them. */
static int hex_number(const dml_view *view, size_t at, unsigned count) {
  int number = 0;
  for (unsigned i = 0; i < count; i++) {
    if (at + i >= view->len) return DML_VIEW_CUT;
    int digit = hex_digit(view->text[at + i]);
    if (digit < 0) return DML_VIEW_MISMATCH;
    number = number << 4 | digit;
  }
  return number;
}

static int next_plain(dml_view *view) { return view->text[view->at++]; }

static int next_url(dml_view *view) {
  unsigned char c = view->text[view->at];
  if (c == '+' && view->kind == DML_VIEW_FORM) c = ' ';
  if (c == '%') {
    int byte = hex_number(view, view->at + 1, 2);
    if (byte == DML_VIEW_CUT) return DML_VIEW_CUT;
    if (byte >= 0) {
      view->at += 3;
      return byte;
    }
  }
  view->at++;
  return c;
}

static int next_hex(dml_view *view) {
  int byte = hex_number(view, view->at, 2);
  if (byte >= 0) view->at += 2;
  return byte;
}

/* Gives the first byte of the character's UTF-8 form, and keeps the others. */
static int spread(dml_view *view, uint32_t code) {
  static const unsigned char MARK[] = {0, 0xC0, 0xE0, 0xF0};
  if (code < 0x80) return (int)code;
  unsigned more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  for (unsigned i = 0; i < more; i++, code >>= 6) view->rest[i] = 0x80 | (code & 0x3F);
  view->rest_count = more;
  return (int)(MARK[more] | code);
}

/* At "\u". A pair of surrogates is one character (RFC 8259 §7); a lone one is no text. */
static int next_code(dml_view *view) {
  int high = hex_number(view, view->at + 2, 4);
  if (high < 0) return high;
  if (high < 0xD800 || high > 0xDFFF) {
    view->at += 6;
    return spread(view, (uint32_t)high);
  }
  if (view->at + 8 > view->len) return DML_VIEW_CUT;
  if (high > 0xDBFF || view->text[view->at + 6] != '\\' || view->text[view->at + 7] != 'u') return DML_VIEW_MISMATCH;
  int low = hex_number(view, view->at + 8, 4);
  if (low < 0) return low;
  if (low < 0xDC00 || low > 0xDFFF) return DML_VIEW_MISMATCH;
  view->at += 12;
  return spread(view, 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
}

static int next_json(dml_view *view) {
  if (view->rest_count > 0) return view->rest[--view->rest_count];
  unsigned char c = view->text[view->at];
  if (c != '\\') {
    view->at++;
    return c;
  }
  if (view->at + 1 >= view->len) return DML_VIEW_CUT;
  unsigned char escaped = view->text[view->at + 1];
  if (escaped == 'u') return next_code(view);
  if (escaped != '"' && escaped != '\\' && escaped != '/')
    return DML_VIEW_MISMATCH; /* no secret has a control character */
  view->at += 2;
  return escaped;
}

static int base64_digit(int c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  return c == '/' || c == '_' ? 63 : -1;
}

/* One digit, also where a URL (%2B) or JSON (\/) escapes it. What is none is not passed. */
static int next_digit(dml_view *view) {
  if (view->at >= view->len) return DML_VIEW_CUT;
  size_t before = view->at;
  unsigned char c = view->text[before];
  int byte = c == '%' ? next_url(view) : c == '\\' ? next_json(view) : next_plain(view);
  int digit = byte < 0 ? byte : base64_digit(byte);
  if (digit < 0) view->at = before;
  return digit;
}

static int next_base64(dml_view *view) {
  while (view->bit_count < 8) {
    int digit = next_digit(view);
    if (digit < 0) return digit;
    view->bits = (view->bits << 6 | (uint32_t)digit) & 0x3FFF;
    view->bit_count += 6;
  }
  view->bit_count -= 8;
  return (int)(view->bits >> view->bit_count & 0xFF);
}

/* The character that the foreign bytes share: its lowest four or two bits are ours. */
static int first_shared(dml_view *view) {
  int digit = next_digit(view);
  if (digit < 0) return digit;
  view->bit_count = view->kind == DML_VIEW_BASE64_1 ? 4 : 2;
  view->bits = (uint32_t)digit & ((1u << view->bit_count) - 1);
  view->kind = DML_VIEW_BASE64_0;
  return next_base64(view);
}

int dml_view_next(dml_view *view) {
  if (view->at >= view->len && view->rest_count == 0 && view->bit_count < 8) return DML_VIEW_CUT;
  switch (view->kind) {
  case DML_VIEW_URL:
  case DML_VIEW_FORM: return next_url(view);
  case DML_VIEW_JSON: return next_json(view);
  case DML_VIEW_HEX: return next_hex(view);
  case DML_VIEW_BASE64_0: return next_base64(view);
  case DML_VIEW_BASE64_1:
  case DML_VIEW_BASE64_2: return first_shared(view);
  default: return next_plain(view);
  }
}
