"""Templates of the files of integer C."""

from string import Template

HEADER = Template("""\
/*
 * One step of a $cell in integers ($dtype), made by tauflow $version.
 * README.md and $name.json beside this file say how far it is from the model.
 *
$notes
 */
#ifndef ${NAME}_H
#define ${NAME}_H

#include <stdint.h>

#define ${NAME}_INPUTS $inputs
#define ${NAME}_OUTPUTS $outputs
#define ${NAME}_STATE $state
/* Bytes of flash for the constants, and about as many of stack for a step on Cortex-M. */
#define ${NAME}_FLASH $flash
#define ${NAME}_STACK $stack

/* A number of the state. */
typedef $state_type ${name}_state_t;
/* A time step, mantissa 2^exponent; the mantissa is not negative. */
typedef struct {
    int16_t mantissa;
    int16_t exponent;
} ${name}_gap_t;

/* The time step of so many ticks of a clock that has ticks_per_unit in the model's unit. */
${name}_gap_t ${name}_gap(uint32_t ticks, uint32_t ticks_per_unit);

/* The state before the first sample. */
void ${name}_start(${name}_state_t h[$state]);

/* Advance the state h by one sample, and say what the model does then. Any integers may come in. */
void ${name}_step($arguments);

/* Integers of numbers, and back, in floats: for tests, and where there is a float unit. */
#ifdef ${NAME}_WITH_FLOAT
#include <math.h>
static const float ${name}_x_scale[$inputs] = {$x_scale};
static const float ${name}_x_zero[$inputs] = {$x_zero};
static const int16_t ${name}_x_missing[$inputs] = {$x_missing};
static const float ${name}_y_scale[$outputs] = {$y_scale};
static const float ${name}_y_zero[$outputs] = {$y_zero};

static inline void ${name}_pack(const float value[$inputs], int16_t x[$inputs]) {
    int i;
    for (i = 0; i < $inputs; i++) {
        float v = rintf(value[i] * ${name}_x_scale[i]) - ${name}_x_zero[i];
        x[i] = (int16_t)(v > 32767.0f ? 32767.0f : v > -32768.0f ? v : -32768.0f);
        if (isnan(value[i])) x[i] = ${name}_x_missing[i];
    }
}

static inline void ${name}_unpack(const int16_t y[$outputs], float value[$outputs]) {
    int i;
    for (i = 0; i < $outputs; i++)
        value[i] = ((float)y[i] + ${name}_y_zero[i]) * ${name}_y_scale[i];
}

static inline ${name}_gap_t ${name}_float_gap(float dt) {
    ${name}_gap_t gap = {0, 0};
    int exponent;
    float mantissa = rintf(32768.0f * frexpf(dt, &exponent));
    if (!(mantissa > 0.0f) || isinf(dt)) return gap;
    if (mantissa > 32767.0f) {
        mantissa = 16384.0f;
        exponent++;
    }
    gap.mantissa = (int16_t)mantissa;
    gap.exponent = (int16_t)(exponent - 15);
    return gap;
}
#endif

#endif
""")

SOURCE = Template("""\
#include "$name.h"

$helpers
$constants

${name}_gap_t ${name}_gap(uint32_t ticks, uint32_t ticks_per_unit) {
    ${name}_gap_t gap = {0, 0};
    int exponent = 0;
    if (ticks == 0u || ticks_per_unit == 0u) return gap;
    for (; ticks < 0x80000000u; exponent--) ticks <<= 1;
    for (; ticks_per_unit >= 65536u; exponent--) ticks_per_unit >>= 1;
    for (; ticks_per_unit < 32768u; exponent++) ticks_per_unit <<= 1;
    ticks /= ticks_per_unit;
    for (; ticks > 32767u; exponent++) ticks >>= 1;
    gap.mantissa = (int16_t)ticks;
    gap.exponent = (int16_t)exponent;
    return gap;
}

void ${name}_start(${name}_state_t h[$state]) {
    static const ${name}_state_t value[$state] = {$start};
    int i;
    for (i = 0; i < $state; i++) h[i] = value[i];
}

void ${name}_step($arguments) {
$body
}
""")

MAIN = Template("""\
/*
 * Reads samples from standard input, one line each, and prints what the model says, as CSV:
 *   $columns
 * With --check they are integers: those of x, dt's mantissa and exponent,$observed_words and
 * the $outputs outputs that are expected; the largest difference is printed instead.
 */
#define ${NAME}_WITH_FLOAT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "$name.h"

#define COLUMNS ($inputs + 2 + $observed_count + $outputs)
$reader
int main(int argc, char **argv) {
    static ${name}_state_t h[${NAME}_STATE];
    int check = argc > 1 && strcmp(argv[1], "--check") == 0;
    int wanted = $inputs + (check ? 2 + $outputs : 1) + $observed_count;
    long number = 0;
    double worst = 0.0;
    ${name}_start(h);
    while (fgets(line, (int)sizeof line, stdin) != NULL) {
        int16_t x[$inputs], y[$outputs];
        ${name}_gap_t dt;
        int i, observed_at = $inputs + (check ? 2 : 1);
$observed_array        number++;
        if (!read_columns(wanted)) {
            fprintf(stderr, "line %ld: expected %d numbers with commas between them\\n", number,
                    wanted);
            return 1;
        }
        if (check) {
            for (i = 0; i < $inputs; i++) x[i] = (int16_t)columns[i];
            dt.mantissa = (int16_t)columns[$inputs];
            dt.exponent = (int16_t)columns[$inputs + 1];
        } else {
            float value[$inputs], gap = (float)columns[$inputs];
            if (!(gap >= 0.0f) || isinf(gap)) {
                fprintf(stderr, "line %ld: the time step must be finite and not negative\\n",
                        number);
                return 1;
            }
            for (i = 0; i < $inputs; i++) value[i] = (float)columns[i];
            ${name}_pack(value, x);
            dt = ${name}_float_gap(gap);
        }
$observed_reading        ${name}_step(x, dt,$observed_call h, y);
        for (i = 0; i < $outputs; i++) {
            double apart = (double)y[i] - columns[observed_at + $observed_count + i];
            if (check && (apart > worst || -apart > worst)) worst = apart > 0.0 ? apart : -apart;
        }
        if (!check) {
            float value[$outputs];
            ${name}_unpack(y, value);
            for (i = 0; i < $outputs; i++)
                printf("%.9g%c", (double)value[i], i + 1 < $outputs ? ',' : '\\n');
        }
    }
    if (check) printf("%ld samples, largest difference %.3g\\n", number, worst);
    return check && worst > 0.0;
}
""")

README = Template("""\
# $name: one step of a $cell in integers

Made by tauflow $version. `$name.c` needs no floats, no `math.h`, no allocation and no 64-bit
products. `make test` compares it with `test_vector.csv`, bit for bit.

    static ${name}_state_t h[${NAME}_STATE];
    int16_t x[${NAME}_INPUTS], y[${NAME}_OUTPUTS];
    ${name}_start(h);
    for (;;) {
        /* read x; ticks since the sample before, ${ticks} of which are the unit of dt */
        ${name}_step(x, ${name}_gap(ticks, ${ticks}u), h, y);
    }

| what | |
| --- | --- |
| weights | $dtype |
| inputs | $x_words |
| outputs | $y_words |
| constants | $flash bytes of flash |
| stack | about $stack bytes |

## How far it is from the model

Shares of the range of the outputs on the calibration data ($samples samples).

| where | largest error |
| --- | --- |
| the calibration data (time steps up to $longest) | $error % (root mean square $rms %) |
$by_gap

Saturated: $saturated_x % of the inputs, $saturated_h % of the state.$metric
""")
