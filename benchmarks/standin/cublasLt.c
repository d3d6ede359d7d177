/* cuBLASLt without a GPU: products are logged with their epilogue and count as one kernel. Numbers of attributes and
   epilogues: cublasLt.h of CUDA 12. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int standin_launch(void *stream, const char *line);

enum { TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BATCH_COUNT = 5 };
struct desc {
  int compute, scale, trans_a, trans_b, epilogue;
};
struct layout {
  int type, batch;
  unsigned long long rows, cols;
};
struct heuristic { /* cublasLtMatmulHeuristicResult_t */
  unsigned long long algo[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

int cublasLtMatmulDescCreate(void **made, int compute, int scale) {
  struct desc *desc = calloc(1, sizeof *desc);
  desc->compute = compute;
  desc->scale = scale;
  desc->epilogue = 1;
  *made = desc;
  return 0;
}
int cublasLtMatmulDescSetAttribute(struct desc *desc, int name, const void *value, size_t bytes) {
  if (name == TRANSA) memcpy(&desc->trans_a, value, sizeof(int));
  if (name == TRANSB) memcpy(&desc->trans_b, value, sizeof(int));
  if (name == EPILOGUE) memcpy(&desc->epilogue, value, sizeof(int));
  return 0;
}
int cublasLtMatmulDescDestroy(void *desc) {
  free(desc);
  return 0;
}
int cublasLtMatrixLayoutCreate(void **made, int type, unsigned long long rows, unsigned long long cols, long long ld) {
  struct layout *layout = calloc(1, sizeof *layout);
  layout->type = type;
  layout->rows = rows;
  layout->cols = cols;
  layout->batch = 1;
  *made = layout;
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(struct layout *layout, int name, const void *value, size_t bytes) {
  if (name == BATCH_COUNT) memcpy(&layout->batch, value, sizeof(int));
  return 0;
}
int cublasLtMatrixLayoutDestroy(void *layout) {
  free(layout);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, struct heuristic *results, int *count) {
  memset(results, 0, sizeof *results);
  results->waves = 1;
  *count = 1;
  return 0;
}
int cublasLtMatmul(void *handle, struct desc *desc, void *alpha, void *a, struct layout *la, void *b, struct layout *lb,
                   void *beta, void *c, struct layout *lc, void *d, struct layout *ld, void *algo, void *workspace,
                   size_t workspace_bytes, void *stream) {
  char line[256];
  unsigned long long k = desc->trans_a ? la->rows : la->cols;
  snprintf(line, sizeof line, "library\tcublasLtMatmul\tm=%llu n=%llu k=%llu batch=%d ta=%d tb=%d types=%d,%d,%d epilogue=%d",
           ld->rows, ld->cols, k, ld->batch, desc->trans_a, desc->trans_b, la->type, lb->type, ld->type, desc->epilogue);
  return standin_launch(stream, line) ? 13 : 0;
}
