/* A libcuda.so.1 of one GPU for cuda-bindings: the two micro-kernels run as threads of the host.
 *
 * The GPU's addresses are the host's, its timer is CLOCK_REALTIME, and every SM counts
 * CYCLES_PER_1000_NS cycles in a microsecond. It knows the kernels by their names alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, SM_COUNT = 80, ATTRIBUTE_SM_COUNT = 16 };
enum { CYCLES_PER_1000_NS = 1410, DEVICE_NUMBER = 3, GPU_COUNT = 1 };

typedef struct {
  volatile uint64_t *records;
  volatile uint32_t *flag;
  uint32_t capacity, step_ns;
} spin_t;

static int context, module, spin, stamp;
static pthread_t spinning;
static int is_spinning, allocation_count;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void put_pair(volatile uint64_t *record) {
  uint64_t time_ns = now_ns();
  record[1] = (time_ns & 0xffffffffffffu) * CYCLES_PER_1000_NS / 1000;
  __sync_synchronize();
  record[0] = time_ns;
}

static void *spin_on(void *given) {
  spin_t *s = given;
  uint64_t next_ns = now_ns();
  for (uint32_t count = 0; count < s->capacity; count++, next_ns += s->step_ns) {
    while (now_ns() < next_ns) {
    }
    put_pair(s->records + 2 * count);
    if (*s->flag) break;
  }
  free(s);
  return NULL;
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = GPU_COUNT, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) {
  *device = DEVICE_NUMBER;
  return ordinal < GPU_COUNT ? SUCCESS : INVALID_VALUE;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0x10 + i);
  return device == DEVICE_NUMBER ? SUCCESS : INVALID_VALUE;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = SM_COUNT;
  return attribute == ATTRIBUTE_SM_COUNT && device == DEVICE_NUMBER ? SUCCESS : INVALID_VALUE;
}
int cuDevicePrimaryCtxRetain(void **given, int device) {
  *given = &context;
  return device == DEVICE_NUMBER ? SUCCESS : INVALID_VALUE;
}
int cuCtxSetCurrent(void *given) { return given == &context ? SUCCESS : INVALID_VALUE; }
int cuModuleLoadData(void **given, const char *image) {
  *given = &module;
  return strncmp(image, ".version", 8) ? INVALID_VALUE : SUCCESS;
}
int cuModuleGetFunction(void **function, void *given, const char *name) {
  *function = !strcmp(name, "spin") ? &spin : !strcmp(name, "stamp") ? &stamp : NULL;
  return given == &module && *function ? SUCCESS : NOT_FOUND;
}
int cuStreamCreate(void **stream, unsigned flags) {
  *stream = &spinning;
  return flags == 1 ? SUCCESS : INVALID_VALUE;
}
int cuMemHostAlloc(void **words, size_t size, unsigned flags) {
  *words = malloc(size);
  memset(*words, 0xff, size);
  allocation_count++;
  return flags == 3 ? SUCCESS : INVALID_VALUE;
}
int cuMemHostGetDevicePointer(uint64_t *address, void *words, unsigned flags) {
  *address = (uint64_t)(uintptr_t)words;
  return flags ? INVALID_VALUE : SUCCESS;
}
int cuMemFreeHost(void *words) {
  allocation_count--;
  free(words);
  return SUCCESS;
}
int fake_cuda_allocation_count(void) { return allocation_count; }

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **arguments, void **extra) {
  if (grid_y * grid_z * block_x * block_y * block_z != 1 || shared_bytes || extra ||
      stream != &spinning)
    return INVALID_VALUE;
  volatile uint64_t *records = (uint64_t *)(uintptr_t) * (uint64_t *)arguments[0];
  if (function == &stamp) {
    uint32_t capacity = *(uint32_t *)arguments[1];
    for (uint32_t sm = 0; sm < grid_x && sm < capacity; sm++) put_pair(records + 2 * sm);
    return SUCCESS;
  }
  if (function != &spin || grid_x != 1 || is_spinning) return INVALID_VALUE;
  spin_t *s = malloc(sizeof *s);
  *s = (spin_t){.records = records,
                .flag = (uint32_t *)(uintptr_t) * (uint64_t *)arguments[1],
                .capacity = *(uint32_t *)arguments[2],
                .step_ns = *(uint32_t *)arguments[3]};
  is_spinning = !pthread_create(&spinning, NULL, spin_on, s);
  return is_spinning ? SUCCESS : INVALID_VALUE;
}
int cuStreamSynchronize(void *stream) {
  if (stream != &spinning) return INVALID_VALUE;
  if (is_spinning) pthread_join(spinning, NULL);
  is_spinning = 0;
  return SUCCESS;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status) {
  (void)version, (void)flags;
  void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *function = self ? dlsym(self, name) : NULL;
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
