/* Kernel memory: pipes with a megabyte in each. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

static char block[1 << 20];

int main(void) {
    for (;;) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK)) {
            if (fork()) pause();
            for (int fd = 3; fd < 256; fd++) if (fd % 2) close(fd);
            continue;
        }
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        while (write(ends[1], block, sizeof block) > 0) {}
    }
}
