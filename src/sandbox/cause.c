/* cause.c - see cause.h. */
#include "sandbox/cause.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/mounts.h"

static const char *const CHECK_NAMES[DML_CHECK_COUNT] = {
    "bubblewrap", "agent", "user_namespaces", "apparmor", "seccomp", "root_directory", "proc", "identity", "trial"};

static const dml_cause_row ROWS[DML_CAUSE_COUNT] = {
    [DML_CAUSE_NO_BWRAP] = {DML_CHECK_BUBBLEWRAP, "bubblewrap is not installed.", "sudo apt-get install bubblewrap"},
    [DML_CAUSE_BWRAP_SETUID] = {DML_CHECK_BUBBLEWRAP,
                                "bubblewrap is installed setuid root, and then cannot forbid user namespaces inside.",
                                "sudo chmod u-s \"$(command -v bwrap)\""},
    [DML_CAUSE_BWRAP_OLD] = {DML_CHECK_BUBBLEWRAP, "This bubblewrap is too old; 0.8.0 or newer is needed.",
                             "sudo apt-get update && sudo apt-get install bubblewrap"},
    [DML_CAUSE_AGENT_MISSING] = {DML_CHECK_AGENT, "The program demilune-agent is missing or cannot be read.",
                                 "build or install demilune again: cmake --build build"},
    [DML_CAUSE_MEMFD_NOEXEC] = {DML_CHECK_AGENT, "The system forbids running programs from memory files.",
                                "sudo sysctl -w vm.memfd_noexec=0"},
    [DML_CAUSE_USERNS_ZERO] = {DML_CHECK_USER_NAMESPACES,
                               "User namespaces are switched off, or all that are allowed are in use.",
                               "sudo sysctl -w user.max_user_namespaces=15000"},
    [DML_CAUSE_USERNS_CLONE] = {DML_CHECK_USER_NAMESPACES, "User namespaces are switched off for plain users.",
                                "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
    [DML_CAUSE_USERNS_REFUSED] = {DML_CHECK_USER_NAMESPACES,
                                  "The system refuses user namespaces to this process: it runs in a chroot, or a "
                                  "security module or container forbids them.",
                                  "run it outside of chroots, and lift the restriction; `unshare --user true` must "
                                  "succeed"},
    [DML_CAUSE_APPARMOR] = {DML_CHECK_APPARMOR, "AppArmor keeps plain users' programs from using user namespaces.",
                            "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile bwrap /usr/bin/bwrap "
                            "flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee /etc/apparmor.d/bwrap && sudo "
                            "apparmor_parser -r /etc/apparmor.d/bwrap"},
    [DML_CAUSE_SECCOMP] = {DML_CHECK_SECCOMP,
                           "A seccomp filter, as Docker's, keeps this process from making user namespaces.",
                           "start the container with: docker run --security-opt seccomp=unconfined --security-opt "
                           "systempaths=unconfined"},
    [DML_CAUSE_SECCOMP_MISSING] = {DML_CHECK_SECCOMP, "The kernel does not take seccomp filters.",
                                   "use a kernel built with CONFIG_SECCOMP_FILTER"},
    [DML_CAUSE_CHROOT] = {DML_CHECK_ROOT_DIRECTORY,
                          "This process runs in a chroot, where the kernel refuses user namespaces.",
                          "enter the root with its own mount namespace instead: unshare --mount pivot_root, "
                          "systemd-nspawn or a container"},
    [DML_CAUSE_PROC_ABSENT] = {DML_CHECK_PROC, "/proc is not mounted.", "sudo mount -t proc proc /proc"},
    [DML_CAUSE_PROC_MASKED] = {DML_CHECK_PROC,
                               "Parts of /proc are covered, so the kernel refuses a new /proc for a sandbox.",
                               "docker run --security-opt systempaths=unconfined; in a systemd unit "
                               "ProtectKernelTunables=no, ProtectKernelLogs=no and ProtectProc=default"},
    [DML_CAUSE_UID_UNMAPPED] = {DML_CHECK_IDENTITY,
                                "No free user id can be mapped here, and root's sandboxes need one of their own.",
                                "run demilune as a plain user, or give the container at least 65536 user and group ids"},
    [DML_CAUSE_UID_LOCKS] = {DML_CHECK_IDENTITY, "The folder for the locks of user ids cannot be written or is not ours.",
                             "sudo install -d -m 0700 -o root -g root /run/demilune-uids"},
    [DML_CAUSE_NO_CAPACITY] = {DML_CHECK_TRIAL, "There are no processes, descriptors or memory left for a sandbox.",
                               "end other programs, or raise `ulimit -u` and `ulimit -n`"},
    [DML_CAUSE_TRIAL_TIMEOUT] = {DML_CHECK_TRIAL, "A trial sandbox did not start within 10 seconds.",
                                 "try again when the machine is less busy"},
    [DML_CAUSE_TRIAL_FAILED] = {DML_CHECK_TRIAL, "A trial sandbox did not start, for the reason named above.",
                                "mend what is named above"},
    [DML_CAUSE_TRIAL_SKIPPED] = {DML_CHECK_TRIAL, "No trial sandbox was started, for the reason named above.",
                                 "mend what is named above"},
    [DML_CAUSE_UNKNOWN] = {DML_CHECK_TRIAL, "A trial sandbox did not start, and the reason is not a known one.",
                           "see what this says: bwrap --unshare-all --unshare-user --uid 1000 --ro-bind / / --proc /proc "
                           "--dev /dev true"},
};

const dml_cause_row *dml_cause_peek(dml_cause cause) {
  return cause > DML_CAUSE_NONE && cause < DML_CAUSE_COUNT ? &ROWS[cause] : NULL;
}

const char *dml_check_name(dml_check check) { return CHECK_NAMES[check]; }

/* ---- what can be read ---- */

static bool read_text(const char *path, char *out, size_t out_bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, out, out_bytes - 1);
  close(fd);
  if (n <= 0) return false;
  out[n] = '\0';
  return true;
}

/* Whether the sysctl is there and holds that number. */
static bool holds(const char *path, long number) {
  char text[32];
  return read_text(path, text, sizeof text) && strtol(text, NULL, 10) == number;
}

dml_cause dml_cause_of_bubblewrap(const char *path) {
  struct stat st;
  if (!path || stat(path, &st) != 0) return DML_CAUSE_NO_BWRAP;
  return st.st_mode & (S_ISUID | S_ISGID) ? DML_CAUSE_BWRAP_SETUID : DML_CAUSE_NONE;
}

dml_cause dml_cause_of_user_namespaces(void) {
  if (holds("/proc/sys/user/max_user_namespaces", 0)) return DML_CAUSE_USERNS_ZERO;
  /* Debian's own switch; a root engine drops to a plain uid before bubblewrap, so it counts for both. */
  if (holds("/proc/sys/kernel/unprivileged_userns_clone", 0)) return DML_CAUSE_USERNS_CLONE;
  return DML_CAUSE_NONE;
}

static bool is_apparmor_restricting(void) {
  return holds("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1);
}

static bool is_filtered(void) {
  char text[8192];
  if (!read_text("/proc/self/status", text, sizeof text)) return false;
  const char *line = strstr(text, "\nSeccomp:");
  return line && strtol(line + sizeof "\nSeccomp:" - 1, NULL, 10) == 2;
}

static bool find_root(const dml_mount *mount, void *ud) {
  bool *is_found = ud;
  *is_found = strcmp(mount->point, "/") == 0;
  return !*is_found;
}

static bool is_same(const char *a, const char *b) {
  struct stat sa, sb;
  return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static bool is_different(const char *a, const char *b) {
  struct stat sa, sb;
  return stat(a, &sa) == 0 && stat(b, &sb) == 0 && (sa.st_dev != sb.st_dev || sa.st_ino != sb.st_ino);
}

/* The kernel compares the root with that of the mount namespace (user_namespaces(7): EPERM). Seen from here: no mount at
 * /, or the first process of the same namespace has another root. */
static bool is_chroot(void) {
  bool has_root = true;
  dml_mounts_each(find_root, &has_root);
  return !has_root || (is_same("/proc/1/ns/mnt", "/proc/self/ns/mnt") && is_different("/proc/1/root/", "/"));
}

/* ---- what a failed trial means ---- */

static dml_cause of_refusal(void) {
  if (dml_cause_of_user_namespaces() != DML_CAUSE_NONE) return dml_cause_of_user_namespaces();
  if (is_chroot()) return DML_CAUSE_CHROOT;
  if (is_filtered()) return DML_CAUSE_SECCOMP;
  if (is_apparmor_restricting()) return DML_CAUSE_APPARMOR;
  return DML_CAUSE_USERNS_REFUSED;
}

typedef struct phrase {
  const char *text;
  dml_cause cause; /* DML_CAUSE_NONE: refused, by whom the machine must tell */
} phrase;

/* Parts of bubblewrap's messages, 0.4 to 0.11; the first that is found counts. */
static const phrase PHRASES[] = {
    {"Unknown option", DML_CAUSE_BWRAP_OLD},
    {"is not supported in setuid", DML_CAUSE_BWRAP_SETUID},
    {"Can't mount proc", DML_CAUSE_PROC_MASKED},
    {"/proc/sys/user/max_user_namespaces", DML_CAUSE_PROC_MASKED}, /* it cannot be written */
    {"open /proc", DML_CAUSE_PROC_ABSENT},
    {"Can't open /proc", DML_CAUSE_PROC_ABSENT},
    {"max_*_namespaces", DML_CAUSE_USERNS_ZERO},
    {"unshare user ns: No space", DML_CAUSE_USERNS_ZERO},
    {"unshare user ns", DML_CAUSE_NONE},
    {"No permissions to creat", DML_CAUSE_NONE},
    {"Creating new namespace failed", DML_CAUSE_NONE},
    {"setting up uid map", DML_CAUSE_NONE},
    {"setting up gid map", DML_CAUSE_NONE},
    {"loopback: Failed", DML_CAUSE_NONE},
    {"Failed to make / slave", DML_CAUSE_NONE},
    {"pivot_root", DML_CAUSE_CHROOT},
    {"PR_SET_SECCOMP", DML_CAUSE_SECCOMP_MISSING},
    {"Resource temporarily unavailable", DML_CAUSE_NO_CAPACITY},
    {"Cannot allocate memory", DML_CAUSE_NO_CAPACITY},
    {"execvp /proc/self/fd", DML_CAUSE_MEMFD_NOEXEC},
};

dml_cause dml_cause_of_trial(const char *message, size_t len) {
  for (size_t i = 0; i < sizeof PHRASES / sizeof *PHRASES; i++) {
    if (!memmem(message, len, PHRASES[i].text, strlen(PHRASES[i].text))) continue;
    return PHRASES[i].cause != DML_CAUSE_NONE ? PHRASES[i].cause : of_refusal();
  }
  return DML_CAUSE_UNKNOWN;
}
