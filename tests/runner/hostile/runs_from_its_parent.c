/* Each process starts the next one in a session of its own and ends: nobody's child for long. */
#include <unistd.h>

int main(void) {
    for (;;) {
        setsid();
        if (fork() > 0) _exit(0);
        for (volatile int i = 0; i < 1000000; i++) {}
    }
}
