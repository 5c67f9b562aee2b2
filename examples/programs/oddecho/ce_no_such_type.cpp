#include <iostream>
#include <vector>

int main() {
    std::vector<std::strnig> words; // a slip that the compiler points at
    std::cout << words.size() << '\n';
}
