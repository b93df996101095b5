/* backend.c - see backend.h. Never closed again: libcurl's and GnuTLS' libraries do not survive being unloaded. */
#include "net/backend.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

dml_status dml_backend_open(const char *directory, const char *file, const char *symbol, uint32_t abi,
                            const void **out) {
  char path[PATH_MAX];
  *out = NULL;
  int len = snprintf(path, sizeof path, "%s/%s", directory, file);
  if (len < 0 || (size_t)len >= sizeof path) return DML_INTERNAL;
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!object) return DML_INTERNAL;
  const dml_backend_head *head = dlsym(object, symbol);
  if (!head || head->abi != abi) return DML_INTERNAL;
  *out = head;
  return DML_OK;
}
