/* Every call here must be refused: by the filter, or for want of rights. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static char zeros[256];

static void refused(const char *what, long result) {
    if (result != -1) printf("%s got through with %ld\n", what, result);
}

#define CALL(name, ...) refused(#name, syscall(SYS_##name, ##__VA_ARGS__))

int main(void) {
    int flags[] = {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER,
                   CLONE_NEWPID, CLONE_NEWNET, 0x80};
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    struct sched_param fifo = {.sched_priority = 1};
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
        CALL(unshare, flags[i]);
        long child = syscall(SYS_clone, flags[i] | SIGCHLD, 0, 0, 0, 0);
        if (child == 0) _exit(0);
        refused("clone", child);
    }
    CALL(clone3, zeros, 64);
    CALL(setns, 0, 0);
    CALL(mount, "none", "/tmp", "tmpfs", 0, 0);
    CALL(umount2, "/tmp", MNT_DETACH);
    CALL(pivot_root, "/tmp", "/tmp");
    CALL(chroot, "/tmp");
    CALL(open_tree, -100, "/tmp", 1);
    CALL(fsopen, "tmpfs", 0);
    CALL(open_by_handle_at, -100, zeros, 0);
    CALL(setuid, 0);
    CALL(setgid, 0);
    CALL(setgroups, 0, zeros);
    CALL(ptrace, PTRACE_TRACEME, 0, 0, 0);
    CALL(ptrace, PTRACE_ATTACH, 1, 0, 0);
    CALL(ptrace, PTRACE_SEIZE, getppid(), 0, 0);
    CALL(process_vm_readv, 1, zeros, 1, zeros, 1, 0);
    CALL(process_vm_writev, 1, zeros, 1, zeros, 1, 0);
    CALL(pidfd_getfd, 0, 0, 0);
    CALL(kcmp, getpid(), getpid(), 0, 1, 1);
    CALL(keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1);
    CALL(add_key, "user", "left-for-the-next", "x", 1, KEY_SPEC_USER_KEYRING);
    CALL(request_key, "user", "left-for-the-next", 0, 0);
    CALL(bpf, 0, zeros, sizeof zeros);
    CALL(perf_event_open, zeros, 0, -1, -1, 0);
    CALL(userfaultfd, 1);
    CALL(io_uring_setup, 1, zeros);
    CALL(kexec_load, 0, 0, 0, 0);
    CALL(init_module, zeros, 0, "");
    CALL(finit_module, 0, "", 0);
    CALL(delete_module, "x", 0);
    CALL(reboot, 0, 0, 0, 0);
    CALL(swapon, "/tmp", 0);
    CALL(syslog, 3, zeros, 10);
    CALL(settimeofday, zeros, 0);
    CALL(sethostname, "x", 1);
    CALL(fanotify_init, 0, 0);
    CALL(memfd_secret, 0);
    CALL(memfd_create, "x", 0);
    CALL(shmget, 0, 1 << 20, 0666 | 01000);
    CALL(setpriority, PRIO_PROCESS, 0, -20);
    CALL(sched_setscheduler, 0, SCHED_FIFO, &fifo);
    refused("a higher limit on processes", setrlimit(RLIMIT_NPROC, &more));
    refused("a higher limit on files", setrlimit(RLIMIT_FSIZE, &more));
    puts("contained");
    return 0;
}
