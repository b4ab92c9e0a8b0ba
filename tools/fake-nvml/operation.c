/* Operations of kernels at settings; they follow from the state, so each process keeps its own. */
#include <math.h>
#include <string.h>

#include "board.h"
#include "clocks.h"
#include "nvml_types.h"
#include "physics.h"

#define TABLE_SIZE 32768u

typedef struct {
  uint64_t nonce;
  uint32_t device, kernel;
  setting_t setting;
  operation_t operation;
} entry_t;

static entry_t table[TABLE_SIZE];

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value;
  hash *= 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}

static uint64_t bits(double value) {
  uint64_t word;
  memcpy(&word, &value, sizeof word);
  return word;
}

static operation_t idle_operation(const profile_t *profile, const setting_t *setting) {
  double sm_mhz = fmin(setting->sm_rest_mhz, physics_ceiling_mhz(profile, setting->rest_memory));
  return (operation_t){
      .power_w = physics_idle_w(profile, sm_mhz, setting->rest_memory),
      .sm_ghz = sm_mhz / 1000.0,
      .sm_clock_mhz = clocks_listed_at(profile, sm_mhz),
      .mem_clock_mhz = profile->memory_states[setting->rest_memory].clock_mhz,
      .reasons = REASON_GPU_IDLE,
  };
}

/* A memory lock that costs time takes that much of the power above idle away, too. */
static void slow_down(const profile_t *profile, const setting_t *setting, operation_t *operation) {
  double idle_w = physics_idle_w(profile, setting->sm_rest_mhz, setting->rest_memory);
  operation->time_ps *= 1.0 + setting->slowdown_ratio;
  operation->power_w =
      idle_w + (operation->power_w - idle_w) / (1.0 + setting->slowdown_ratio);
}

static operation_t running_operation(const profile_t *profile, const fakenvml_kernel_t *kernel,
                                     const setting_t *setting) {
  condition_t condition = physics_condition(profile, setting->sm_top_mhz, setting->top_memory,
                                            (int)setting->is_auto, setting->limit_w);
  unsigned reasons = 0;
  if (setting->ceiling_mhz > 0 && setting->ceiling_mhz < condition.target_mhz) {
    condition.target_mhz = setting->ceiling_mhz;
    reasons = setting->ceiling_reasons;
  }
  steady_t steady = physics_steady(profile, kernel, &condition);
  if (steady.is_power_capped) {
    reasons |= setting->is_throttled ? REASON_SW_THERMAL : REASON_SW_POWER_CAP;
  }
  const memory_state_t *memory = &profile->memory_states[setting->top_memory];
  const memory_state_t *top = &profile->memory_states[profile->memory_state_count - 1];
  operation_t operation = {
      .time_ps = steady.time_s * PS_PER_S,
      .power_w = steady.power_w,
      .sm_ghz = steady.sm_clock_ghz,
      .sm_clock_mhz = clocks_listed_at(profile, steady.sm_clock_ghz * 1000.0),
      .mem_clock_mhz = memory->clock_mhz,
      .reasons = reasons,
      .busy_ratio = physics_is_launched(kernel) ? 1.0 : 0.0,
      .tensor_ratio = steady.compute_s / steady.time_s,
      .dram_ratio = steady.traffic_s / steady.time_s * memory->bandwidth_bytes_per_s /
                    top->bandwidth_bytes_per_s,
  };
  if (setting->slowdown_ratio > 0) slow_down(profile, setting, &operation);
  return operation;
}

operation_t *operation_of(const device_t *device, uint32_t kernel, const setting_t *setting) {
  uint64_t hash = mix(state->nonce, (uint64_t)device->index << 32 | kernel);
  hash = mix(hash, bits(setting->sm_top_mhz) ^ bits(setting->ceiling_mhz) >> 7);
  hash = mix(hash, bits(setting->limit_w) ^ setting->top_memory ^ setting->is_throttled << 8);
  entry_t *entry = &table[(hash ^ hash >> 32) % TABLE_SIZE];
  if (entry->nonce == state->nonce && entry->device == device->index && entry->kernel == kernel &&
      !memcmp(&entry->setting, setting, sizeof *setting))
    return &entry->operation;
  const profile_t *profile = state_profile();
  entry->nonce = state->nonce;
  entry->device = device->index;
  entry->kernel = kernel;
  memcpy(&entry->setting, setting, sizeof *setting);
  entry->operation = kernel == KERNEL_NONE
                         ? idle_operation(profile, setting)
                         : running_operation(profile, &device->kernels[kernel], setting);
  return &entry->operation;
}
