#include <cstdlib>
#include <iostream>

int main() {
    long long a = 0;
    long long b = 0;
    while (std::cin >> a >> b) {
        std::cout << std::llabs(a - b) << '\n';
    }
}
