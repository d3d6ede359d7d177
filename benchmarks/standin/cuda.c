/* CUDA's driver without a GPU: what PyTorch asks it itself, and kernels that are launched by it.

   ONNX Runtime's fused attention of TensorRT is such kernels; their names are those that it looks up. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int standin_launch(void *stream, const char *line);

int cuCtxGetCurrent(void **context) {
  *context = thing;
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return 0;
}

int cuModuleGetFunction(char **function, void *module, const char *name) {
  *function = strdup(name);
  return 0;
}
int cuLaunchKernel(const char *name, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void *stream) {
  char line[1024];
  snprintf(line, sizeof line, "kernel\t%s\t%u,%u,%u\t%u,%u,%u\t%u", name, grid_x, grid_y, grid_z, block_x, block_y, block_z,
           shared_bytes);
  return standin_launch(stream, line);
}
