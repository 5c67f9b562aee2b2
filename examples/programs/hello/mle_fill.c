#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This problem allows 512 MiB; one step at a time goes past it. */
int main(void) {
    const size_t step = (size_t)16 << 20;
    for (;;) {
        char *block = malloc(step);
        if (block == NULL) {
            return 1;
        }
        memset(block, '!', step);
    }
}
