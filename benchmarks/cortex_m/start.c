/* Start of a program on Cortex-M under QEMU: memory, semihosting, SysTick, stack depth. */
#include "start.h"

extern uint32_t stack_top[], stack_low[], bss_start[], bss_end[], data_start[], data_end[];
extern uint32_t data_load[];

static uint32_t call_host(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = argument;
    __asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void put(const char *text) { call_host(4, text); }

void put_hex(uint32_t value) {
    char text[10];
    int i;
    for (i = 0; i < 8; i++) text[i] = "0123456789abcdef"[(value >> (28 - 4 * i)) & 15u];
    text[8] = ' ';
    text[9] = 0;
    put(text);
}

static void finish(void) {
    call_host(0x18, (void *)0x20026);
    for (;;) {}
}

static void fault(void) {
    put("FAULT\n");
    finish();
}

void reset(void) {
    uint32_t *to, *from;
#if defined(__ARM_FP)
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20;
    __asm volatile("dsb\nisb");
#endif
    for (to = data_start, from = data_load; to < data_end;) *to++ = *from++;
    for (to = bss_start; to < bss_end;) *to++ = 0;
    main();
    finish();
}

__attribute__((section(".vectors"), used)) void *const vectors[16] = {
    stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    (void *)fault};

#define SYSTICK ((volatile uint32_t *)0xE000E010u)

void start_ticks(void) {
    SYSTICK[1] = 0xFFFFFFu;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    while (SYSTICK[2] == 0) {}
}

uint32_t count_ticks(void) { return 0xFFFFFFu - SYSTICK[2]; }

__attribute__((noinline)) void paint_stack(void) {
    uint32_t *at, *top = (uint32_t *)__builtin_frame_address(0) - 16;
    for (at = stack_low; at < top; at++) *at = 0xA5A5A5A5u;
}

uint32_t stack_depth(void) {
    uint32_t *at = stack_low;
    while (*at == 0xA5A5A5A5u) at++;
    return (uint32_t)((char *)stack_top - (char *)at);
}
