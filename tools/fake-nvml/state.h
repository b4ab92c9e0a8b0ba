/* All state of the driver: one file that every process maps, under one robust mutex.
 *
 * Moments are picoseconds since the file was made (106 days fit), so that launches of microseconds
 * keep their length.
 */
#ifndef FAKE_NVML_STATE_H
#define FAKE_NVML_STATE_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "fake_nvml.h"
#include "knobs.h"
#include "profile.h"

#define MAX_DEVICES 16u
#define MAX_KERNELS 8192u
#define MAX_STEPS 65536u
#define MAX_CLIENTS 256u
#define MAX_FAILURES 32u
#define MAX_FOREIGN_LOCKS 64u
#define MAX_STARTS 1024u

#define PS_PER_NS 1000
#define PS_PER_S 1000000000000.0
#define NEVER_PS INT64_MAX

/* A range of clocks; a maximum of 0 stands for no lock. */
typedef struct {
  unsigned min_mhz, max_mhz;
} lock_range_t;

typedef struct {
  lock_range_t wanted;
  int64_t due_ps, rested_at_ps;
} lock_change_t;

typedef struct {
  int64_t at_ps;
  lock_range_t range;
} foreign_lock_t;

/* Mean power of windows that end once per period; energies at their starts wait in a queue. */
typedef struct {
  int64_t period_ps, window_ps, next_start_ps, next_stop_ps;
  unsigned first, count;
  double start_j[MAX_STARTS];
  double shown_w;
} meter_t;

/* What decides the operation of every kernel now; zeroed before it is filled, for it is a key. */
typedef struct {
  double sm_top_mhz, sm_rest_mhz; /* under load (0: auto), idle */
  double limit_w;
  double ceiling_mhz;             /* 0: none */
  double slowdown_ratio;          /* of a memory lock in force */
  unsigned top_memory, rest_memory;
  unsigned is_auto, ceiling_reasons, is_throttled, unused;
} setting_t;

enum { SPENT_POWER_CAP, SPENT_SYNC_BOOST, SPENT_SW_THERMAL, SPENT_HW_THERMAL, SPENT_BRAKE,
       SPENT_IDLE, SPENT_COUNT };

typedef struct {
  unsigned index;
  knobs_t knobs;

  /* Knobs of NVML. */
  lock_range_t sm_lock, memory_lock, deferred_memory_lock;
  lock_change_t sm_change, memory_change;
  unsigned limit_mw, limit_in_force_mw;
  int64_t limit_due_ps, stalled_until_ps;
  int64_t idle_since_ps, woken_ps; /* where a waking clock is measured from */
  int is_persistent;
  foreign_lock_t foreign_locks[MAX_FOREIGN_LOCKS];
  unsigned foreign_lock_count;
  setting_t setting;
  double time_ratio, power_ratio;

  /* What runs. */
  pid_t runner_pid;
  uint64_t runner_started; /* as of clients */
  uint32_t at_step, done_in_step, step_count, kernel_count;
  double left_ratio; /* of the launch that runs */
  uint64_t launch_count, iteration_count;
  int64_t launch_start_ps, iteration_start_ps;
  double program_cycles_start;

  /* Truth. */
  int64_t now_ps, next_event_ps, next_sensor_ps;
  double energy_j, temp_c;
  double sm_cycles, active_cycles, tensor_cycles, busy_s, dram_s;
  int64_t spent_ps[SPENT_COUNT];

  /* Sensors. */
  meter_t instant_meter, average_meter;
  int64_t counter_period_ps, next_tick_ps, next_sampled_ps;
  double counter_j, ticked_at_j, sampled_at_j;
  int64_t module_since_ps;
  double util_busy_s, util_dram_s;
  int64_t util_since_ps;
  double gpu_util_ratio, dram_util_ratio;

  fakenvml_kernel_t kernels[MAX_KERNELS];
  fakenvml_step_t steps[MAX_STEPS];
} device_t;

typedef struct {
  pid_t pid;
  uint64_t started; /* of the process, to tell it from a later one of the same id */
} client_t;

typedef struct {
  char symbol[80];
  int return_code;
  unsigned left_count; /* 0: all calls */
  unsigned is_used;
} failure_t;

typedef struct {
  uint64_t magic, layout, nonce;
  uint64_t is_ready;
  pthread_mutex_t mutex;
  unsigned device_count, profile;
  int is_virtual;
  int64_t epoch_ns, virtual_ps;
  int64_t checked_clients_ns, last_set_ps;
  unsigned last_set_device;
  client_t clients[MAX_CLIENTS];
  failure_t failures[MAX_FAILURES];
  device_t devices[];
} state_t;

extern state_t *state;

int state_create(const char *path, const char *profile, unsigned device_count, int is_virtual);
int state_attach(const char *path);
int state_require(void); /* map $FAKE_NVML_STATE unless something is mapped; 0 or an NVML code */
void state_lock(void);
void state_unlock(void);
const profile_t *state_profile(void);
int64_t monotonic_ns(void); /* of the machine, in virtual time too */
int64_t state_now_ps(void);
int64_t state_ps_of_ns(int64_t at_ns);
int64_t state_ns_of_ps(int64_t at_ps);
int64_t ps_of_s(double duration_s);

/* Processes that hold the driver. */
int clients_add(void); /* an NVML code */
void clients_drop(void);
void clients_purge(void); /* see to those that died; the last one takes the driver with it */
uint64_t process_started(pid_t pid); /* 0: there is no such process */
int process_lives(pid_t pid, uint64_t started);
void driver_unload(device_t *device);

#endif
