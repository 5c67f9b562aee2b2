/* What was sent and not read waits in the kernel, not in a process. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    static char block[64 << 10];
    long sent = 0;
    memset(block, 1, sizeof block);
    for (int i = 0; i < 120; i++) {
        int ends[2], size = 8 << 20;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
            break;
        for (int side = 0; side < 2; side++) {
            ssize_t done;
            setsockopt(ends[side], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
            while ((done = send(ends[side], block, sizeof block, MSG_DONTWAIT)) > 0)
                sent += done;
        }
    }
    if (sent < 16 << 20)
        puts("contained");
    else
        printf("%ld bytes wait in sockets\n", sent);
    return 0;
}
