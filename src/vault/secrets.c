/* secrets.c - see secrets.h. */
#include "vault/secrets.h"

#include <sodium.h>
#include <string.h>

#define FILTER_BYTES (DML_SECRETS_FILTER_WORDS * sizeof(uint64_t))

static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#define EIGHT(c) c, c + 1, c + 2, c + 3, c + 4, c + 5, c + 6, c + 7
#define SIXTEEN(c) EIGHT(c), EIGHT(c + 8)

/* A to Z become a to z; '-' and ' ' become '+', '_' becomes '/': the other base64 alphabet, and a form's space. */
const unsigned char DML_SECRETS_FOLD[256] = {
    SIXTEEN(0x00), SIXTEEN(0x10), '+',           EIGHT(0x21),   0x29,          0x2A,
    0x2B,          0x2C,          '+',           0x2E,          0x2F, /* 0x20 to 0x2F */
    SIXTEEN(0x30), 0x40,          EIGHT(0x61),   EIGHT(0x69),   EIGHT(0x71),   0x79,
    0x7A,          0x5B,          0x5C,          0x5D,          0x5E,          '/', /* 0x40 to 0x5F */
    SIXTEEN(0x60), SIXTEEN(0x70), SIXTEEN(0x80), SIXTEEN(0x90), SIXTEEN(0xA0), SIXTEEN(0xB0),
    SIXTEEN(0xC0), SIXTEEN(0xD0), SIXTEEN(0xE0), SIXTEEN(0xF0),
};

dml_status dml_secrets_init(dml_secrets *set) {
  memset(set, 0, sizeof *set);
  dml_status status = dml_arena_init(&set->arena);
  if (status != DML_OK) return status;
  set->filter = sodium_malloc(FILTER_BYTES);
  if (!set->filter) {
    dml_arena_deinit(&set->arena);
    return DML_INTERNAL;
  }
  sodium_memzero(set->filter, FILTER_BYTES);
  randombytes_buf(&set->key, sizeof set->key);
  return DML_OK;
}

void dml_secrets_deinit(dml_secrets *set) {
  sodium_free(set->filter);
  dml_arena_deinit(&set->arena);
  memset(set, 0, sizeof *set);
}

const char *dml_secret_fault(const unsigned char *bytes, size_t len) {
  if (len < DML_SECRET_MIN_BYTES) return "is shorter than 8 bytes";
  if (len > DML_SECRET_MAX_BYTES) return "is longer than 8192 bytes";
  for (size_t i = 0; i < len; i++)
    if (bytes[i] < 0x20 || bytes[i] == 0x7F) return "holds a control character";
  return NULL;
}

static bool is_token_char(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-._~+/=:", c));
}

const char *dml_token_fault(const unsigned char *bytes, size_t len) {
  bool has_digit = false;
  if (len < DML_TOKEN_MIN_BYTES) return "is shorter than 16 bytes";
  if (len > DML_SECRET_MAX_BYTES) return "is longer than 8192 bytes";
  for (size_t i = 0; i < len; i++) {
    if (!is_token_char(bytes[i])) return "holds what no token has";
    if (bytes[i] >= '0' && bytes[i] <= '9') has_digit = true;
  }
  return has_digit || len >= DML_TOKEN_PLAIN_MIN_BYTES ? NULL : "could be a word";
}

/* ---- the filter ---- */

static void set_bit(dml_secrets *set, uint32_t place) { set->filter[place >> 6] |= UINT64_C(1) << (place & 63); }

static void add_window(dml_secrets *set, const char *chars) {
  uint64_t window = 0;
  for (size_t i = 0; i < DML_SECRETS_WINDOW; i++) window = window << 8 | DML_SECRETS_FOLD[(unsigned char)chars[i]];
  uint64_t hash = dml_secrets_hash(set, window);
  for (unsigned which = 0; which < 3; which++) set_bit(set, dml_secrets_place(hash, which));
  set_bit(set, dml_secrets_head_place(set, (uint32_t)(window >> 40)));
}

/* The first eight base64 characters that the secret alone decides, behind `before` foreign bytes: they begin at bit 0,
 * 4 or 2 of it. */
static void add_base64_window(dml_secrets *set, const unsigned char *bytes, unsigned before) {
  static const unsigned FIRST_BIT[] = {0, 4, 2};
  char chars[DML_SECRETS_WINDOW];
  for (unsigned i = 0; i < DML_SECRETS_WINDOW; i++) {
    unsigned bit = FIRST_BIT[before] + 6 * i, byte = bit / 8;
    unsigned two = (unsigned)bytes[byte] << 8 | (byte + 1 < DML_SECRET_MIN_BYTES ? bytes[byte + 1] : 0);
    chars[i] = BASE64[two >> (10 - bit % 8) & 63];
  }
  add_window(set, chars);
  sodium_memzero(chars, sizeof chars);
}

static void add_windows(dml_secrets *set, const unsigned char *bytes, size_t len) {
  static const char DIGITS[] = "0123456789abcdef";
  char hex[DML_SECRETS_WINDOW];
  for (size_t i = 0; i < DML_SECRETS_WINDOW; i++) hex[i] = DIGITS[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
  add_window(set, (const char *)bytes);
  add_window(set, hex);
  sodium_memzero(hex, sizeof hex);
  for (unsigned before = 0; before < 3; before++) add_base64_window(set, bytes, before);
  if (memchr(bytes, ' ', len)) set->has_blank = true;
}

void dml_secrets_refresh(dml_secrets *set) {
  if (!set->is_filter_stale) return;
  set->is_filter_stale = false;
  set->has_blank = false;
  sodium_memzero(set->filter, FILTER_BYTES);
  dml_arena_enter_reading(&set->arena);
  for (size_t i = 0; i < set->count; i++) {
    size_t len;
    const unsigned char *bytes = dml_secrets_peek(set, set->order[i], &len);
    add_windows(set, bytes, len);
  }
  dml_arena_leave_reading(&set->arena);
}

/* ---- the set ---- */

const unsigned char *dml_secrets_peek(const dml_secrets *set, dml_secret_id id, size_t *len) {
  *len = set->slots[id].len;
  return dml_arena_at(&set->arena, set->slots[id].offset);
}

static int compare(const unsigned char *a, size_t a_len, const unsigned char *b, size_t b_len) {
  int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
  return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* Where the bytes stand in the order, or would. */
static size_t place_of(const dml_secrets *set, const unsigned char *bytes, size_t len, bool *is_there) {
  size_t low = 0, high = set->count;
  *is_there = false;
  while (low < high) {
    size_t middle = (low + high) / 2, other_len;
    const unsigned char *other = dml_secrets_peek(set, set->order[middle], &other_len);
    int order = compare(bytes, len, other, other_len);
    if (order == 0) *is_there = true;
    if (order > 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static dml_secret_id free_slot(const dml_secrets *set) {
  for (dml_secret_id i = 0; i < DML_SECRETS_MAX; i++)
    if (set->slots[i].refs == 0) return i;
  return DML_SECRET_NONE;
}

static dml_status insert(dml_secrets *set, const unsigned char *bytes, size_t len, size_t place, dml_secret_id *out) {
  size_t offset;
  if (set->count >= DML_SECRETS_MAX) return DML_TOO_LARGE;
  dml_status status = dml_arena_append(&set->arena, bytes, len, &offset);
  if (status != DML_OK) return status;
  dml_secret_id id = free_slot(set);
  set->slots[id] = (dml_secret_slot){.offset = (uint32_t)offset, .refs = 1, .len = (uint16_t)len};
  memmove(set->order + place + 1, set->order + place, (set->count - place) * sizeof *set->order);
  set->order[place] = id;
  set->count++;
  add_windows(set, bytes, len);
  *out = id;
  return DML_OK;
}

dml_status dml_secrets_add(dml_secrets *set, const unsigned char *bytes, size_t len, dml_secret_id *out) {
  if (dml_secret_fault(bytes, len)) return DML_INVALID_ARGUMENT;
  bool is_there;
  dml_status status = DML_OK;
  dml_arena_enter(&set->arena);
  size_t place = place_of(set, bytes, len, &is_there);
  if (is_there)
    set->slots[ *out = set->order[place]].refs++;
  else
    status = insert(set, bytes, len, place, out);
  dml_arena_leave(&set->arena);
  return status;
}

static void remove_from_order(dml_secrets *set, dml_secret_id id) {
  size_t place = 0;
  while (set->order[place] != id) place++;
  set->count--;
  memmove(set->order + place, set->order + place + 1, (set->count - place) * sizeof *set->order);
}

void dml_secrets_drop(dml_secrets *set, dml_secret_id id) {
  dml_secret_slot gone = set->slots[id];
  if (--set->slots[id].refs > 0) return;
  dml_arena_enter(&set->arena);
  dml_arena_remove(&set->arena, gone.offset, gone.len);
  dml_arena_leave(&set->arena);
  for (dml_secret_id i = 0; i < DML_SECRETS_MAX; i++)
    if (set->slots[i].refs > 0 && set->slots[i].offset > gone.offset) set->slots[i].offset -= gone.len;
  remove_from_order(set, id);
  set->is_filter_stale = true;
}
