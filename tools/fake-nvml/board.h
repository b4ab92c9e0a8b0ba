/* A board in motion: what runs, clocks in force, heat, and the true energy. */
#ifndef FAKE_NVML_BOARD_H
#define FAKE_NVML_BOARD_H

#include "state.h"

#define KERNEL_NONE UINT32_MAX

/* What one kernel (or nothing) does at one setting, at thermal equilibrium. */
typedef struct {
  double time_ps, power_w;
  double sm_ghz;
  unsigned sm_clock_mhz, mem_clock_mhz; /* as listed */
  unsigned reasons;
  double busy_ratio; /* 0 in a gap between kernels */
  double tensor_ratio, dram_ratio;
  int64_t decay_ps; /* a duration, and what is left to warm after it: 1 - exp(-t/tau) */
  double decay;
} operation_t;

void board_begin(device_t *device, const profile_t *profile);
/* Bring a board up to the driver's clock; every reading begins with this. Whether it got there. */
int board_sync(device_t *device);
/* Go on until a moment, or until so many launches have ended. One call takes so many steps at
 * most, lest others wait for the lock for ever; whether it got there. */
int board_advance(device_t *device, int64_t until_ps, uint64_t launch_target);
/* Clocks, limits or knobs changed: find what holds from now on. */
void board_enter(device_t *device);
void board_run(device_t *device, const fakenvml_step_t *steps, uint32_t step_count, pid_t pid);
void board_stop(device_t *device);
/* Counters start anew, as after a reload of the driver. */
void board_forget(device_t *device);

const operation_t *board_operation(device_t *device);
double board_power_w(device_t *device); /* true, now */
int board_is_stalled(const device_t *device);

/* operation.c */
operation_t *operation_of(const device_t *device, uint32_t kernel, const setting_t *setting);

/* sensors.c */
void sensors_begin(device_t *device, double power_w);
void sensors_read(device_t *device); /* what is due now */
void sensors_restart(device_t *device); /* forget the past of the meters */
void counter_restart(device_t *device); /* its knobs changed */

#endif
