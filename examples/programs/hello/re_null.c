#include <stdio.h>

int main(void) {
    volatile char *nowhere = NULL;
    puts("Hello World!");
    *nowhere = '!';
    return 0;
}
