#include <stdio.h>

int main(void) {
    puts("hello world!"); /* letters count, large and small */
    return 0;
}
