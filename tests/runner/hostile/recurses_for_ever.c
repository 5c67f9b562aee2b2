#include <stdio.h>

static int deeper(int n) {
    volatile char room[4096];
    room[n % 4096] = 1;
    return deeper(n + 1) + room[0];
}

int main(void) { printf("%d\n", deeper(0)); }
