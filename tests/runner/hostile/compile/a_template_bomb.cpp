template <int N, int M> struct A { static const int v = A<N - 1, M>::v + A<N - 1, M + 1>::v; };
template <int M> struct A<0, M> { static const int v = 1; };
int main() { return A<600, 0>::v; }
