#include <stdio.h>
#include <stdlib.h>

int main(void) {
    char word[128];
    if (scanf("%127s", word) == 1) {
        abort(); /* gives up as soon as there is something to do */
    }
    return 0;
}
