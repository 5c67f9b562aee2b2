#include <stdio.h>

int main(void) {
    int count;
    char word[128];
    if (scanf("%d", &count) != 1) {
        return 1;
    }
    for (int i = 0; i < count; i++) {
        if (scanf("%127s", word) != 1) {
            return 1;
        }
        if (i % 2 == 0) {
            puts(word);
        }
    }
    return 0;
}
