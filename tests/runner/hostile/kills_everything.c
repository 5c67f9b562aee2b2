#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    kill(1, SIGKILL);
    kill(getppid(), SIGKILL);
    kill(0, SIGSTOP);
    killpg(1, SIGKILL);
    kill(-1, SIGKILL);
    puts("contained");
    return 0;
}
