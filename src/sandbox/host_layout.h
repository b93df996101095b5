/* host_layout.h - what of the host a sandbox sees beside /usr: the links into it and a short list of /etc.
 *
 * Looked at once, when the engine starts. Whatever lies or leads outside /usr and /etc is left out: the promise is about
 * paths, so a distribution that links /etc elsewhere gives less, never more. */
#ifndef DML_SANDBOX_HOST_LAYOUT_H
#define DML_SANDBOX_HOST_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#define DML_HOST_ENTRIES_MAX 48
#define DML_HOST_PATH_MAX_BYTES 128

typedef struct dml_host_entry {
  char path[DML_HOST_PATH_MAX_BYTES]; /* on both sides */
  char link[DML_HOST_PATH_MAX_BYTES]; /* what the symbolic link holds; "" for a read-only bind */
} dml_host_entry;

typedef struct dml_host_layout {
  dml_host_entry entries[DML_HOST_ENTRIES_MAX];
  size_t top_count; /* entries[0 .. top_count) are of /, the others of /etc */
  size_t count;
  bool has_usr_local_etc;   /* to be hidden */
  bool has_etc_ssl_private; /* to be hidden */
} dml_host_layout;

/* Never fails: what is not there is left out. */
void dml_host_layout_init(dml_host_layout *layout);

#endif
