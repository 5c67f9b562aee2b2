/* 80 MiB, and gone before anybody looks. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    size_t size = 80 << 20;
    write(1, "contained\n", 10);
    char *block = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return 1;
    memset(block, 1, size);
    _exit(0);
}
