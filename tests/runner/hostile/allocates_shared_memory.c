/* Memory that belongs to no process: files without a name, each below the bound on a file. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    size_t size = 16 << 20;
    for (int i = 0; i < 32; i++) {
        int fd = memfd_create("x", 0);
        if (fd < 0 || ftruncate(fd, size)) return 1;
        char *block = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (block == MAP_FAILED) return 1;
        memset(block, 1, size);
        munmap(block, size);
    }
    return 0;
}
