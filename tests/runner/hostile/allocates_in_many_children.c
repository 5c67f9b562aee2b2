/* Each process stays small; together they need 32 x 8 MiB. */
#include <sys/wait.h>
#include <unistd.h>

static volatile char block[8 << 20];

int main(void) {
    for (int i = 0; i < 32; i++)
        if (fork() == 0) {
            for (unsigned at = 0; at < sizeof block; at += 4096) block[at] = 1;
            sleep(60);
            _exit(0);
        }
    while (wait(0) > 0) {}
    return 0;
}
