/* Ends at once, and leaves busy daemons behind that hold all descriptors. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    puts("contained");
    fflush(stdout);
    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            setsid();
            for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
            for (;;) {}
        }
    return 0;
}
