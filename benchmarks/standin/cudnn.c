/* cuDNN without a GPU: its backend's descriptors are kept as they are given, heuristics answer with one engine, and what
   is executed is logged and counts as one kernel. Numbers of attributes and types: cudnn_graph_v9.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int standin_launch(void *stream, const char *line);

enum { /* descriptors */
  ENGINE = 2, ENGINE_CONFIG = 3, CONVOLUTION_FORWARD = 10, BACKWARD_FILTER = 11, BACKWARD_DATA = 12, OPERATIONS = 15 };
enum { /* attributes */
  COMPUTE_TYPE = 100, DILATIONS = 102, STRIDES = 103, PRE_PADDINGS = 105, HEURISTIC_GRAPH = 201, RESULTS = 202,
  CONFIG_ENGINE = 300, PLAN_CONFIG = 401, GRAPH_OPERATIONS = 801, TENSOR_TYPE = 901, DIMENSIONS = 902,
  TENSOR_STRIDES = 903, ENGINE_GRAPH = 1300 };
enum { INT64 = 3, DESCRIPTOR = 15, INT32 = 23 };

struct attribute {
  int name, type;
  long long count;
  void *data;
};
struct descriptor {
  int type, count;
  struct attribute attributes[64];
};

static size_t size_of(int type) {
  switch (type) {
    case 0: case 3: case 5: case 6: case DESCRIPTOR: return 8;
    case 2: case 24: return 1;
    case 26: return 16;
    default: return 4;
  }
}

static struct descriptor *copied(const struct descriptor *from);

static void *copied_data(int type, long long count, const void *from) {
  char *data = malloc(count * size_of(type) + 8);
  long long i;
  memcpy(data, from, count * size_of(type));
  if (type == DESCRIPTOR)
    for (i = 0; i < count; i++) ((struct descriptor **)data)[i] = copied(((struct descriptor *const *)from)[i]);
  return data;
}

static struct descriptor *copied(const struct descriptor *from) {
  struct descriptor *made;
  int i;
  if (from == NULL) return NULL;
  made = malloc(sizeof *made);
  *made = *from;
  for (i = 0; i < made->count; i++) {
    struct attribute *a = &made->attributes[i];
    a->data = copied_data(a->type, a->count, a->data);
  }
  return made;
}

static void emptied(struct descriptor *descriptor) {
  int i;
  long long j;
  for (i = 0; i < descriptor->count; i++) {
    struct attribute *a = &descriptor->attributes[i];
    if (a->type == DESCRIPTOR)
      for (j = 0; j < a->count; j++) {
        struct descriptor *inner = ((struct descriptor **)a->data)[j];
        if (inner != NULL) emptied(inner), free(inner);
      }
    free(a->data);
  }
  descriptor->count = 0;
}

static struct attribute *found(struct descriptor *descriptor, int name) {
  int i;
  for (i = 0; descriptor != NULL && i < descriptor->count; i++)
    if (descriptor->attributes[i].name == name) return &descriptor->attributes[i];
  return NULL;
}

static struct descriptor *inside(struct descriptor *descriptor, int name, int i) {
  struct attribute *a = found(descriptor, name);
  return a == NULL || i >= a->count ? NULL : ((struct descriptor **)a->data)[i];
}

int cudnnBackendCreateDescriptor(int type, void **made) {
  struct descriptor *descriptor = calloc(1, sizeof *descriptor);
  descriptor->type = type;
  *made = descriptor;
  return 0;
}
int cudnnBackendDestroyDescriptor(struct descriptor *descriptor) {
  if (descriptor != NULL) emptied(descriptor);
  free(descriptor);
  return 0;
}
int cudnnBackendSetAttribute(struct descriptor *descriptor, int name, int type, long long count, const void *data) {
  struct attribute *a = found(descriptor, name);
  if (a == NULL) {
    if (descriptor->count == 64) return 2000; /* bad parameter */
    a = &descriptor->attributes[descriptor->count++];
  }
  a->name = name;
  a->type = type;
  a->count = count;
  a->data = copied_data(type, count, data);
  return 0;
}

static void filled(struct descriptor **slot, struct descriptor *from) {
  struct descriptor *made = copied(from);
  if (*slot == NULL) *slot = made;
  else {
    emptied(*slot);
    **slot = *made;
    free(made);
  }
}

int cudnnBackendGetAttribute(struct descriptor *descriptor, int name, int type, long long wanted, long long *count,
                             void *data) {
  struct attribute *a = found(descriptor, name);
  long long i, given, ignored;
  if (count == NULL) count = &ignored;
  if (name == RESULTS) {
    *count = 1;
    if (wanted > 0 && data != NULL) {
      struct descriptor engine = {ENGINE}, config = {ENGINE_CONFIG}, *engine_at = &engine,
                        *graph = inside(descriptor, HEURISTIC_GRAPH, 0);
      cudnnBackendSetAttribute(&engine, ENGINE_GRAPH, DESCRIPTOR, 1, &graph);
      cudnnBackendSetAttribute(&config, CONFIG_ENGINE, DESCRIPTOR, 1, &engine_at);
      filled(data, &config);
      emptied(&config);
      emptied(&engine);
    }
    return 0;
  }
  if (a == NULL) { /* a size of nothing, else an empty list */
    *count = (type == INT64 || type == INT32) && wanted == 1;
    if (*count && data != NULL) memset(data, 0, size_of(type));
    return 0;
  }
  *count = a->count;
  given = a->count < wanted ? a->count : wanted;
  if (data == NULL) return 0;
  if (type != DESCRIPTOR) memcpy(data, a->data, given * size_of(type));
  else
    for (i = 0; i < given; i++) filled((struct descriptor **)data + i, ((struct descriptor **)a->data)[i]);
  return 0;
}

static char *numbers(char *to, char *end, const char *label, struct descriptor *descriptor, int name) {
  struct attribute *a = found(descriptor, name);
  long long i;
  if (a == NULL) return to;
  to += snprintf(to, end - to, "%s", label);
  for (i = 0; i < a->count && to < end - 24; i++)
    to += sprintf(to, i ? "x%lld" : "%lld", a->type == INT64 ? ((long long *)a->data)[i] : (long long)((int *)a->data)[i]);
  return to;
}

struct handle {
  void *stream;
};
int cudnnCreate(void **made) {
  *made = calloc(1, sizeof(struct handle));
  return 0;
}
int cudnnSetStream(struct handle *handle, void *stream) {
  handle->stream = stream;
  return 0;
}
int cudnnGetStream(struct handle *handle, void **stream) {
  *stream = handle->stream;
  return 0;
}

int cudnnBackendExecute(struct handle *handle, struct descriptor *plan, void *pack) {
  static const struct {
    int type, first; /* its attributes: ..., the convolution, then three tensors */
    const char *name, *tensors[3];
  } CONVOLUTIONS[] = {
      {CONVOLUTION_FORWARD, 702, "convolution forward", {"w", "x", "y"}},
      {BACKWARD_DATA, 708, "convolution backward data", {"w", "dx", "dy"}},
      {BACKWARD_FILTER, 714, "convolution backward filter", {"dw", "x", "dy"}},
  };
  char line[2048], *to = line, *end = line + sizeof line - 64;
  struct descriptor *graph = inside(inside(inside(plan, PLAN_CONFIG, 0), CONFIG_ENGINE, 0), ENGINE_GRAPH, 0), *operation;
  int i, j, k;
  to += sprintf(to, "library\tcudnn");
  for (i = 0; (operation = inside(graph, GRAPH_OPERATIONS, i)) != NULL && to < end; i++) {
    for (j = 0; j < 3 && CONVOLUTIONS[j].type != operation->type; j++) continue;
    if (j == 3) {
      to += snprintf(to, end - to, "\toperation %d", operation->type);
      continue;
    }
    to += snprintf(to, end - to, "\t%s", CONVOLUTIONS[j].name);
    for (k = 0; k < 3; k++) {
      struct descriptor *tensor = inside(operation, CONVOLUTIONS[j].first + 1 + k, 0);
      to += snprintf(to, end - to, " %s", CONVOLUTIONS[j].tensors[k]);
      to = numbers(to, end, "=", tensor, DIMENSIONS);
      to = numbers(to, end, "/", tensor, TENSOR_STRIDES);
      to = numbers(to, end, ":", tensor, TENSOR_TYPE);
    }
    operation = inside(operation, CONVOLUTIONS[j].first, 0);
    to = numbers(to, end, " stride=", operation, STRIDES);
    to = numbers(to, end, " pad=", operation, PRE_PADDINGS);
    to = numbers(to, end, " dilation=", operation, DILATIONS);
    to = numbers(to, end, " compute=", operation, COMPUTE_TYPE);
  }
  return standin_launch(handle->stream, line) ? 5000 : 0; /* execution failed */
}

int cudnnDropoutGetStatesSize(void *handle, size_t *n) {
  *n = 1024;
  return 0;
}
int cudnnGetReductionWorkspaceSize(void *handle, void *r, void *a, void *c, size_t *n) {
  *n = 0;
  return 0;
}
size_t cudnnGetVersion(void) { return CUDNN_VERSION_NUMBER; }
int cudnnGetProperty(int part, int *value) {
  static const int PARTS[] = {CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCH};
  *value = PARTS[part];
  return 0;
}
size_t cudnnGetCudartVersion(void) { return CUDA_MAJOR * 1000 + CUDA_MINOR * 10; }
int cudnnBatchNormalizationForwardInference(struct handle *handle) {
  return standin_launch(handle->stream, "library\tcudnnBatchNormalizationForwardInference") ? 5000 : 0;
}
/* batch normalization in training: no memory of its own */
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations, void *x, void *z,
                                                             void *y, void *scale, void *activation, size_t *bytes) {
  *bytes = 0;
  return 0;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, void *x, void *y,
                                                      void *dy, void *dz, void *dx, void *scale, void *activation,
                                                      size_t *bytes) {
  *bytes = 0;
  return 0;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operations, void *activation,
                                                         void *x, size_t *bytes) {
  *bytes = 0;
  return 0;
}
static int batch_norm(struct handle *handle, const char *which, int mode) { /* cudnnBatchNormMode_t */
  char line[128];
  snprintf(line, sizeof line, "library\tcudnn\tbatch normalization %s mode=%d", which, mode);
  return standin_launch(handle->stream, line) ? 5000 : 0;
}
int cudnnBatchNormalizationForwardTrainingEx(struct handle *handle, int mode) {
  return batch_norm(handle, "forward", mode);
}
int cudnnBatchNormalizationBackwardEx(struct handle *handle, int mode) { return batch_norm(handle, "backward", mode); }

/* --- the calls of cuDNN 7, with which PyTorch convolved until 2.0 and ONNX Runtime with cuDNN 8 */

struct shape { /* of a tensor, of filters (no strides), of a convolution: pads, then strides, then dilations */
  int type, format, count, groups, math, sizes[8], strides[8], dilations[8];
};

int cudnnCreateTensorDescriptor(void **made) {
  *made = calloc(1, sizeof(struct shape));
  return 0;
}
int cudnnCreateFilterDescriptor(void **made) { return cudnnCreateTensorDescriptor(made); }
int cudnnCreateConvolutionDescriptor(void **made) { return cudnnCreateTensorDescriptor(made); }
int cudnnDestroyTensorDescriptor(void *shape) {
  free(shape);
  return 0;
}
int cudnnDestroyFilterDescriptor(void *shape) { return cudnnDestroyTensorDescriptor(shape); }
int cudnnDestroyConvolutionDescriptor(void *shape) { return cudnnDestroyTensorDescriptor(shape); }

static void taken_over(int to[8], const int *from, int count) {
  if (from != NULL) memcpy(to, from, (count < 8 ? count : 8) * sizeof *to);
}
int cudnnSetTensorNdDescriptor(struct shape *shape, int type, int count, const int *sizes, const int *strides) {
  shape->type = type;
  shape->count = count;
  taken_over(shape->sizes, sizes, count);
  taken_over(shape->strides, strides, count);
  return 0;
}
int cudnnSetFilterNdDescriptor(struct shape *shape, int type, int format, int count, const int *sizes) {
  shape->format = format;
  return cudnnSetTensorNdDescriptor(shape, type, count, sizes, NULL);
}
int cudnnSetConvolutionNdDescriptor(struct shape *shape, int count, const int *pads, const int *strides,
                                    const int *dilations, int mode, int type) {
  taken_over(shape->dilations, dilations, count);
  return cudnnSetTensorNdDescriptor(shape, type, count, pads, strides);
}
int cudnnSetConvolutionGroupCount(struct shape *shape, int groups) {
  shape->groups = groups;
  return 0;
}
int cudnnSetConvolutionMathType(struct shape *shape, int math) {
  shape->math = math;
  return 0;
}

struct answer { /* cudnnConvolution*AlgoPerf_t */
  int algorithm, status;
  float ms;
  size_t workspace;
  int deterministic, math, reserved[3];
};

int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, void *x, void *w, const struct shape *convolution, void *y,
                                           int wanted, int *count, struct answer *answers) {
  *count = wanted > 0;
  if (wanted > 0) {
    memset(answers, 0, sizeof *answers);
    answers->algorithm = 1; /* implicit GEMM with precomputed offsets */
    answers->math = convolution->math;
  }
  return 0;
}
int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *x, void *w, void *convolution, void *y, int algorithm,
                                            size_t *bytes) {
  *bytes = 0;
  return 0;
}
int cudnnFindConvolutionForwardAlgorithmEx(void *handle, void *x, void *x_at, void *w, void *w_at, void *convolution,
                                           void *y, void *y_at, int wanted, int *count, void *answers, void *space,
                                           size_t bytes) {
  return cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y, wanted, count, answers);
}

static char *listed(char *to, char *end, const char *label, const int *values, int count) {
  int i;
  to += snprintf(to, end - to, "%s", label);
  for (i = 0; i < count && to < end - 24; i++) to += sprintf(to, i ? "x%d" : "%d", values[i]);
  return to;
}
static char *described(char *to, char *end, const char *label, const struct shape *shape, int strided) {
  to = listed(to, end, label, shape->sizes, shape->count);
  if (strided) to = listed(to, end, "/", shape->strides, shape->count);
  return to + snprintf(to, end - to, ":%d", shape->type);
}

int cudnnConvolutionForward(struct handle *handle, const void *alpha, const struct shape *x, const void *x_at,
                            const struct shape *w, const void *w_at, const struct shape *convolution, int algorithm,
                            void *space, size_t bytes, const void *beta, const struct shape *y, void *y_at) {
  char line[2048], *to = line, *end = line + sizeof line - 64;
  to += sprintf(to, "library\tcudnn\tconvolution forward");
  to = described(to, end, " w=", w, 0);
  to += snprintf(to, end - to, "/%s", w->format == 1 ? "nhwc" : "nchw");
  to = described(to, end, " x=", x, 1);
  to = described(to, end, " y=", y, 1);
  to = listed(to, end, " stride=", convolution->strides, convolution->count);
  to = listed(to, end, " pad=", convolution->sizes, convolution->count);
  to = listed(to, end, " dilation=", convolution->dilations, convolution->count);
  to += snprintf(to, end - to, " groups=%d compute=%d", convolution->groups, convolution->type);
  return standin_launch(handle->stream, line) ? 5000 : 0;
}

/* --- recurrent layers: where the weights of each gate lie, and a line for each call that runs kernels */

struct recurrent {
  int algorithm, mode, biases, directions, type, input, hidden, layers;
};
int cudnnCreateRNNDescriptor(void **made) {
  *made = calloc(1, sizeof(struct recurrent));
  return 0;
}
int cudnnDestroyRNNDescriptor(struct recurrent *layer) {
  free(layer);
  return 0;
}
int cudnnSetRNNDescriptor_v8(struct recurrent *layer, int algorithm, int mode, int bias_mode, int direction,
                             int input_mode, int type, int precision, int math, int input, int hidden, int projection,
                             int layers, void *dropout, unsigned flags) {
  struct recurrent made = {algorithm, mode, bias_mode != 0, 1 + (direction == 1), type, input, hidden, layers};
  *layer = made;
  return 0;
}

static int gates(const struct recurrent *layer) { return layer->mode == 2 ? 4 : layer->mode == 3 ? 3 : 1; }

/* Elements of one matrix: of the inputs (which 0) or of the state (1). */
static size_t matrix(const struct recurrent *layer, int pseudo_layer, int which) {
  int width = pseudo_layer < layer->directions ? layer->input : layer->hidden * layer->directions;
  return (size_t)layer->hidden * (which ? layer->hidden : width);
}

/* Elements of all matrices in front of one pseudo-layer: a layer in one direction. */
static size_t matrices(const struct recurrent *layer, int pseudo_layer) {
  size_t count = 0;
  int i;
  for (i = 0; i < pseudo_layer; i++) count += gates(layer) * (matrix(layer, i, 0) + matrix(layer, i, 1));
  return count;
}

int cudnnGetRNNWeightSpaceSize(void *handle, const struct recurrent *layer, size_t *bytes) {
  int rows = layer->layers * layer->directions;
  size_t biases = layer->biases ? (size_t)rows * 2 * gates(layer) * layer->hidden : 0;
  *bytes = (matrices(layer, rows) + biases) * (layer->type == 0 ? 4 : layer->type == 1 ? 8 : 2);
  return 0;
}

static void sized(struct shape *shape, int type, int rows, int columns) {
  int sizes[3] = {1, rows, columns}, strides[3] = {rows * columns, columns, 1};
  cudnnSetTensorNdDescriptor(shape, type, 3, sizes, strides);
}

int cudnnGetRNNWeightParams(void *handle, const struct recurrent *layer, int pseudo_layer, size_t bytes, char *space,
                            int gate, struct shape *weights, void **weights_at, struct shape *bias, void **bias_at) {
  int each = layer->type == 0 ? 4 : layer->type == 1 ? 8 : 2, which = gate >= gates(layer), i = gate % gates(layer);
  size_t before = matrices(layer, pseudo_layer) + (which ? gates(layer) * matrix(layer, pseudo_layer, 0) : 0);
  size_t biases = matrices(layer, layer->layers * layer->directions) +
                  ((size_t)pseudo_layer * 2 * gates(layer) + gate) * layer->hidden;
  if (weights != NULL) sized(weights, layer->type, layer->hidden, matrix(layer, pseudo_layer, which) / layer->hidden);
  if (weights_at != NULL) *weights_at = space + each * (before + i * matrix(layer, pseudo_layer, which));
  if (bias != NULL) sized(bias, layer->type, layer->hidden, 1);
  if (bias_at != NULL) *bias_at = layer->biases ? space + each * biases : NULL;
  return 0;
}

int cudnnGetTensorNdDescriptor(const struct shape *shape, int wanted, int *type, int *count, int *sizes, int *strides) {
  int i;
  *type = shape->type;
  *count = shape->count;
  for (i = 0; i < wanted && i < shape->count; i++) {
    sizes[i] = shape->sizes[i];
    strides[i] = shape->strides[i];
  }
  return 0;
}

int cudnnGetRNNTempSpaceSizes(void *handle, void *layer, int mode, void *x, size_t *workspace, size_t *reserve) {
  *workspace = 0;
  if (reserve != NULL) *reserve = 0;
  return 0;
}

static int recurrent(struct handle *handle, const char *which, const struct recurrent *layer) {
  char line[256];
  snprintf(line, sizeof line, "library\tcudnn\trecurrent %s mode=%d algorithm=%d layers=%d directions=%d input=%d hidden=%d",
           which, layer->mode, layer->algorithm, layer->layers, layer->directions, layer->input, layer->hidden);
  return standin_launch(handle->stream, line) ? 5000 : 0;
}
int cudnnRNNForward(struct handle *handle, const struct recurrent *layer) { return recurrent(handle, "forward", layer); }
int cudnnRNNBackwardData_v8(struct handle *handle, const struct recurrent *layer) {
  return recurrent(handle, "backward data", layer);
}
int cudnnRNNBackwardWeights_v8(struct handle *handle, const struct recurrent *layer) {
  return recurrent(handle, "backward weights", layer);
}
