/* Asks for sockets of the families that no network namespace, or a large attack surface, holds. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    int pair[2];
    for (int family = 3; family < 46; family++) { /* vsock, netlink, packet, alg, tipc, ... */
        if (family == AF_INET6) continue;
        for (int kind = SOCK_STREAM; kind <= SOCK_SEQPACKET; kind++)
            if (socket(family, kind, 0) >= 0) printf("a socket of family %d\n", family);
        if (socketpair(family, SOCK_DGRAM, 0, pair) == 0) printf("a pair of family %d\n", family);
    }
    puts("contained");
    return 0;
}
