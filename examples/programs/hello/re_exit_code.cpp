#include <iostream>

int main() {
    std::cout << "Hello World!\n";
    return 3; // the right output does not make up for a failed end
}
