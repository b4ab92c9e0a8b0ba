/* What the board shows of its energy: a counter that moves once per period, and mean power of
 * windows that end once per period. */
#include <math.h>

#include "board.h"

#define METER_PHASE_RATIO 0.61 /* sensors do not tick together, nor with the driver's start */
#define LEAST_PERIOD_S 1e-3

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first moment of the grid phase + k period after `now_ps`. */
static int64_t next_on_grid(int64_t now_ps, int64_t period_ps, double phase_ratio) {
  int64_t phase_ps = (int64_t)(phase_ratio * (double)period_ps) % period_ps;
  int64_t since_ps = (now_ps - phase_ps) % period_ps;
  if (since_ps < 0) since_ps += period_ps;
  return now_ps - since_ps + period_ps;
}

static void plan(device_t *device) {
  const meter_t *a = &device->instant_meter, *b = &device->average_meter;
  int64_t next_ps = least(least(a->next_start_ps, a->next_stop_ps),
                          least(b->next_start_ps, b->next_stop_ps));
  next_ps = least(next_ps, least(device->next_tick_ps, device->next_sampled_ps));
  device->next_sensor_ps = next_ps;
}

/* ---- power -------------------------------------------------------------------------------- */

static void push_start(meter_t *meter, double energy_j) {
  if (meter->count == MAX_STARTS) return;
  meter->start_j[(meter->first + meter->count++) % MAX_STARTS] = energy_j;
}

/* Begin anew; before now the board is taken to have drawn what it draws now. */
static void meter_restart(meter_t *meter, const device_t *device, double window_s,
                          double power_w) {
  double period_s = fmax(device->knobs.power_period_s, LEAST_PERIOD_S);
  window_s = fmin(fmax(window_s, LEAST_PERIOD_S), period_s * (MAX_STARTS - 2));
  meter->period_ps = ps_of_s(period_s);
  meter->window_ps = ps_of_s(window_s);
  meter->next_stop_ps = next_on_grid(device->now_ps, meter->period_ps, METER_PHASE_RATIO);
  meter->next_start_ps = meter->next_stop_ps - meter->window_ps;
  meter->first = meter->count = 0;
  while (meter->next_start_ps <= device->now_ps) {
    double since_s = (double)(device->now_ps - meter->next_start_ps) / PS_PER_S;
    push_start(meter, device->energy_j - power_w * since_s);
    meter->next_start_ps += meter->period_ps;
  }
  meter->shown_w = power_w * device->knobs.gain_ratio;
}

static void meter_read(meter_t *meter, const device_t *device) {
  while (meter->next_start_ps <= device->now_ps) {
    push_start(meter, device->energy_j);
    meter->next_start_ps += meter->period_ps;
  }
  while (meter->next_stop_ps <= device->now_ps) {
    double window_j = device->energy_j - meter->start_j[meter->first];
    meter->first = (meter->first + 1) % MAX_STARTS;
    meter->count--;
    meter->shown_w = window_j / ((double)meter->window_ps / PS_PER_S) * device->knobs.gain_ratio;
    meter->next_stop_ps += meter->period_ps;
  }
}

/* ---- energy ------------------------------------------------------------------------------- */

static void rephase_counter(device_t *device) {
  const knobs_t *knobs = &device->knobs;
  double phase_ratio = knobs->counter_phase_ratio + METER_PHASE_RATIO * device->index;
  device->counter_period_ps = ps_of_s(fmax(knobs->counter_period_s, LEAST_PERIOD_S));
  device->next_tick_ps =
      next_on_grid(device->now_ps, device->counter_period_ps, phase_ratio - floor(phase_ratio));
  device->next_sampled_ps = NEVER_PS;
  if (knobs->counter_is_sampled > 0) {
    device->next_sampled_ps = device->next_tick_ps - device->instant_meter.window_ps;
    device->sampled_at_j = device->energy_j;
  }
}

/* The counter of a superchip counts the whole module. */
static double module_j(device_t *device) {
  double since_s = (double)(device->now_ps - device->module_since_ps) / PS_PER_S;
  device->module_since_ps = device->now_ps;
  return device->knobs.scope > 0 ? device->knobs.module_extra_w * since_s : 0.0;
}

static void tick(device_t *device) {
  const knobs_t *knobs = &device->knobs;
  double counted_j = device->energy_j - device->ticked_at_j;
  double window_ps = (double)device->instant_meter.window_ps;
  if (knobs->counter_is_sampled > 0) {
    double seen_j = device->energy_j - device->sampled_at_j;
    counted_j = seen_j * (double)device->counter_period_ps / window_ps;
    device->next_sampled_ps =
        device->now_ps + device->counter_period_ps - device->instant_meter.window_ps;
  }
  counted_j += module_j(device);
  device->ticked_at_j = device->energy_j;
  if (knobs->counter_is_stuck <= 0)
    device->counter_j += counted_j * knobs->gain_ratio * knobs->counter_gain_ratio;
  device->next_tick_ps += device->counter_period_ps;
}

static void read_utilization(device_t *device) {
  double since_s = (double)(device->now_ps - device->util_since_ps) / PS_PER_S;
  if (since_s <= 0) return;
  device->gpu_util_ratio = fmin(1.0, (device->busy_s - device->util_busy_s) / since_s);
  device->dram_util_ratio = fmin(1.0, (device->dram_s - device->util_dram_s) / since_s);
  device->util_busy_s = device->busy_s;
  device->util_dram_s = device->dram_s;
  device->util_since_ps = device->now_ps;
}

/* ---- all ---------------------------------------------------------------------------------- */

static void restart(device_t *device, double power_w) {
  meter_restart(&device->instant_meter, device, device->knobs.instant_window_s, power_w);
  meter_restart(&device->average_meter, device, device->knobs.average_window_s, power_w);
  rephase_counter(device);
  plan(device);
}

void sensors_begin(device_t *device, double power_w) { restart(device, power_w); }

void sensors_restart(device_t *device) {
  if (device->now_ps >= device->next_tick_ps) tick(device);
  read_utilization(device);
  restart(device, board_power_w(device));
}

void counter_restart(device_t *device) {
  rephase_counter(device);
  plan(device);
}

void sensors_read(device_t *device) {
  meter_read(&device->instant_meter, device);
  if (device->average_meter.next_stop_ps <= device->now_ps) read_utilization(device);
  meter_read(&device->average_meter, device);
  if (device->next_sampled_ps <= device->now_ps) {
    device->sampled_at_j = device->energy_j;
    device->next_sampled_ps = NEVER_PS;
  }
  if (device->next_tick_ps <= device->now_ps) tick(device);
  plan(device);
}
