/* What the harness may turn on a board; see README.md for each. All numbers, all per device. */
#ifndef FAKE_NVML_KNOBS_H
#define FAKE_NVML_KNOBS_H

#include "profile.h"

/* X(name, default, least, most); `p` is the profile. A knob that is 0 at first also takes 0. */
#define KNOBS(X)                                                  \
  X(set_call_s, 0.004, 0.0, 60.0)                                 \
  X(read_call_s, 0.0, 0.0, 60.0)                                  \
  X(lag_s, p->transition_lag_s, 0.0, 3600.0)                      \
  X(stall_s, 0.0, 0.0, 3600.0)                                    \
  X(stall_power_w, p->stall_power_w, 0.0, 1e5)                    \
  X(dwell_s, 0.0, 0.0, 3600.0)                                    \
  X(rounding, 0.0, 0.0, 1.0)                                      \
  X(is_strict, 0.0, 0.0, 1.0)                                     \
  X(memory_lock, p->memory_lock, 0.0, 2.0)                        \
  X(memory_lock_slowdown_ratio, 0.0, 0.0, 10.0)                   \
  X(not_ready_count, 0.0, 0.0, 1e9)                               \
  X(ready_gap_s, 0.0, 0.0, 3600.0)                                \
  X(silent_ceiling_mhz, 0.0, 100.0, 1e5)                          \
  X(wake_s, 0.0, 0.0, 3600.0)                                     \
  X(dither_s, 0.0, 0.001, 3600.0)                                 \
  X(power_brake_mhz, 0.0, 100.0, 1e5)                             \
  X(hw_thermal_mhz, 0.0, 100.0, 1e5)                              \
  X(sync_boost_mhz, 0.0, 100.0, 1e5)                              \
  X(enforced_limit_w, 0.0, 1.0, 1e5)                              \
  X(ambient_c, p->ambient_c, -50.0, 100.0)                        \
  X(gain_ratio, 1.0, 0.01, 100.0)                                 \
  X(has_counter, 1.0, 0.0, 1.0)                                   \
  X(counter_period_s, p->energy_period_s, 0.001, 60.0)            \
  X(counter_phase_ratio, 0.37, 0.0, 1.0)                          \
  X(counter_gain_ratio, 1.0, 0.01, 100.0)                         \
  X(counter_is_stuck, 0.0, 0.0, 1.0)                              \
  X(counter_is_sampled, 0.0, 0.0, 1.0)                            \
  X(power_period_s, p->power_period_s, 0.001, 60.0)               \
  X(instant_window_s, p->instant_window_s, 0.001, 60.0)           \
  X(average_window_s, 1.0, 0.001, 60.0)                           \
  X(scope, 0.0, 0.0, 2.0)                                         \
  X(module_extra_w, 60.0, 0.0, 1e5)                               \
  X(mig_mode, 0.0, 0.0, 1.0)                                      \
  X(mig_count, 2.0, 0.0, 8.0)                                     \
  X(other_process_count, 0.0, 0.0, 1000.0)                        \
  X(is_lost, 0.0, 0.0, 1.0)                                       \
  X(lost_at_s, 0.0, 0.0, 1e9)                                     \
  X(occupancy_ratio, 0.5, 0.0, 1.0)                               \
  X(tensor_ratio, 1.0, 0.0, 1.0)                                  \
  X(has_power_smoothing, 0.0, 0.0, 1.0)

typedef struct {
#define KNOB_FIELD(name, value, least, most) double name;
  KNOBS(KNOB_FIELD)
#undef KNOB_FIELD
} knobs_t;

void knobs_defaults(const profile_t *p, knobs_t *knobs);
double *knobs_find(knobs_t *knobs, const char *name); /* NULL: no such knob */
int knobs_takes(const char *name, double value);      /* whether it may be turned so far */

#endif
