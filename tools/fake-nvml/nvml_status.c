/* Temperature, memory, processes, modes: what monitors ask beside clocks and power. */
#include <math.h>
#include <string.h>

#include "board.h"
#include "calls.h"

#define FOREIGN_PID 4000000u /* above the usual highest process id */
#define PROCESS_BYTES (1ull << 30)
#define RESERVED_BYTES (600ull << 20)
#define UTIL_PERIOD_US 100000u

/* ---- temperature -------------------------------------------------------------------------- */

static int temperature_c(const device_t *device) { return (int)lround(device->temp_c); }

NVML_API int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *temp_c) {
  DEVICE_CALL(handle);
  NEED(temp_c && sensor == 0);
  *temp_c = (unsigned)temperature_c(device);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetTemperatureV(void *handle, nvml_temperature_t *temperature) {
  DEVICE_CALL(handle);
  NEED(temperature && temperature->sensor == 0);
  if (temperature->version != 0x100000c) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  temperature->temp_c = temperature_c(device);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetTemperatureThreshold(void *handle, int threshold, unsigned *temp_c) {
  static const int above_slowdown_c[] = {5, 0, 0, -5}; /* shutdown, slowdown, memory, GPU */
  DEVICE_CALL(handle);
  NEED(temp_c && threshold >= 0 && threshold < 8);
  if (threshold > 3) return call_end(NVML_ERROR_NOT_SUPPORTED);
  *temp_c = (unsigned)(lround(state_profile()->slowdown_temp_c) + above_slowdown_c[threshold]);
  return call_end(NVML_SUCCESS);
}

typedef struct {
  unsigned version;
  int margin_c;
} margin_t;

NVML_API int nvmlDeviceGetMarginTemperature(void *handle, margin_t *margin) {
  DEVICE_CALL(handle);
  NEED(margin);
  if (margin->version != 0x1000008) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  margin->margin_c = (int)lround(state_profile()->slowdown_temp_c) - temperature_c(device);
  return call_end(NVML_SUCCESS);
}

static int fan_speed(const char *symbol, void *handle, unsigned fan, unsigned *speed) {
  device_t *device;
  int code = call_device(symbol, handle, &device);
  if (code) return code;
  NEED(speed);
  if (!state_profile()->fan_count) return call_end(NVML_ERROR_NOT_SUPPORTED);
  NEED(fan < state_profile()->fan_count);
  double above_c = fmax(0.0, device->temp_c - 40.0);
  *speed = (unsigned)fmin(100.0, above_c > 0 ? 30.0 + above_c : 0.0);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetFanSpeed(void *h, unsigned *speed) {
  return fan_speed(__func__, h, 0, speed);
}
NVML_API int nvmlDeviceGetFanSpeed_v2(void *h, unsigned fan, unsigned *speed) {
  return fan_speed(__func__, h, fan, speed);
}

/* ---- numbers that stand still ------------------------------------------------------------- */

/* Functions that put one number, or say that the board has no such thing. */
#define NUMBER(symbol, type, is_supported, number)                        \
  NVML_API int symbol(void *handle, type *value) {                        \
    DEVICE_CALL(handle);                                                  \
    const profile_t *p = state_profile();                                 \
    (void)p;                                                              \
    NEED(value);                                                          \
    if (!(is_supported)) return call_end(NVML_ERROR_NOT_SUPPORTED);       \
    *value = (type)(number);                                              \
    return call_end(NVML_SUCCESS);                                        \
  }

NUMBER(nvmlDeviceGetArchitecture, unsigned, 1, p->arch)
NUMBER(nvmlDeviceGetBrand, unsigned, 1, p->brand)
NUMBER(nvmlDeviceGetNumGpuCores, unsigned, 1, p->core_count)
NUMBER(nvmlDeviceGetNumFans, unsigned, 1, p->fan_count)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, 1, p->memory_bus_bits)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, 1, device->index)
NUMBER(nvmlDeviceGetBoardId, unsigned, 1, (device->index + 1) << 8)
NUMBER(nvmlDeviceGetModuleId, unsigned, p->is_data_center, device->index)
NUMBER(nvmlDeviceGetMultiGpuBoard, unsigned, 1, 0)
NUMBER(nvmlDeviceGetBusType, unsigned, 1, 2)
NUMBER(nvmlDeviceGetPowerSource, unsigned, 1, 0)
NUMBER(nvmlDeviceGetComputeMode, int, 1, 0)
NUMBER(nvmlDeviceGetDisplayActive, int, 1, 0)
NUMBER(nvmlDeviceGetDisplayMode, int, 1, 0)
NUMBER(nvmlDeviceGetPersistenceMode, int, 1, device->is_persistent)
NUMBER(nvmlDeviceGetVirtualizationMode, int, 1, 0)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 1, p->has_gpm ? 5 : 4)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 1, p->has_gpm ? 5 : 4)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, 1, p->has_gpm ? 5 : 4)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 1, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 1, 16)
NUMBER(nvmlDeviceGetC2cModeInfoV, unsigned, 1, device->knobs.scope > 0)

NVML_API int nvmlDeviceSetPersistenceMode(void *handle, int mode) {
  DEVICE_CALL(handle);
  if (!may_set()) return call_end(NVML_ERROR_NO_PERMISSION);
  NEED(mode == 0 || mode == 1);
  device->is_persistent = mode;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  DEVICE_CALL(handle);
  NEED(major && minor);
  *major = (int)state_profile()->cc_major;
  *minor = (int)state_profile()->cc_minor;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetAPIRestriction(void *handle, int api, int *is_restricted) {
  DEVICE_CALL(handle);
  NEED(is_restricted && api >= 0 && api < 2);
  if (api) return call_end(NVML_ERROR_NOT_SUPPORTED);
  *is_restricted = 1;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetTotalEccErrors(void *handle, int error, int counter,
                                         unsigned long long *count) {
  DEVICE_CALL(handle);
  (void)error, (void)counter;
  NEED(count);
  if (!state_profile()->is_data_center) return call_end(NVML_ERROR_NOT_SUPPORTED);
  *count = 0;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetPcieThroughput(void *handle, int counter, unsigned *kilobytes_per_s) {
  DEVICE_CALL(handle);
  (void)counter;
  NEED(kilobytes_per_s);
  *kilobytes_per_s = 0;
  return call_end(NVML_SUCCESS);
}

/* ---- use ---------------------------------------------------------------------------------- */

typedef struct {
  unsigned gpu, memory;
} utilization_t;

NVML_API int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *utilization) {
  DEVICE_CALL(handle);
  NEED(utilization);
  if (device->knobs.mig_mode > 0) return call_end(NVML_ERROR_NOT_SUPPORTED);
  utilization->gpu = (unsigned)lround(100.0 * device->gpu_util_ratio);
  utilization->memory = (unsigned)lround(100.0 * device->dram_util_ratio);
  return call_end(NVML_SUCCESS);
}

static int engine_utilization(const char *symbol, void *handle, unsigned *used, unsigned *period) {
  device_t *device;
  int code = call_device(symbol, handle, &device);
  if (code) return code;
  NEED(used && period);
  *used = 0;
  *period = UTIL_PERIOD_US;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetEncoderUtilization(void *h, unsigned *used, unsigned *period) {
  return engine_utilization(__func__, h, used, period);
}
NVML_API int nvmlDeviceGetDecoderUtilization(void *h, unsigned *used, unsigned *period) {
  return engine_utilization(__func__, h, used, period);
}

static unsigned process_count(const device_t *device) {
  return (device->step_count > 0) + (unsigned)device->knobs.other_process_count;
}

static unsigned long long used_bytes(const device_t *device) {
  return PROCESS_BYTES * process_count(device);
}

NVML_API int nvmlDeviceGetMemoryInfo(void *handle, nvml_memory_t *memory) {
  DEVICE_CALL(handle);
  NEED(memory);
  memory->total_bytes = state_profile()->memory_bytes;
  memory->used_bytes = used_bytes(device) + RESERVED_BYTES;
  memory->free_bytes = memory->total_bytes - memory->used_bytes;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetMemoryInfo_v2(void *handle, nvml_memory_v2_t *memory) {
  DEVICE_CALL(handle);
  NEED(memory);
  if (memory->version != 0x2000028) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  memory->total_bytes = state_profile()->memory_bytes;
  memory->reserved_bytes = RESERVED_BYTES;
  memory->used_bytes = used_bytes(device);
  memory->free_bytes = memory->total_bytes - memory->reserved_bytes - memory->used_bytes;
  return call_end(NVML_SUCCESS);
}

static int list_processes(const device_t *device, unsigned *count, nvml_process_t *list) {
  unsigned needed = process_count(device), at = 0;
  int is_enough = !needed || (list && *count >= needed);
  *count = needed;
  if (!is_enough) return NVML_ERROR_INSUFFICIENT_SIZE;
  nvml_process_t process = {.used_bytes = PROCESS_BYTES,
                            .gpu_instance = UINT32_MAX,
                            .compute_instance = UINT32_MAX};
  if (device->step_count) {
    process.pid = (unsigned)device->runner_pid;
    list[at++] = process;
  }
  for (; at < needed; at++) {
    process.pid = FOREIGN_PID + at;
    list[at] = process;
  }
  return NVML_SUCCESS;
}

static int compute_processes(const char *symbol, void *handle, unsigned *count,
                             nvml_process_t *list) {
  device_t *device;
  int code = call_device(symbol, handle, &device);
  if (code) return code;
  NEED(count);
  clients_purge();
  return call_end(list_processes(device, count, list));
}

NVML_API int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *count,
                                                      nvml_process_t *list) {
  return compute_processes(__func__, h, count, list);
}
NVML_API int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count,
                                                      nvml_process_t *list) {
  return compute_processes(__func__, h, count, list);
}

static int no_processes(const char *symbol, void *handle, unsigned *count) {
  device_t *device;
  int code = call_device(symbol, handle, &device);
  if (code) return code;
  NEED(count);
  *count = 0;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, unsigned *count) {
  return no_processes(__func__, h, count);
}
NVML_API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *count) {
  return no_processes(__func__, h, count);
}
NVML_API int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *h, unsigned *count) {
  return no_processes(__func__, h, count);
}
NVML_API int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *h, unsigned *count) {
  return no_processes(__func__, h, count);
}
