/* Harness of the fake NVIDIA driver: what runs on its GPUs, and what NVML cannot tell or do.
 *
 * Every function returns 0 or an NVML return code, unless it says otherwise. Clocks are MHz,
 * times nanoseconds of the driver's own clock (CLOCK_MONOTONIC, or virtual time). All state is in
 * one file that every process maps, so locks outlive the process that set them. Numbers beyond the
 * bounds of README.md are refused (2, INVALID_ARGUMENT).
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdint.h>

#define FAKENVML_ABI 3
#define FAKENVML_IDLE UINT32_MAX /* for fakenvml_steady: no kernel, clocks at rest */

/* One kernel as one device feels it: joulewise.simulator.physics.KernelLoad, one row. */
typedef struct {
  double compute_cycle_count;   /* in 1e9 cycles: seconds x GHz */
  double memory_bytes;          /* traffic at full bandwidth that would take as long */
  double core_j, memory_j;      /* of a launch, at the voltage floor and the top memory clock */
  double set_point_ratio;
  double overlap_exponent_ratio;
  double wait_s;                /* no clock shortens it; all there is of a gap between kernels */
} fakenvml_kernel_t;

/* Launches of one kernel in a row; a program of steps runs over and over. */
typedef struct {
  uint32_t kernel, launch_count;
} fakenvml_step_t;

typedef struct {
  uint64_t launch_count;        /* launches ended since the program began */
  uint64_t iteration_count;     /* passes through the program ended since it began */
  int64_t launch_start_ns;      /* start of the launch that runs */
  int64_t iteration_start_ns;   /* start of the pass that runs */
  double launch_done_ratio;     /* share of the running launch that is done */
  double sm_cycle_count;        /* SM cycles since the program began */
} fakenvml_progress_t;

/* Clock locks in force, which NVML cannot tell; a maximum of 0 stands for no lock. */
typedef struct {
  uint32_t sm_min_mhz, sm_max_mhz, memory_min_mhz, memory_max_mhz;
} fakenvml_locks_t;

/* Steady state of one kernel at one setting, as the physics has it; 0 MHz or 0 W: auto. */
typedef struct {
  double time_s, power_w, sm_clock_mhz;
  int is_power_capped, is_clock_not_held;
} fakenvml_steady_t;

int fakenvml_abi(void);                                      /* FAKENVML_ABI */
/* Make a state file anew and use it from now on. profile: rtx3080ti, a100-sxm, h100-sxm, rtx4090.
 * Without it the first NVML call makes or maps $FAKE_NVML_STATE as $FAKE_NVML_PROFILE,
 * $FAKE_NVML_DEVICES and $FAKE_NVML_TIME (real, virtual) say. */
int fakenvml_create(const char *state_path, const char *profile, unsigned device_count,
                    int is_virtual_time);
int fakenvml_attach(const char *state_path);
const char *fakenvml_profile(unsigned device);               /* preset name */

int fakenvml_is_virtual_time(void);                          /* 1 or 0 */
int64_t fakenvml_now_ns(void);
int fakenvml_advance_ns(int64_t duration_ns);                /* virtual time only */

int fakenvml_add_kernel(unsigned device, const fakenvml_kernel_t *kernel, uint32_t *id);
int fakenvml_run(unsigned device, const fakenvml_step_t *steps, uint32_t step_count); /* 0: idle */
int fakenvml_progress(unsigned device, fakenvml_progress_t *progress);
/* Virtual time: go on until so many more launches (passes) have ended. */
int fakenvml_run_launches(unsigned device, uint64_t launch_count);
int fakenvml_run_iterations(unsigned device, uint64_t iteration_count);
int fakenvml_blur(unsigned device, double time_ratio, double power_ratio);   /* noise of a window */
int fakenvml_steady(unsigned device, uint32_t kernel, double sm_mhz, double mem_mhz, double limit_w,
                    fakenvml_steady_t *steady);

/* The oracle: what the sensors blur. */
double fakenvml_true_energy_j(unsigned device);
double fakenvml_true_power_w(unsigned device);
double fakenvml_true_sm_clock_mhz(unsigned device);
int fakenvml_true_locks(unsigned device, fakenvml_locks_t *locks);

/* Knobs of the board by name, see README: -1 for unknown names, 2 for what a knob does not take. */
int fakenvml_set(unsigned device, const char *name, double value);
int fakenvml_get(unsigned device, const char *name, double *value);

/* Make the next call_count calls (0: all) of an NVML function return this code. */
int fakenvml_fail(const char *symbol, int return_code, unsigned call_count);
/* Another controller sets a lock (0 0: resets it) at a moment of the driver's clock. */
int fakenvml_foreign_lock(unsigned device, int64_t at_ns, unsigned min_mhz, unsigned max_mhz);
int fakenvml_reload_driver(void);                            /* drops locks and limits */

#endif
