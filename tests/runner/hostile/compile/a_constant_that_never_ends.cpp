constexpr int f(int n) { for (;;) n = (n + 1) % 7; return n; }
constexpr int v = f(0);
int main() { return v; }
