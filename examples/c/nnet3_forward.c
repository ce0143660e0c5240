/* Runs the forward part of a serialized computation; written from docs/writing-a-runtime.md alone.
 *
 *     cc -O2 -o nnet3_forward nnet3_forward.c -lm
 *     ./nnet3_forward NETWORK COMPUTATION input=input.f32 -o output=output.f32
 *
 * Inputs and outputs are float32 in the byte order of this machine (little-endian), row by row.
 * A computation in several segments takes as many rows for each as its AcceptInput wants, in order.
 */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fprintf(stderr, "nnet3_forward: ");
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) fail("%zu elements of %zu bytes: no memory", count, size);
    return memory;
}

typedef enum { NOTHING, FALSE_, TRUE_, NUMBER, STRING, LIST, OBJECT } Kind;

typedef struct Json {
    Kind kind;
    double number;
    char *text; /* of a string */
    char *key;  /* of a member of an object */
    struct Json *items, *next;
    int count;
} Json;

static const char *at, *end_of_text;

static void skip(void) {
    while (at < end_of_text && strchr(" \t\r\n", *at)) at++;
}

static int accept(char wanted) {
    skip();
    return at < end_of_text && *at == wanted ? (at++, 1) : 0;
}

static void expect(char wanted) {
    if (!accept(wanted)) fail("JSON: expected '%c'", wanted);
}

static char *parse_string(void) {
    expect('"');
    const char *close = at;
    while (close < end_of_text && *close != '"') close += *close == '\\' ? 2 : 1;
    if (close >= end_of_text) fail("JSON: a string does not end");
    char *text = allocate((size_t)(close - at) + 1, 1), *to = text;
    for (; at < close; at++) {
        if (*at == '\\') at++; /* names of nodes are ASCII, so only quotation marks matter */
        *to++ = *at;
    }
    at = close + 1;
    return text;
}

static Json *parse(void) {
    Json *value = allocate(1, sizeof *value), **last = &value->items;
    skip();
    if (at >= end_of_text) fail("JSON: the text ends early");
    if (*at == '{' || *at == '[') {
        char close = *at == '{' ? '}' : ']';
        value->kind = *at++ == '{' ? OBJECT : LIST;
        if (accept(close)) return value;
        do {
            char *key = NULL;
            if (value->kind == OBJECT) {
                skip();
                key = parse_string();
                expect(':');
            }
            *last = parse();
            (*last)->key = key;
            last = &(*last)->next;
            value->count++;
        } while (accept(','));
        expect(close);
    } else if (*at == '"') {
        value->kind = STRING;
        value->text = parse_string();
    } else if (!strncmp(at, "true", 4) || !strncmp(at, "null", 4)) {
        value->kind = *at == 't' ? TRUE_ : NOTHING;
        at += 4;
    } else if (!strncmp(at, "false", 5)) {
        value->kind = FALSE_;
        at += 5;
    } else {
        char *stop;
        value->kind = NUMBER;
        value->number = strtod(at, &stop);
        if (stop == at) fail("JSON: expected a value");
        at = stop;
    }
    return value;
}

static Json *member(const Json *object, const char *key) {
    for (Json *item = object ? object->items : NULL; item; item = item->next)
        if (item->key && !strcmp(item->key, key)) return item;
    fail("there is no field '%s'", key);
    return NULL;
}

static Json *item(const Json *list, int number) {
    Json *found = list->items;
    while (found && number-- > 0) found = found->next;
    if (!found) fail("a list is too short");
    return found;
}

typedef struct {
    Json *header, *content;
    char *data; /* what the offsets of tensors count from */
    size_t size;
} File;

typedef struct {
    void *data;
    long rows, columns; /* a list has one column */
} Tensor;

static char *read_file(const char *path, size_t *size) {
    FILE *stream = fopen(path, "rb");
    if (!stream) fail("%s: cannot be opened", path);
    fseek(stream, 0, SEEK_END);
    *size = (size_t)ftell(stream);
    rewind(stream);
    char *data = allocate(*size + 1, 1);
    if (fread(data, 1, *size, stream) != *size) fail("%s: cannot be read", path);
    fclose(stream);
    return data;
}

static File load(const char *path, const char *format, int newest) {
    File file;
    size_t size;
    uint64_t length;
    char *data = read_file(path, &size);
    if (size < 8) fail("%s: no container", path);
    memcpy(&length, data, 8);
    if (length > size - 8) fail("%s: the header is longer than the file", path);
    at = data + 8;
    end_of_text = at + length;
    file.header = parse();
    file.data = data + 8 + length;
    file.size = size - 8 - (size_t)length;
    at = member(member(file.header, "__metadata__"), "nnet3")->text;
    end_of_text = at + strlen(at);
    Json *stored = parse();
    if (strcmp(member(stored, "format")->text, format)) fail("%s: expected %s", path, format);
    if (member(stored, "version")->number > newest) fail("%s: of a newer version", path);
    file.content = member(stored, "content");
    return file;
}

static Tensor tensor(const File *file, const Json *object, const char *field, const char *dtype) {
    const Json *entry = member(file->header, member(member(object, field), "$tensor")->text);
    const Json *shape = member(entry, "shape");
    Tensor found = {NULL, 1, 1};
    if (strcmp(member(entry, "dtype")->text, dtype)) fail("'%s' is no tensor of %s", field, dtype);
    if (shape->count > 0) found.rows = (long)item(shape, 0)->number;
    for (int axis = 1; axis < shape->count; axis++) found.columns *= (long)item(shape, axis)->number;
    size_t begin = (size_t)item(member(entry, "data_offsets"), 0)->number;
    size_t bytes = (size_t)(found.rows * found.columns) * 4;
    if (begin + bytes > file->size) fail("'%s' lies outside of the file", field);
    found.data = allocate(bytes / 4, 4); /* a copy, so that elements are aligned */
    memcpy(found.data, file->data + begin, bytes);
    return found;
}

static File network, computation;
static Tensor matrices, submatrices, commands;
static float **memory; /* of each matrix; NULL while it is not allocated */

typedef struct { float *data; long rows, columns, step; } Part;

static int32_t cell(Tensor table, long row, long column) {
    if (row < 0 || row >= table.rows) fail("there is no row %ld in a table of %ld", row, table.rows);
    return ((int32_t *)table.data)[row * table.columns + column];
}

static Part part(long number) {
    int32_t matrix = cell(submatrices, number, 0);
    long step = cell(matrices, matrix, 1);
    if (!memory[matrix]) fail("matrix %d is not allocated", matrix);
    Part found = {memory[matrix] + cell(submatrices, number, 1) * step + cell(submatrices, number, 3),
                  cell(submatrices, number, 2), cell(submatrices, number, 4), step};
    return found;
}

static void new_matrix(long submatrix) {
    int32_t matrix = cell(submatrices, submatrix, 0);
    memory[matrix] = allocate((size_t)cell(matrices, matrix, 0) * cell(matrices, matrix, 1), 4);
}

/* out = (keep ? out : 0) + alpha * in; in may be NULL for zeros. */
static void take(float *out, const float *in, long columns, float alpha, int keep) {
    for (long c = 0; c < columns; c++) out[c] = (keep ? out[c] : 0) + (in ? alpha * in[c] : 0);
}

/* A list of a field: its first element; count: how many rows it has. */
static const int32_t *list(const char *field, long number, int width, long *count) {
    char splits_name[64];
    snprintf(splits_name, sizeof splits_name, "%s_splits", field);
    static struct { const char *field; Tensor values, splits; } known[3];
    int k = 0;
    while (k < 2 && known[k].field && strcmp(known[k].field, field)) k++;
    if (!known[k].field) {
        known[k].field = field;
        known[k].values = tensor(&computation, computation.content, field, "I32");
        known[k].splits = tensor(&computation, computation.content, splits_name, "I32");
    }
    int32_t begin = cell(known[k].splits, number, 0);
    *count = cell(known[k].splits, number + 1, 0) - begin;
    return (int32_t *)known[k].values.data + (long)begin * width;
}

static int is(const Json *component, const char *type) {
    return !strcmp(member(component, "type")->text, type);
}

/* y = x W^T + b, where W has `weights` at its row w from column `first` on; y is added to. */
static void multiply(Part y, const float *x, long step, Tensor weights, long first, long columns) {
    for (long r = 0; r < y.rows; r++)
        for (long w = 0; w < y.columns; w++) {
            const float *in = x + r * step, *row = (float *)weights.data + w * weights.columns + first;
            double sum = 0;
            for (long c = 0; c < columns; c++) sum += (double)in[c] * row[c];
            y.data[r * y.step + w] += (float)sum;
        }
}

static void propagate(const Json *component, const Json *indexes, long input, long output) {
    Part x = part(input), y = part(output);
    int tdnn = is(component, "TdnnComponent"), linear = is(component, "LinearComponent");
    if (tdnn || linear || is(component, "AffineComponent") || is(component, "FixedAffineComponent") ||
        is(component, "NaturalGradientAffineComponent")) {
        Tensor weights = tensor(&network, component, linear ? "params" : "linear_params", "F32");
        Tensor bias = {NULL, 0, 1};
        if (!linear) bias = tensor(&network, component, "bias_params", "F32");
        for (long r = 0; r < y.rows && bias.rows; r++) /* without bias it adds: PROPAGATE_ADDS */
            memcpy(y.data + r * y.step, bias.data, (size_t)y.columns * 4);
        if (!tdnn) multiply(y, x.data, x.step, weights, 0, x.columns);
        if (!tdnn) return;
        long stride = (long)member(indexes, "row_stride")->number;
        Json *first = member(indexes, "row_offsets")->items;
        for (long k = 0; first; first = first->next, k++)
            multiply(y, x.data + (long)first->number * x.step, stride * x.step, weights,
                     k * x.columns, x.columns);
        return;
    }
    const float *mean = NULL, *variance = NULL;
    long block = 0;
    double rms = 0, epsilon = 0;
    if (is(component, "BatchNormComponent")) {
        if (member(component, "test_mode")->kind != TRUE_) fail("BatchNorm is not in test mode");
        mean = tensor(&network, component, "stats_mean", "F32").data;
        variance = tensor(&network, component, "stats_var", "F32").data;
        block = (long)member(component, "block_dim")->number;
        rms = member(component, "target_rms")->number;
        epsilon = member(component, "epsilon")->number;
    }
    for (long r = 0; r < y.rows; r++) {
        const float *in = x.data + r * x.step;
        float *out = y.data + r * y.step;
        if (is(component, "NoOpComponent")) {
            for (long c = 0; c < y.columns; c++) out[c] = in[c];
        } else if (is(component, "RectifiedLinearComponent")) {
            for (long c = 0; c < y.columns; c++) out[c] = in[c] > 0 ? in[c] : 0;
        } else if (mean) {
            for (long c = 0; c < y.columns; c++) {
                double v = variance[c % block] > 0 ? variance[c % block] : 0;
                out[c] = (float)(rms / sqrt(v + epsilon) * (in[c] - mean[c % block]));
            }
        } else if (is(component, "LogSoftmaxComponent")) {
            double greatest = in[0], sum = 0;
            for (long c = 1; c < y.columns; c++) greatest = in[c] > greatest ? in[c] : greatest;
            for (long c = 0; c < y.columns; c++) sum += exp(in[c] - greatest);
            for (long c = 0; c < y.columns; c++) out[c] = (float)(in[c] - greatest - log(sum));
        } else {
            fail("no formula for %s", member(component, "type")->text);
        }
    }
}

static FILE *stream_of(int count, char **arguments, const char *name, const char *mode) {
    static FILE *open[256];
    size_t length = strlen(name);
    for (int i = 0; i < count && i < 256; i++) {
        int is_output = i > 0 && !strcmp(arguments[i - 1], "-o");
        if (is_output != (*mode == 'w')) continue;
        if (strncmp(arguments[i], name, length) || arguments[i][length] != '=') continue;
        if (!open[i] && !(open[i] = fopen(arguments[i] + length + 1, mode)))
            fail("%s: cannot be opened", arguments[i] + length + 1);
        return open[i];
    }
    if (*mode == 'r') fail("the input '%s' is not given", name);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3) fail("usage: nnet3_forward NETWORK COMPUTATION NAME=FILE ... -o NAME=FILE ...");
    network = load(arguments[1], "nnet3.nnet", 1);
    computation = load(arguments[2], "nnet3.computation", 2);
    matrices = tensor(&computation, computation.content, "matrices", "I32");
    submatrices = tensor(&computation, computation.content, "submatrices", "I32");
    commands = tensor(&computation, computation.content, "command_table", "I32");
    memory = allocate((size_t)matrices.rows, sizeof *memory);
    const Json *components = member(network.content, "components");
    const Json *precomputed = member(computation.content, "precomputed_indexes");
    const Json *nodes = member(network.content, "nodes");
    long last = commands.rows; /* behind the last marker there are derivatives */
    while (last > 0 && cell(commands, last - 1, 0) != 43) last--;
    for (long position = 0; position < last; position++) {
        int32_t opcode = cell(commands, position, 0), a[4], bits = cell(commands, position, 1);
        float alpha;
        memcpy(&alpha, &bits, 4);
        for (int i = 0; i < 4; i++) a[i] = cell(commands, position, 2 + i);
        if (opcode == 1 || opcode == 2) { /* AllocMatrixUndefined, AllocMatrixZeroed */
            new_matrix(a[0]);
        } else if (opcode == 3) { /* DeallocMatrix */
            int32_t matrix = cell(submatrices, a[0], 0);
            free(memory[matrix]);
            memory[matrix] = NULL;
        } else if (opcode == 4) { /* SwapMatrix */
            int32_t to = cell(submatrices, a[0], 0), from = cell(submatrices, a[1], 0);
            memory[to] = memory[from];
            memory[from] = NULL;
        } else if (opcode == 10) { /* Propagate */
            propagate(item(components, a[0]), item(precomputed, a[1]), a[2], a[3]);
        } else if (opcode == 20 || opcode == 21 || opcode == 22) { /* SetConst, MatrixCopy, -Add */
            Part out = part(a[0]), in = opcode == 20 ? out : part(a[1]);
            for (long r = 0; r < out.rows; r++)
                for (long c = 0; c < out.columns; c++) {
                    float *o = out.data + r * out.step + c, i = in.data[r * in.step + c];
                    *o = opcode == 20 ? alpha : alpha * i + (opcode == 22 ? *o : 0);
                }
        } else if (opcode == 23 || opcode == 24) { /* CopyRows, AddRows */
            long rows;
            Part out = part(a[0]), in = part(a[1]);
            const int32_t *source = list("indexes", a[2], 1, &rows);
            for (long r = 0; r < rows; r++)
                take(out.data + r * out.step, source[r] < 0 ? NULL : in.data + source[r] * in.step,
                     out.columns, alpha, opcode == 24);
        } else if (opcode >= 25 && opcode <= 28) { /* the commands with lists of pairs */
            long rows;
            Part one = part(a[0]);
            const int32_t *pairs = list("indexes_multi", a[1], 2, &rows);
            for (long r = 0; r < rows; r++) {
                float *here = one.data + r * one.step, *there = NULL;
                if (pairs[2 * r] >= 0) {
                    Part other = part(pairs[2 * r]);
                    there = other.data + pairs[2 * r + 1] * other.step;
                }
                if (opcode < 27) take(here, there, one.columns, alpha, opcode == 26);
                else if (there) take(there, here, one.columns, alpha, opcode == 28);
            }
        } else if (opcode == 29) { /* AddRowRanges */
            long rows;
            Part out = part(a[0]), in = part(a[1]);
            const int32_t *ranges = list("indexes_ranges", a[2], 2, &rows);
            for (long r = 0; r < rows; r++)
                for (long s = ranges[2 * r]; s < ranges[2 * r + 1]; s++)
                    take(out.data + r * out.step, in.data + s * in.step, out.columns, alpha, 1);
        } else if (opcode == 40) { /* AcceptInput */
            const char *name = member(item(nodes, a[1]), "name")->text;
            FILE *stream = stream_of(count, arguments, name, "rb");
            new_matrix(a[0]);
            Part in = part(a[0]);
            size_t size = (size_t)(in.rows * in.columns);
            if (fread(in.data, 4, size, stream) != size) fail("'%s': expected %zu values", name, size);
        } else if (opcode == 41) { /* ProvideOutput */
            const char *name = member(item(nodes, a[1]), "name")->text;
            FILE *stream = stream_of(count, arguments, name, "wb");
            Part out = part(a[0]);
            for (long r = 0; r < out.rows && stream; r++)
                if (fwrite(out.data + r * out.step, 4, (size_t)out.columns, stream) != (size_t)out.columns)
                    fail("'%s': cannot be written", name);
        } else if (opcode != 5 && opcode != 6 && opcode != 11 && (opcode < 42 || opcode > 44)) {
            fail("command %ld: the opcode %d is not known here", position, opcode);
        }
    }
    return 0;
}
