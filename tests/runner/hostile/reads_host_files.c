/* Opens what the host has, following every way up. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    const char *paths[] = {"/etc/shadow", "/etc/passwd", "/root", "/proc/1/root/etc/shadow",
                           "../../../../etc/shadow", "/proc/self/cwd/../etc/shadow",
                           "/usr/../etc/shadow", "/judge/../etc/shadow"};
    for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++)
        if (open(paths[i], O_RDONLY) >= 0) printf("opened %s\n", paths[i]);
    /* Descriptors that somebody forgot to close. */
    for (int fd = 3; fd < 4096; fd++)
        if (fcntl(fd, F_GETFD) >= 0) printf("holds descriptor %d\n", fd);
    puts("contained");
    return 0;
}
