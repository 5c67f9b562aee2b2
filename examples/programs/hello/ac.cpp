#include <iostream>
#include <string>

int main() {
    const std::string greeting = "Hello World!";
    std::cout << greeting << '\n';
}
