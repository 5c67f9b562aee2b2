#include <string.h>

static char a[1u << 30];

int main(void) {
    memset(a, 1, sizeof a);
    return a[5];
}
