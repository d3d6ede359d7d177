/* cuBLAS without a GPU: products are logged and count as one kernel. Numbers of data types: CUDA's library_types.h. */

#include <stdio.h>
#include <stdlib.h>

extern int standin_launch(void *stream, const char *line);

struct handle {
  void *stream;
  int math_mode, pointer_mode;
};

int cublasCreate_v2(void **made) {
  *made = calloc(1, sizeof(struct handle));
  return 0;
}
int cublasSetStream_v2(struct handle *handle, void *stream) {
  handle->stream = stream;
  return 0;
}
int cublasGetStream_v2(struct handle *handle, void **stream) {
  *stream = handle->stream;
  return 0;
}
int cublasSetMathMode(struct handle *handle, int mode) {
  handle->math_mode = mode;
  return 0;
}
int cublasGetMathMode(struct handle *handle, int *mode) {
  *mode = handle->math_mode;
  return 0;
}
int cublasSetPointerMode_v2(struct handle *handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}
int cublasGetPointerMode_v2(struct handle *handle, int *mode) {
  *mode = handle->pointer_mode;
  return 0;
}

static int product(struct handle *handle, const char *name, int ta, int tb, int m, int n, int k, int batch, int a, int b,
                   int c) {
  char line[256];
  snprintf(line, sizeof line, "library\t%s\tm=%d n=%d k=%d batch=%d ta=%d tb=%d types=%d,%d,%d math=%d", name, m, n, k,
           batch, ta, tb, a, b, c, handle->math_mode);
  return standin_launch(handle->stream, line) ? 13 : 0; /* execution failed */
}

int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k) {
  return product(handle, "cublasSgemm", ta, tb, m, n, k, 1, 0, 0, 0);
}
int cublasSgemmStridedBatched(void *handle, int ta, int tb, int m, int n, int k, void *alpha, void *a, int lda,
                              long long stride_a, void *b, int ldb, long long stride_b, void *beta, void *c, int ldc,
                              long long stride_c, int batch) {
  return product(handle, "cublasSgemmStridedBatched", ta, tb, m, n, k, batch, 0, 0, 0);
}
int cublasGemmEx(void *handle, int ta, int tb, int m, int n, int k, void *alpha, void *a, int type_a, int lda, void *b,
                 int type_b, int ldb, void *beta, void *c, int type_c) {
  return product(handle, "cublasGemmEx", ta, tb, m, n, k, 1, type_a, type_b, type_c);
}
int cublasGemmStridedBatchedEx(void *handle, int ta, int tb, int m, int n, int k, void *alpha, void *a, int type_a,
                               int lda, long long stride_a, void *b, int type_b, int ldb, long long stride_b,
                               void *beta, void *c, int type_c, int ldc, long long stride_c, int batch) {
  return product(handle, "cublasGemmStridedBatchedEx", ta, tb, m, n, k, batch, type_a, type_b, type_c);
}
int cublasSgemv_v2(void *handle, int ta, int m, int n) {
  return product(handle, "cublasSgemv", ta, 0, m, n, 1, 1, 0, 0, 0);
}
