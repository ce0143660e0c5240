/* The functions that converted networks call. A line of the form "kernel NAME: NAME ..." in a comment
   begins a function, and names the others that it needs.

   x and y are the first elements of a matrix; xs and ys are the distances of its rows, in elements.
   With "adds", results are added to y; without, they replace it. */

/* kernel vector: */
#define NNET3_PANEL 16 /* columns of a panel of weights */
#if defined(__GNUC__)
/* Floats of a register, and the most rows whose sums fit in registers. With few rows, several
   panels are computed at once: NNET3_WIDE(rows). */
#if defined(__AVX512F__)
#define NNET3_LANES 16
#define NNET3_ROWS 7
#define NNET3_WIDE(rows) 4
#elif defined(__AVX__)
#define NNET3_LANES 8
#define NNET3_ROWS 6
#define NNET3_WIDE(rows) ((rows) == 1 ? 4 : (rows) <= 3 ? 2 : 1)
#elif defined(__aarch64__)
#define NNET3_LANES 4
#define NNET3_ROWS 6
#define NNET3_WIDE(rows) ((rows) == 1 ? 4 : (rows) <= 3 ? 2 : 1)
#else
#define NNET3_LANES 4
#define NNET3_ROWS 3
#define NNET3_WIDE(rows) ((rows) == 1 ? 2 : 1)
#endif
#define NNET3_VECTORS (NNET3_PANEL / NNET3_LANES)
typedef float nnet3_vector
    __attribute__((vector_size(4 * NNET3_LANES), aligned(4), may_alias));
typedef int32_t nnet3_bits __attribute__((vector_size(4 * NNET3_LANES), aligned(4), may_alias));
#if defined(__clang__)
#define NNET3_UNROLL _Pragma("clang loop unroll(full)")
#define NNET3_ONCE __attribute__((noinline))
#else
#define NNET3_UNROLL _Pragma("GCC unroll 32")
#define NNET3_ONCE __attribute__((noinline, noclone)) /* large, so for all callers */
#endif
#endif

/* What is done with the elements of a product, x W^T: all of them are set to
   s relu(x W^T + b) + o, or, with "adds", to s relu(y + x W^T) + o. Each of b, s and o may be 0. */
struct nnet3_end {
    const float *b, *s, *o;
    int32_t adds, relu;
};

/* kernel ended: vector */
#if defined(__GNUC__)
/* Elements of a product as the end wants them; "first" is their first column, y what was there. */
static inline __attribute__((always_inline, unused)) nnet3_vector nnet3_ended(
    nnet3_vector found, struct nnet3_end end, int32_t first, const float *y)
{
    if (end.b)
        found += *(const nnet3_vector *)(end.b + first);
    if (end.adds)
        found += *(const nnet3_vector *)y;
    if (end.relu)
        found = (nnet3_vector)((nnet3_bits)found & (nnet3_bits)(found > 0.0f));
    if (end.s)
        found *= *(const nnet3_vector *)(end.s + first);
    if (end.o)
        found += *(const nnet3_vector *)(end.o + first);
    return found;
}
#endif

/* kernel block: ended */
#if defined(NNET3_CBLAS)
#elif defined(__GNUC__)
/* The elements of some rows and panels; the two numbers are constants where it is expanded, so that
   sums stay in registers. */
static inline __attribute__((always_inline)) void nnet3_block(
    const int32_t rows, const int32_t panels, const int32_t (*term)[2], int32_t terms,
    const float *x, int32_t xs, const float *w, size_t ws, struct nnet3_end end, float *y,
    size_t ys)
{
    const int32_t vectors = panels * NNET3_VECTORS;
    nnet3_vector sum[NNET3_ROWS][4 * NNET3_VECTORS], each[4 * NNET3_VECTORS];
    int32_t r, v, k;
    NNET3_UNROLL
    for (r = 0; r < rows; r++) {
        NNET3_UNROLL
        for (v = 0; v < vectors; v++)
            sum[r][v] = (nnet3_vector){0.0f};
    }
    for (; terms; terms--, term++) {
        const float *from = x + (*term)[0];
        for (k = (*term)[1]; k; k--, from++, w += NNET3_PANEL) {
            NNET3_UNROLL
            for (v = 0; v < vectors; v++) {
                const float *at = w + v / NNET3_VECTORS * ws + v % NNET3_VECTORS * NNET3_LANES;
                each[v] = *(const nnet3_vector *)at;
            }
            NNET3_UNROLL
            for (r = 0; r < rows; r++) {
                NNET3_UNROLL
                for (v = 0; v < vectors; v++)
                    sum[r][v] += from[r * (size_t)xs] * each[v];
            }
        }
    }
    NNET3_UNROLL
    for (r = 0; r < rows; r++) {
        NNET3_UNROLL
        for (v = 0; v < vectors; v++) {
            float *to = y + r * ys + v * NNET3_LANES;
            *(nnet3_vector *)to = nnet3_ended(sum[r][v], end, v * NNET3_LANES, to);
        }
    }
}

/* The elements of some rows, at most NNET3_ROWS, and panels. */
static NNET3_ONCE void nnet3_blocks(
    int32_t rows, int32_t panels, const int32_t (*term)[2], int32_t terms, const float *x,
    int32_t xs, const float *w, size_t ws, struct nnet3_end end, float *y, size_t ys)
{
    int32_t wide;
    for (; panels; panels -= wide) {
        wide = panels < NNET3_WIDE(rows) ? 1 : NNET3_WIDE(rows);
        switch (wide > 1 ? rows : -rows) {
#define NNET3_CASE(rows) \
    case rows: \
        nnet3_block(rows, NNET3_WIDE(rows), term, terms, x, xs, w, ws, end, y, ys); \
        break;
#define NNET3_CASE_OF_ONE(rows) \
    case -rows: \
        nnet3_block(rows, 1, term, terms, x, xs, w, ws, end, y, ys); \
        break;
        NNET3_CASE(1)
        NNET3_CASE_OF_ONE(1)
        NNET3_CASE_OF_ONE(2)
        NNET3_CASE_OF_ONE(3)
#if NNET3_ROWS > 3
        NNET3_CASE(2)
        NNET3_CASE(3)
        NNET3_CASE_OF_ONE(4)
        NNET3_CASE_OF_ONE(5)
        NNET3_CASE_OF_ONE(6)
#endif
#if NNET3_ROWS > 6
        NNET3_CASE(4)
        NNET3_CASE(5)
        NNET3_CASE(6)
        NNET3_CASE(7)
        NNET3_CASE_OF_ONE(7)
#endif
        default: break;
        }
        w += wide * ws;
        y += wide * NNET3_PANEL;
        end.b = end.b ? end.b + wide * NNET3_PANEL : 0;
        end.s = end.s ? end.s + wide * NNET3_PANEL : 0;
        end.o = end.o ? end.o + wide * NNET3_PANEL : 0;
    }
}
#else
#define NNET3_ROWS 4
static void nnet3_blocks(
    int32_t rows, int32_t panels, const int32_t (*term)[2], int32_t terms, const float *x,
    int32_t xs, const float *w, size_t ws, struct nnet3_end end, float *y, size_t ys)
{
    int32_t r, c, k, t, p;
    for (p = 0; p < panels; p++, w += ws)
        for (r = 0; r < rows; r++) {
            float *to = y + r * ys + p * NNET3_PANEL;
            const float *from = w;
            for (c = 0; c < NNET3_PANEL; c++)
                to[c] = (end.adds ? to[c] : 0.0f) + (end.b ? end.b[p * NNET3_PANEL + c] : 0.0f);
            for (t = 0; t < terms; t++)
                for (k = 0; k < term[t][1]; k++, from += NNET3_PANEL) {
                    const float each = x[r * (size_t)xs + term[t][0] + k];
                    for (c = 0; c < NNET3_PANEL; c++)
                        to[c] += each * from[c];
                }
            for (c = 0; c < NNET3_PANEL; c++) {
                to[c] = end.relu && !(to[c] > 0.0f) ? 0.0f : to[c];
                to[c] = (end.s ? end.s[p * NNET3_PANEL + c] * to[c] : to[c])
                        + (end.o ? end.o[p * NNET3_PANEL + c] : 0.0f);
            }
        }
}
#endif

/* kernel product: block */
/* y = x W^T, with an end. A row of x is some parts of a row in memory, one after the other: a term
   is the first element and the columns of a part. w has panels of 16 columns of y; b, s and o have
   whole panels. */
#if defined(NNET3_CBLAS)
void cblas_sgemm(
    int order, int a_form, int b_form, int m, int n, int k, float alpha, const float *a, int lda,
    const float *b, int ldb, float beta, float *c, int ldc);
static void nnet3_product(
    int32_t rows, int32_t out, const int32_t (*term)[2], int32_t terms, const float *x, int32_t xs,
    const float *w, struct nnet3_end end, float *y, int32_t ys)
{
    enum { by_rows = 101, as_it_is = 111 };
    int32_t begin, t, k, count, r, c;
    for (r = 0; r < rows && !end.adds; r++)
        memset(y + r * (size_t)ys, 0, out * sizeof *y);
    for (begin = 0; begin < out; begin += NNET3_PANEL) {
        const int32_t columns = out - begin < NNET3_PANEL ? out - begin : NNET3_PANEL;
        for (t = 0; t < terms; t++)
            for (k = 0; k < term[t][1]; k += count, w += count * NNET3_PANEL) {
                count = term[t][1] - k;
                if (rows > 1 && count > xs) /* rows of x overlap, which a CBLAS refuses */
                    count = xs;
                cblas_sgemm(by_rows, as_it_is, as_it_is, rows, columns, count, 1.0f,
                            x + term[t][0] + k, xs > count ? xs : count, w, NNET3_PANEL, 1.0f,
                            y + begin, ys);
            }
    }
    for (r = 0; r < rows; r++, y += ys)
        for (c = 0; c < out; c++) {
            const float found = y[c] + (end.b ? end.b[c] : 0.0f);
            const float kept = end.relu && !(found > 0.0f) ? 0.0f : found;
            y[c] = (end.s ? end.s[c] * kept : kept) + (end.o ? end.o[c] : 0.0f);
        }
}
#else
static void nnet3_product(
    int32_t rows, int32_t out, const int32_t (*term)[2], int32_t terms, const float *x, int32_t xs,
    const float *w, struct nnet3_end end, float *y, int32_t ys)
{
    float found[NNET3_ROWS * NNET3_PANEL];
    size_t ws = 0;
    int32_t begin, count, first, blocks, some, t, r, rest = out % NNET3_PANEL;
    for (t = 0; t < terms; t++)
        ws += NNET3_PANEL * (size_t)term[t][1];
    for (begin = 0; begin < out; begin += count) { /* so many columns stay in the cache */
        count = out - begin < 4 * NNET3_PANEL ? out - begin : 4 * NNET3_PANEL;
        if (count > NNET3_PANEL)
            count -= count % NNET3_PANEL;
        blocks = (rows + NNET3_ROWS - 1) / NNET3_ROWS;
        for (first = 0; first < rows; first += some, blocks--) {
            const float *from = x + first * (size_t)xs;
            float *to = y + first * (size_t)ys + begin;
            some = (rows - first + blocks - 1) / blocks;
            if (count >= NNET3_PANEL) {
                nnet3_blocks(some, count / NNET3_PANEL, term, terms, from, xs, w, ws, end, to, ys);
                continue;
            }
            memset(found, 0, sizeof found);
            for (r = 0; end.adds && r < some; r++)
                memcpy(found + r * NNET3_PANEL, to + r * (size_t)ys, rest * sizeof *to);
            nnet3_blocks(some, 1, term, terms, from, xs, w, ws, end, found, NNET3_PANEL);
            for (r = 0; r < some; r++)
                memcpy(to + r * (size_t)ys, found + r * NNET3_PANEL, rest * sizeof *to);
        }
        w += count / NNET3_PANEL * ws;
        end.b = end.b ? end.b + count : 0;
        end.s = end.s ? end.s + count : 0;
        end.o = end.o ? end.o + count : 0;
    }
}
#endif

/* kernel dot: vector */
#if defined(__GNUC__)
/* Adds, in each lane, the products of four integers of 8 bits of x and w. Where NNET3_UNSIGNED is
   1, those of x are 128 more than meant, and have no sign. */
#if defined(__AVX512VNNI__)
#define NNET3_UNSIGNED 1
static inline nnet3_bits nnet3_dot(nnet3_bits sum, nnet3_bits x, nnet3_bits w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define NNET3_UNSIGNED 0
static inline nnet3_bits nnet3_dot(nnet3_bits sum, nnet3_bits x, nnet3_bits w)
{
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(w));
    return sum;
}
#else
#define NNET3_UNSIGNED 0
typedef int16_t nnet3_halves
    __attribute__((vector_size(4 * NNET3_LANES), aligned(4), may_alias));
static inline nnet3_bits nnet3_dot(nnet3_bits sum, nnet3_bits x, nnet3_bits w)
{
    const nnet3_halves a = (nnet3_halves)x, b = (nnet3_halves)w;
    const nnet3_bits two = /* the sum of two products fits in 16 bits */
        (nnet3_bits)((a << 8 >> 8) * (b << 8 >> 8) + (a >> 8) * (b >> 8));
    return sum + (two << 16 >> 16) + (two >> 16);
}
#endif
#else
#define NNET3_UNSIGNED 0
#endif

/* kernel rounded: dot */
/* The parts of a row as integers of 8 bits, in whole groups of four. Returns the scale by which the
   integers are to be multiplied; NaN if a number of the row is none, or too large. */
static float nnet3_rounded(
    const int32_t (*term)[2], int32_t terms, int32_t groups, const float *x, int8_t *to)
{
    const float whole = 12582912.0f; /* adding it rounds to integers */
    int32_t t, k, bits, most = 0;
    float size, factor;
    memset(to, NNET3_UNSIGNED ? 0x80 : 0, 4 * (size_t)groups);
    for (t = 0; t < terms; t++)
        for (k = 0; k < term[t][1]; k++) {
            memcpy(&bits, x + term[t][0] + k, sizeof bits);
            bits &= 0x7fffffff; /* ordered as the sizes of the numbers are */
            most = bits > most ? bits : most;
        }
    memcpy(&size, &most, sizeof size);
    if (size < 1e-30f)
        return 0.0f;
    if (!(size < 1e30f))
        return nanf("");
    factor = 127.0f / size;
    for (t = 0; t < terms; t++)
        for (k = 0; k < term[t][1]; k++) {
            const int32_t each = (int32_t)((x[term[t][0] + k] * factor + whole) - whole);
            *to++ = (int8_t)(NNET3_UNSIGNED ? each - 128 : each);
        }
    return size / 127.0f;
}

/* kernel block8: ended dot */
#if defined(__GNUC__)
/* As nnet3_block, for integers in groups of four. */
static inline __attribute__((always_inline)) void nnet3_block8(
    const int32_t rows, const int32_t panels, int32_t groups, const int8_t *x, const float *xscale,
    const int8_t *w, size_t ws, const float *wscale, struct nnet3_end end, float *y, size_t ys)
{
    const int32_t vectors = panels * NNET3_VECTORS;
    nnet3_bits sum[NNET3_ROWS][4 * NNET3_VECTORS], each[4 * NNET3_VECTORS];
    const nnet3_bits zero = {0};
    int32_t r, v, k, four;
    NNET3_UNROLL
    for (v = 0; v < vectors; v++) {
        const int8_t *at = w + v / NNET3_VECTORS * ws + 4 * (v % NNET3_VECTORS) * NNET3_LANES;
        NNET3_UNROLL
        for (r = 0; r < rows; r++)
            sum[r][v] = NNET3_UNSIGNED ? *(const nnet3_bits *)at : zero; /* what 128 adds */
    }
    for (k = 0; k < groups; k++) {
        w += 4 * NNET3_PANEL;
        NNET3_UNROLL
        for (v = 0; v < vectors; v++) {
            const int8_t *at = w + v / NNET3_VECTORS * ws + 4 * (v % NNET3_VECTORS) * NNET3_LANES;
            each[v] = *(const nnet3_bits *)at;
        }
        NNET3_UNROLL
        for (r = 0; r < rows; r++) {
            memcpy(&four, x + 4 * (r * (size_t)groups + k), sizeof four);
            NNET3_UNROLL
            for (v = 0; v < vectors; v++)
                sum[r][v] = nnet3_dot(sum[r][v], zero + four, each[v]);
        }
    }
    NNET3_UNROLL
    for (r = 0; r < rows; r++) {
        NNET3_UNROLL
        for (v = 0; v < vectors; v++) {
            const int32_t first = v * NNET3_LANES;
            float *to = y + r * ys + first;
            const nnet3_vector found = __builtin_convertvector(sum[r][v], nnet3_vector)
                                       * (xscale[r] * *(const nnet3_vector *)(wscale + first));
            *(nnet3_vector *)to = nnet3_ended(found, end, first, to);
        }
    }
}

/* The elements of some rows, at most NNET3_ROWS, and a panel, or four with AVX-512. */
static NNET3_ONCE void nnet3_blocks8(
    int32_t rows, int32_t panels, int32_t groups, const int8_t *x, const float *xscale,
    const int8_t *w, size_t ws, const float *wscale, struct nnet3_end end, float *y, size_t ys)
{
    const int32_t wide = NNET3_LANES == 16 && panels == 4 ? 4 : 1;
    int32_t p;
    for (p = 0; p < panels; p += wide) {
        switch (wide > 1 ? rows : -rows) {
#define NNET3_CASE8(rows, panels) \
        nnet3_block8(rows, panels, groups, x, xscale, w, ws, wscale, end, y, ys); \
        break;
        case -1: NNET3_CASE8(1, 1)
        case -2: NNET3_CASE8(2, 1)
        case -3: NNET3_CASE8(3, 1)
#if NNET3_ROWS > 3
        case -4: NNET3_CASE8(4, 1)
        case -5: NNET3_CASE8(5, 1)
        case -6: NNET3_CASE8(6, 1)
#endif
#if NNET3_ROWS > 6
        case -7: NNET3_CASE8(7, 1)
        case 1: NNET3_CASE8(1, 4)
        case 2: NNET3_CASE8(2, 4)
        case 3: NNET3_CASE8(3, 4)
        case 4: NNET3_CASE8(4, 4)
        case 5: NNET3_CASE8(5, 4)
        case 6: NNET3_CASE8(6, 4)
        case 7: NNET3_CASE8(7, 4)
#endif
        default: break;
        }
        w += wide * ws;
        wscale += wide * NNET3_PANEL;
        y += wide * NNET3_PANEL;
        end.b = end.b ? end.b + wide * NNET3_PANEL : 0;
        end.s = end.s ? end.s + wide * NNET3_PANEL : 0;
        end.o = end.o ? end.o + wide * NNET3_PANEL : 0;
    }
}
#else
#define NNET3_ROWS 4
static void nnet3_blocks8(
    int32_t rows, int32_t panels, int32_t groups, const int8_t *x, const float *xscale,
    const int8_t *w, size_t ws, const float *wscale, struct nnet3_end end, float *y, size_t ys)
{
    int32_t p, r, c, k;
    for (p = 0; p < panels; p++)
        for (r = 0; r < rows; r++)
            for (c = 0; c < NNET3_PANEL; c++) {
                const int8_t *a = x + 4 * r * (size_t)groups, *b = w + p * ws + 4 * NNET3_PANEL;
                float *to = y + r * ys + p * NNET3_PANEL + c, found;
                int32_t sum = 0;
                for (k = 0; k < 4 * groups; k++)
                    sum += a[k] * b[k / 4 * 4 * NNET3_PANEL + 4 * c + k % 4];
                found = (float)sum * (xscale[r] * wscale[p * NNET3_PANEL + c]);
                found += end.b ? end.b[p * NNET3_PANEL + c] : 0.0f;
                found += end.adds ? *to : 0.0f;
                found = end.relu && !(found > 0.0f) ? 0.0f : found;
                *to = (end.s ? end.s[p * NNET3_PANEL + c] * found : found)
                      + (end.o ? end.o[p * NNET3_PANEL + c] : 0.0f);
            }
}
#endif

/* kernel product8: rounded block8 */
/* As nnet3_product, with integers of 8 bits: each row of x is rounded to integers with a scale of
   its own, each column of W has been, with wscale. A panel of w has, for each of its columns, -128
   times the sum of its integers, then the integers of all columns in groups of four. "kept" is
   memory for the integers of x, and for the scales. */
static void nnet3_product8(
    int32_t rows, int32_t out, const int32_t (*term)[2], int32_t terms, const float *x, int32_t xs,
    const int8_t *w, const float *wscale, struct nnet3_end end, float *kept, float *y, int32_t ys)
{
    float found[NNET3_ROWS * NNET3_PANEL], *xscale = kept;
    int8_t *integers = (int8_t *)(kept + rows);
    int32_t begin, count, first, blocks, some, t, r, groups = 3, rest = out % NNET3_PANEL;
    size_t ws;
    for (t = 0; t < terms; t++)
        groups += term[t][1];
    groups /= 4;
    ws = 4 * NNET3_PANEL * (1 + (size_t)groups);
    for (r = 0; r < rows; r++)
        xscale[r] = nnet3_rounded(term, terms, groups, x + r * (size_t)xs,
                                  integers + 4 * r * (size_t)groups);
    for (begin = 0; begin < out; begin += count) {
        count = out - begin < 4 * NNET3_PANEL ? out - begin : 4 * NNET3_PANEL;
        if (count > NNET3_PANEL)
            count -= count % NNET3_PANEL;
        blocks = (rows + NNET3_ROWS - 1) / NNET3_ROWS;
        for (first = 0; first < rows; first += some, blocks--) {
            const int8_t *from = integers + 4 * first * (size_t)groups;
            float *to = y + first * (size_t)ys + begin;
            some = (rows - first + blocks - 1) / blocks;
            if (count >= NNET3_PANEL) {
                nnet3_blocks8(some, count / NNET3_PANEL, groups, from, xscale + first, w, ws,
                              wscale, end, to, ys);
                continue;
            }
            memset(found, 0, sizeof found);
            for (r = 0; end.adds && r < some; r++)
                memcpy(found + r * NNET3_PANEL, to + r * (size_t)ys, rest * sizeof *to);
            nnet3_blocks8(some, 1, groups, from, xscale + first, w, ws, wscale, end, found,
                          NNET3_PANEL);
            for (r = 0; r < some; r++)
                memcpy(to + r * (size_t)ys, found + r * NNET3_PANEL, rest * sizeof *to);
        }
        w += count / NNET3_PANEL * ws;
        wscale += count;
        end.b = end.b ? end.b + count : 0;
        end.s = end.s ? end.s + count : 0;
        end.o = end.o ? end.o + count : 0;
    }
}

/* kernel products: product */
/* Products for parts of the columns. A step is: first of the terms, number of them, first element
   of the weights, first element of the bias or -1, first column of y, columns of y. */
static void nnet3_products(
    const int32_t (*step)[6], int32_t steps, int32_t rows, const int32_t (*term)[2], const float *x,
    int32_t xs, const float *weights, struct nnet3_end end, float *y, int32_t ys)
{
    int32_t n;
    for (n = 0; n < steps; n++) {
        struct nnet3_end of = end;
        const int32_t begin = step[n][4];
        of.b = step[n][3] < 0 ? 0 : weights + step[n][3];
        of.s = end.s ? end.s + begin : 0;
        of.o = end.o ? end.o + begin : 0;
        nnet3_product(rows, step[n][5], term + step[n][0], step[n][1], x, xs, weights + step[n][2],
                      of, y + begin, ys);
    }
}

/* kernel fill: */
static void nnet3_fill(int32_t rows, int32_t columns, float value, float *y, int32_t ys)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, y += ys)
        for (c = 0; c < columns; c++)
            y[c] = value;
}

/* kernel copy: */
/* y = alpha x */
static void nnet3_copy(
    int32_t rows, int32_t columns, float alpha, const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs, y += ys) {
        if (alpha == 1.0f)
            memmove(y, x, columns * sizeof *y);
        else
            for (c = 0; c < columns; c++)
                y[c] = alpha * x[c];
    }
}

/* kernel add: */
/* y = y + alpha x */
static void nnet3_add(
    int32_t rows, int32_t columns, float alpha, const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (c = 0; c < columns; c++)
            y[c] += alpha * x[c];
}

/* kernel gather: */
/* Row i of y = alpha times the row that begins at element from[i] of x, or zeros for -1. */
static void nnet3_gather(
    int32_t rows, int32_t columns, float alpha, const float *x, const int32_t *from, float *y,
    int32_t ys, int32_t adds)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, y += ys) {
        const float *row = from[r] < 0 ? 0 : x + from[r];
        if (!adds && !row)
            memset(y, 0, columns * sizeof *y);
        else if (!adds)
            for (c = 0; c < columns; c++)
                y[c] = alpha * row[c];
        else if (row)
            for (c = 0; c < columns; c++)
                y[c] += alpha * row[c];
    }
}

/* kernel scatter: */
/* The row that begins at element to[i] of y = alpha times row i of x; nothing for -1. */
static void nnet3_scatter(
    int32_t rows, int32_t columns, float alpha, const float *x, int32_t xs, float *y,
    const int32_t *to, int32_t adds)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs) {
        float *row = y + to[r];
        if (to[r] < 0)
            continue;
        for (c = 0; c < columns; c++)
            row[c] = adds ? row[c] + alpha * x[c] : alpha * x[c];
    }
}

/* kernel add_ranges: */
/* Row i of y += alpha times the sum of the rows range[i][0] <= r < range[i][1] of x. */
static void nnet3_add_ranges(
    int32_t rows, int32_t columns, float alpha, const float *x, int32_t xs,
    const int32_t (*range)[2], float *y, int32_t ys)
{
    int32_t i, r, c;
    for (i = 0; i < rows; i++, y += ys)
        for (c = 0; c < columns; c++) {
            float sum = 0.0f;
            for (r = range[i][0]; r < range[i][1]; r++)
                sum += x[r * (size_t)xs + c];
            y[c] += alpha * sum;
        }
}

/* kernel scale_offset: */
/* y = s x + b, column by column; s is 0 for ones. */
static void nnet3_scale_offset(
    int32_t rows, int32_t columns, const float *x, int32_t xs, const float *s, const float *b,
    float *y, int32_t ys)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (c = 0; c < columns; c++)
            y[c] = (s ? s[c] * x[c] : x[c]) + (b ? b[c] : 0.0f);
}

/* kernel fill_rows: */
/* Each row of y is b. */
static void nnet3_fill_rows(int32_t rows, int32_t columns, const float *b, float *y, int32_t ys)
{
    int32_t r;
    for (r = 0; r < rows; r++, y += ys)
        memcpy(y, b, columns * sizeof *y);
}

/* kernel relu: */
static void nnet3_relu(
    int32_t rows, int32_t columns, const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (c = 0; c < columns; c++)
            y[c] = x[c] > 0.0f ? x[c] : 0.0f;
}

/* kernel exp: */
/* exp(x), within two units of the last place: 2^n times a polynomial, without a branch. */
static inline float nnet3_exp(float x)
{
    float n, p, power;
    int32_t bits;
    x = x > 88.3762626f ? 88.3762626f : x;
    x = x < -87.3365448f ? -87.3365448f : x;
    n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* the nearest integer */
    x = (x - n * 0.693359375f) + n * 2.12194440e-4f;   /* ln 2 in two parts */
    p = 1.9875691500e-4f;
    p = p * x + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * x * x + x + 1.0f;
    bits = ((int32_t)n + 127) * (1 << 23);
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* kernel sigmoid_of: exp */
static inline float nnet3_sigmoid_of(float x)
{
    return 1.0f / (1.0f + nnet3_exp(-x));
}

/* kernel tanh_of: exp */
/* tanh(x): near 0 by a polynomial of x^2, elsewhere 1 - 2 / (exp(2 |x|) + 1). */
static inline float nnet3_tanh_of(float x)
{
    const float size = x < 0.0f ? -x : x, s = size < 0.625f ? x * x : 0.0f;
    const float near = ((((-5.70498872745e-3f * s + 2.06390887954e-2f) * s - 5.37397155531e-2f) * s
                         + 1.33314422036e-1f) * s - 3.33332819422e-1f) * s * x + x;
    const float far = 1.0f - 2.0f / (nnet3_exp(2.0f * size) + 1.0f);
    return size < 0.625f ? near : x < 0.0f ? -far : far;
}

/* kernel sigmoid: sigmoid_of */
static void nnet3_sigmoid(
    int32_t rows, int32_t columns, const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (c = 0; c < columns; c++)
            y[c] = nnet3_sigmoid_of(x[c]);
}

/* kernel tanh: tanh_of */
static void nnet3_tanh(
    int32_t rows, int32_t columns, const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (c = 0; c < columns; c++)
            y[c] = nnet3_tanh_of(x[c]);
}

/* kernel softmax: exp */
/* y = exp(x) / sum(exp(x)), at least 1e-20; or with "log" y = x - log(sum(exp(x))). */
static void nnet3_softmax(
    int32_t rows, int32_t columns, const float *x, int32_t xs, float *y, int32_t ys, int32_t log)
{
    int32_t r, c;
    for (r = 0; r < rows; r++, x += xs, y += ys) {
        float most = x[0], sum = 0.0f;
        for (c = 1; c < columns; c++)
            most = x[c] > most ? x[c] : most;
        for (c = 0; c < columns; c++)
            sum += nnet3_exp(x[c] - most);
        if (log) {
            const float all = most + logf(sum);
            for (c = 0; c < columns; c++)
                y[c] = x[c] - all;
        } else
            for (c = 0; c < columns; c++) {
                const float each = nnet3_exp(x[c] - most) / sum;
                y[c] = each > 1e-20f ? each : 1e-20f;
            }
    }
}

/* kernel normalize: */
/* y = x / r with r = sqrt(x . x * factor), at least 2^-33, for each block of "block" columns; with
   add_log each block has one more column, log_target + log(r). */
static void nnet3_normalize(
    int32_t rows, int32_t blocks, int32_t block, float factor, int32_t add_log, float log_target,
    const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, b, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (b = 0; b < blocks; b++) {
            const float *from = x + b * block;
            float *to = y + b * (block + (add_log ? 1 : 0));
            float most = 0.0f, sum = 0.0f, root;
            for (c = 0; c < block; c++)
                most = fabsf(from[c]) > most ? fabsf(from[c]) : most;
            if (most < 1e15f) {
                for (c = 0; c < block; c++)
                    sum += from[c] * from[c];
                root = sum * factor > 1.35525272e-20f ? sqrtf(sum * factor) : 1.16415322e-10f;
            } else { /* the squares would overflow */
                for (c = 0; c < block; c++)
                    sum += (from[c] / most) * (from[c] / most);
                root = most * sqrtf(sum * factor);
            }
            for (c = 0; c < block; c++)
                to[c] = from[c] / root;
            if (add_log)
                to[block] = log_target + logf(root);
        }
}

/* kernel batch_norm: */
/* y = target (x - m) / sqrt(v + epsilon), with mean and variance of a column over all rows and blocks. */
static void nnet3_batch_norm(
    int32_t rows, int32_t blocks, int32_t block, float target, float epsilon, const float *x,
    int32_t xs, float *y, int32_t ys)
{
    int32_t r, b, c;
    for (c = 0; c < block; c++) {
        double mean = 0.0, variance = 0.0;
        float scale;
        for (r = 0; r < rows; r++)
            for (b = 0; b < blocks; b++)
                mean += x[r * (size_t)xs + b * block + c];
        mean /= (double)rows * blocks;
        for (r = 0; r < rows; r++)
            for (b = 0; b < blocks; b++) {
                const double far = x[r * (size_t)xs + b * block + c] - mean;
                variance += far * far;
            }
        scale = target / sqrtf((float)(variance / ((double)rows * blocks)) + epsilon);
        for (r = 0; r < rows; r++)
            for (b = 0; b < blocks; b++)
                y[r * (size_t)ys + b * block + c] =
                    scale * (float)(x[r * (size_t)xs + b * block + c] - mean);
    }
}

/* kernel pnorm: */
/* y_g = |x_g|, the Euclidean norm, of each group of neighbouring columns. */
static void nnet3_pnorm(
    int32_t rows, int32_t groups, int32_t size, const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, g, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (g = 0; g < groups; g++) {
            float sum = 0.0f;
            for (c = 0; c < size; c++)
                sum += x[g * size + c] * x[g * size + c];
            y[g] = sqrtf(sum);
        }
}

/* kernel sum_columns: */
/* y_g = scale times the sum of the columns list[splits[g]] to before list[splits[g + 1]] of x. */
static void nnet3_sum_columns(
    int32_t rows, int32_t groups, const int32_t *splits, const int32_t *list, float scale,
    const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, g, k;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (g = 0; g < groups; g++) {
            float sum = 0.0f;
            for (k = splits[g]; k < splits[g + 1]; k++)
                sum += x[list[k]];
            y[g] = scale * sum;
        }
}

/* kernel max_columns: */
/* y_g = the greatest of the columns list[g * size] to before list[(g + 1) * size] of x. */
static void nnet3_max_columns(
    int32_t rows, int32_t groups, int32_t size, const int32_t *list, const float *x, int32_t xs,
    float *y, int32_t ys)
{
    int32_t r, g, k;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (g = 0; g < groups; g++) {
            float most = x[list[g * size]];
            for (k = 1; k < size; k++)
                most = x[list[g * size + k]] > most ? x[list[g * size + k]] : most;
            y[g] = most;
        }
}

/* kernel multiply_blocks: */
/* y = x_1 x_2 ... x_k, element by element, of the blocks of the columns. */
static void nnet3_multiply_blocks(
    int32_t rows, int32_t columns, int32_t blocks, const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t r, b, c;
    for (r = 0; r < rows; r++, x += xs, y += ys)
        for (c = 0; c < columns; c++) {
            float all = x[c];
            for (b = 1; b < blocks; b++)
                all *= x[b * columns + c];
            y[c] = all;
        }
}

/* kernel statistics: */
/* Row i of y = the number of the rows range[i][0] <= r < range[i][1] of x, their sum and, with
   "squares", the sum of their squares. */
static void nnet3_statistics(
    int32_t rows, int32_t columns, int32_t squares, const int32_t (*range)[2], const float *x,
    int32_t xs, float *y, int32_t ys)
{
    int32_t i, r, c;
    for (i = 0; i < rows; i++, y += ys) {
        y[0] = (float)(range[i][1] - range[i][0]);
        for (c = 0; c < columns; c++) {
            float sum = 0.0f, square = 0.0f;
            for (r = range[i][0]; r < range[i][1]; r++) {
                const float each = x[r * (size_t)xs + c];
                sum += each;
                square += each * each;
            }
            y[1 + c] = sum;
            if (squares)
                y[1 + columns + c] = square;
        }
    }
}

/* kernel pooling: */
/* Row i of y = log n "logs" times, then the mean over the rows of a range, where a row of x is a
   count, sums and, with "deviations", sums of squares; then y has standard deviations, too. */
static void nnet3_pooling(
    int32_t rows, int32_t columns, int32_t logs, int32_t deviations, float floor,
    const int32_t (*range)[2], const float *x, int32_t xs, float *y, int32_t ys)
{
    int32_t i, r, c;
    for (i = 0; i < rows; i++, y += ys) {
        float n = 0.0f;
        for (r = range[i][0]; r < range[i][1]; r++)
            n += x[r * (size_t)xs];
        for (c = 0; c < logs; c++)
            y[c] = logf(n);
        for (c = 0; c < columns; c++) {
            double sum = 0.0, square = 0.0, mean, variance;
            for (r = range[i][0]; r < range[i][1]; r++) {
                sum += x[r * (size_t)xs + 1 + c];
                if (deviations)
                    square += x[r * (size_t)xs + 1 + columns + c];
            }
            mean = sum / n;
            y[logs + c] = (float)mean;
            if (deviations) {
                variance = square / n - mean * mean;
                y[logs + columns + c] = sqrtf(variance > floor ? (float)variance : floor);
            }
        }
    }
}

/* kernel attention: exp */
/* y(t) = sum over j of c_j v(t + s j); c = softmax over j of scale q(t) . k(t + s j) + b_j(t).
   A head of x has key, value, query and biases; row[j] is the first row of x for j, here for t. */
static void nnet3_attention(
    int32_t rows, int32_t heads, int32_t key, int32_t value, int32_t window, int32_t with_context,
    float scale, int32_t stride, const int32_t *row, int32_t here, const float *x, int32_t xs,
    float *y, int32_t ys)
{
    const int32_t width = 2 * key + value + window, wide = value + (with_context ? window : 0);
    int32_t r, h, j, c;
    for (r = 0; r < rows; r++, y += ys)
        for (h = 0; h < heads; h++) {
            const float *q = x + (r * stride + here) * (size_t)xs + h * width + key + value;
            float *to = y + h * wide, most = 0.0f, sum = 0.0f;
            for (c = 0; c < value; c++)
                to[c] = 0.0f;
            for (j = 0; j < window; j++) {
                const float *k = x + (r * stride + row[j]) * (size_t)xs + h * width;
                float logit = 0.0f;
                for (c = 0; c < key; c++)
                    logit += q[c] * k[c];
                logit = scale * logit + q[key + j];
                if (j == 0 || logit > most) { /* the sums so far are relative to another maximum */
                    const float factor = j ? nnet3_exp(most - logit) : 0.0f;
                    for (c = 0; c < value; c++)
                        to[c] *= factor;
                    sum *= factor;
                    most = logit;
                }
                logit = nnet3_exp(logit - most);
                sum += logit;
                for (c = 0; c < value; c++)
                    to[c] += logit * k[key + c];
            }
            for (c = 0; c < value; c++)
                to[c] /= sum;
            for (j = 0; with_context && j < window; j++) {
                const float *k = x + (r * stride + row[j]) * (size_t)xs + h * width;
                float logit = 0.0f;
                for (c = 0; c < key; c++)
                    logit += q[c] * k[c];
                to[value + j] = nnet3_exp(scale * logit + q[key + j] - most) / sum;
            }
        }
}

/* kernel lstm: sigmoid_of tanh_of */
/* c = s_f f c' + s_i i g and s_o o tanh(c); x has a_i, a_f, a_g, a_o, c' and, with masks, s_i, s_f,
   s_o; w has the peephole weights w_ic, w_fc and w_oc. */
static void nnet3_lstm(
    int32_t rows, int32_t dim, int32_t masks, const float *w, const float *x, int32_t xs, float *y,
    int32_t ys)
{
    int32_t r, k;
    for (r = 0; r < rows; r++, x += xs, y += ys) {
        const float s_i = masks ? x[5 * dim] : 1.0f, s_f = masks ? x[5 * dim + 1] : 1.0f;
        const float s_o = masks ? x[5 * dim + 2] : 1.0f;
        for (k = 0; k < dim; k++) {
            const float before = x[4 * dim + k];
            const float i = nnet3_sigmoid_of(x[k] + w[k] * before);
            const float f = nnet3_sigmoid_of(x[dim + k] + w[dim + k] * before);
            const float cell = s_f * f * before + s_i * i * nnet3_tanh_of(x[2 * dim + k]);
            const float o = nnet3_sigmoid_of(x[3 * dim + k] + w[2 * dim + k] * cell);
            y[k] = cell;
            y[dim + k] = s_o * o * nnet3_tanh_of(cell);
        }
    }
}

/* kernel gated: */
/* y = r s, element by element. */
static void nnet3_gated(
    int32_t rows, int32_t columns, const float *r, const float *s, int32_t xs, float *y, int32_t ys)
{
    int32_t i, c;
    for (i = 0; i < rows; i++, r += xs, s += xs, y += ys)
        for (c = 0; c < columns; c++)
            y[c] = r[c] * s[c];
}

/* kernel gru: tanh_of */
/* h = tanh(a), c = (1 - z) h + z c'; y has h and c. a is p plus "more", or, where the distance of its
   rows, ms, is 0, plus "more" times c'. */
static void nnet3_gru(
    int32_t rows, int32_t dim, const float *z, const float *p, const float *before, int32_t xs,
    const float *more, int32_t ms, float *y, int32_t ys)
{
    int32_t r, k;
    for (r = 0; r < rows; r++, z += xs, p += xs, before += xs, y += ys)
        for (k = 0; k < dim; k++) {
            const float a = ms ? more[r * (size_t)ms + k] : more[k] * before[k];
            const float h = nnet3_tanh_of(p[k] + a);
            y[k] = h;
            y[dim + k] = (1.0f - z[k]) * h + z[k] * before[k];
        }
}
