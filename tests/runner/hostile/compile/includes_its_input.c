/* The compiler's own input never ends for a program that waits for a terminal. */
#include "/dev/tty"
int main(void) { return 0; }
