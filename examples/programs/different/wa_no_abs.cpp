#include <iostream>

int main() {
    long long a = 0;
    long long b = 0;
    while (std::cin >> a >> b) {
        std::cout << b - a << '\n'; // the order of the two does matter here
    }
}
