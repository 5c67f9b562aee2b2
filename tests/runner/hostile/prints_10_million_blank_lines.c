/* Blank lines at the end do not count, however many there are. */
#include <string.h>
#include <unistd.h>

static char block[1 << 20];

int main(void) {
    if (write(1, "contained\n", 10) != 10) return 1;
    memset(block, '\n', sizeof block);
    for (int left = 10000000; left > 0; left -= sizeof block)
        if (write(1, block, left < (int)sizeof block ? left : (int)sizeof block) < 0) return 1;
    return 0;
}
