int a[1 << 29] = {1};
int main(void) { return a[5]; }
