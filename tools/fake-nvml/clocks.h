/* Locks and limits: what was asked for, when it takes effect, and what then holds. */
#ifndef FAKE_NVML_CLOCKS_H
#define FAKE_NVML_CLOCKS_H

#include "state.h"

/* Install a request; max_mhz 0 resets. It takes effect one lag after `asked_ps`. */
void clocks_want_sm(device_t *device, lock_range_t range, int64_t asked_ps);
void clocks_want_memory(device_t *device, lock_range_t range, int64_t asked_ps);
void clocks_want_limit(device_t *device, unsigned limit_mw, int64_t asked_ps);
/* Put in force what is due. */
void clocks_take_effect(device_t *device);
/* Find the setting that holds now, and when it may change. */
void clocks_enter(device_t *device, const profile_t *profile);
/* Drop every lock and limit, as a driver that is unloaded does. */
void clocks_forget(device_t *device);
unsigned clocks_enforced_limit_mw(const device_t *device);
/* The listed clock for a request: the nearest, or the next below. */
unsigned clocks_round_sm(const device_t *device, unsigned clock_mhz);
unsigned clocks_round_memory(const device_t *device, unsigned clock_mhz);
unsigned clocks_memory_state(const profile_t *profile, unsigned clock_mhz);
/* The highest listed clock at or below; a held clock may lie a rounding error below its own. */
unsigned clocks_listed_at(const profile_t *profile, double clock_mhz);

#endif
