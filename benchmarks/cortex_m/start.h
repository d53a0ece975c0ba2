#ifndef START_H
#define START_H
#include <stdint.h>
int main(void);
void put(const char *text);
void put_hex(uint32_t value);
void start_ticks(void);
uint32_t count_ticks(void);
void paint_stack(void);
uint32_t stack_depth(void);
#endif
