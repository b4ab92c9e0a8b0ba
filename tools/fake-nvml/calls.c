#define _GNU_SOURCE
#include "calls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "board.h"

#define HANDLE_MAGIC 0x656c646e6148ull
#define MAX_MIG 8
#define DEFAULT_DRIVER "595.45.04"

static handle_t handles[MAX_DEVICES][MAX_MIG + 1];
static unsigned init_count;
static FILE *log_file;
static __thread const char *current_symbol;
static char driver_text[64] = DEFAULT_DRIVER;
static char environment_failures[1024];
/* Threads of this process: beginning and ending, and what is read of the environment. */
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t environment = PTHREAD_MUTEX_INITIALIZER;

/* ---- log and environment ------------------------------------------------------------------ */

void calls_configure(void) {
  const char *log_path = getenv("FAKE_NVML_LOG"), *failures = getenv("FAKE_NVML_FAIL");
  const char *driver = getenv("FAKE_NVML_DRIVER");
  pthread_mutex_lock(&environment);
  if (log_file) fclose(log_file);
  log_file = log_path && *log_path ? fopen(log_path, "ae") : NULL;
  if (log_file) setvbuf(log_file, NULL, _IOLBF, 0);
  snprintf(environment_failures, sizeof environment_failures, "%s", failures ? failures : "");
  snprintf(driver_text, sizeof driver_text, "%s", driver && *driver ? driver : DEFAULT_DRIVER);
  pthread_mutex_unlock(&environment);
}

const char *driver_version(void) { return driver_text; }

unsigned driver_major(void) { return (unsigned)atoi(driver_text); }

static void note(const char *symbol, int return_code) {
  if (!log_file) return;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(&environment);
  if (log_file)
    fprintf(log_file, "%ld.%06ld %d %s %d\n", (long)now.tv_sec, now.tv_nsec / 1000, (int)getpid(),
            symbol, return_code);
  pthread_mutex_unlock(&environment);
}

/* ---- injected failures -------------------------------------------------------------------- */

int failure_add(const char *symbol, int return_code, unsigned call_count) {
  failure_t *place = NULL;
  for (unsigned i = 0; i < MAX_FAILURES; i++) {
    failure_t *failure = &state->failures[i];
    if (failure->is_used && !strcmp(failure->symbol, symbol)) {
      place = failure;
      break;
    }
    if (!failure->is_used && !place) place = failure;
  }
  if (!place || strlen(symbol) >= sizeof place->symbol) return NVML_ERROR_INSUFFICIENT_RESOURCES;
  strcpy(place->symbol, symbol);
  place->return_code = return_code;
  place->left_count = call_count;
  place->is_used = return_code != NVML_SUCCESS;
  return NVML_SUCCESS;
}

static int failure_of_state(const char *symbol) {
  if (!state) return NVML_SUCCESS;
  for (unsigned i = 0; i < MAX_FAILURES; i++) {
    failure_t *failure = &state->failures[i];
    if (!failure->is_used || strcmp(failure->symbol, symbol)) continue;
    if (failure->left_count && --failure->left_count == 0) failure->is_used = 0;
    return failure->return_code;
  }
  return NVML_SUCCESS;
}

static int failure_of_environment(const char *symbol) {
  size_t length = strlen(symbol);
  const char *at = environment_failures;
  int code = NVML_SUCCESS;
  pthread_mutex_lock(&environment);
  while (!code && (at = strstr(at, symbol))) {
    int is_whole = at == environment_failures || at[-1] == ',';
    if (is_whole && at[length] == '=') code = atoi(at + length + 1);
    at += length;
  }
  pthread_mutex_unlock(&environment);
  return code;
}

/* Functions that a driver older than this lacks: major versions, as far as they are known. */
static const struct {
  const char *symbol;
  unsigned since;
} newer[] = {
    {"nvmlDeviceGetMemoryInfo_v2", 510},
    {"nvmlDeviceGetComputeRunningProcesses_v3", 510},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", 510},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", 510},
    {"nvmlGpmQueryDeviceSupport", 525},
    {"nvmlGpmSampleAlloc", 525},
    {"nvmlGpmSampleGet", 525},
    {"nvmlGpmMetricsGet", 525},
    {"nvmlDeviceSetPowerManagementLimit_v2", 535},
    {"nvmlDeviceGetCurrentClocksEventReasons", 535},
    {"nvmlDeviceGetSupportedClocksEventReasons", 535},
    {"nvmlDeviceGetC2cModeInfoV", 550},
    {"nvmlDeviceGetClockOffsets", 555},
    {"nvmlDeviceSetClockOffsets", 555},
    {"nvmlDeviceGetPciInfoExt", 550},
    {"nvmlDeviceGetTemperatureV", 570},
    {"nvmlDeviceGetMarginTemperature", 570},
    {"nvmlDeviceGetHandleByUUIDV", 570},
};

static int is_too_new(const char *symbol) {
  unsigned major = driver_major();
  if (major >= 570) return 0;
  for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
    if (!strcmp(newer[i].symbol, symbol)) return major < newer[i].since;
  }
  return 0;
}

static int injected(const char *symbol) {
  if (is_too_new(symbol)) return NVML_ERROR_FUNCTION_NOT_FOUND;
  int code = *environment_failures ? failure_of_environment(symbol) : NVML_SUCCESS;
  return code ? code : failure_of_state(symbol);
}

/* ---- calls -------------------------------------------------------------------------------- */

/* For calls that do not lock the state for something else. */
static int injected_unlocked(const char *symbol) {
  if (!state) return injected(symbol);
  state_lock();
  int code = injected(symbol);
  state_unlock();
  return code;
}

int call_unlocked(const char *symbol) {
  int code = injected_unlocked(symbol);
  note(symbol, code);
  return code;
}

int call_stub(const char *symbol) {
  int code = injected_unlocked(symbol);
  if (!code) code = NVML_ERROR_NOT_SUPPORTED;
  note(symbol, code);
  return code;
}

int call_begin(const char *symbol) {
  int code = NVML_SUCCESS;
  if (!init_count) code = NVML_ERROR_UNINITIALIZED;
  if (code) {
    note(symbol, code);
    return code;
  }
  state_lock();
  code = injected(symbol);
  current_symbol = symbol;
  return code ? call_end(code) : NVML_SUCCESS;
}

int call_end(int return_code) {
  state_unlock();
  note(current_symbol, return_code);
  return return_code;
}

int device_is_lost(const device_t *device) {
  double at_s = device->knobs.lost_at_s;
  if (device->knobs.is_lost > 0) return 1;
  return at_s > 0 && (double)state_ns_of_ps(state_now_ps()) / 1e9 >= at_s;
}

void *handle_of(unsigned device, int mig) {
  if (device >= MAX_DEVICES || mig >= MAX_MIG) return NULL;
  handle_t *handle = &handles[device][mig + 1];
  *handle = (handle_t){HANDLE_MAGIC, device, mig};
  return handle;
}

static const handle_t *check_handle(const void *pointer) {
  const handle_t *handle = pointer, *first = &handles[0][0];
  if (handle < first || handle >= first + MAX_DEVICES * (MAX_MIG + 1)) return NULL;
  return handle->magic == HANDLE_MAGIC && handle->device < state->device_count ? handle : NULL;
}

int call_any_device(const char *symbol, void *pointer, device_t **device, int *mig) {
  int code = call_begin(symbol);
  if (code) return code;
  const handle_t *handle = check_handle(pointer);
  if (!handle) return call_end(NVML_ERROR_INVALID_ARGUMENT);
  *device = &state->devices[handle->device];
  *mig = handle->mig;
  if (state->is_virtual && (*device)->knobs.read_call_s > 0)
    state->virtual_ps += ps_of_s((*device)->knobs.read_call_s);
  if (!board_sync(*device)) return call_end(NVML_ERROR_TIMEOUT);
  return device_is_lost(*device) ? call_end(NVML_ERROR_GPU_IS_LOST) : NVML_SUCCESS;
}

/* Clocks, power and energy belong to the whole GPU: a MIG instance has none of its own. */
int call_device(const char *symbol, void *handle, device_t **device) {
  int mig, code = call_any_device(symbol, handle, device, &mig);
  if (code) return code;
  return mig >= 0 ? call_end(NVML_ERROR_NOT_SUPPORTED) : NVML_SUCCESS;
}

/* ---- calls that set ----------------------------------------------------------------------- */

int may_set(void) {
  const char *rights = getenv("FAKE_NVML_PRIV");
  return rights && *rights ? atoi(rights) != 0 : geteuid() == 0;
}

void call_takes(double duration_s) {
  if (duration_s <= 0) return;
  if (state->is_virtual) {
    state->virtual_ps += ps_of_s(duration_s);
    return;
  }
  double whole_s = floor(duration_s);
  struct timespec left = {(time_t)whole_s, (long)((duration_s - whole_s) * 1e9)};
  state_unlock();
  while (nanosleep(&left, &left)) {
  }
  state_lock();
}

int not_ready(device_t *device) {
  if (device->knobs.not_ready_count > 0) {
    device->knobs.not_ready_count -= 1;
    return 1;
  }
  int64_t since_ps = device->now_ps - state->last_set_ps;
  int is_other = state->last_set_device != device->index && state->last_set_device < MAX_DEVICES;
  if (is_other && since_ps < ps_of_s(device->knobs.ready_gap_s)) return 1;
  state->last_set_ps = device->now_ps;
  state->last_set_device = device->index;
  return 0;
}

/* ---- begin and end ------------------------------------------------------------------------ */

static int add_client(void) {
  state_lock();
  int code = clients_add();
  state_unlock();
  return code;
}

int calls_initialise(void) {
  int code = state_require();
  if (code) return code;
  pthread_mutex_lock(&beginning);
  code = add_client();
  if (!code) init_count++;
  pthread_mutex_unlock(&beginning);
  return code;
}

void calls_move(void) {
  pthread_mutex_lock(&beginning);
  if (init_count) add_client();
  pthread_mutex_unlock(&beginning);
}

int calls_shut_down(void) {
  pthread_mutex_lock(&beginning);
  int code = init_count ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
  if (!code && --init_count == 0) {
    state_lock();
    clients_drop();
    state_unlock();
  }
  pthread_mutex_unlock(&beginning);
  return code;
}
