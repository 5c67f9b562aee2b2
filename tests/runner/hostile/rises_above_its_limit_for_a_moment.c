/* 80 MiB for a moment, given back at once; most of its life it is small. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

int main(void) {
    struct timespec moment = {.tv_nsec = 50000000};
    size_t size = 80 << 20;
    char *block = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return 1;
    memset(block, 1, size);
    munmap(block, size);
    nanosleep(&moment, 0);
    puts("contained");
    return 0;
}
