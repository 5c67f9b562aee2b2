/* A stopped process uses no time and does not end. */
#include <signal.h>

int main(void) {
    raise(SIGSTOP);
    for (;;) {}
}
