/* Compiles only where there is nothing in it. */
#include "/proc/self/environ"
#include "/proc/1/environ"
#include <stdio.h>
int main(void) { puts("contained"); }
