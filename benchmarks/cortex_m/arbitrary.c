/*
 * Steps with arbitrary integers: inputs, states, gaps of any mantissa and exponent, those of clocks
 * and of floats from 0 to infinity and NaN. Prints a checksum of the outputs.
 * -DOBSERVED for a step that takes which inputs were measured.
 */
#define MODEL_WITH_FLOAT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

static uint32_t state = 1u;
static uint32_t draw(void) { /* xorshift */
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}
static float draw_float(void) {
    uint32_t bits = draw();
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static model_gap_t draw_gap(void) {
    static const float some[] = {0.0f, 1e-9f, 1e-4f, 1.0f, 1e4f, 1e9f, 3e38f, -1.0f};
    model_gap_t gap;
    switch (draw() % 4u) {
    case 0: return model_gap(draw() >> (draw() % 32u), draw() >> (draw() % 32u));
    case 1: return model_float_gap(draw() % 2u ? draw_float() : some[draw() % 8u]);
    case 2: return model_float_gap((float)(1 + draw() % 5000u) * 1e-3f);
    default: gap.mantissa = (int16_t)draw(); gap.exponent = (int16_t)draw(); return gap;
    }
}

int main(int argc, char **argv) {
    static model_state_t h[MODEL_STATE];
    int16_t x[MODEL_INPUTS], y[MODEL_OUTPUTS];
    float value[MODEL_INPUTS];
    long n, count = argc > 1 ? atol(argv[1]) : 1000;
    uint32_t sum = 0u;
    int i;
    model_start(h);
    for (n = 0; n < count; n++) {
        model_gap_t gap = draw_gap();
        uint32_t kind = draw() % 4u;
#ifdef OBSERVED
        uint8_t observed[MODEL_INPUTS];
        for (i = 0; i < MODEL_INPUTS; i++) observed[i] = (uint8_t)(draw() % 3u);
#endif
        if (n % 97 == 0) model_start(h);
        if (n % 31 == 0)
            for (i = 0; i < MODEL_STATE; i++) h[i] = (model_state_t)draw();
        for (i = 0; i < MODEL_INPUTS; i++) {
            value[i] = draw_float();
            x[i] = (int16_t)(kind ? draw() : draw() % 2u ? 32767u : 32768u);
        }
        if (kind == 1u) model_pack(value, x);
#ifdef OBSERVED
        model_step(x, gap, observed, h, y);
#else
        model_step(x, gap, h, y);
#endif
        for (i = 0; i < MODEL_OUTPUTS; i++) sum = sum * 31u + (uint16_t)y[i];
    }
    printf("%08lx\n", (unsigned long)sum);
    return 0;
}
