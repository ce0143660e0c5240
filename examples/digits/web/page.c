/* What the page calls of digits.c. */
#include "digits.h"

static struct digits self;
static float given[(LEFT + FRAMES + RIGHT) * DIM], found[FRAMES * CLASSES];

float *input(void) { return given; }
float *output(void) { return found; }
void compute(void)
{
    digits_init(&self);
    digits_forward(&self, given, found);
}
