__asm__(".incbin \"/proc/1/mem\"\n.incbin \"/proc/kcore\"");
int main(void) { return 0; }
