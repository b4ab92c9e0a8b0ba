/* Time passes on one board.
 *
 * Between two events (a change takes effect, a sensor looks, a launch ends) power follows one law,
 * joulewise.simulator.thermal's: with T_eq the temperature to which the load leads, leakage makes
 * power deviate by g (T - T_eq), and T approaches T_eq with tau / (1 - R g). All integrals are
 * exact, so that it does not matter how time is cut up.
 */
#include "board.h"

#include <math.h>
#include <string.h>

#include "clocks.h"
#include "nvml_types.h"
#include "physics.h"

#define S_PER_PS 1e-12
#define SNAP_C 1.0 /* nearer than this to the slowdown temperature, heat lowers the clock */
#define OTHER_TIME_RATIO 1.25 /* another process takes turns, and draws power of its own */
#define OTHER_POWER_W 25.0
#define CHECK_CLIENTS_NS 100000000ll
#define MOST_STEPS 100000000u /* of one call: some seconds */
#define LONGEST_LAUNCH_PS 1e18

/* Everything that decides how fast what adds up. */
typedef struct {
  double equilibrium_w, equilibrium_c, power_ratio, extra_w, leak_w_per_c, tau_s;
} law_t;

static law_t law_of(const device_t *device, double equilibrium_w) {
  const profile_t *p = state_profile();
  double loop = 1.0 - p->resistance_c_per_w * p->leakage_w_per_c;
  return (law_t){
      .equilibrium_w = equilibrium_w,
      .equilibrium_c = device->knobs.ambient_c + p->resistance_c_per_w * equilibrium_w,
      .power_ratio = device->power_ratio,
      .extra_w = device->knobs.other_process_count > 0 ? OTHER_POWER_W : 0.0,
      .leak_w_per_c = p->leakage_w_per_c,
      .tau_s = p->time_constant_s / loop,
  };
}

/* `decay` is 1 - exp(-t/tau). */
static void warm(device_t *device, const law_t *law, double duration_s, double decay) {
  double excess_c = device->temp_c - law->equilibrium_c;
  double drift_j = law->leak_w_per_c * excess_c * law->tau_s * decay;
  device->energy_j += (law->equilibrium_w * duration_s + drift_j) * law->power_ratio +
                      law->extra_w * duration_s;
  device->temp_c -= excess_c * decay;
}

static double decay_over(const law_t *law, double duration_s) {
  return -expm1(-duration_s / law->tau_s);
}

static void spend(device_t *device, unsigned reasons, int64_t duration_ps) {
  if (!reasons) return;
  if (reasons & REASON_SW_POWER_CAP) device->spent_ps[SPENT_POWER_CAP] += duration_ps;
  if (reasons & REASON_SYNC_BOOST) device->spent_ps[SPENT_SYNC_BOOST] += duration_ps;
  if (reasons & REASON_SW_THERMAL) device->spent_ps[SPENT_SW_THERMAL] += duration_ps;
  if (reasons & REASON_HW_THERMAL) device->spent_ps[SPENT_HW_THERMAL] += duration_ps;
  if (reasons & REASON_HW_POWER_BRAKE) device->spent_ps[SPENT_BRAKE] += duration_ps;
  if (reasons & REASON_GPU_IDLE) device->spent_ps[SPENT_IDLE] += duration_ps;
}

int board_is_stalled(const device_t *device) { return device->now_ps < device->stalled_until_ps; }

/* ---- what runs ---------------------------------------------------------------------------- */

static int is_hot(const device_t *device, const operation_t *operation) {
  const profile_t *p = state_profile();
  double equilibrium_c = device->knobs.ambient_c + p->resistance_c_per_w * operation->power_w;
  return equilibrium_c > p->slowdown_temp_c && device->temp_c >= p->slowdown_temp_c - SNAP_C;
}

/* The kernel with its power held down by heat; no regulator goes below the least power limit. */
static operation_t *throttled_operation(const device_t *device, uint32_t kernel) {
  const profile_t *p = state_profile();
  double holds_w = (p->slowdown_temp_c - device->knobs.ambient_c) / p->resistance_c_per_w;
  setting_t setting = device->setting;
  setting.limit_w = fmin(fmax(holds_w, p->least_power_limit_w), setting.limit_w);
  setting.is_throttled = 1;
  return operation_of(device, kernel, &setting);
}

static operation_t *operation_now(const device_t *device) {
  if (!device->step_count) return operation_of(device, KERNEL_NONE, &device->setting);
  uint32_t kernel = device->steps[device->at_step].kernel;
  operation_t *cool = operation_of(device, kernel, &device->setting);
  return is_hot(device, cool) ? throttled_operation(device, kernel) : cool;
}

const operation_t *board_operation(device_t *device) { return operation_now(device); }

static double equilibrium_w(const device_t *device, const operation_t *operation) {
  return board_is_stalled(device) ? device->knobs.stall_power_w : operation->power_w;
}

double board_power_w(device_t *device) {
  law_t law = law_of(device, equilibrium_w(device, operation_now(device)));
  double leak_w = law.leak_w_per_c * (device->temp_c - law.equilibrium_c);
  return (law.equilibrium_w + leak_w) * law.power_ratio + law.extra_w;
}

/* ---- time passes -------------------------------------------------------------------------- */

/* Nothing runs, or the GPU waits for its clocks. */
static void rest_until(device_t *device, int64_t stop_ps) {
  int64_t duration_ps = stop_ps - device->now_ps;
  double duration_s = (double)duration_ps * S_PER_PS;
  operation_t *operation = operation_now(device);
  int stalled = board_is_stalled(device);
  law_t law = law_of(device, equilibrium_w(device, operation));
  warm(device, &law, duration_s, decay_over(&law, duration_s));
  if (!stalled) device->sm_cycles += operation->sm_ghz * 1e9 * duration_s;
  spend(device, stalled ? 0 : operation->reasons, duration_ps);
  device->now_ps = stop_ps;
}

static void work(device_t *device, operation_t *operation, int64_t duration_ps, int is_usual) {
  double duration_s = (double)duration_ps * S_PER_PS, decay;
  law_t law = law_of(device, operation->power_w);
  if (!is_usual) {
    decay = decay_over(&law, duration_s);
  } else {
    if (operation->decay_ps != duration_ps) {
      operation->decay_ps = duration_ps;
      operation->decay = decay_over(&law, duration_s);
    }
    decay = operation->decay;
  }
  warm(device, &law, duration_s, decay);
  double cycles = operation->sm_ghz * 1e9 * duration_s;
  device->sm_cycles += cycles;
  device->active_cycles += cycles * operation->busy_ratio;
  device->tensor_cycles += cycles * operation->tensor_ratio;
  device->busy_s += duration_s * operation->busy_ratio;
  device->dram_s += duration_s * operation->dram_ratio;
  spend(device, operation->reasons, duration_ps);
  device->now_ps += duration_ps;
}

static void end_launches(device_t *device, uint64_t count, double time_ps) {
  const fakenvml_step_t *step = &device->steps[device->at_step];
  device->launch_count += count;
  device->left_ratio = 1.0;
  device->launch_start_ps = device->now_ps;
  uint64_t done = device->done_in_step + count;
  if (done < step->launch_count) {
    device->done_in_step = (uint32_t)done;
    return;
  }
  /* More than a whole step at once happens only where a program is one step. */
  uint64_t pass_count = done / step->launch_count;
  device->done_in_step = (uint32_t)(done % step->launch_count);
  if (++device->at_step < device->step_count) return;
  device->at_step = 0;
  device->iteration_count += pass_count;
  device->iteration_start_ps = device->now_ps - llround(device->done_in_step * time_ps);
}

/* How many equal launches fit in; 0: the next one does not end before `stop_ps`. */
static uint64_t launches_until(const device_t *device, int64_t stop_ps, double time_ps,
                               uint64_t launch_target) {
  const fakenvml_step_t *step = &device->steps[device->at_step];
  double fitting = ((double)(stop_ps - device->now_ps) + 0.5) / time_ps;
  uint64_t most = device->step_count == 1 ? UINT64_MAX : step->launch_count - device->done_in_step;
  if (launch_target - device->launch_count < most) most = launch_target - device->launch_count;
  return fitting < (double)most ? (uint64_t)fitting : most;
}

static void work_until(device_t *device, int64_t stop_ps, uint64_t launch_target,
                       unsigned *left_steps) {
  double ratio = device->time_ratio;
  if (device->knobs.other_process_count > 0) ratio *= OTHER_TIME_RATIO;
  while (device->now_ps < stop_ps && device->launch_count < launch_target && *left_steps) {
    --*left_steps;
    operation_t *operation = operation_now(device);
    double time_ps = fmin(fmax(operation->time_ps * ratio, 1.0), LONGEST_LAUNCH_PS);
    if (device->left_ratio == 1.0) {
      uint64_t count = launches_until(device, stop_ps, time_ps, launch_target);
      int64_t duration_ps = llround((double)count * time_ps);
      if (count && duration_ps <= stop_ps - device->now_ps) {
        work(device, operation, duration_ps, count == 1);
        end_launches(device, count, time_ps);
        continue;
      }
    }
    int64_t left_ps = llround(device->left_ratio * time_ps);
    if (left_ps <= stop_ps - device->now_ps) {
      work(device, operation, left_ps, 0);
      end_launches(device, 1, time_ps);
      continue;
    }
    int64_t duration_ps = stop_ps - device->now_ps;
    work(device, operation, duration_ps, 0);
    device->left_ratio -= (double)duration_ps / time_ps;
    if (device->left_ratio <= 0) device->left_ratio = 1e-12;
  }
}

/* A long rest needs no look at every tick: what the sensors show follows from its end. */
static void rest_long(device_t *device, int64_t stop_ps) {
  const int64_t long_ps = 120 * (int64_t)PS_PER_S, tail_ps = 30 * (int64_t)PS_PER_S;
  if (device->step_count || board_is_stalled(device)) return;
  if (stop_ps > device->next_event_ps) stop_ps = device->next_event_ps;
  if (stop_ps - device->now_ps < long_ps) return;
  int64_t ticks = (stop_ps - tail_ps - device->next_tick_ps) / device->counter_period_ps;
  int64_t until_ps = device->next_tick_ps + ticks * device->counter_period_ps;
  if (until_ps <= device->now_ps) return;
  rest_until(device, until_ps);
  sensors_restart(device);
}

int board_advance(device_t *device, int64_t until_ps, uint64_t launch_target) {
  unsigned left_steps = MOST_STEPS;
  if (device->next_event_ps <= device->now_ps) clocks_take_effect(device);
  while (device->now_ps < until_ps && device->launch_count < launch_target) {
    if (!left_steps) return 0;
    left_steps--;
    rest_long(device, until_ps);
    int64_t stop_ps = until_ps;
    if (device->next_sensor_ps < stop_ps) stop_ps = device->next_sensor_ps;
    if (device->next_event_ps < stop_ps) stop_ps = device->next_event_ps;
    if (device->step_count && !board_is_stalled(device))
      work_until(device, stop_ps, launch_target, &left_steps);
    else if (stop_ps > device->now_ps) rest_until(device, stop_ps);
    if (device->now_ps >= device->next_sensor_ps) sensors_read(device);
    if (device->now_ps >= device->next_event_ps) clocks_take_effect(device);
  }
  return 1;
}

int board_sync(device_t *device) {
  int64_t now_ps = state_now_ps();
  int64_t machine_ns = monotonic_ns();
  if (machine_ns - state->checked_clients_ns > CHECK_CLIENTS_NS) {
    state->checked_clients_ns = machine_ns;
    clients_purge();
  }
  return board_advance(device, now_ps, UINT64_MAX);
}

/* ---- programs ----------------------------------------------------------------------------- */

void board_run(device_t *device, const fakenvml_step_t *steps, uint32_t step_count, pid_t pid) {
  memcpy(device->steps, steps, step_count * sizeof *steps);
  int64_t rest_ps = device->now_ps - device->idle_since_ps, wake_ps = ps_of_s(device->knobs.wake_s);
  if (!device->step_count)
    device->woken_ps = device->now_ps - (rest_ps < wake_ps ? wake_ps - rest_ps : 0);
  device->runner_pid = pid;
  device->runner_started = process_started(pid);
  device->step_count = step_count;
  device->at_step = device->done_in_step = 0;
  device->left_ratio = 1.0;
  device->launch_count = device->iteration_count = 0;
  device->launch_start_ps = device->iteration_start_ps = device->now_ps;
  device->program_cycles_start = device->sm_cycles;
  board_enter(device);
}

void board_enter(device_t *device) { clocks_enter(device, state_profile()); }

void board_stop(device_t *device) {
  if (device->step_count) device->idle_since_ps = device->now_ps;
  device->step_count = 0;
  device->runner_pid = 0;
  device->launch_count = device->iteration_count = 0;
}

void board_forget(device_t *device) {
  device->counter_j = 0.0;
  device->ticked_at_j = device->sampled_at_j = device->energy_j;
  memset(device->spent_ps, 0, sizeof device->spent_ps);
}

void board_begin(device_t *device, const profile_t *p) {
  device->sm_change.due_ps = device->memory_change.due_ps = device->limit_due_ps = NEVER_PS;
  device->limit_mw = device->limit_in_force_mw = (unsigned)lround(p->default_power_limit_w * 1000);
  device->time_ratio = device->power_ratio = device->left_ratio = 1.0;
  device->is_persistent = 1;
  device->idle_since_ps = -NEVER_PS / 2;
  clocks_enter(device, p);
  double idle_w = physics_idle_w(p, device->setting.sm_rest_mhz, device->setting.rest_memory);
  device->temp_c = device->knobs.ambient_c + p->resistance_c_per_w * idle_w;
  sensors_begin(device, idle_w);
}
