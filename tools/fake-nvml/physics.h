/* Steady state of one kernel on one board: the equations of joulewise.simulator.physics. */
#ifndef FAKE_NVML_PHYSICS_H
#define FAKE_NVML_PHYSICS_H

#include "fake_nvml.h"
#include "profile.h"

/* What an operating point means on a device. */
typedef struct {
  double target_mhz;      /* highest clock that the SM takes up */
  double set_point_w;     /* power that the regulator holds, for a set_point_ratio of 1 */
  unsigned memory_state;  /* index */
  int is_auto;            /* memory clock left to the driver */
} condition_t;

typedef struct {
  double time_s, power_w, sm_clock_ghz;
  double compute_s, traffic_s;
  int is_power_capped;
} steady_t;

double physics_ceiling_mhz(const profile_t *profile, unsigned memory_state);
/* sm_mhz, limit_w: 0 stands for auto. */
condition_t physics_condition(const profile_t *profile, double sm_mhz, unsigned memory_state,
                              int is_auto, double limit_w);
steady_t physics_steady(const profile_t *profile, const fakenvml_kernel_t *kernel,
                        const condition_t *condition);
int physics_is_launched(const fakenvml_kernel_t *kernel);
double physics_idle_w(const profile_t *profile, double sm_mhz, unsigned memory_state);
double physics_voltage(const profile_t *profile, double clock_ghz, int is_auto, double *slope);

#endif
