/* Power, energy and field values. */
#include <math.h>
#include <time.h>

#include "board.h"
#include "calls.h"
#include "clocks.h"

static unsigned milliwatts(double power_w) {
  return power_w > 0 ? (unsigned)lround(power_w * 1000) : 0;
}

/* 0: the GPU alone; 1: both; 2: the module alone (superchips). */
static int module_scope(const device_t *device) { return (int)device->knobs.scope; }

static unsigned usage_mw(const device_t *device) {
  const meter_t *meter =
      state_profile()->is_instant_usage ? &device->instant_meter : &device->average_meter;
  return milliwatts(meter->shown_w);
}

static unsigned long long counter_mj(const device_t *device) {
  return device->counter_j > 0 ? (unsigned long long)(device->counter_j * 1000.0) : 0;
}

NVML_API int nvmlDeviceGetPowerUsage(void *handle, unsigned *power_mw) {
  DEVICE_CALL(handle);
  NEED(power_mw);
  if (module_scope(device) == 2) return call_end(NVML_ERROR_NOT_SUPPORTED);
  *power_mw = usage_mw(device);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy_mj) {
  DEVICE_CALL(handle);
  NEED(energy_mj);
  if (device->knobs.has_counter <= 0) return call_end(NVML_ERROR_NOT_SUPPORTED);
  *energy_mj = counter_mj(device);
  return call_end(NVML_SUCCESS);
}

/* ---- limits ------------------------------------------------------------------------------- */

NVML_API int nvmlDeviceGetPowerManagementMode(void *handle, int *mode) {
  DEVICE_CALL(handle);
  NEED(mode);
  *mode = 1;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *limit_mw) {
  DEVICE_CALL(handle);
  NEED(limit_mw);
  *limit_mw = device->limit_mw;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *limit_mw) {
  DEVICE_CALL(handle);
  NEED(limit_mw);
  *limit_mw = clocks_enforced_limit_mw(device);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *limit_mw) {
  DEVICE_CALL(handle);
  NEED(limit_mw);
  *limit_mw = milliwatts(state_profile()->default_power_limit_w);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *min_mw,
                                                          unsigned *max_mw) {
  DEVICE_CALL(handle);
  NEED(min_mw && max_mw);
  *min_mw = milliwatts(state_profile()->least_power_limit_w);
  *max_mw = milliwatts(state_profile()->max_power_limit_w);
  return call_end(NVML_SUCCESS);
}

static int set_limit(device_t *device, unsigned limit_mw) {
  const profile_t *p = state_profile();
  if (!may_set()) return NVML_ERROR_NO_PERMISSION;
  if (not_ready(device)) return NVML_ERROR_NOT_READY;
  if (limit_mw < milliwatts(p->least_power_limit_w) || limit_mw > milliwatts(p->max_power_limit_w))
    return NVML_ERROR_INVALID_ARGUMENT;
  clocks_want_limit(device, limit_mw, device->now_ps);
  call_takes(device->knobs.set_call_s);
  return NVML_SUCCESS;
}

NVML_API int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned limit_mw) {
  DEVICE_CALL(handle);
  return call_end(set_limit(device, limit_mw));
}

NVML_API int nvmlDeviceSetPowerManagementLimit_v2(void *handle, nvml_power_value_t *value) {
  DEVICE_CALL(handle);
  NEED(value);
  if (value->version != 0x0200000C) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  if (value->scope != 0) return call_end(NVML_ERROR_NOT_SUPPORTED);
  return call_end(set_limit(device, value->limit_mw));
}

/* ---- field values ------------------------------------------------------------------------- */

static void put_u32(nvml_field_t *field, unsigned value) {
  field->value_type = VALUE_U32;
  field->value.u32 = value;
}

static void put_u64(nvml_field_t *field, unsigned long long value) {
  field->value_type = VALUE_U64;
  field->value.u64 = value;
}

static int put_power(nvml_field_t *field, const device_t *device, const meter_t *meter) {
  int scope = module_scope(device);
  if (field->scope == 0 && scope != 2) {
    put_u32(field, milliwatts(meter->shown_w));
    return NVML_SUCCESS;
  }
  if (field->scope == 1 && scope != 0) {
    put_u32(field, milliwatts(meter->shown_w + device->knobs.module_extra_w));
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

static int put_limit(nvml_field_t *field, const device_t *device) {
  const profile_t *p = state_profile();
  if (field->scope != 0) return NVML_ERROR_NOT_SUPPORTED;
  switch (field->id) {
    case 187: put_u32(field, milliwatts(p->least_power_limit_w)); break;
    case 188: put_u32(field, milliwatts(p->max_power_limit_w)); break;
    case 189: put_u32(field, milliwatts(p->default_power_limit_w)); break;
    case 190: put_u32(field, clocks_enforced_limit_mw(device)); break;
    default: put_u32(field, device->limit_mw); break;
  }
  return NVML_SUCCESS;
}

static int put_spent(nvml_field_t *field, const device_t *device, int what) {
  put_u64(field, (unsigned long long)(device->spent_ps[what] / PS_PER_NS));
  return NVML_SUCCESS;
}

static int put_events(nvml_field_t *field, const device_t *device) {
  switch (field->id) {
    case 74: return put_spent(field, device, SPENT_POWER_CAP);
    case 75: return put_spent(field, device, SPENT_SW_THERMAL);
    case 76: return put_spent(field, device, SPENT_SYNC_BOOST);
    case 78: return put_spent(field, device, SPENT_IDLE);
    case 269: return put_spent(field, device, SPENT_SW_THERMAL);
    case 270: return put_spent(field, device, SPENT_HW_THERMAL);
    case 271: return put_spent(field, device, SPENT_BRAKE);
    default: return NVML_ERROR_NOT_SUPPORTED;
  }
}

/* Matrix units wait where traffic sets the time; Hopper and later tell how much. */
static int put_mma_stall(nvml_field_t *field, device_t *device) {
  if (!state_profile()->has_gpm) return NVML_ERROR_NOT_SUPPORTED;
  double busy = device->step_count ? board_operation(device)->tensor_ratio : 1.0;
  put_u32(field, (unsigned)lround(100.0 * (1.0 - busy)));
  return NVML_SUCCESS;
}

static int put_memory_switch(nvml_field_t *field, const device_t *device) {
  static const unsigned switch_types[] = {2, 0, 1}; /* at run time, not at all, deferred */
  put_u32(field, field->id == 298 ? switch_types[(unsigned)device->knobs.memory_lock % 3] : 0);
  return NVML_SUCCESS;
}

/* Fields that a driver older than this does not know. */
static int is_unknown_field(unsigned id) {
  unsigned major = driver_major();
  return (id >= 185 && major < 530) || (id >= 269 && major < 570) || (id >= 289 && major < 590);
}

static int put_energy(nvml_field_t *field, const device_t *device) {
  if (device->knobs.has_counter <= 0) return NVML_ERROR_NOT_SUPPORTED;
  put_u64(field, counter_mj(device));
  return NVML_SUCCESS;
}

static int put_field(nvml_field_t *field, device_t *device) {
  if (is_unknown_field(field->id)) return NVML_ERROR_NOT_SUPPORTED;
  switch (field->id) {
    case 83: case 191: return put_energy(field, device);
    case 185:
      if (state_profile()->is_instant_usage) return NVML_ERROR_NOT_SUPPORTED;
      return put_power(field, device, &device->average_meter);
    case 186: return put_power(field, device, &device->instant_meter);
    case 187: case 188: case 189: case 190: case 192: return put_limit(field, device);
    case 251:
      if (device->knobs.has_power_smoothing <= 0) return NVML_ERROR_NOT_SUPPORTED;
      put_u32(field, 1);
      return NVML_SUCCESS;
    case 297: return put_mma_stall(field, device);
    case 298: case 299: return put_memory_switch(field, device);
    default: return put_events(field, device);
  }
}

NVML_API int nvmlDeviceGetFieldValues(void *handle, int count, nvml_field_t *fields) {
  DEVICE_CALL(handle);
  NEED(fields && count > 0);
  struct timespec now = {0};
  if (!state->is_virtual) clock_gettime(CLOCK_REALTIME, &now);
  long long now_us = state->is_virtual ? state_ns_of_ps(device->now_ps) / 1000
                                       : now.tv_sec * 1000000ll + now.tv_nsec / 1000;
  for (int i = 0; i < count; i++) {
    fields[i].timestamp_us = now_us;
    fields[i].latency_us = 0;
    fields[i].value.u64 = 0;
    fields[i].value_type = VALUE_U64;
    fields[i].return_code = put_field(&fields[i], device);
  }
  return call_end(NVML_SUCCESS);
}

typedef struct {
  unsigned long long reference_us, violation_ns;
} violation_t;

NVML_API int nvmlDeviceGetViolationStatus(void *handle, int policy, violation_t *violation) {
  static const int spent_by[] = {SPENT_POWER_CAP, SPENT_SW_THERMAL, SPENT_SYNC_BOOST};
  DEVICE_CALL(handle);
  NEED(violation && policy >= 0);
  if (policy > 2) return call_end(NVML_ERROR_NOT_SUPPORTED);
  violation->reference_us = (unsigned long long)(state_ns_of_ps(device->now_ps) / 1000);
  violation->violation_ns =
      (unsigned long long)(device->spent_ps[spent_by[policy]] / PS_PER_NS);
  return call_end(NVML_SUCCESS);
}
