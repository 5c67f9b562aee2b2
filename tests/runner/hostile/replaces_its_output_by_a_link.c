/* Points its own stdout at other files: what was written into the pipe is what counts. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    puts("contained");
    fflush(stdout);
    symlink("/etc/shadow", "/tmp/out");
    int fd = open("/tmp/out", O_RDWR);
    if (fd >= 0) puts("opened the link's target");
    fd = open("/tmp/other", O_CREAT | O_RDWR, 0600);
    dup2(fd, 1);
    puts("not to be seen");
    return 0;
}
