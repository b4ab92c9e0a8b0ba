/* The harness of fake_nvml.h: what runs, what time it is, what is true. */
#include "fake_nvml.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "board.h"
#include "calls.h"
#include "clocks.h"
#include "physics.h"

#define HARNESS __attribute__((visibility("default")))

/* Bounds: what is beyond them is a slip, and would take for ever or leave the range of time. */
#define LAST_PS (100 * 86400 * (int64_t)PS_PER_S) /* virtual time ends after 100 days */
#define LONGEST_RUN_PS (10 * 86400 * (int64_t)PS_PER_S)
#define MOST_LAUNCHES 1000000000000ull
#define MOST_GIGACYCLES 1e4
#define MOST_BYTES 1e16
#define MOST_J 1e9
#define MOST_RATIO 100.0
#define MOST_WAIT_S 1e4
#define MOST_MHZ 1e6
#define MOST_W 1e6

static int find_device(unsigned index, device_t **device) {
  int code = state_require();
  if (code) return code;
  if (index >= state->device_count) return NVML_ERROR_INVALID_ARGUMENT;
  state_lock();
  *device = &state->devices[index];
  if (board_sync(*device)) return NVML_SUCCESS;
  state_unlock();
  return NVML_ERROR_TIMEOUT;
}

static int done(int code) {
  state_unlock();
  return code;
}

#define ON_DEVICE(index)                       \
  device_t *device;                            \
  int code_ = find_device(index, &device);     \
  if (code_) return code_

HARNESS int fakenvml_abi(void) { return FAKENVML_ABI; }

HARNESS int fakenvml_create(const char *state_path, const char *profile, unsigned device_count,
                            int is_virtual_time) {
  int code = state_create(state_path, profile, device_count, is_virtual_time);
  if (!code) calls_move();
  return code;
}

HARNESS int fakenvml_attach(const char *state_path) {
  int code = state_attach(state_path);
  if (!code) calls_move();
  return code;
}

HARNESS const char *fakenvml_profile(unsigned device) {
  return state_require() || device >= state->device_count ? NULL : state_profile()->preset;
}

HARNESS int fakenvml_is_virtual_time(void) { return state_require() ? 0 : state->is_virtual; }

HARNESS int64_t fakenvml_now_ns(void) {
  if (state_require()) return -1;
  state_lock();
  int64_t now_ns = state_ns_of_ps(state_now_ps());
  state_unlock();
  return now_ns;
}

HARNESS int fakenvml_advance_ns(int64_t duration_ns) {
  int code = state_require();
  if (code) return code;
  if (!state->is_virtual) return NVML_ERROR_INVALID_STATE;
  if (duration_ns < 0) return NVML_ERROR_INVALID_ARGUMENT;
  state_lock();
  if (duration_ns > (LAST_PS - state->virtual_ps) / PS_PER_NS)
    return done(NVML_ERROR_INVALID_ARGUMENT);
  state->virtual_ps += duration_ns * PS_PER_NS;
  return done(NVML_SUCCESS);
}

/* ---- programs ----------------------------------------------------------------------------- */

static int is_within(double value, double most) { return value >= 0 && value <= most; }

static int is_kernel(const fakenvml_kernel_t *kernel) {
  return kernel && is_within(kernel->compute_cycle_count, MOST_GIGACYCLES) &&
         is_within(kernel->memory_bytes, MOST_BYTES) && is_within(kernel->core_j, MOST_J) &&
         is_within(kernel->memory_j, MOST_J) && is_within(kernel->set_point_ratio, MOST_RATIO) &&
         is_within(kernel->overlap_exponent_ratio, MOST_RATIO) && kernel->set_point_ratio > 0 &&
         kernel->overlap_exponent_ratio > 0 && is_within(kernel->wait_s, MOST_WAIT_S) &&
         (kernel->compute_cycle_count > 0 || kernel->memory_bytes > 0 || kernel->wait_s > 0);
}

HARNESS int fakenvml_add_kernel(unsigned index, const fakenvml_kernel_t *kernel, uint32_t *id) {
  if (!is_kernel(kernel) || !id) return NVML_ERROR_INVALID_ARGUMENT;
  ON_DEVICE(index);
  for (uint32_t i = 0; i < device->kernel_count; i++) {
    if (memcmp(&device->kernels[i], kernel, sizeof *kernel)) continue;
    *id = i;
    return done(NVML_SUCCESS);
  }
  if (device->kernel_count == MAX_KERNELS) return done(NVML_ERROR_INSUFFICIENT_RESOURCES);
  *id = device->kernel_count++;
  device->kernels[*id] = *kernel;
  return done(NVML_SUCCESS);
}

static int check_steps(const device_t *device, const fakenvml_step_t *steps, uint32_t step_count) {
  if (step_count > MAX_STEPS) return NVML_ERROR_INSUFFICIENT_RESOURCES;
  if (!steps) return NVML_ERROR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < step_count; i++) {
    if (steps[i].kernel >= device->kernel_count || !steps[i].launch_count)
      return NVML_ERROR_INVALID_ARGUMENT;
  }
  return NVML_SUCCESS;
}

HARNESS int fakenvml_run(unsigned index, const fakenvml_step_t *steps, uint32_t step_count) {
  ON_DEVICE(index);
  int is_others = device->step_count && device->runner_pid != getpid();
  if (is_others && process_lives(device->runner_pid, device->runner_started))
    return done(NVML_ERROR_IN_USE);
  if (!step_count) {
    board_stop(device);
    return done(NVML_SUCCESS);
  }
  int code = check_steps(device, steps, step_count);
  if (!code) board_run(device, steps, step_count, getpid());
  return done(code);
}

HARNESS int fakenvml_progress(unsigned index, fakenvml_progress_t *progress) {
  if (!progress) return NVML_ERROR_INVALID_ARGUMENT;
  ON_DEVICE(index);
  if (!device->step_count) return done(NVML_ERROR_INVALID_STATE);
  *progress = (fakenvml_progress_t){
      .launch_count = device->launch_count,
      .iteration_count = device->iteration_count,
      .launch_start_ns = state_ns_of_ps(device->launch_start_ps),
      .iteration_start_ns = state_ns_of_ps(device->iteration_start_ps),
      .launch_done_ratio = 1.0 - device->left_ratio,
      .sm_cycle_count = device->sm_cycles - device->program_cycles_start,
  };
  return done(NVML_SUCCESS);
}

static int run_until_launch(device_t *device, uint64_t launch_target) {
  if (!state->is_virtual || !device->step_count) return NVML_ERROR_INVALID_STATE;
  int64_t left_ps = LAST_PS - device->now_ps;
  int64_t until_ps = device->now_ps + (left_ps < LONGEST_RUN_PS ? left_ps : LONGEST_RUN_PS);
  board_advance(device, until_ps, launch_target);
  if (device->now_ps > state->virtual_ps) state->virtual_ps = device->now_ps;
  return device->launch_count < launch_target ? NVML_ERROR_TIMEOUT : NVML_SUCCESS;
}

HARNESS int fakenvml_run_launches(unsigned index, uint64_t launch_count) {
  if (launch_count > MOST_LAUNCHES) return NVML_ERROR_INVALID_ARGUMENT;
  ON_DEVICE(index);
  return done(run_until_launch(device, device->launch_count + launch_count));
}

HARNESS int fakenvml_run_iterations(unsigned index, uint64_t iteration_count) {
  ON_DEVICE(index);
  uint64_t per_pass = 0, done_in_pass = device->done_in_step;
  for (uint32_t i = 0; i < device->step_count; i++) {
    per_pass += device->steps[i].launch_count;
    if (i < device->at_step) done_in_pass += device->steps[i].launch_count;
  }
  if (per_pass && iteration_count > MOST_LAUNCHES / per_pass)
    return done(NVML_ERROR_INVALID_ARGUMENT);
  uint64_t passes_from = device->launch_count - done_in_pass;
  return done(run_until_launch(
      device, iteration_count ? passes_from + iteration_count * per_pass : device->launch_count));
}

HARNESS int fakenvml_blur(unsigned index, double time_ratio, double power_ratio) {
  if (!is_within(time_ratio, MOST_RATIO) || !is_within(power_ratio, MOST_RATIO) ||
      time_ratio <= 0 || power_ratio <= 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  ON_DEVICE(index);
  device->time_ratio = time_ratio;
  device->power_ratio = power_ratio;
  return done(NVML_SUCCESS);
}

static int steady_idle(const profile_t *p, double sm_mhz, double mem_mhz,
                       fakenvml_steady_t *steady) {
  unsigned memory = mem_mhz > 0 ? clocks_memory_state(p, (unsigned)mem_mhz) : 0;
  double wanted_mhz = sm_mhz > 0 ? sm_mhz : p->sm_clocks_mhz[0];
  *steady = (fakenvml_steady_t){
      .power_w = physics_idle_w(p, wanted_mhz, memory),
      .sm_clock_mhz = fmin(wanted_mhz, physics_ceiling_mhz(p, memory)),
  };
  return NVML_SUCCESS;
}

HARNESS int fakenvml_steady(unsigned index, uint32_t kernel, double sm_mhz, double mem_mhz,
                            double limit_w, fakenvml_steady_t *steady) {
  if (!steady || !is_within(sm_mhz, MOST_MHZ) || !is_within(mem_mhz, MOST_MHZ) ||
      !is_within(limit_w, MOST_W))
    return NVML_ERROR_INVALID_ARGUMENT;
  ON_DEVICE(index);
  const profile_t *p = state_profile();
  unsigned memory = p->memory_state_count - 1;
  if (mem_mhz > 0) memory = clocks_memory_state(p, (unsigned)mem_mhz);
  if (mem_mhz > 0 && p->memory_states[memory].clock_mhz != mem_mhz)
    return done(NVML_ERROR_FREQ_NOT_SUPPORTED);
  if (kernel == FAKENVML_IDLE) return done(steady_idle(p, sm_mhz, mem_mhz, steady));
  if (kernel >= device->kernel_count) return done(NVML_ERROR_INVALID_ARGUMENT);
  condition_t condition = physics_condition(p, sm_mhz, memory, !(mem_mhz > 0), limit_w);
  steady_t found = physics_steady(p, &device->kernels[kernel], &condition);
  *steady = (fakenvml_steady_t){
      .time_s = found.time_s,
      .power_w = found.power_w,
      .sm_clock_mhz = found.sm_clock_ghz * 1000.0,
      .is_power_capped = found.is_power_capped,
      .is_clock_not_held = sm_mhz > physics_ceiling_mhz(p, memory) + 7.5,
  };
  return done(NVML_SUCCESS);
}

/* ---- the oracle --------------------------------------------------------------------------- */

HARNESS double fakenvml_true_energy_j(unsigned index) {
  device_t *device;
  if (find_device(index, &device)) return NAN;
  double energy_j = device->energy_j;
  state_unlock();
  return energy_j;
}

HARNESS double fakenvml_true_power_w(unsigned index) {
  device_t *device;
  if (find_device(index, &device)) return NAN;
  double power_w = board_power_w(device);
  state_unlock();
  return power_w;
}

HARNESS double fakenvml_true_sm_clock_mhz(unsigned index) {
  device_t *device;
  if (find_device(index, &device)) return NAN;
  double clock_mhz = board_operation(device)->sm_ghz * 1000.0;
  state_unlock();
  return clock_mhz;
}

HARNESS int fakenvml_true_locks(unsigned index, fakenvml_locks_t *locks) {
  ON_DEVICE(index);
  if (!locks) return done(NVML_ERROR_INVALID_ARGUMENT);
  *locks = (fakenvml_locks_t){device->sm_lock.min_mhz, device->sm_lock.max_mhz,
                              device->memory_lock.min_mhz, device->memory_lock.max_mhz};
  return done(NVML_SUCCESS);
}

/* ---- knobs, failures, others -------------------------------------------------------------- */

HARNESS int fakenvml_set(unsigned index, const char *name, double value) {
  ON_DEVICE(index);
  double *knob = name ? knobs_find(&device->knobs, name) : NULL;
  if (!knob) return done(-1);
  if (!knobs_takes(name, value)) return done(NVML_ERROR_INVALID_ARGUMENT);
  if (knob == &device->knobs.scope) device->module_since_ps = device->now_ps;
  *knob = value;
  board_enter(device);
  if (!strncmp(name, "counter", 7)) counter_restart(device);
  else if (strstr(name, "period") || strstr(name, "window")) sensors_restart(device);
  return done(NVML_SUCCESS);
}

HARNESS int fakenvml_get(unsigned index, const char *name, double *value) {
  ON_DEVICE(index);
  double *knob = name && value ? knobs_find(&device->knobs, name) : NULL;
  if (!knob) return done(-1);
  *value = *knob;
  return done(NVML_SUCCESS);
}

HARNESS int fakenvml_fail(const char *symbol, int return_code, unsigned call_count) {
  int code = state_require();
  if (code) return code;
  if (!symbol) return NVML_ERROR_INVALID_ARGUMENT;
  state_lock();
  return done(failure_add(symbol, return_code, call_count));
}

HARNESS int fakenvml_foreign_lock(unsigned index, int64_t at_ns, unsigned min_mhz,
                                  unsigned max_mhz) {
  ON_DEVICE(index);
  if (at_ns < 0 || device->foreign_lock_count == MAX_FOREIGN_LOCKS || min_mhz > max_mhz)
    return done(NVML_ERROR_INVALID_ARGUMENT);
  lock_range_t range = {0};
  if (max_mhz) {
    range.min_mhz = clocks_round_sm(device, min_mhz);
    range.max_mhz = clocks_round_sm(device, max_mhz);
  }
  int64_t at_ps = state_ps_of_ns(at_ns);
  device->foreign_locks[device->foreign_lock_count++] =
      (foreign_lock_t){at_ps < device->now_ps ? device->now_ps : at_ps, range};
  board_enter(device);
  return done(NVML_SUCCESS);
}

HARNESS int fakenvml_reload_driver(void) {
  int code = state_require();
  if (code) return code;
  state_lock();
  for (unsigned i = 0; i < state->device_count; i++) {
    board_sync(&state->devices[i]);
    driver_unload(&state->devices[i]);
  }
  return done(NVML_SUCCESS);
}
