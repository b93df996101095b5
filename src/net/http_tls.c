/* http_tls.c - see http_tls.h. */
#include "net/http_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct dml_http_tls {
  const dml_http_server_ops *ops;
  dml_tls_pair *pair;
};

typedef struct file {
  char *bytes;
  size_t len;
} file;

/* What is wrong, for the certificate and for the key. */
typedef enum fault { NONE, ABSENT, FORBIDDEN, NO_FILE, FOREIGN, OPEN, LARGE, UNREADABLE } fault;

static const char *const WORDS[][2] = {
    [ABSENT] = {"the certificate file is not there", "the key file is not there"},
    [FORBIDDEN] = {"the certificate file may not be read by this user", "the key file may not be read by this user"},
    [NO_FILE] = {"the certificate's path is no regular file", "the key's path is no regular file"},
    [FOREIGN] = {"the certificate file belongs to another user", "the key file belongs to another user"},
    [OPEN] = {"the certificate file may be written by others",
              "the key file may be read by others or written by its group; `chmod 600` mends it"},
    [LARGE] = {"the certificate file is larger than 256 KiB", "the key file is larger than 256 KiB"},
    [UNREADABLE] = {"the certificate file cannot be read", "the key file cannot be read"},
};

/* A group that may read is Debian's way (ssl-cert). */
static fault judge(const struct stat *st, bool is_key) {
  if (!S_ISREG(st->st_mode)) return NO_FILE;
  if (is_key && st->st_uid != geteuid() && st->st_uid != 0) return FOREIGN;
  if (st->st_mode & (is_key ? 027 : 002)) return OPEN;
  return st->st_size > DML_HTTP_TLS_FILE_MAX_BYTES ? LARGE : NONE;
}

static fault read_open(int fd, bool is_key, file *out) {
  struct stat st;
  if (fstat(fd, &st) != 0) return UNREADABLE;
  fault found = judge(&st, is_key);
  if (found != NONE) return found;
  out->bytes = malloc(DML_HTTP_TLS_FILE_MAX_BYTES + 1);
  while (out->bytes && out->len <= DML_HTTP_TLS_FILE_MAX_BYTES) {
    ssize_t n = read(fd, out->bytes + out->len, DML_HTTP_TLS_FILE_MAX_BYTES + 1 - out->len);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return NONE;
    if (n < 0) return UNREADABLE;
    out->len += (size_t)n;
  }
  return out->bytes ? LARGE : UNREADABLE;
}

static fault read_file(const char *path, bool is_key, file *out) {
  /* O_NONBLOCK: a pipe must not hold us up. Links are how certificates are renewed, so they are followed. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? ABSENT : errno == EACCES ? FORBIDDEN : UNREADABLE;
  fault found = read_open(fd, is_key, out);
  close(fd);
  return found;
}

static void wipe(file *one) {
  if (one->bytes) explicit_bzero(one->bytes, one->len);
  free(one->bytes);
}

dml_status dml_http_tls_load(const char *directory, const char *cert_path, const char *key_path, dml_http_tls **out,
                             const char **why) {
  file cert = {0}, key = {0};
  const void *table;
  *out = NULL;
  *why = "the TLS library cannot be opened (demilune_mhd.so)";
  if (dml_backend_open(directory, DML_HTTP_SERVER_FILE, DML_HTTP_SERVER_SYMBOL, DML_HTTP_SERVER_ABI, &table) != DML_OK)
    return DML_INTERNAL;
  dml_status status = DML_INTERNAL;
  dml_http_tls *tls = calloc(1, sizeof *tls);
  fault found = read_file(cert_path, false, &cert);
  *why = found == NONE ? NULL : WORDS[found][0];
  if (found == NONE && (found = read_file(key_path, true, &key)) != NONE) *why = WORDS[found][1];
  if (found != NONE) status = DML_INVALID_ARGUMENT;
  if (tls && found == NONE) {
    tls->ops = table;
    status = tls->ops->tls_new((dml_span){cert.bytes, cert.len}, (dml_span){key.bytes, key.len}, &tls->pair, why);
  }
  wipe(&cert);
  wipe(&key);
  if (status == DML_OK)
    *out = tls;
  else
    free(tls);
  if (status == DML_INTERNAL) *why = "there is no memory for it";
  return status;
}

void dml_http_tls_free(dml_http_tls *tls) {
  if (!tls) return;
  tls->ops->tls_free(tls->pair);
  free(tls);
}

int64_t dml_http_tls_expires_s(const dml_http_tls *tls) { return tls->ops->tls_expires_s(tls->pair); }

dml_tls_pair *dml_http_tls_peek(const dml_http_tls *tls) { return tls->pair; }
