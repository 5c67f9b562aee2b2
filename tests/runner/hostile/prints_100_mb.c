#include <string.h>
#include <unistd.h>

static char block[1 << 20];

int main(void) {
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 100; i++)
        if (write(1, block, sizeof block) < 0) return 1;
    return 0;
}
