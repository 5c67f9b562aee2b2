#include <stdio.h>

/* Counts from the smaller number up to the larger one: right, but never done in time. */
int main(void) {
    long long a, b;
    while (scanf("%lld %lld", &a, &b) == 2) {
        long long low = a < b ? a : b;
        long long high = a < b ? b : a;
        volatile long long difference = 0; /* volatile: the compiler must not remove the loop */
        while (low + difference < high) {
            difference = difference + 1;
        }
        printf("%lld\n", difference);
    }
    return 0;
}
