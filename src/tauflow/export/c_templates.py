"""Templates of the C files around a generated step: header, CSV program, Makefile."""

from string import Template

HEADER = Template("""\
/*
 * One step of a $cell, made by tauflow $version.
 * $NAME_FILE.json beside this file says more, such as the model's options.
 *
$notes
 */
#ifndef ${NAME}_H
#define ${NAME}_H

#include <stdbool.h>
#include <stdint.h>

#define ${NAME}_INPUTS $inputs
#define ${NAME}_OUTPUTS $outputs
#define ${NAME}_STATE $state
/* Bytes of flash for the constants, and about as many of stack for a step on Cortex-M. */
#define ${NAME}_FLASH $flash
#define ${NAME}_STACK $stack

/* The state before the first sample x. */
void ${name}_start(const $x_type x[1][$inputs], float h[1][$state]);

/*
 * Advance the state by one sample: h_out from h_in, which must be two arrays, and what the model
 * says then. Nothing is checked: x must be $x_may, and dt finite and not negative.
 */
void ${name}_step($arguments);

#endif
""")

SOURCE = Template("""\
#include "$name.h"

#include <math.h>

$constants

void ${name}_step($arguments) {
$body
}
""")

START = Template("""

/* Where the state starts. */
void ${name}_start(const $x_type x[1][$inputs], float h[1][$state]) {
    static const float value[$state] = {$value};
    int i;
    (void)x;
    for (i = 0; i < $state; i++) h[0][i] = value[i];
$affine}
""")

AFFINE = Template("""\
    {
        static const float per_input[$count][$state] = {$rows};
        int j;
        for (j = 0; j < $count; j++)
            for (i = 0; i < $state; i++) h[0][i] += x[0][j] * per_input[j][i];
    }
""")

READER = """\
static char line[1048576];
static double columns[COLUMNS];

/* Read the line's numbers; return whether there were so many, and nothing else. */
static int read_columns(int wanted) {
    char *at = line, *end;
    int count = 0;
    for (;;) {
        columns[count] = strtod(at, &end);
        if (end == at) return 0;
        count++;
        at = end;
        while (*at == ' ' || *at == '\\t' || *at == '\\r' || *at == '\\n') at++;
        if (count == wanted || *at != ',') return count == wanted && *at == '\\0';
        at++;
    }
}
"""

MAIN = Template("""\
/*
 * Reads samples from standard input, one line each, and prints what the model says, as CSV:
 *   $columns
 * With --check the $outputs expected outputs follow on each line, and the largest difference is
 * printed instead. Lines that begin with # are left out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "$name.h"

#define INPUTS ${NAME}_INPUTS
#define OUTPUTS ${NAME}_OUTPUTS
#define SAMPLE $column_count
#define COLUMNS (SAMPLE + OUTPUTS)
static float h[2][1][${NAME}_STATE];
$reader
int main(int argc, char **argv) {
    int check = argc > 1 && strcmp(argv[1], "--check") == 0;
    int wanted = check ? COLUMNS : SAMPLE;
    long number = 0, samples = 0;
    double worst = 0.0;
    if (argc > 2 || (argc == 2 && !check)) {
        fprintf(stderr, "usage: %s [--check] < samples.csv\\n", argv[0]);
        return 2;
    }
    while (fgets(line, (int)sizeof line, stdin) != NULL) {
        $x_type x[1][INPUTS];
        float y[1][OUTPUTS];
        int i, now = (int)(samples % 2);
        number++;
        if (line[0] == '#') continue;
        if (!read_columns(wanted)) {
            fprintf(stderr, "line %ld: expected %d numbers with commas between them\\n", number,
                    wanted);
            return 1;
        }
$check        for (i = 0; i < INPUTS; i++) x[0][i] = ($x_type)columns[i];
$reading        if (samples == 0) ${name}_start((const $x_type(*)[INPUTS])x, h[0]);
        ${name}_step($call);
        samples++;
        for (i = 0; i < OUTPUTS; i++) {
            double size = fabs(columns[SAMPLE + i]);
            double apart = fabs((double)y[0][i] - columns[SAMPLE + i]) / (size > 1.0 ? size : 1.0);
            if (!check) printf("%.9g%c", (double)y[0][i], i + 1 < OUTPUTS ? ',' : '\\n');
            else if (!(apart <= worst)) worst = apart;
        }
    }
    if (check) printf("%ld samples, largest difference %.3g\\n", samples, worst);
    return check && !(worst <= $tolerance);
}
""")

READ_GAP = """\
        float dt[1];
        dt[0] = (float)columns[INPUTS];
        if (!(dt[0] >= 0.0f) || isinf(dt[0])) {
            fprintf(stderr, "line %ld: the time step must be finite and not negative\\n", number);
            return 1;
        }
"""

CHECK_TOKEN = Template("""\
        if (!(columns[0] >= 0.0 && columns[0] < ${count}.0)) {
            fprintf(stderr, "line %ld: the token must be an id from 0 to $last\\n", number);
            return 1;
        }
""")

READ_OBSERVED = """\
        bool observed[1][INPUTS];
        for (i = 0; i < INPUTS; i++) observed[0][i] = columns[SAMPLE - INPUTS + i] != 0.0;
"""

MAKEFILE = Template("""\
CFLAGS ?= -O2
CFLAGS += -std=c99

$name: main.o $name.o
\t$$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$^ -lm

main.o $name.o: $name.h

.PHONY: test clean
test: $name
\t./$name --check < test_vector.csv

clean:
\trm -f $name main.o $name.o
""")
