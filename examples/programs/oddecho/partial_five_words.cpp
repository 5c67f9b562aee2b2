#include <iostream>
#include <string>

// Believes that there are always five words, as in the first subtask.
int main() {
    int count = 0;
    std::cin >> count;
    std::string words[5];
    for (auto &word : words) {
        std::cin >> word;
    }
    std::cout << words[0] << '\n' << words[2] << '\n' << words[4] << '\n';
}
