#include <iostream>
#include <stdexcept>

int main() {
    long long a = 0;
    std::cin >> a;
    throw std::runtime_error("nobody catches this");
}
