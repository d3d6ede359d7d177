/* CUDA's runtime without a GPU: memory is the host's, kernels are counted and logged, time is counted in launches.

   Built by ../cuda_standin.py, which defines the device (DEVICE_NAME, MAJOR, MINOR, SM_COUNT, MEMORY, L2_BYTES, ...).
   What the real runtime would refuse, a caller may rely on being refused: memory beyond the device's, calls that a
   stream capture forbids, everything after a kernel that failed. Read from the environment:

     STANDIN_LOG        file that each launch and library call is appended to, a line each, fields parted by tabs
     STANDIN_TIMES      if set, a launch's line begins with when it was made, in ns of the host's clock, and a tab
     STANDIN_ARGUMENTS  file that says how kernels' arguments lie: a line a kernel, sorted as bytes, its name and
                        offset:size of each; a launch's line then ends with their bytes, in hexadecimal
     STANDIN_KERNEL_US  what a kernel takes on the device's clock (default 5)
     STANDIN_FAULT      error:TEXT, abort:TEXT or hang:TEXT: what happens where a launch's line contains TEXT */

#include <driver_types.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector_types.h>

enum { OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_IMPLICIT = 906 };
enum { RUNTIME_VERSION = CUDA_MAJOR * 1000 + CUDA_MINOR * 10 };

struct graph {
  double kernels_us;
};
struct stream {
  double now_us;
  struct graph *graph; /* being captured, else NULL */
  int mode, broken;
  unsigned long long id;
};
struct event {
  double at_us;
  int recorded;
};

static struct stream legacy;
static unsigned long long captures;
static struct stream *capturing; /* one capture at a time */
static int sticky, last_error;
static __thread int thread_mode; /* 0 global, 1 thread-local, 2 relaxed */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fails(int status) {
  last_error = status;
  return status;
}

static struct stream *of(void *stream) { return (size_t)stream <= 2 ? &legacy : (struct stream *)stream; }

/* Whether a call that may synchronise is forbidden now, which ends a capture that goes on. */
static int forbidden(void) {
  if (capturing == NULL || thread_mode == 2 || capturing->mode == 2) return 0;
  capturing->broken = 1;
  return 1;
}

#define ALIVE                         \
  do {                                \
    if (sticky) return fails(sticky); \
  } while (0)

/* --- what is launched */

static FILE *log_file(void) {
  static FILE *file;
  static int asked;
  if (!asked) {
    const char *path = getenv("STANDIN_LOG");
    asked = 1;
    if (path != NULL && *path) {
      file = fopen(path, "a");
      if (file != NULL) setvbuf(file, NULL, _IOLBF, 1 << 16);
    }
  }
  return file;
}

static double kernel_us(void) {
  static double us;
  if (us == 0) {
    const char *text = getenv("STANDIN_KERNEL_US");
    us = text != NULL ? atof(text) : 5.0;
  }
  return us;
}

static void fault(const char *line) {
  const char *wanted = getenv("STANDIN_FAULT");
  if (wanted == NULL) return;
  if (strncmp(wanted, "error:", 6) == 0 && strstr(line, wanted + 6)) sticky = ILLEGAL_ADDRESS;
  if (strncmp(wanted, "abort:", 6) == 0 && strstr(line, wanted + 6)) abort();
  if (strncmp(wanted, "hang:", 5) == 0 && strstr(line, wanted + 5)) for (;;) pause();
}

/* A line of the log that is no launch: what a caller wants to find between them. */
void standin_note(const char *line) {
  FILE *file = log_file();
  if (file != NULL) fprintf(file, "note\t%s\n", line);
}

/* One kernel on a stream, as ``line`` describes it; libraries call it, too. */
int standin_launch(void *stream, const char *line) {
  struct stream *on = of(stream);
  FILE *file = log_file();
  ALIVE;
  if (file != NULL && getenv("STANDIN_TIMES") != NULL) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(file, "%lld\t", now.tv_sec * 1000000000ll + now.tv_nsec);
  }
  if (file != NULL) fprintf(file, "%s\n", line);
  fault(line);
  if (on->graph != NULL) on->graph->kernels_us += kernel_us();
  else on->now_us += kernel_us();
  return 0;
}

struct function {
  const void *host;
  const char *name;
};
static struct function *functions;
static size_t function_count, function_room;

static struct function *place(struct function *table, size_t room, const void *host) {
  size_t i = ((size_t)host >> 4) * 0x9E3779B97F4A7C15ull % room;
  while (table[i].host != NULL && table[i].host != host) i = (i + 1) % room;
  return &table[i];
}

void __cudaRegisterFunction(void **fatbin, const void *host, char *device, const char *name, int limit, void *tid,
                            void *bid, void *block, void *grid, int *warp) {
  struct function *slot;
  if (2 * (function_count + 1) > function_room) {
    size_t room = function_room ? 2 * function_room : 4096, i;
    struct function *table = calloc(room, sizeof *table);
    for (i = 0; i < function_room; i++)
      if (functions[i].host != NULL) *place(table, room, functions[i].host) = functions[i];
    free(functions);
    functions = table;
    function_room = room;
  }
  slot = place(functions, function_room, host);
  function_count += slot->host == NULL;
  slot->host = host;
  slot->name = name;
}

static const char *name_of(const void *host) {
  const char *name = function_room ? place(functions, function_room, host)->name : NULL;
  return name != NULL ? name : "?";
}

void **__cudaRegisterFatBinary(void *binary) { return (void **)thing; }

static __thread struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  pushed.grid = grid;
  pushed.block = block;
  pushed.shared = shared;
  pushed.stream = stream;
  return 0;
}

int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *stream = pushed.stream;
  return 0;
}

/* What STANDIN_ARGUMENTS's file says of a kernel behind its name, NULL where it says nothing. */
static const char *layout_of(const char *name) {
  static char *text, *end;
  char *low, *high;
  size_t length = strlen(name);
  pthread_mutex_lock(&lock);
  if (text == NULL) {
    const char *path = getenv("STANDIN_ARGUMENTS");
    FILE *file = path != NULL ? fopen(path, "rb") : NULL;
    text = end = "";
    if (file != NULL) {
      long bytes;
      fseek(file, 0, SEEK_END);
      bytes = ftell(file);
      rewind(file);
      text = calloc(1, bytes + 1);
      end = text + fread(text, 1, bytes, file);
      fclose(file);
    }
  }
  pthread_mutex_unlock(&lock);
  for (low = text, high = end; low < high;) {
    char *line = low + (high - low) / 2;
    int order;
    while (line > low && line[-1] != '\n') line--;
    order = strncmp(name, line, length);
    if (order == 0 && line[length] == ' ') return line + length;
    if (order <= 0) high = line;
    else {
      while (line < high && *line != '\n') line++;
      low = line + 1;
    }
  }
  return NULL;
}

/* A kernel's arguments as they lie for it, in hexadecimal, behind a tab; nothing where that isn't known. */
static void write_arguments(char *text, size_t room, const char *name, void **arguments) {
  unsigned char bytes[4096] = {0}; /* all that a kernel may have */
  const char *layout = layout_of(name);
  size_t offset, size, used = 0, i;
  int read;
  *text = 0;
  if (layout == NULL || arguments == NULL) return;
  for (; sscanf(layout, " %zu:%zu%n", &offset, &size, &read) == 2; layout += read) {
    if (offset + size > sizeof bytes) return;
    memcpy(bytes + offset, *arguments++, size);
    if (offset + size > used) used = offset + size;
  }
  if (2 * used + 2 > room) return;
  *text++ = '\t';
  for (i = 0; i < used; i++, text += 2) sprintf(text, "%02x", bytes[i]);
}

int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
  char line[16384];
  const char *name = name_of(function);
  int n = snprintf(line, 7000, "kernel\t%s\t%u,%u,%u\t%u,%u,%u\t%zu", name, grid.x, grid.y, grid.z, block.x, block.y,
                   block.z, shared);
  if (n < 7000) write_arguments(line + n, sizeof line - n, name, arguments);
  return standin_launch(stream, line);
}

/* CUDA 13's headers ask for a kernel's handle first: the address of its function on the host. */
int __cudaGetKernel(const void **kernel, const void *function) {
  *kernel = function;
  return 0;
}
int __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

#if CUDA_MAJOR * 100 + CUDA_MINOR >= 1108 /* has this call and its type */
int cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
  return cudaLaunchKernel(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                          config->stream);
}
#endif

int cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *function) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->maxDynamicSharedSizeBytes = SHARED_PER_BLOCK_OPTIN;
  a->binaryVersion = a->ptxVersion = 10 * MAJOR + MINOR;
  return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                           size_t shared, unsigned flags) {
  int by_shared = shared ? (int)(SHARED_PER_SM / shared) : 16;
  *blocks = MAX_THREADS_PER_SM / (threads > 0 ? threads : 1);
  if (*blocks > by_shared) *blocks = by_shared;
  if (*blocks > 16) *blocks = 16;
  if (*blocks < 1) *blocks = 1;
  return 0;
}

/* --- the device */

int cudaGetDeviceCount(int *count) {
  *count = 1;
  return 0;
}
int cudaGetDevice(int *device) {
  *device = 0;
  return 0;
}

static int properties(struct cudaDeviceProp *p) {
#if CUDA_MAJOR < 11 /* the caller's structure lacks what CUDA 11 put behind the size of L2 and at the end */
  memset(p, 0, offsetof(struct cudaDeviceProp, maxBlocksPerMultiProcessor));
  p->persistingL2CacheMaxSize = MAX_THREADS_PER_SM; /* where 10.2 has maxThreadsPerMultiProcessor */
#else
  memset(p, 0, sizeof *p);
  p->maxThreadsPerMultiProcessor = MAX_THREADS_PER_SM;
  p->maxBlocksPerMultiProcessor = 16;
#endif
  strcpy(p->name, DEVICE_NAME);
  p->major = MAJOR;
  p->minor = MINOR;
  p->totalGlobalMem = MEMORY;
  p->multiProcessorCount = SM_COUNT;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = SHARED_PER_BLOCK_OPTIN;
  p->sharedMemPerMultiprocessor = SHARED_PER_SM;
  p->l2CacheSize = L2_BYTES;
  p->textureAlignment = 512;
  p->unifiedAddressing = p->cooperativeLaunch = p->concurrentKernels = 1;
  memcpy(&p->uuid, "standin-standin", 16);
  return 0;
}
int cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) { return properties(p); }
int cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device) { return properties(p); }

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  struct cudaDeviceProp p;
  properties(&p);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[1]; break;
    default: *value = 1;
  }
  return 0;
}

int cudaDeviceGetPCIBusId(char *text, int length, int device) {
  snprintf(text, length, "0000:01:00.0");
  return 0;
}
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { /* either may be NULL */
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return 0;
}
int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = 0;
  return 0;
}
int cudaDriverGetVersion(int *version) {
  *version = RUNTIME_VERSION;
  return 0;
}
int cudaRuntimeGetVersion(int *version) {
  *version = RUNTIME_VERSION;
  return 0;
}
int cudaGetDriverEntryPoint(const char *name, void **p, unsigned long long flags, int *found) {
  *p = NULL;
  if (found) *found = 1; /* no such symbol */
  return 0;
}

/* --- errors */

const char *cudaGetErrorName(int status) { return "cudaErrorStandIn"; }
const char *cudaGetErrorString(int status) {
  switch (status) {
    case 0: return "no error";
    case OUT_OF_MEMORY: return "out of memory";
    case ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
    case CAPTURE_UNSUPPORTED: return "operation not permitted when stream is capturing";
    case CAPTURE_INVALIDATED: return "operation failed due to a previous error during capture";
    case CAPTURE_IMPLICIT: return "operation would make the legacy stream depend on a capturing blocking stream";
    default: return "stand-in";
  }
}
int cudaGetLastError(void) {
  int found = sticky ? sticky : last_error;
  last_error = 0;
  return found;
}
int cudaPeekAtLastError(void) { return sticky ? sticky : last_error; }

/* --- memory */

enum { BLOCKS = 1 << 16 };
static struct {
  char *at;
  size_t bytes;
  int kind;
} blocks[BLOCKS];
static size_t block_count, used_bytes;

static int taken(void **made, size_t bytes, int kind) {
  size_t room = (bytes + 4095) / 4096 * 4096;
  int status = 0;
  ALIVE;
  pthread_mutex_lock(&lock);
  *made = NULL;
  if (bytes > 0) {
    if (block_count == BLOCKS || (kind == cudaMemoryTypeDevice && used_bytes + room > MEMORY)) status = OUT_OF_MEMORY;
    else {
      /* pages come when they are touched, so that a device may have more memory than the host */
      *made = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (*made == MAP_FAILED) status = OUT_OF_MEMORY;
    }
    if (status) *made = NULL;
    else {
      blocks[block_count].at = *made;
      blocks[block_count].bytes = room;
      blocks[block_count++].kind = kind;
      if (kind == cudaMemoryTypeDevice) used_bytes += room;
    }
  }
  pthread_mutex_unlock(&lock);
  return status ? fails(status) : 0;
}

static int given_back(void *p) {
  size_t i;
  pthread_mutex_lock(&lock);
  for (i = 0; i < block_count && blocks[i].at != p; i++) continue;
  if (i < block_count) {
    munmap(blocks[i].at, blocks[i].bytes);
    if (blocks[i].kind == cudaMemoryTypeDevice) used_bytes -= blocks[i].bytes;
    blocks[i] = blocks[--block_count];
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

int cudaMalloc(void **made, size_t bytes) {
  if (forbidden()) return fails(CAPTURE_UNSUPPORTED);
  return taken(made, bytes, cudaMemoryTypeDevice);
}
int cudaMallocAsync(void **made, size_t bytes, void *stream) { return taken(made, bytes, cudaMemoryTypeDevice); }
int cudaMallocFromPoolAsync(void **made, size_t bytes, void *pool, void *stream) {
  return taken(made, bytes, cudaMemoryTypeDevice);
}
int cudaMallocHost(void **made, size_t bytes) { return taken(made, bytes, cudaMemoryTypeHost); }
int cudaHostAlloc(void **made, size_t bytes, unsigned flags) { return taken(made, bytes, cudaMemoryTypeHost); }
int cudaFree(void *p) {
  if (forbidden()) return fails(CAPTURE_UNSUPPORTED);
  return given_back(p);
}
int cudaFreeAsync(void *p, void *stream) { return given_back(p); }
int cudaFreeHost(void *p) { return given_back(p); }

int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *total = MEMORY;
  *free_bytes = MEMORY - used_bytes;
  return 0;
}
int cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  size_t i;
  memset(a, 0, sizeof *a);
  a->type = cudaMemoryTypeUnregistered;
  pthread_mutex_lock(&lock);
  for (i = 0; i < block_count; i++)
    if ((const char *)p >= blocks[i].at && (const char *)p < blocks[i].at + blocks[i].bytes) a->type = blocks[i].kind;
  pthread_mutex_unlock(&lock);
  if (a->type == cudaMemoryTypeDevice) a->devicePointer = (void *)p;
  if (a->type == cudaMemoryTypeHost) a->hostPointer = a->devicePointer = (void *)p;
  return 0;
}

static const char *const DIRECTIONS[] = {"host to host", "host to device", "device to host", "device to device", ""};

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  char line[128];
  ALIVE;
  snprintf(line, sizeof line, "copy\t%s\t%zu", DIRECTIONS[kind & 3], bytes);
  /* between device buffers nobody reads what is there */
  if (kind != cudaMemcpyDeviceToDevice && of(stream)->graph == NULL) memmove(to, from, bytes);
  return standin_launch(stream, line);
}
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
  if (forbidden()) return fails(CAPTURE_IMPLICIT);
  return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}
int cudaMemsetAsync(void *p, int value, size_t bytes, void *stream) {
  char line[64];
  ALIVE;
  snprintf(line, sizeof line, "set\t%zu", bytes);
  return standin_launch(stream, line);
}
int cudaMemset(void *p, int value, size_t bytes) {
  if (forbidden()) return fails(CAPTURE_IMPLICIT);
  memset(p, value, bytes);
  return cudaMemsetAsync(p, value, bytes, NULL);
}

/* --- streams, events, graphs */

int cudaStreamCreateWithPriority(void **made, unsigned flags, int priority) {
  ALIVE;
  *made = calloc(1, sizeof(struct stream));
  return 0;
}
int cudaStreamCreateWithFlags(void **made, unsigned flags) { return cudaStreamCreateWithPriority(made, flags, 0); }
int cudaStreamCreate(void **made) { return cudaStreamCreateWithPriority(made, 0, 0); }
int cudaStreamSynchronize(void *stream) {
  ALIVE;
  if (of(stream)->graph != NULL) of(stream)->broken = 1;
  return of(stream)->graph != NULL ? fails(CAPTURE_UNSUPPORTED) : 0;
}
int cudaStreamQuery(void *stream) { return cudaStreamSynchronize(stream); }
int cudaDeviceSynchronize(void) {
  ALIVE;
  if (capturing != NULL) capturing->broken = 1;
  return capturing != NULL ? fails(CAPTURE_UNSUPPORTED) : 0;
}

int cudaEventCreateWithFlags(void **made, unsigned flags) {
  ALIVE;
  *made = calloc(1, sizeof(struct event));
  return 0;
}
int cudaEventCreate(void **made) { return cudaEventCreateWithFlags(made, 0); }
int cudaEventRecord(struct event *event, void *stream) {
  ALIVE;
  if (of(stream)->graph != NULL) return 0;
  event->at_us = of(stream)->now_us;
  event->recorded = 1;
  return 0;
}
int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) { return cudaEventRecord(event, stream); }
int cudaEventDestroy(void *event) {
  free(event);
  return 0;
}
int cudaEventQuery(void *event) {
  ALIVE;
  return forbidden() ? fails(CAPTURE_UNSUPPORTED) : 0;
}
int cudaEventSynchronize(void *event) { return cudaEventQuery(event); }
int cudaEventElapsedTime(float *ms, struct event *start, struct event *end) {
  ALIVE;
  if (!start->recorded || !end->recorded) return fails(400); /* an invalid handle */
  *ms = (float)((end->at_us - start->at_us) / 1e3);
  return 0;
}
int cudaEventElapsedTime_v2(float *ms, void *start, void *end) { return cudaEventElapsedTime(ms, start, end); }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
  ALIVE;
  return 0;
}

int cudaThreadExchangeStreamCaptureMode(int *mode) {
  int before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return 0;
}
int cudaStreamBeginCapture(void *stream, int mode) {
  ALIVE;
  if (capturing != NULL || of(stream) == &legacy) return fails(CAPTURE_UNSUPPORTED);
  capturing = of(stream);
  capturing->graph = calloc(1, sizeof(struct graph));
  capturing->mode = mode;
  capturing->broken = 0;
  capturing->id = ++captures;
  return 0;
}
int cudaStreamEndCapture(void *stream, void **made) {
  struct stream *on = of(stream);
  struct graph *graph = on->graph;
  int broken = on->broken;
  *made = NULL;
  on->graph = NULL;
  capturing = NULL;
  ALIVE;
  if (broken || graph == NULL) {
    free(graph);
    return fails(CAPTURE_INVALIDATED);
  }
  *made = graph;
  return 0;
}
int cudaStreamIsCapturing(void *stream, int *status) {
  *status = of(stream)->graph == NULL ? 0 : of(stream)->broken ? 2 : 1;
  return 0;
}
int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph, void **nodes,
                                size_t *count) {
  cudaStreamIsCapturing(stream, status);
  if (id) *id = of(stream)->id;
  if (graph) *graph = of(stream)->graph;
  if (nodes) *nodes = NULL;
  if (count) *count = 0;
  return 0;
}
int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) {
  return cudaStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}
int cudaGraphInstantiate(void **made, struct graph *graph, unsigned long long flags) {
  ALIVE;
  *made = malloc(sizeof *graph);
  memcpy(*made, graph, sizeof *graph);
  return 0;
}
int cudaGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
  return cudaGraphInstantiate(made, graph, flags);
}
int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) {
  *count = ((struct graph *)graph)->kernels_us > 0;
  return 0;
}
int cudaGraphLaunch(struct graph *graph, void *stream) {
  ALIVE;
  of(stream)->now_us += graph->kernels_us;
  return 0;
}
int cudaGraphDestroy(void *graph) {
  free(graph);
  return 0;
}
int cudaGraphExecDestroy(void *graph) {
  free(graph);
  return 0;
}
