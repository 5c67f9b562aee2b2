"""Which system calls a program may make: a filter for the kernel, made with libseccomp.

Guarantees: what no solution of a problem needs, and what past escapes from a namespace were made
of, is refused with EPERM: tracing, mounting, namespaces, keyrings, BPF, io_uring, sockets of
families that a network namespace does not hold (a virtual machine's vsock among them). Calls of
another architecture end the program. Where no control group counts, a program is alone: no
children, nothing that holds memory for it. Elsewhere the filter is only one more wall: the others
stand without.
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

KERNEL_SUPPORT = Path("/proc/sys/kernel/seccomp/actions_avail")

REFUSED = (
    # Other processes' memory and descriptors.
    "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp",
    # Namespaces and mounts.
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    # Files by handle go past the mounts.
    "open_by_handle_at", "name_to_handle_at", "fanotify_init",
    # Large parts of the kernel that a solution never needs.
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "keyctl", "add_key", "request_key", "modify_ldt",
    # Memory that belongs to no process, which only a control group would count.
    "memfd_create", "memfd_secret", "shmget", "msgget", "semget", "mq_open",
    # The machine itself.
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
    "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday",
    "clock_settime", "clock_adjtime", "adjtimex", "iopl", "ioperm", "vhangup",
    "sethostname", "setdomainname",
)  # fmt: skip

# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
NEW_NAMESPACES = (
    0x00000080, 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
# Unix, IPv4, IPv6; there is no interface for the latter two, but libraries ask for them.
FAMILIES_ALLOWED = (1, 2, 10)
# Where no control group counts the whole tree a program is one process, whose memory is all its
# own: the time of children is lost where nobody waits for them, and what lies in a socket or in a
# large pipe belongs to no process.
REFUSED_ALONE = ("fork", "vfork", "socket", "socketpair", "vmsplice")
CLONE_THREAD = 0x00010000
SET_PIPE_SIZE = 1031

# Typing into, or pasting to, a terminal that somebody else reads.
TERMINAL_INPUT = (0x5412, 0x541C)


class FilterError(Exception):
    """The filter cannot be made here; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """Two filters as the kernel reads them: arrays of struct sock_filter. Empty: there is none.

    `alone` is for a program whose tree nothing counts: it may have threads but no children.
    """

    usual: bytes = b""
    alone: bytes = b""


def syscall_filters() -> Filters:
    """Return both filters. Raises FilterError."""
    return Filters(usual=syscall_filter(), alone=syscall_filter(alone=True))


def syscall_filter(*, alone: bool = False) -> bytes:
    """Return one filter as the kernel reads it.

    Raises:
        FilterError: libseccomp is missing or too old, or the kernel filters no system calls.
    """
    if not KERNEL_SUPPORT.exists():
        raise FilterError("this kernel filters no system calls")
    try:
        import pyseccomp
    except (RuntimeError, AttributeError) as error:
        raise FilterError("libseccomp is missing or too old") from error
    try:
        return _compiled(pyseccomp, alone)
    except OSError as error:
        raise FilterError(f"libseccomp does not make the filter: {error.strerror}") from error


def _compiled(seccomp: ModuleType, alone: bool) -> bytes:
    made = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse = seccomp.ERRNO(errno.EPERM)
    for name in (*REFUSED, *(REFUSED_ALONE if alone else ())):
        made.add_rule(refuse, _number(seccomp, name))
    # Flags of clone3 lie in memory, where a filter cannot look; without it libraries use clone.
    made.add_rule(seccomp.ERRNO(errno.ENOSYS), _number(seccomp, "clone3"))
    for flag in NEW_NAMESPACES:
        made.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    if alone:
        made.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_THREAD, 0))
        made.add_rule(refuse, "fcntl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, SET_PIPE_SIZE))
    else:
        _refuse_families(seccomp, made, refuse)
    for request in TERMINAL_INPUT:
        # The kernel reads 32 bits of it, so must the filter.
        made.add_rule(refuse, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0, os.SEEK_SET)
        return file.read()


def _refuse_families(seccomp: ModuleType, made: Any, refuse: int) -> None:
    """Leave the families of sockets that a network namespace holds."""
    for family in range(max(FAMILIES_ALLOWED)):
        if family not in FAMILIES_ALLOWED:
            made.add_rule(refuse, "socket", seccomp.Arg(0, seccomp.EQ, family))
    made.add_rule(refuse, "socket", seccomp.Arg(0, seccomp.GT, max(FAMILIES_ALLOWED)))
    made.add_rule(refuse, "socketpair", seccomp.Arg(0, seccomp.NE, FAMILIES_ALLOWED[0]))


def _number(seccomp: ModuleType, name: str) -> int:
    """Return a call's number (negative where this architecture lacks it). Raises FilterError."""
    number: int = seccomp.resolve_syscall(seccomp.system_arch(), name)
    if number == -1:
        raise FilterError(f"libseccomp is too old: it does not know {name}")
    return number
