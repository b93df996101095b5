/* secrets.h - the set of live secrets: what they are, and whether a text could hold one.
 *
 * The bytes lie in the arena, in sorted order by the table here, so that looking for all of them at one place of a text
 * costs hardly more than looking for one. The same bytes added twice are one entry, counted. In front stands a filter
 * over the first eight characters of each form in which a secret can stand in a text (plain, hex, base64 in three
 * alignments); it is what a search touches at nearly every place, so it lies in locked pages of its own that stay
 * readable: bits at places that a key made at the start decides. */
#ifndef DML_VAULT_SECRETS_H
#define DML_VAULT_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "vault/arena.h"

#define DML_SECRET_MIN_BYTES 8u
#define DML_TOKEN_MIN_BYTES 16u
/* Without a digit in it; the names of our protocol are shorter. */
#define DML_TOKEN_PLAIN_MIN_BYTES 32u
#define DML_SECRET_MAX_BYTES DML_ARENA_BLOCK_MAX_BYTES
/* Live at a time. */
#define DML_SECRETS_MAX 2048u
/* Characters that the filter looks at; no form of a secret is shorter. */
#define DML_SECRETS_WINDOW 8u

/* A secret's number while it lives. */
typedef uint16_t dml_secret_id;
#define DML_SECRET_NONE UINT16_MAX

typedef struct dml_secret_slot {
  uint32_t offset;
  uint32_t refs; /* 0: free */
  uint16_t len;
} dml_secret_slot;

/* Do not touch the fields; arena and count may be read. */
typedef struct dml_secrets {
  dml_arena arena;
  dml_secret_slot slots[DML_SECRETS_MAX];
  dml_secret_id order[DML_SECRETS_MAX]; /* sorted by bytes, a shorter one before what it begins */
  size_t count;
  uint64_t *filter;
  uint64_t key;
  bool is_filter_stale; /* bits of secrets that are gone */
  bool has_blank;       /* some secret holds a space */
} dml_secrets;

/* Errors: DML_INTERNAL. Then there is nothing to deinit. */
dml_status dml_secrets_init(dml_secrets *set);
void dml_secrets_deinit(dml_secrets *set);

/* What is wrong with the bytes as a secret, one sentence without a subject ("is shorter than 8 bytes"), or NULL. */
const char *dml_secret_fault(const unsigned char *bytes, size_t len);
/* The same for a token that a service chose: it will be masked in every answer, also in those about others, so it must not
 * be able to be a word or punctuation of ours. Static text or NULL. */
const char *dml_token_fault(const unsigned char *bytes, size_t len);
/* Adds a secret, or a reference to the same bytes. `bytes` may lie in the arena's scratch (then entered).
 * Errors: DML_INVALID_ARGUMENT (dml_secret_fault), DML_TOO_LARGE (no room). */
dml_status dml_secrets_add(dml_secrets *set, const unsigned char *bytes, size_t len, dml_secret_id *out);
/* Gives a reference back; the last one wipes the bytes. */
void dml_secrets_drop(dml_secrets *set, dml_secret_id id);
/* The bytes, until the next change. The arena is entered, or read. */
const unsigned char *dml_secrets_peek(const dml_secrets *set, dml_secret_id id, size_t *len);

/* Readies the filter. Before a search. */
void dml_secrets_refresh(dml_secrets *set);
/* How a character counts in a window: letters in one case, both base64 alphabets alike. */
extern const unsigned char DML_SECRETS_FOLD[256];

/* Places of the filter. Three bits a window, taken from different parts of the hash; a fourth for its first three
 * characters alone, in a part of its own: they are known sooner when characters have to be decoded first. */
#define DML_SECRETS_FILTER_BITS 18
#define DML_SECRETS_HEAD_BITS 16
#define DML_SECRETS_FILTER_WORDS (((1u << DML_SECRETS_FILTER_BITS) + (1u << DML_SECRETS_HEAD_BITS)) / 64)

/* Of folded characters, under the set's key. */
static inline uint64_t dml_secrets_hash(const dml_secrets *set, uint64_t chars) {
  return (chars ^ set->key) * UINT64_C(0x9E3779B97F4A7C15);
}

/* The place of a window's bit `which`, 0 to 2. */
static inline uint32_t dml_secrets_place(uint64_t hash, unsigned which) {
  return (uint32_t)(hash >> (64 - DML_SECRETS_FILTER_BITS * (which + 1))) & ((1u << DML_SECRETS_FILTER_BITS) - 1);
}

/* Whether the bit at a place is set. */
static inline bool dml_secrets_has_bit(const dml_secrets *set, uint32_t place) {
  return set->filter[place >> 6] >> (place & 63) & 1;
}

/* Whether some form of a secret may begin with these eight folded characters, the first in the highest byte. */
static inline bool dml_secrets_may_begin(const dml_secrets *set, uint64_t window) {
  uint64_t hash = dml_secrets_hash(set, window);
  return dml_secrets_has_bit(set, dml_secrets_place(hash, 0)) && dml_secrets_has_bit(set, dml_secrets_place(hash, 1)) &&
         dml_secrets_has_bit(set, dml_secrets_place(hash, 2));
}

/* The place of the bit of three characters. */
static inline uint32_t dml_secrets_head_place(const dml_secrets *set, uint32_t head) {
  return (1u << DML_SECRETS_FILTER_BITS) + (uint32_t)(dml_secrets_hash(set, head) >> (64 - DML_SECRETS_HEAD_BITS));
}

/* The same for the first three alone, the last in the lowest byte. */
static inline bool dml_secrets_may_begin_with(const dml_secrets *set, uint32_t head) {
  return dml_secrets_has_bit(set, dml_secrets_head_place(set, head & 0xFFFFFF));
}

#endif
