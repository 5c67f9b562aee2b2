#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <signal.h>
#include <unistd.h>

int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("/tmp/a", O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, 1ll << 40) == 0) puts("a terabyte by ftruncate");
    if (fallocate(fd, 0, 0, 1ll << 40) == 0) puts("a terabyte by fallocate");
    if (pwrite(fd, "x", 1, (1ll << 40) - 1) == 1) puts("a terabyte by pwrite");
    puts("contained");
    return 0;
}
