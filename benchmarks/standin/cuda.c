/* CUDA's driver without a GPU: what PyTorch asks it itself. */

int cuCtxGetCurrent(void **context) {
  *context = thing;
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return 0;
}
