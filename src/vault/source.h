/* source.h - where a credential comes from: "env:NAME", "file:/path", "cred:NAME", "cmd:/program argument …".
 *
 * Texts are read into the arena's scratch, never onto the heap. What a command prints is read by whoever runs it:
 * nothing here starts a process. */
#ifndef DML_VAULT_SOURCE_H
#define DML_VAULT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "vault/arena.h"

#define DML_SOURCE_MAX_BYTES 4096u
#define DML_SOURCE_WORDS_MAX 64u
/* Room for one sentence that names a path. */
#define DML_SOURCE_CAUSE_BYTES (DML_SOURCE_MAX_BYTES + 256)

typedef enum dml_source_kind {
  DML_SOURCE_ENV,  /* a variable of the environment */
  DML_SOURCE_FILE, /* a regular file of ours or root's that nobody else may read or write */
  DML_SOURCE_CRED, /* $CREDENTIALS_DIRECTORY/NAME, see systemd.exec(5) */
  DML_SOURCE_CMD,  /* the first line that a program prints; words end at blanks, no shell */
  DML_SOURCE_PIPE  /* handed over by the process that started us */
} dml_source_kind;

/* Do not touch the fields; kind may be read. */
typedef struct dml_source {
  dml_source_kind kind;
  char *target; /* what stands behind the colon */
} dml_source;

/* Takes a source text apart. On failure there is nothing to deinit, and *why is a sentence without a subject, static.
 * Errors: DML_INVALID_ARGUMENT, DML_INTERNAL (no memory). */
dml_status dml_source_parse(dml_source *source, const char *text, size_t len, const char **why);
void dml_source_deinit(dml_source *source);
bool dml_source_is_same(const dml_source *a, const dml_source *b);
/* "env", "file", "cred", "cmd" or "pipe". Static. */
const char *dml_source_kind_name(dml_source_kind kind);

/* Reads a text of the kinds env, file and cred to *bytes, in the arena's scratch (entered, and so until it is left) or
 * the environment. Its line end is dropped. Errors: DML_AUTHENTICATION_FAILED, with a sentence for the operator in
 * `cause` (DML_SOURCE_CAUSE_BYTES). */
dml_status dml_source_read(const dml_source *source, dml_arena *arena, const unsigned char **bytes, size_t *len,
                           char *cause);
/* Overwrites a variable wherever the environment has it, and unsets it. For the program alone: see main.c. */
void dml_source_wipe_variable(const dml_source *source);
/* Drops one "\n" or "\r\n" at the end. */
size_t dml_source_trim(const unsigned char *bytes, size_t len);

/* The words of a cmd source: pointers into `copy` (DML_SOURCE_MAX_BYTES), ended by NULL. The first is an absolute path.
 */
void dml_source_words(const dml_source *source, char *copy, char *words[DML_SOURCE_WORDS_MAX + 1]);

#endif
