#include <thread>

int main() {
    for (int i = 0; i < 8; i++) std::thread([] { for (volatile int n = 0;; n = n + 1) {} }).detach();
    for (volatile int n = 0;; n = n + 1) {}
}
