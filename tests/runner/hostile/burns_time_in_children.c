/* No single process uses much time; all of them together do. */
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    for (;;) {
        if (fork() == 0) {
            while (clock() < CLOCKS_PER_SEC / 50) {}
            _exit(0);
        }
        wait(0);
    }
}
