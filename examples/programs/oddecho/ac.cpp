#include <iostream>
#include <string>
#include <vector>

int main() {
    std::size_t count = 0;
    std::cin >> count;
    std::vector<std::string> words(count);
    for (auto &word : words) {
        std::cin >> word;
    }
    for (std::size_t i = 0; i < words.size(); i += 2) {
        std::cout << words[i] << '\n';
    }
}
