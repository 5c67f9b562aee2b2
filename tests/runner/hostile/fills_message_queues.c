/* Messages that wait in System V queues belong to no process. */
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>

static struct {
    long type;
    char text[8000];
} message = {.type = 1};

int main(void) {
    long sent = 0;
    memset(message.text, 1, sizeof message.text);
    for (int i = 0; i < 20000; i++) {
        int queue = msgget(IPC_PRIVATE, 0600);
        if (queue < 0)
            break;
        while (msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT) == 0)
            sent += sizeof message.text;
    }
    if (sent < 1 << 20)
        puts("contained");
    else
        printf("%ld bytes wait in queues\n", sent);
    return 0;
}
