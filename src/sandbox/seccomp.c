/* seccomp.c - see seccomp.h. Each row says why it is there. */
#include "sandbox/seccomp.h"

#include <errno.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/memfd.h"

/* Younger than libseccomp 2.5.4's table; above 423 numbers are the same on all architectures. */
#ifndef __NR_open_tree_attr
#define __NR_open_tree_attr 467
#endif

typedef struct refusal {
  int number;
  int err;
} refusal;

static const refusal REFUSED[] = {
    /* Its flags lie in memory that the filter cannot see. ENOSYS makes libc use clone, which can be checked; EPERM would
     * break pthread_create. */
    {SCMP_SYS(clone3), ENOSYS},

    /* New and other namespaces: in a user namespace of its own a process has every capability towards the kernel. */
    {SCMP_SYS(unshare), EPERM},
    {SCMP_SYS(setns), EPERM},

    /* The mount tree is what hides the host; both mount interfaces, chroot with them. */
    {SCMP_SYS(mount), EPERM},
    {SCMP_SYS(umount2), EPERM},
    {SCMP_SYS(umount), EPERM},
    {SCMP_SYS(pivot_root), EPERM},
    {SCMP_SYS(chroot), EPERM},
    {SCMP_SYS(open_tree), EPERM},
    {__NR_open_tree_attr, EPERM},
    {SCMP_SYS(move_mount), EPERM},
    {SCMP_SYS(fsopen), EPERM},
    {SCMP_SYS(fsconfig), EPERM},
    {SCMP_SYS(fsmount), EPERM},
    {SCMP_SYS(fspick), EPERM},
    {SCMP_SYS(mount_setattr), EPERM},

    /* Reaching into other processes of the same user, the agent among them. */
    {SCMP_SYS(ptrace), EPERM},
    {SCMP_SYS(process_vm_readv), EPERM},
    {SCMP_SYS(process_vm_writev), EPERM},
    {SCMP_SYS(pidfd_getfd), EPERM},
    {SCMP_SYS(kcmp), EPERM},
    {SCMP_SYS(process_madvise), EPERM},

    /* Large, young or rarely used parts of the kernel with a history of holes open to any user. */
    {SCMP_SYS(bpf), EPERM},
    {SCMP_SYS(perf_event_open), EPERM},
    {SCMP_SYS(userfaultfd), EPERM},
    {SCMP_SYS(io_uring_setup), EPERM},
    {SCMP_SYS(io_uring_enter), EPERM},
    {SCMP_SYS(io_uring_register), EPERM},
    {SCMP_SYS(fanotify_init), EPERM},
    {SCMP_SYS(fanotify_mark), EPERM},
    {SCMP_SYS(modify_ldt), EPERM},

    /* Key rings are shared across sandboxes and belong to no namespace of mounts or processes. */
    {SCMP_SYS(add_key), EPERM},
    {SCMP_SYS(request_key), EPERM},
    {SCMP_SYS(keyctl), EPERM},

    /* Opens files by inode number, past all paths. */
    {SCMP_SYS(open_by_handle_at), EPERM},

    /* The machine as a whole: its kernel, clock, swap, quotas, accounting, log, ports. No capability allows them
     * anyway; refused here they are no surface either. */
    {SCMP_SYS(kexec_load), EPERM},
    {SCMP_SYS(kexec_file_load), EPERM},
    {SCMP_SYS(init_module), EPERM},
    {SCMP_SYS(finit_module), EPERM},
    {SCMP_SYS(delete_module), EPERM},
    {SCMP_SYS(reboot), EPERM},
    {SCMP_SYS(swapon), EPERM},
    {SCMP_SYS(swapoff), EPERM},
    {SCMP_SYS(acct), EPERM},
    {SCMP_SYS(quotactl), EPERM},
    {SCMP_SYS(quotactl_fd), EPERM},
    {SCMP_SYS(settimeofday), EPERM},
    {SCMP_SYS(clock_settime), EPERM},
    {SCMP_SYS(stime), EPERM},
    {SCMP_SYS(syslog), EPERM},
    {SCMP_SYS(iopl), EPERM},
    {SCMP_SYS(ioperm), EPERM},
    {SCMP_SYS(vhangup), EPERM},
    {SCMP_SYS(lookup_dcookie), EPERM},
    {SCMP_SYS(nfsservctl), EPERM},
    {SCMP_SYS(uselib), EPERM},
    {SCMP_SYS(_sysctl), EPERM},
};

static int add_refusals(scmp_filter_ctx filter) {
  for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
    int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint16_t)REFUSED[i].err), REFUSED[i].number, 0);
    /* A call that this architecture never had needs no rule. */
    if (rc != 0 && rc != -EDOM && rc != -EOPNOTSUPP) return rc;
  }
  return 0;
}

/* New namespaces by clone. CLONE_NEWTIME is not there: its bit belongs to clone's exit signal, only clone3 and unshare
 * know it (clone(2)). */
static int add_clone(scmp_filter_ctx filter) {
  static const uint64_t FLAGS[] = {CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
                                   CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};
#if defined(__s390__) || defined(__s390x__)
  const unsigned flags_at = 1; /* CLONE_BACKWARDS2 */
#else
  const unsigned flags_at = 0;
#endif
  for (size_t i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++) {
    int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                              SCMP_CMP(flags_at, SCMP_CMP_MASKED_EQ, FLAGS[i], FLAGS[i]));
    if (rc != 0) return rc;
  }
  return 0;
}

/* The network namespace has only a loopback, but not every family obeys it: AF_VSOCK reaches the hypervisor. What is
 * left is AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK with NETLINK_ROUTE (0), which getifaddrs needs. The comparison is
 * on 64 bits while the kernel takes an int: higher bits make the value large, so they are refused too. */
static int add_sockets(scmp_filter_ctx filter, int number) {
  const uint32_t refuse = SCMP_ACT_ERRNO(EAFNOSUPPORT);
  for (uint64_t family = 0; family < AF_NETLINK; family++) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6) continue;
    int rc = seccomp_rule_add(filter, refuse, number, 1, SCMP_A0(SCMP_CMP_EQ, family, 0));
    if (rc != 0) return rc;
  }
  int rc = seccomp_rule_add(filter, refuse, number, 1, SCMP_A0(SCMP_CMP_GT, AF_NETLINK, 0));
  if (rc != 0) return rc;
  return seccomp_rule_add(filter, refuse, number, 2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0), SCMP_A2(SCMP_CMP_NE, 0, 0));
}

static bool is_plain_protocol(uint64_t protocol) {
  return protocol == 0 || protocol == IPPROTO_ICMP || protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
         protocol == IPPROTO_ICMPV6;
}

/* Of the Internet families only what everybody uses: SCTP, DCCP, MPTCP, UDP-Lite and raw ones are seldom looked at, and a
 * first use may load their modules into the kernel. */
static int add_protocols(scmp_filter_ctx filter, uint64_t family) {
  const uint32_t refuse = SCMP_ACT_ERRNO(EPROTONOSUPPORT);
  scmp_datum_t last = IPPROTO_ICMPV6;
  for (uint64_t protocol = 0; protocol < last; protocol++) {
    if (is_plain_protocol(protocol)) continue;
    int rc = seccomp_rule_add(filter, refuse, SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_EQ, family, 0),
                              SCMP_A2(SCMP_CMP_EQ, protocol, 0));
    if (rc != 0) return rc;
  }
  return seccomp_rule_add(filter, refuse, SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_EQ, family, 0),
                          SCMP_A2(SCMP_CMP_GT, last, 0));
}

/* The first two put characters into a terminal's input as if typed; the third attaches a line discipline, which may load
 * its module. The kernel reads 32 bits of the request, so the upper half
 * must not hide it (CVE-2019-10063). */
static int add_terminal(scmp_filter_ctx filter) {
  static const uint64_t REQUESTS[] = {TIOCSTI, TIOCLINUX, TIOCSETD};
  for (size_t i = 0; i < sizeof REQUESTS / sizeof *REQUESTS; i++) {
    int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, REQUESTS[i]));
    if (rc != 0) return rc;
  }
  return 0;
}

static int build(scmp_filter_ctx filter) {
  int rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  /* Where the kernel, or what stands in for it, does not know that action, the thread alone is killed. */
  if (rc != 0) rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_THREAD);
  /* A binary tree over the numbers instead of a list: every call of the sandbox passes here. */
  if (rc == 0) rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
  if (rc == 0) rc = add_refusals(filter);
  if (rc == 0) rc = add_clone(filter);
  if (rc == 0) rc = add_sockets(filter, SCMP_SYS(socket));
  if (rc == 0) rc = add_sockets(filter, SCMP_SYS(socketpair));
  if (rc == 0) rc = add_protocols(filter, AF_INET);
  if (rc == 0) rc = add_protocols(filter, AF_INET6);
  if (rc == 0) rc = add_terminal(filter);
  return rc;
}

/* libseccomp 2.5 exports to descriptors only. */
static dml_status export_program(scmp_filter_ctx filter, int *out) {
  int fd;
  dml_status status = dml_memfd_begin("seccomp", &fd);
  if (status != DML_OK) return status;
  status = seccomp_export_bpf(filter, fd) == 0 ? dml_memfd_seal(fd) : DML_INTERNAL;
  if (status == DML_OK)
    *out = fd;
  else
    close(fd);
  return status;
}

dml_status dml_seccomp_program(int *out) {
  *out = -1;
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (!filter) return DML_INTERNAL;
  dml_status status = build(filter) == 0 ? export_program(filter, out) : DML_INTERNAL;
  seccomp_release(filter);
  return status;
}
