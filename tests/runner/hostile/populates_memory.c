/* Takes memory without ever touching it. */
#include <sys/mman.h>

int main(void) {
    mlockall(MCL_CURRENT);
    for (;;) mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}
