/* One kind of GPU: joulewise's preset and board, and facts that NVML tells beside them.
 *
 * The tables are generated from joulewise.simulator (generate.py), so that the virtual GPUs and
 * this driver have one source of truth.
 */
#ifndef FAKE_NVML_PROFILE_H
#define FAKE_NVML_PROFILE_H

#include <stdint.h>

typedef struct {
  unsigned clock_mhz;
  double bandwidth_bytes_per_s, standby_w, energy_ratio;
  double sm_ceiling_mhz; /* 0: none */
} memory_state_t;

typedef struct {
  const char *preset, *name;
  unsigned arch, cc_major, cc_minor, sm_count, core_count, brand, pci_device_id;
  unsigned memory_bus_bits, fan_count, base_clock_mhz;
  uint64_t memory_bytes;
  int is_data_center, has_gpm, is_instant_usage;
  double max_power_limit_w;

  const unsigned *sm_clocks_mhz; /* ascending */
  unsigned sm_clock_count;
  const memory_state_t *memory_states; /* ascending */
  unsigned memory_state_count;

  /* joulewise.simulator.spec.GpuSpec */
  double sm_clock_max_mhz, launch_s;
  double voltage_knee_mhz, voltage_slope_ratio_per_ghz, voltage_curve_ratio_per_ghz2;
  double auto_voltage_knee_mhz, auto_voltage_slope_ratio_per_ghz;
  double base_w, clock_tree_w_per_ghz;
  double auto_set_point_w, locked_set_point_w, default_power_limit_w, least_power_limit_w;

  /* joulewise.simulator.boards.BoardSpec */
  double ambient_c, resistance_c_per_w, time_constant_s, leakage_w_per_c, slowdown_temp_c;
  double energy_period_s, power_period_s, instant_window_s;
  double transition_lag_s, stall_power_w;
  int memory_lock; /* 0: at once, 1: not supported, 2: deferred to a reload of the driver */
} profile_t;

extern const profile_t fake_profiles[];
extern const unsigned fake_profile_count;

#endif
