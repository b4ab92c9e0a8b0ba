/* Clocks: lists, readings, locks. */
#include "board.h"
#include "calls.h"
#include "clocks.h"
#include "physics.h"

/* ---- lists -------------------------------------------------------------------------------- */

/* The two-call protocol: too small a buffer tells how large it has to be. */
static int fits(unsigned *count, const unsigned *list, unsigned needed) {
  int is_enough = list && *count >= needed;
  *count = needed;
  return is_enough ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

NVML_API int nvmlDeviceGetSupportedMemoryClocks(void *handle, unsigned *count, unsigned *list) {
  DEVICE_CALL(handle);
  NEED(count);
  const profile_t *p = state_profile();
  unsigned needed = p->memory_state_count;
  int code = fits(count, list, needed);
  for (unsigned i = 0; !code && i < needed; i++)
    list[i] = p->memory_states[needed - 1 - i].clock_mhz;
  return call_end(code);
}

static const memory_state_t *find_memory(const profile_t *p, unsigned clock_mhz) {
  unsigned found = clocks_memory_state(p, clock_mhz);
  return p->memory_states[found].clock_mhz == clock_mhz ? &p->memory_states[found] : NULL;
}

NVML_API int nvmlDeviceGetSupportedGraphicsClocks(void *handle, unsigned mem_mhz, unsigned *count,
                                                  unsigned *list) {
  DEVICE_CALL(handle);
  NEED(count);
  const profile_t *p = state_profile();
  const memory_state_t *memory = find_memory(p, mem_mhz);
  if (!memory) return call_end(NVML_ERROR_NOT_FOUND);
  unsigned needed = p->sm_clock_count;
  while (memory->sm_ceiling_mhz > 0 && p->sm_clocks_mhz[needed - 1] > memory->sm_ceiling_mhz)
    needed--;
  int code = fits(count, list, needed);
  for (unsigned i = 0; !code && i < needed; i++) list[i] = p->sm_clocks_mhz[needed - 1 - i];
  return call_end(code);
}

/* ---- readings ----------------------------------------------------------------------------- */

static unsigned top_sm_mhz(void) {
  const profile_t *p = state_profile();
  return p->sm_clocks_mhz[p->sm_clock_count - 1];
}

static unsigned top_memory_mhz(void) {
  const profile_t *p = state_profile();
  return p->memory_states[p->memory_state_count - 1].clock_mhz;
}

/* The video engine follows the SM at some distance. */
static unsigned video_mhz(unsigned sm_mhz) { return sm_mhz * 9 / 10; }

static unsigned clock_now(device_t *device, int type) {
  const operation_t *operation = board_operation(device);
  if (type == CLOCK_MEMORY) return operation->mem_clock_mhz;
  return type == CLOCK_VIDEO ? video_mhz(operation->sm_clock_mhz) : operation->sm_clock_mhz;
}

static unsigned clock_max(int type) {
  if (type == CLOCK_MEMORY) return top_memory_mhz();
  return type == CLOCK_VIDEO ? video_mhz(top_sm_mhz()) : top_sm_mhz();
}

NVML_API int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *clock_mhz) {
  DEVICE_CALL(handle);
  NEED(clock_mhz && type >= 0 && type < CLOCK_TYPE_COUNT);
  *clock_mhz = clock_now(device, type);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetMaxClockInfo(void *handle, int type, unsigned *clock_mhz) {
  DEVICE_CALL(handle);
  NEED(clock_mhz && type >= 0 && type < CLOCK_TYPE_COUNT);
  *clock_mhz = clock_max(type);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetMaxCustomerBoostClock(void *handle, int type, unsigned *clock_mhz) {
  DEVICE_CALL(handle);
  NEED(clock_mhz && type >= 0 && type < CLOCK_TYPE_COUNT);
  *clock_mhz = clock_max(type);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetClock(void *handle, int type, int id, unsigned *clock_mhz) {
  DEVICE_CALL(handle);
  NEED(clock_mhz && type >= 0 && type < CLOCK_TYPE_COUNT && id >= 0 && id < 4);
  if (id == 1 || id == 2) return call_end(NVML_ERROR_NOT_SUPPORTED); /* application clocks */
  *clock_mhz = id == 0 ? clock_now(device, type) : clock_max(type);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetMinMaxClockOfPState(void *handle, int type, int pstate,
                                              unsigned *min_mhz, unsigned *max_mhz) {
  DEVICE_CALL(handle);
  NEED(min_mhz && max_mhz && type >= 0 && type < CLOCK_TYPE_COUNT);
  const profile_t *p = state_profile();
  if (pstate != 0 && (p->is_data_center || pstate != 8)) return call_end(NVML_ERROR_NOT_SUPPORTED);
  unsigned state_index = pstate == 0 ? p->memory_state_count - 1 : 0;
  double ceiling_mhz = p->memory_states[state_index].sm_ceiling_mhz;
  if (type == CLOCK_MEMORY) {
    *min_mhz = *max_mhz = p->memory_states[state_index].clock_mhz;
  } else {
    *min_mhz = p->sm_clocks_mhz[0];
    *max_mhz = ceiling_mhz > 0 ? (unsigned)ceiling_mhz : top_sm_mhz();
  }
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetPerformanceState(void *handle, int *pstate) {
  DEVICE_CALL(handle);
  NEED(pstate);
  *pstate = device->step_count || state_profile()->is_data_center ? 0 : 8;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetPowerState(void *handle, int *pstate) {
  DEVICE_CALL(handle);
  NEED(pstate);
  *pstate = device->step_count || state_profile()->is_data_center ? 0 : 8;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetSupportedPerformanceStates(void *handle, int *pstates, unsigned size) {
  DEVICE_CALL(handle);
  unsigned count = size / (unsigned)sizeof *pstates;
  NEED(pstates);
  if (count < 2) return call_end(NVML_ERROR_INSUFFICIENT_SIZE);
  for (unsigned i = 0; i < count; i++) pstates[i] = 32;
  pstates[0] = 0;
  if (!state_profile()->is_data_center) pstates[1] = 8;
  return call_end(NVML_SUCCESS);
}

static int event_reasons(const char *symbol, void *handle, unsigned long long *reasons) {
  device_t *device;
  int code = call_device(symbol, handle, &device);
  if (code) return code;
  NEED(reasons);
  *reasons = board_is_stalled(device) ? 0 : board_operation(device)->reasons;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *reasons) {
  return event_reasons(__func__, h, reasons);
}

NVML_API int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *reasons) {
  return event_reasons(__func__, h, reasons);
}

static int supported_reasons(const char *symbol, void *handle, unsigned long long *reasons) {
  device_t *device;
  int code = call_device(symbol, handle, &device);
  if (code) return code;
  NEED(reasons);
  *reasons = 0x1ff;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetSupportedClocksEventReasons(void *h, unsigned long long *reasons) {
  return supported_reasons(__func__, h, reasons);
}

NVML_API int nvmlDeviceGetSupportedClocksThrottleReasons(void *h, unsigned long long *reasons) {
  return supported_reasons(__func__, h, reasons);
}

/* ---- locks -------------------------------------------------------------------------------- */

static int may_change(device_t *device) {
  if (!may_set()) return NVML_ERROR_NO_PERMISSION;
  return not_ready(device) ? NVML_ERROR_NOT_READY : NVML_SUCCESS;
}

static int is_listed(unsigned clock_mhz, unsigned rounded_mhz) { return clock_mhz == rounded_mhz; }

static int is_symbol(unsigned clock_mhz) {
  return clock_mhz == CLOCK_LIMIT_TDP || clock_mhz == CLOCK_LIMIT_UNLIMITED;
}

/* Symbols come in pairs: (unlimited, unlimited) is no lock, TDP stands for the base clock. */
static int symbolic_range(unsigned min_mhz, unsigned max_mhz, lock_range_t *range) {
  const profile_t *p = state_profile();
  if (!is_symbol(min_mhz) || !is_symbol(max_mhz)) return NVML_ERROR_INVALID_ARGUMENT;
  *range = (lock_range_t){0};
  if (min_mhz == CLOCK_LIMIT_UNLIMITED && max_mhz == CLOCK_LIMIT_UNLIMITED) return NVML_SUCCESS;
  range->min_mhz = min_mhz == CLOCK_LIMIT_TDP ? p->base_clock_mhz : p->sm_clocks_mhz[0];
  range->max_mhz = max_mhz == CLOCK_LIMIT_TDP ? p->base_clock_mhz : top_sm_mhz();
  return NVML_SUCCESS;
}

/* What the two clocks that can be locked differ in. */
typedef struct {
  unsigned (*round)(const device_t *device, unsigned clock_mhz);
  void (*want)(device_t *device, lock_range_t range, int64_t asked_ps);
} lockable_t;

static const lockable_t sm_clock = {clocks_round_sm, clocks_want_sm};
static const lockable_t memory_clock = {clocks_round_memory, clocks_want_memory};

static int listed_range(const device_t *device, const lockable_t *clock, unsigned min_mhz,
                        unsigned max_mhz, lock_range_t *range) {
  if (!max_mhz || min_mhz > max_mhz) return NVML_ERROR_INVALID_ARGUMENT;
  *range = (lock_range_t){clock->round(device, min_mhz), clock->round(device, max_mhz)};
  int is_exact = is_listed(min_mhz, range->min_mhz) && is_listed(max_mhz, range->max_mhz);
  return device->knobs.is_strict > 0 && !is_exact ? NVML_ERROR_FREQ_NOT_SUPPORTED : NVML_SUCCESS;
}

static int lock(device_t *device, const lockable_t *clock, lock_range_t range) {
  clock->want(device, range, device->now_ps);
  call_takes(device->knobs.set_call_s);
  return NVML_SUCCESS;
}

NVML_API int nvmlDeviceSetGpuLockedClocks(void *handle, unsigned min_mhz, unsigned max_mhz) {
  lock_range_t range;
  DEVICE_CALL(handle);
  int code = may_change(device);
  if (!code)
    code = is_symbol(min_mhz) || is_symbol(max_mhz)
               ? symbolic_range(min_mhz, max_mhz, &range)
               : listed_range(device, &sm_clock, min_mhz, max_mhz, &range);
  if (!code) code = lock(device, &sm_clock, range);
  return call_end(code);
}

NVML_API int nvmlDeviceResetGpuLockedClocks(void *handle) {
  DEVICE_CALL(handle);
  int code = may_change(device);
  if (!code) code = lock(device, &sm_clock, (lock_range_t){0});
  return call_end(code);
}

static int may_change_memory(device_t *device) {
  int code = may_change(device);
  return !code && (int)device->knobs.memory_lock == 1 ? NVML_ERROR_NOT_SUPPORTED : code;
}

NVML_API int nvmlDeviceSetMemoryLockedClocks(void *handle, unsigned min_mhz, unsigned max_mhz) {
  lock_range_t range;
  DEVICE_CALL(handle);
  int code = may_change_memory(device);
  if (!code) code = listed_range(device, &memory_clock, min_mhz, max_mhz, &range);
  if (!code) code = lock(device, &memory_clock, range);
  return call_end(code);
}

NVML_API int nvmlDeviceResetMemoryLockedClocks(void *handle) {
  DEVICE_CALL(handle);
  int code = may_change_memory(device);
  if (!code) code = lock(device, &memory_clock, (lock_range_t){0});
  return call_end(code);
}

/* Application clocks are deprecated; their arguments come memory first. */
NVML_API int nvmlDeviceSetApplicationsClocks(void *handle, unsigned mem_mhz, unsigned sm_mhz) {
  DEVICE_CALL(handle);
  (void)sm_mhz;
  if (!may_set()) return call_end(NVML_ERROR_NO_PERMISSION);
  NEED(find_memory(state_profile(), mem_mhz));
  return call_end(NVML_ERROR_NOT_SUPPORTED);
}

NVML_API int nvmlDeviceGetClockOffsets(void *handle, nvml_clock_offset_t *offset) {
  DEVICE_CALL(handle);
  NEED(offset);
  if (offset->version != 0x1000018) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  if (state_profile()->is_data_center) return call_end(NVML_ERROR_NOT_SUPPORTED);
  offset->offset_mhz = 0;
  offset->least_offset_mhz = -1000;
  offset->most_offset_mhz = 1000;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceSetClockOffsets(void *handle, nvml_clock_offset_t *offset) {
  DEVICE_CALL(handle);
  NEED(offset);
  if (offset->version != 0x1000018) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  return call_end(may_set() ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_NO_PERMISSION);
}
