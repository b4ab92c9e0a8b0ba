/* What every NVML call goes through: the log, injected failures, handles, the lock. */
#ifndef FAKE_NVML_CALLS_H
#define FAKE_NVML_CALLS_H

#include "nvml_types.h"
#include "state.h"

/* A handle is the address of one of these. */
typedef struct {
  uint64_t magic;
  unsigned device;
  int mig; /* index of a MIG instance, or -1 */
} handle_t;

/* Each returns an NVML code; on success the state is locked until call_end. */
int call_begin(const char *symbol);
int call_device(const char *symbol, void *handle, device_t **device);
int call_any_device(const char *symbol, void *handle, device_t **device, int *mig);
int call_end(int return_code);
/* Log, and return what was injected; for calls that need no initialised driver. */
int call_unlocked(const char *symbol);
int call_stub(const char *symbol);

int device_is_lost(const device_t *device);
void *handle_of(unsigned device, int mig);
int may_set(void); /* whether this process has the rights to set clocks */
/* A call that sets something takes a while; the state is unlocked meanwhile and locked again. */
void call_takes(double duration_s);
int not_ready(device_t *device);
/* Failures for the harness and $FAKE_NVML_FAIL. */
int failure_add(const char *symbol, int return_code, unsigned call_count);
void calls_configure(void); /* read the environment, at nvmlInit */
unsigned driver_major(void);
const char *driver_version(void);

void calls_move(void); /* another state is mapped: hold that driver instead */
int calls_initialise(void);
int calls_shut_down(void);

/* Begin a call on a device; returns from the function if it fails. */
#define DEVICE_CALL(handle)                                   \
  device_t *device;                                           \
  int begun_ = call_device(__func__, handle, &device);        \
  if (begun_) return begun_
#define CALL()                                                \
  int begun_ = call_begin(__func__);                          \
  if (begun_) return begun_
#define NEED(condition) \
  if (!(condition)) return call_end(NVML_ERROR_INVALID_ARGUMENT)

#endif
