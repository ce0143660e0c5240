// A stand-in for libcublasLt on the processor, for test_cublaslt.py: the few functions that the
// package calls, with the checks that the real ones make, on float32 in host memory.
//
// Matrices lie column by column, as in the real library: D = alpha op(A) op(B) + beta C, then the
// bias along the columns of D, then ReLU.

#include <cstdint>
#include <cstring>

enum Status { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { DEFAULT = 1, RELU = 2, BIAS = 4 };

struct Context { int unused; };

struct Description {
  int compute_type;
  int32_t pointer_mode = 0, transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = DEFAULT;
  const float* bias = nullptr;
};

struct Layout {
  uint64_t rows, columns;
  int64_t stride;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

struct Algorithm { uint64_t data[8]; };

struct Result {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

static int alive = 0;
static int heuristics = 0;
static int refused_epilogue = 0;
static int last_compute_type = 0;
static uint64_t last_stream = 0;
static const size_t WORKSPACE = 1024;

template <typename T>
static int assign(T* target, const void* source, size_t size) {
  if (source == nullptr || size != sizeof(T)) return INVALID_VALUE;
  memcpy(target, source, size);
  return SUCCESS;
}

static bool fits(const Layout* layout) {
  return layout->rows > 0 && layout->columns > 0 && layout->stride >= int64_t(layout->rows);
}

static float element(const float* matrix, const Layout* layout, int transposed, uint64_t i,
                     uint64_t j) {
  return transposed ? matrix[j + i * layout->stride] : matrix[i + j * layout->stride];
}

static bool conform(const Description* d, const Layout* a, const Layout* b, const Layout* c,
                    const Layout* out) {
  if (!fits(a) || !fits(b) || !fits(c) || !fits(out)) return false;
  uint64_t rows = d->transpose_a ? a->columns : a->rows;
  uint64_t inner = d->transpose_a ? a->rows : a->columns;
  uint64_t inner_b = d->transpose_b ? b->columns : b->rows;
  uint64_t columns = d->transpose_b ? b->rows : b->columns;
  bool same_batch = a->batch == out->batch && b->batch == out->batch && c->batch == out->batch;
  return inner == inner_b && out->rows == rows && out->columns == columns && c->rows == rows &&
         c->columns == columns && same_batch;
}

extern "C" {

// ---- for the tests ----

int stand_in_alive() { return alive; }
int stand_in_heuristics() { return heuristics; }
int stand_in_last_compute_type() { return last_compute_type; }
uint64_t stand_in_last_stream() { return last_stream; }
void stand_in_refuse_epilogue(int refused) { refused_epilogue = refused; }

// ---- the functions of the library ----

const char* cublasLtGetStatusName(int status) {
  return status == INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

int cublasLtCreate(Context** context) { return *context = new Context, ++alive, SUCCESS; }
int cublasLtDestroy(Context* context) { return delete context, --alive, SUCCESS; }

int cublasLtMatmulDescCreate(Description** description, int compute_type, int scale_type) {
  if (scale_type != 0) return NOT_SUPPORTED;
  *description = new Description;
  (*description)->compute_type = compute_type;
  return ++alive, SUCCESS;
}
int cublasLtMatmulDescDestroy(Description* d) { return delete d, --alive, SUCCESS; }
int cublasLtMatmulDescSetAttribute(Description* d, int attribute, const void* value, size_t size) {
  switch (attribute) {
    case 2: return assign(&d->pointer_mode, value, size);
    case 3: return assign(&d->transpose_a, value, size);
    case 4: return assign(&d->transpose_b, value, size);
    case 7: return assign(&d->epilogue, value, size);
    case 8: return assign(&d->bias, value, size);
  }
  return INVALID_VALUE;
}

int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t stride) {
  if (type != 0) return NOT_SUPPORTED;
  *layout = new Layout{rows, columns, stride};
  return ++alive, SUCCESS;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) { return delete layout, --alive, SUCCESS; }
int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value,
                                     size_t size) {
  if (attribute == 5) return assign(&layout->batch, value, size);
  if (attribute == 6) return assign(&layout->batch_stride, value, size);
  return INVALID_VALUE;
}

int cublasLtMatmulPreferenceCreate(Preference** p) { return *p = new Preference, ++alive, SUCCESS; }
int cublasLtMatmulPreferenceDestroy(Preference* p) { return delete p, --alive, SUCCESS; }
int cublasLtMatmulPreferenceSetAttribute(Preference* p, int attribute, const void* value,
                                         size_t size) {
  if (attribute == 1) return assign(&p->workspace, value, size);
  if (attribute >= 5 && attribute <= 8) return assign(&p->alignment[attribute - 5], value, size);
  return INVALID_VALUE;
}

int cublasLtMatmulAlgoGetHeuristic(Context*, Description* d, Layout* a, Layout* b, Layout* c,
                                   Layout* out, Preference* p, int wanted, Result* results,
                                   int* found) {
  *found = 0;
  if (wanted < 1 || !conform(d, a, b, c, out)) return INVALID_VALUE;
  if (refused_epilogue && d->epilogue != DEFAULT) return NOT_SUPPORTED;
  ++heuristics;
  results[0].workspace = p->workspace < WORKSPACE ? 0 : WORKSPACE;
  results[0].state = SUCCESS;
  results[0].algorithm.data[0] = results[0].workspace;
  for (int i = 0; i < 4; ++i) results[0].algorithm.data[1 + i] = p->alignment[i];
  *found = 1;
  return SUCCESS;
}

int cublasLtMatmul(Context*, Description* d, const float* alpha, const float* a, Layout* layout_a,
                   const float* b, Layout* layout_b, const float* beta, const float* c,
                   Layout* layout_c, float* out, Layout* layout_out, const Algorithm* algorithm,
                   void* workspace, size_t workspace_bytes, void* stream) {
  if (!conform(d, layout_a, layout_b, layout_c, layout_out)) return INVALID_VALUE;
  if (workspace_bytes < algorithm->data[0]) return INVALID_VALUE;
  const void* operands[] = {a, b, c, out};
  for (int i = 0; i < 4; ++i)
    if (uint64_t(operands[i]) % algorithm->data[1 + i] != 0) return INVALID_VALUE;
  if (algorithm->data[0] > 0) {
    if (workspace == nullptr) return INVALID_VALUE;
    memset(workspace, 0xff, algorithm->data[0]);  // it is written to
  }
  last_compute_type = d->compute_type;
  last_stream = uint64_t(stream);
  uint64_t inner = d->transpose_a ? layout_a->rows : layout_a->columns;
  for (int number = 0; number < layout_out->batch; ++number) {
    for (uint64_t j = 0; j < layout_out->columns; ++j) {
      for (uint64_t i = 0; i < layout_out->rows; ++i) {
        double sum = 0.0;
        for (uint64_t k = 0; k < inner; ++k)
          sum += double(element(a, layout_a, d->transpose_a, i, k)) *
                 element(b, layout_b, d->transpose_b, k, j);
        double value = *alpha * sum;
        if (*beta != 0.0f) value += double(*beta) * c[i + j * layout_c->stride];
        if (d->epilogue & BIAS) value += d->bias[i];
        if ((d->epilogue & RELU) && value < 0.0) value = 0.0;
        out[i + j * layout_out->stride] = float(value);
      }
    }
    a += layout_a->batch_stride, b += layout_b->batch_stride;
    c += layout_c->batch_stride, out += layout_out->batch_stride;
  }
  return SUCCESS;
}

}  // extern "C"
