/* The product of a CBLAS for programs built with -DNNET3_CBLAS, which stops at operands that a CBLAS
   refuses. */
#include <stdlib.h>

void cblas_sgemm(
    int order, int a_form, int b_form, int m, int n, int k, float alpha, const float *a, int lda,
    const float *b, int ldb, float beta, float *c, int ldc);

void cblas_sgemm(
    int order, int a_form, int b_form, int m, int n, int k, float alpha, const float *a, int lda,
    const float *b, int ldb, float beta, float *c, int ldc)
{
    int i, j, l;
    if (order != 101 || a_form != 111 || b_form != 111 || m < 0 || n < 0 || k < 0)
        abort();
    if (lda < k || ldb < n || ldc < n || lda < 1 || ldb < 1 || ldc < 1)
        abort();
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            float sum = 0.0f;
            for (l = 0; l < k; l++)
                sum += a[i * (long)lda + l] * b[l * (long)ldb + j];
            c[i * (long)ldc + j] = alpha * sum + beta * c[i * (long)ldc + j];
        }
}
