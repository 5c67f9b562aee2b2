#include </dev/zero>
int main() { return 0; }
