#include <cstdint>
#include <iostream>

int main() {
    volatile std::uint64_t rounds = 0; // volatile: the compiler must not remove the loop
    for (;;) {
        rounds = rounds + 1;
        if (rounds == 0) {
            std::cout << "Hello World!\n";
        }
    }
}
