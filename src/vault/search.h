/* search.h - the first place of a text where a live secret stands, in any form. */
#ifndef DML_VAULT_SEARCH_H
#define DML_VAULT_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "vault/secrets.h"

typedef enum dml_search_found {
  DML_SEARCH_NONE,
  DML_SEARCH_MATCH, /* [start, end) is a secret: the longest that begins at start */
  DML_SEARCH_OPEN   /* at start the text ends in what may become one, or a longer one */
} dml_search_found;

/* One search through one text. Do not touch the fields; start and end may be read. */
typedef struct dml_search {
  dml_secrets *set;
  const unsigned char *text;
  size_t len;
  bool is_whole;             /* nothing follows the text: DML_SEARCH_OPEN is not given */
  bool has_entered;          /* the arena */
  size_t percent, backslash; /* the next places of these */
  size_t start, end;
} dml_search;

/* Begins in front of the text, which is borrowed as the set is; neither may change before dml_search_deinit. */
void dml_search_init(dml_search *search, dml_secrets *set, const char *text, size_t len, bool is_whole);
/* The first find at or behind `from`, which must not be before that of the last call. */
dml_search_found dml_search_next(dml_search *search, size_t from);
/* Ends it, however far it went. */
void dml_search_deinit(dml_search *search);

#endif
