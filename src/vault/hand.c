/* hand.c - loaded secrets from one process of ours to the next, through a pipe: see vault.h.
 *
 * "DMLV", a version, the number of credentials; each: length of the name, name, two bytes of length (the high one
 * first), secret. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "vault/vault.h"

#define HEAD "DMLV\1"
#define HEAD_BYTES (sizeof HEAD - 1)

/* Waits until the pipe is ready, until the deadline. */
static dml_status wait_for(int fd, short events, int64_t deadline_ms) {
  for (;;) {
    int64_t left = deadline_ms - dml_clock_monotonic_ms();
    struct pollfd one = {.fd = fd, .events = events};
    int n = poll(&one, 1, left > 0 ? (int)left : 0);
    if (n > 0) return DML_OK;
    if (n == 0) return DML_STOPPED;
    if (errno != EINTR) return DML_INTERNAL;
  }
}

static dml_status put(int fd, const void *bytes, size_t len, int64_t deadline_ms) {
  const unsigned char *at = bytes;
  while (len > 0) {
    dml_status status = wait_for(fd, POLLOUT, deadline_ms);
    if (status != DML_OK) return status;
    /* no more than a ready pipe takes without blocking, see pipe(7) */
    ssize_t n = write(fd, at, len < 512 ? len : 512);
    if (n < 0 && errno != EINTR && errno != EAGAIN) return DML_INTERNAL;
    if (n <= 0) continue;
    at += n;
    len -= (size_t)n;
  }
  return DML_OK;
}

static dml_status get(int fd, void *out, size_t len, int64_t deadline_ms) {
  unsigned char *at = out;
  while (len > 0) {
    dml_status status = wait_for(fd, POLLIN, deadline_ms);
    if (status != DML_OK) return status;
    ssize_t n = read(fd, at, len);
    if (n == 0) return DML_INVALID_RESPONSE;
    if (n < 0 && errno != EINTR && errno != EAGAIN) return DML_INTERNAL;
    if (n <= 0) continue;
    at += n;
    len -= (size_t)n;
  }
  return DML_OK;
}

static dml_status put_one(dml_vault *vault, const dml_credential *credential, int fd, int64_t deadline_ms) {
  unsigned char head[1 + DML_VAULT_NAME_MAX_BYTES + 2];
  size_t len, name_len = strlen(credential->name);
  dml_arena_enter_reading(&vault->secrets.arena);
  const unsigned char *bytes = dml_secrets_peek(&vault->secrets, credential->secret, &len);
  head[0] = (unsigned char)name_len;
  memcpy(head + 1, credential->name, name_len);
  head[1 + name_len] = (unsigned char)(len >> 8);
  head[2 + name_len] = (unsigned char)len;
  dml_status status = put(fd, head, name_len + 3, deadline_ms);
  if (status == DML_OK) status = put(fd, bytes, len, deadline_ms);
  dml_arena_leave_reading(&vault->secrets.arena);
  return status;
}

dml_status dml_vault_hand_over(dml_vault *vault, int fd, const char *const *names, size_t count, int timeout_ms) {
  const dml_credential *chosen[DML_VAULT_CREDENTIALS_MAX];
  unsigned char head[HEAD_BYTES + 1] = HEAD;
  size_t n = 0;
  int64_t deadline_ms = dml_clock_monotonic_ms() + timeout_ms;
  for (size_t i = 0; i < count && n < DML_VAULT_CREDENTIALS_MAX; i++) {
    const dml_credential *one = dml_vault_find(vault, names[i]);
    if (one && one->secret != DML_SECRET_NONE) chosen[n++] = one;
  }
  head[HEAD_BYTES] = (unsigned char)n;
  dml_status status = put(fd, head, sizeof head, deadline_ms);
  for (size_t i = 0; i < n && status == DML_OK; i++) status = put_one(vault, chosen[i], fd, deadline_ms);
  return status;
}

/* Into the vault's scratch: entered by the caller. */
static dml_status get_one(dml_vault *vault, int fd, int64_t deadline_ms) {
  unsigned char *room = dml_arena_scratch(&vault->secrets.arena);
  unsigned char size[2];
  char name[256];
  dml_status status = get(fd, size, 1, deadline_ms);
  size_t name_len = size[0];
  if (status == DML_OK) status = get(fd, name, name_len, deadline_ms);
  if (status == DML_OK) status = get(fd, size, 2, deadline_ms);
  if (status != DML_OK) return status;
  name[name_len] = '\0';
  size_t len = (size_t)size[0] << 8 | size[1];
  if (!dml_vault_is_name(name, name_len) || dml_vault_find(vault, name) || len > DML_SECRET_MAX_BYTES)
    return DML_INVALID_RESPONSE;
  status = get(fd, room, len, deadline_ms);
  if (status != DML_OK) return status;
  dml_credential *credential = &vault->credentials[vault->count++];
  *credential = (dml_credential){.source = {.kind = DML_SOURCE_PIPE}, .secret = DML_SECRET_NONE};
  memcpy(credential->name, name, name_len + 1);
  return dml_vault_store(vault, credential, room, len, NULL) == DML_OK ? DML_OK : DML_INVALID_RESPONSE;
}

static void undo(dml_vault *vault, size_t first) {
  while (vault->count > first) {
    dml_credential *last = &vault->credentials[--vault->count];
    if (last->secret != DML_SECRET_NONE) dml_secrets_drop(&vault->secrets, last->secret);
    free(last->cause);
    *last = (dml_credential){.secret = DML_SECRET_NONE};
  }
}

dml_status dml_vault_take_over(dml_vault *vault, int fd, size_t max, int timeout_ms, size_t *first) {
  unsigned char head[HEAD_BYTES + 1];
  int64_t deadline_ms = dml_clock_monotonic_ms() + timeout_ms;
  *first = vault->count;
  dml_status status = get(fd, head, sizeof head, deadline_ms);
  if (status != DML_OK) return status;
  if (memcmp(head, HEAD, HEAD_BYTES) != 0) return DML_INVALID_RESPONSE;
  size_t count = head[HEAD_BYTES];
  if (count > max || count > DML_VAULT_CREDENTIALS_MAX - vault->count) return DML_QUOTA_EXCEEDED;
  dml_arena_enter(&vault->secrets.arena);
  for (size_t i = 0; i < count && status == DML_OK; i++) status = get_one(vault, fd, deadline_ms);
  if (status != DML_OK) undo(vault, *first);
  dml_arena_leave(&vault->secrets.arena);
  return status;
}
