/* arena.h - the one piece of memory that holds secrets.
 *
 * libsodium's guarded pages: a guard page on each side, left out of core dumps, and locked where the system lets us.
 * That is asked for once more and noted: sodium_malloc itself says nothing when RLIMIT_MEMLOCK is too small. Outside of
 * enter and leave there is no access; between them only to what is in use, since a protection costs by the page. Blocks
 * lie one after the other; freeing one moves the later ones down, so there are no gaps, and an offset is only good
 * until the next change. */
#ifndef DML_VAULT_ARENA_H
#define DML_VAULT_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Tried in this order until one can be locked; if none can, the first is taken unlocked. */
#define DML_ARENA_SIZE_BYTES (512u * 1024)
#define DML_ARENA_SMALL_BYTES (192u * 1024)
/* Of one block. */
#define DML_ARENA_BLOCK_MAX_BYTES 8192u
/* For what is read in or put together: a block, what stands before it, a line end. */
#define DML_ARENA_SCRATCH_BYTES (12u * 1024)

/* Do not touch the fields; size, used and is_locked may be read. */
typedef struct dml_arena {
  unsigned char *memory;
  size_t size, used;
  bool is_locked;
  unsigned entered, read; /* how deep */
  size_t open;            /* bytes of it that can be touched now */
  unsigned char *scratch;
  bool is_scratch_open;
} dml_arena;

/* Errors: DML_INTERNAL (no memory). A lock that cannot be had is none: see is_locked. */
dml_status dml_arena_init(dml_arena *arena);
/* Wipes and frees. Twice is fine. */
void dml_arena_deinit(dml_arena *arena);
/* Between the two, and only there, the arena can be changed and read. They nest. */
void dml_arena_enter(dml_arena *arena);
void dml_arena_leave(dml_arena *arena);
/* The same for reading alone, cheaper. They nest, in each other too. */
void dml_arena_enter_reading(dml_arena *arena);
void dml_arena_leave_reading(dml_arena *arena);
/* Copies a block of at most DML_ARENA_BLOCK_MAX_BYTES behind the last one. Entered. Errors: DML_TOO_LARGE (full). */
dml_status dml_arena_append(dml_arena *arena, const void *bytes, size_t len, size_t *offset);
/* Wipes `len` bytes at `offset` and closes the gap: later offsets sink by `len`. Entered. */
void dml_arena_remove(dml_arena *arena, size_t offset, size_t len);
/* The bytes at an offset. Entered or reading, and until the next change. */
const unsigned char *dml_arena_at(const dml_arena *arena, size_t offset);
/* DML_ARENA_SCRATCH_BYTES to work in. Entered; the outermost leave wipes them. */
unsigned char *dml_arena_scratch(dml_arena *arena);

#endif
