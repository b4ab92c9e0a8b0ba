#include "clocks.h"

#include <math.h>
#include <string.h>

#include "board.h"
#include "nvml_types.h"
#include "physics.h"

#define WAKE_STEP_COUNT 32

/* ---- rounding ----------------------------------------------------------------------------- */

static unsigned distance(unsigned a, unsigned b) { return a > b ? a - b : b - a; }

/* Whether `candidate` serves a request better than `found`; clocks come in ascending order. */
static int is_better(const device_t *device, unsigned wanted, unsigned candidate, unsigned found) {
  if (device->knobs.rounding > 0) return candidate <= wanted;
  return distance(candidate, wanted) < distance(found, wanted);
}

unsigned clocks_round_sm(const device_t *device, unsigned clock_mhz) {
  const profile_t *p = state_profile();
  unsigned found = p->sm_clocks_mhz[0];
  for (unsigned i = 1; i < p->sm_clock_count; i++) {
    if (is_better(device, clock_mhz, p->sm_clocks_mhz[i], found)) found = p->sm_clocks_mhz[i];
  }
  return found;
}

unsigned clocks_round_memory(const device_t *device, unsigned clock_mhz) {
  const profile_t *p = state_profile();
  unsigned found = p->memory_states[0].clock_mhz;
  for (unsigned i = 1; i < p->memory_state_count; i++) {
    unsigned candidate = p->memory_states[i].clock_mhz;
    if (is_better(device, clock_mhz, candidate, found)) found = candidate;
  }
  return found;
}

unsigned clocks_memory_state(const profile_t *profile, unsigned clock_mhz) {
  for (unsigned i = 0; i < profile->memory_state_count; i++) {
    if (profile->memory_states[i].clock_mhz == clock_mhz) return i;
  }
  return profile->memory_state_count - 1;
}

unsigned clocks_listed_at(const profile_t *profile, double clock_mhz) {
  unsigned found = profile->sm_clocks_mhz[0];
  for (unsigned i = 1; i < profile->sm_clock_count; i++) {
    if (profile->sm_clocks_mhz[i] > clock_mhz * (1.0 + 1e-9)) break;
    found = profile->sm_clocks_mhz[i];
  }
  return found;
}

/* ---- what holds now ----------------------------------------------------------------------- */

unsigned clocks_enforced_limit_mw(const device_t *device) {
  double other_mw = device->knobs.enforced_limit_w * 1000.0;
  return other_mw > 0 && other_mw < device->limit_mw ? (unsigned)other_mw : device->limit_mw;
}

static double limit_in_force_w(const device_t *device) {
  double other_w = device->knobs.enforced_limit_w, own_w = device->limit_in_force_mw / 1000.0;
  return other_w > 0 ? fmin(other_w, own_w) : own_w;
}

static void add_ceiling(setting_t *setting, double ceiling_mhz, unsigned reasons) {
  if (ceiling_mhz <= 0 || (setting->ceiling_mhz > 0 && setting->ceiling_mhz <= ceiling_mhz)) return;
  setting->ceiling_mhz = ceiling_mhz;
  setting->ceiling_reasons = reasons;
}

/* A moment at which a clock that wanders or wakes may move. */
static void consider(device_t *device, int64_t at_ps) {
  if (at_ps < device->next_event_ps) device->next_event_ps = at_ps;
}

/* After a rest the clock rises step by step from where it rests; after a short one from above. */
static void wake(device_t *device, const profile_t *p, double target_mhz) {
  int64_t wake_ps = ps_of_s(device->knobs.wake_s), since_ps = device->now_ps - device->woken_ps;
  if (!device->step_count || wake_ps <= 0 || since_ps >= wake_ps) return;
  double rest_mhz = device->setting.sm_rest_mhz;
  int64_t step = since_ps * WAKE_STEP_COUNT / wake_ps;
  double risen = (double)step / WAKE_STEP_COUNT;
  double clock_mhz = rest_mhz + risen * (target_mhz - rest_mhz);
  add_ceiling(&device->setting, clocks_listed_at(p, clock_mhz), 0);
  consider(device, device->woken_ps + ((step + 1) * wake_ps - 1) / WAKE_STEP_COUNT + 1);
}

/* Regulation lets the clock fall by a step of the grid now and then, by its own lights. */
static void dither(device_t *device, const profile_t *p, double target_mhz) {
  int64_t dither_ps = ps_of_s(device->knobs.dither_s);
  if (!device->step_count || dither_ps <= 0) return;
  int64_t slot = device->now_ps / dither_ps;
  uint64_t luck = ((uint64_t)slot * MAX_DEVICES + device->index + 1) * 0x9e3779b97f4a7c15ull;
  luck = (luck ^ luck >> 29) * 0xbf58476d1ce4e5b9ull;
  unsigned below_mhz = clocks_listed_at(p, clocks_listed_at(p, target_mhz) - 1.0);
  if (luck >> 63) add_ceiling(&device->setting, below_mhz, 0);
  consider(device, (slot + 1) * dither_ps);
}

static void find_setting(device_t *device, const profile_t *p) {
  const knobs_t *knobs = &device->knobs;
  const lock_range_t *sm = &device->sm_lock, *memory = &device->memory_lock;
  setting_t *setting = &device->setting;
  memset(setting, 0, sizeof *setting);
  setting->sm_top_mhz = sm->max_mhz;
  setting->sm_rest_mhz = sm->max_mhz ? sm->min_mhz : p->sm_clocks_mhz[0];
  setting->is_auto = !memory->max_mhz;
  setting->top_memory = setting->is_auto ? p->memory_state_count - 1
                                         : clocks_memory_state(p, memory->max_mhz);
  setting->rest_memory = setting->is_auto ? 0 : clocks_memory_state(p, memory->min_mhz);
  setting->limit_w = limit_in_force_w(device);
  if (!setting->is_auto) setting->slowdown_ratio = knobs->memory_lock_slowdown_ratio;
  double target_mhz = physics_condition(p, setting->sm_top_mhz, setting->top_memory,
                                        (int)setting->is_auto, setting->limit_w).target_mhz;
  wake(device, p, target_mhz);
  dither(device, p, target_mhz);
  add_ceiling(setting, knobs->silent_ceiling_mhz, 0);
  add_ceiling(setting, knobs->power_brake_mhz, REASON_HW_POWER_BRAKE | REASON_HW_SLOWDOWN);
  add_ceiling(setting, knobs->hw_thermal_mhz, REASON_HW_THERMAL | REASON_HW_SLOWDOWN);
  add_ceiling(setting, knobs->sync_boost_mhz, REASON_SYNC_BOOST);
}

void clocks_enter(device_t *device, const profile_t *profile) {
  device->next_event_ps = NEVER_PS;
  find_setting(device, profile);
  consider(device, device->sm_change.due_ps);
  consider(device, device->memory_change.due_ps);
  consider(device, device->limit_due_ps);
  if (device->stalled_until_ps > device->now_ps) consider(device, device->stalled_until_ps);
  for (unsigned i = 0; i < device->foreign_lock_count; i++)
    consider(device, device->foreign_locks[i].at_ps);
}

/* ---- requests ----------------------------------------------------------------------------- */

/* Requests for one domain keep a distance; a point that changes both takes effect at once. */
static int64_t due_of_change(const device_t *device, lock_change_t *change, int64_t asked_ps) {
  if (asked_ps < change->rested_at_ps) asked_ps = change->rested_at_ps;
  change->rested_at_ps = asked_ps + ps_of_s(device->knobs.dwell_s);
  return asked_ps + ps_of_s(device->knobs.lag_s);
}

static void want(device_t *device, lock_change_t *change, lock_range_t range, int64_t asked_ps) {
  change->wanted = range;
  change->due_ps = due_of_change(device, change, asked_ps);
  consider(device, change->due_ps);
}

void clocks_want_sm(device_t *device, lock_range_t range, int64_t asked_ps) {
  want(device, &device->sm_change, range, asked_ps);
}

void clocks_want_memory(device_t *device, lock_range_t range, int64_t asked_ps) {
  if ((int)device->knobs.memory_lock == 2) {
    device->deferred_memory_lock = range;
    return;
  }
  want(device, &device->memory_change, range, asked_ps);
}

void clocks_want_limit(device_t *device, unsigned limit_mw, int64_t asked_ps) {
  device->limit_mw = limit_mw;
  device->limit_due_ps = asked_ps + ps_of_s(device->knobs.lag_s);
  consider(device, device->limit_due_ps);
}

static void stall(device_t *device) {
  int64_t from_ps = device->now_ps;
  if (device->stalled_until_ps > from_ps) from_ps = device->stalled_until_ps;
  device->stalled_until_ps = from_ps + ps_of_s(device->knobs.stall_s);
}

static void change(device_t *device, lock_change_t *change, lock_range_t *lock) {
  if (change->due_ps > device->now_ps) return;
  change->due_ps = NEVER_PS;
  if (!memcmp(&change->wanted, lock, sizeof *lock)) return;
  *lock = change->wanted;
  stall(device);
}

static void ask_for_others(device_t *device) {
  for (unsigned i = 0; i < device->foreign_lock_count;) {
    foreign_lock_t foreign = device->foreign_locks[i];
    if (foreign.at_ps > device->now_ps) {
      i++;
      continue;
    }
    device->foreign_locks[i] = device->foreign_locks[--device->foreign_lock_count];
    clocks_want_sm(device, foreign.range, foreign.at_ps);
  }
}

void clocks_take_effect(device_t *device) {
  do {
    ask_for_others(device);
    change(device, &device->sm_change, &device->sm_lock);
    change(device, &device->memory_change, &device->memory_lock);
    if (device->limit_due_ps <= device->now_ps) {
      device->limit_due_ps = NEVER_PS;
      device->limit_in_force_mw = device->limit_mw;
    }
    board_enter(device);
  } while (device->next_event_ps <= device->now_ps);
}

void clocks_forget(device_t *device) {
  const profile_t *p = state_profile();
  lock_range_t none = {0};
  device->sm_lock = none;
  device->memory_lock = device->deferred_memory_lock; /* what waited for this moment */
  device->deferred_memory_lock = none;
  device->sm_change.due_ps = device->memory_change.due_ps = device->limit_due_ps = NEVER_PS;
  device->limit_mw = device->limit_in_force_mw = (unsigned)lround(p->default_power_limit_w * 1000);
  board_enter(device);
}
