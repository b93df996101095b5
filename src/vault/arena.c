/* arena.c - see arena.h. */
#include "vault/arena.h"

#include <sodium.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool try_size(dml_arena *arena, size_t size, bool must_lock) {
  unsigned char *memory = sodium_malloc(size);
  if (!memory) return false;
  bool is_locked = sodium_mlock(memory, size) == 0;
  if (must_lock && !is_locked) {
    sodium_free(memory);
    return false;
  }
  arena->memory = memory;
  arena->size = size;
  arena->is_locked = is_locked;
  return true;
}

dml_status dml_arena_init(dml_arena *arena) {
  *arena = (dml_arena){0};
  if (sodium_init() < 0) return DML_INTERNAL;
  arena->scratch = sodium_malloc(DML_ARENA_SCRATCH_BYTES);
  if (!arena->scratch) return DML_INTERNAL;
  bool is_scratch_locked = sodium_mlock(arena->scratch, DML_ARENA_SCRATCH_BYTES) == 0;
  bool done = (is_scratch_locked && try_size(arena, DML_ARENA_SIZE_BYTES, true)) ||
              (is_scratch_locked && try_size(arena, DML_ARENA_SMALL_BYTES, true)) ||
              try_size(arena, DML_ARENA_SIZE_BYTES, false);
  if (!done) {
    dml_arena_deinit(arena);
    return DML_INTERNAL;
  }
  arena->is_locked = arena->is_locked && is_scratch_locked;
  sodium_mprotect_noaccess(arena->scratch);
  sodium_mprotect_noaccess(arena->memory);
  return DML_OK;
}

void dml_arena_deinit(dml_arena *arena) {
  sodium_free(arena->memory); /* wipes */
  sodium_free(arena->scratch);
  *arena = (dml_arena){0};
}

/* sodium_mprotect_* know whole allocations only. The first page may also hold what libsodium keeps before ours. */
static void protect(dml_arena *arena, size_t bytes, int protection) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)arena->memory & ~(page - 1);
  uintptr_t end = ((uintptr_t)arena->memory + bytes + page - 1) & ~(page - 1);
  mprotect((void *)start, end - start, protection);
  arena->open = protection == PROT_NONE ? 0 : bytes;
}

void dml_arena_enter(dml_arena *arena) {
  size_t left = arena->size - arena->used;
  size_t need = arena->used + (left < DML_ARENA_BLOCK_MAX_BYTES ? left : DML_ARENA_BLOCK_MAX_BYTES);
  if (arena->entered++ == 0 || need > arena->open) protect(arena, need, PROT_READ | PROT_WRITE);
}

static void close_scratch(dml_arena *arena) {
  if (!arena->is_scratch_open) return;
  arena->is_scratch_open = false;
  sodium_memzero(arena->scratch, DML_ARENA_SCRATCH_BYTES);
  sodium_mprotect_noaccess(arena->scratch);
}

void dml_arena_leave(dml_arena *arena) {
  if (--arena->entered > 0) return;
  close_scratch(arena);
  protect(arena, arena->open, PROT_NONE);
  if (arena->read > 0) protect(arena, arena->used, PROT_READ);
}

void dml_arena_enter_reading(dml_arena *arena) {
  if (arena->read++ == 0 && arena->entered == 0) protect(arena, arena->used, PROT_READ);
}

void dml_arena_leave_reading(dml_arena *arena) {
  if (--arena->read == 0 && arena->entered == 0) protect(arena, arena->open, PROT_NONE);
}

dml_status dml_arena_append(dml_arena *arena, const void *bytes, size_t len, size_t *offset) {
  if (len > DML_ARENA_BLOCK_MAX_BYTES || len > arena->size - arena->used) return DML_TOO_LARGE;
  memcpy(arena->memory + arena->used, bytes, len);
  *offset = arena->used;
  arena->used += len;
  return DML_OK;
}

void dml_arena_remove(dml_arena *arena, size_t offset, size_t len) {
  unsigned char *at = arena->memory + offset;
  memmove(at, at + len, arena->used - offset - len);
  arena->used -= len;
  sodium_memzero(arena->memory + arena->used, len);
}

const unsigned char *dml_arena_at(const dml_arena *arena, size_t offset) { return arena->memory + offset; }

unsigned char *dml_arena_scratch(dml_arena *arena) {
  if (!arena->is_scratch_open) sodium_mprotect_readwrite(arena->scratch);
  arena->is_scratch_open = true;
  return arena->scratch;
}
