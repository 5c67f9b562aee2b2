#include <map>
#include <string>
template <int N> struct E { typename E<N + 1>::type value = std::map<std::string, E<N + 1>>{}; };
int main() { E<0> e; return e.value < e; }
