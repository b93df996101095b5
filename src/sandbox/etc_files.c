/* etc_files.c - see etc_files.h. */
#include "sandbox/etc_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "sandbox/memfd.h"

#define MACHINE_ID "/etc/machine-id"

typedef struct etc_file {
  const char *path;
  const char *text; /* NULL: made when the engine starts */
} etc_file;

static const etc_file FILES[DML_ETC_FILES_COUNT] = {
    {"/etc/passwd",
     "root:x:0:0:root:/root:/usr/sbin/nologin\n"
     "user:x:1000:1000:user:/home/user:/bin/bash\n"
     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"/etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"/etc/hostname", DML_SANDBOX_HOSTNAME "\n"},
    {"/etc/hosts", "127.0.0.1 localhost " DML_SANDBOX_HOSTNAME "\n::1 localhost ip6-localhost ip6-loopback\n"},
    /* nsswitch.conf(5): no "dns", so libc never opens a socket for a name. */
    {"/etc/nsswitch.conf",
     "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nprotocols: files\nservices: files\n"},
    /* Resolvers that do not read nsswitch.conf ask the loopback (resolv.conf(5)), where nothing listens: refused at
     * once. */
    {"/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"},
    /* No profile.d, no calls of programs. Only what is not set is set: the caller's environment wins. */
    {"/etc/profile",
     ": \"${PATH:=/usr/local/bin:/usr/bin:/bin}\" \"${HOME:=/home/user}\" \"${LANG:=C.UTF-8}\"\n"
     "export PATH HOME LANG\n"},
    {"/etc/shells", "/bin/sh\n/bin/bash\n"},
    {MACHINE_ID, NULL},
};

/* machine-id(5): 32 hexadecimal digits, not all zero. Random, so that it says nothing about the host. */
static void make_machine_id(char out[34]) {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes) memset(bytes, 0xda, sizeof bytes);
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
  out[32] = '\n';
  out[33] = '\0';
}

dml_status dml_etc_files_init(dml_etc_files *files) {
  char machine_id[34];
  make_machine_id(machine_id);
  for (size_t i = 0; i < DML_ETC_FILES_COUNT; i++) files->fds[i] = -1;
  for (size_t i = 0; i < DML_ETC_FILES_COUNT; i++) {
    const char *text = FILES[i].text ? FILES[i].text : machine_id;
    files->paths[i] = FILES[i].path;
    dml_status status = dml_memfd_new("etc", text, strlen(text), &files->fds[i]);
    if (status != DML_OK) {
      dml_etc_files_deinit(files);
      return status;
    }
  }
  return DML_OK;
}

void dml_etc_files_deinit(dml_etc_files *files) {
  for (size_t i = 0; i < DML_ETC_FILES_COUNT; i++)
    if (files->fds[i] >= 0) close(files->fds[i]);
  for (size_t i = 0; i < DML_ETC_FILES_COUNT; i++) files->fds[i] = -1;
}
