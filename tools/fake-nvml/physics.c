#include "physics.h"

#include <math.h>

#define KNEE_WIDTH_GHZ 0.03
#define REGULATOR_STEP_COUNT 60
#define REGULATOR_TOLERANCE_GHZ 1e-12

double physics_ceiling_mhz(const profile_t *profile, unsigned memory_state) {
  double ceiling_mhz = profile->memory_states[memory_state].sm_ceiling_mhz;
  return ceiling_mhz > 0 ? fmin(profile->sm_clock_max_mhz, ceiling_mhz) : profile->sm_clock_max_mhz;
}

condition_t physics_condition(const profile_t *profile, double sm_mhz, unsigned memory_state,
                              int is_auto, double limit_w) {
  double target_mhz = physics_ceiling_mhz(profile, memory_state);
  double set_point_w = is_auto ? profile->auto_set_point_w : profile->locked_set_point_w;
  return (condition_t){
      .target_mhz = sm_mhz > 0 ? fmin(target_mhz, sm_mhz) : target_mhz,
      .set_point_w = limit_w > 0 ? fmin(set_point_w, limit_w) : set_point_w,
      .memory_state = memory_state,
      .is_auto = is_auto,
  };
}

/* A hinge at zero, rounded over the width of the knee, and its slope. */
static double softplus(double x, double *slope) {
  double root = sqrt(x * x + KNEE_WIDTH_GHZ * KNEE_WIDTH_GHZ);
  *slope = 0.5 * (1.0 + x / root);
  return 0.5 * (x + root);
}

double physics_voltage(const profile_t *p, double clock_ghz, int is_auto, double *slope) {
  double above_slope, extra_slope;
  double above = softplus(clock_ghz - p->voltage_knee_mhz / 1000.0, &above_slope);
  double extra = softplus(clock_ghz - p->auto_voltage_knee_mhz / 1000.0, &extra_slope);
  double linear = p->voltage_slope_ratio_per_ghz, curve = p->voltage_curve_ratio_per_ghz2;
  double ramp = is_auto ? p->auto_voltage_slope_ratio_per_ghz : 0.0;
  *slope = (linear + 2.0 * curve * above) * above_slope + ramp * extra_slope;
  return 1.0 + (linear + curve * above) * above + ramp * extra;
}

/* Time of both together, and by which share of a change of the first it changes. */
static double overlapped(double one_s, double other_s, double exponent, double *share) {
  double longer = fmax(one_s, other_s), shorter = fmin(one_s, other_s);
  double minor = longer > 0 ? pow(shorter / longer, exponent) : 0.0;
  *share = (one_s >= other_s ? 1.0 : minor) / (1.0 + minor);
  return longer * pow(1.0 + minor, 1.0 / exponent);
}

/* Nobody launches a gap between kernels, where nothing is computed or moved. */
int physics_is_launched(const fakenvml_kernel_t *kernel) {
  return kernel->compute_cycle_count > 0 || kernel->memory_bytes > 0;
}

/* Time, power and its slope (W per GHz) at one clock. */
static void evaluate(const profile_t *profile, const fakenvml_kernel_t *kernel,
                     const condition_t *condition, double clock_ghz, steady_t *steady,
                     double *power_slope) {
  const memory_state_t *memory = &profile->memory_states[condition->memory_state];
  double exponent = kernel->overlap_exponent_ratio;
  double compute_s = kernel->compute_cycle_count / clock_ghz;
  double traffic_s = kernel->memory_bytes / memory->bandwidth_bytes_per_s;
  double computing, working;
  double work_s = overlapped(compute_s, traffic_s, exponent, &computing);
  double time_s = overlapped(work_s, kernel->wait_s, exponent, &working);
  double time_slope = -time_s * computing * working / clock_ghz;
  double whole_s = time_s + (physics_is_launched(kernel) ? profile->launch_s : 0.0);
  double voltage_slope;
  double voltage = physics_voltage(profile, clock_ghz, condition->is_auto, &voltage_slope);
  double square = voltage * voltage, square_slope = 2.0 * voltage * voltage_slope;
  double tree = profile->clock_tree_w_per_ghz;
  double work_w = (kernel->core_j * square + kernel->memory_j * memory->energy_ratio) / whole_s;
  steady->time_s = whole_s;
  steady->compute_s = compute_s;
  steady->traffic_s = traffic_s;
  steady->sm_clock_ghz = clock_ghz;
  steady->power_w =
      profile->base_w + memory->standby_w + tree * square * clock_ghz + work_w;
  *power_slope = tree * (square_slope * clock_ghz + square) +
                 (kernel->core_j * square_slope - work_w * time_slope) / whole_s;
}

/* Power rises with the clock, so a safeguarded Newton iteration from above finds the clock that
 * meets the set-point; below the lowest listed clock the regulator cannot go. */
steady_t physics_steady(const profile_t *profile, const fakenvml_kernel_t *kernel,
                        const condition_t *condition) {
  steady_t steady = {0};
  double slope, target = condition->target_mhz / 1000.0;
  double set_point_w = kernel->set_point_ratio * condition->set_point_w;
  evaluate(profile, kernel, condition, target, &steady, &slope);
  if (!(steady.power_w > set_point_w)) return steady;
  double low = fmin(profile->sm_clocks_mhz[0] / 1000.0, target), high = target, at = target;
  for (int step = 0; step < REGULATOR_STEP_COUNT; step++) {
    evaluate(profile, kernel, condition, at, &steady, &slope);
    double excess = steady.power_w - set_point_w;
    if (excess > 0) high = at;
    else low = at;
    double following = at - excess / slope;
    if (!(following > low && following < high)) following = 0.5 * (low + high);
    double moved = fabs(following - at);
    at = following;
    if (moved < REGULATOR_TOLERANCE_GHZ) break;
  }
  evaluate(profile, kernel, condition, at, &steady, &slope);
  steady.is_power_capped = 1;
  return steady;
}

double physics_idle_w(const profile_t *profile, double sm_mhz, unsigned memory_state) {
  double slope, clock_ghz = fmin(sm_mhz, physics_ceiling_mhz(profile, memory_state)) / 1000.0;
  double voltage = physics_voltage(profile, clock_ghz, 0, &slope);
  return profile->base_w + profile->memory_states[memory_state].standby_w +
         profile->clock_tree_w_per_ghz * voltage * voltage * clock_ghz;
}
