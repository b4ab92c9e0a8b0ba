#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "nvml_types.h"

#define MAGIC 0x4c4d564e454b4146ull
#define VIRTUAL_EPOCH_NS 1000000000000ll /* not zero, for real time never begins there either */

state_t *state;
static int state_file = -1; /* open and locked for as long as it is mapped: somebody lives here */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* threads of this process */

static size_t size_of(unsigned device_count) {
  return sizeof(state_t) + device_count * sizeof(device_t);
}

/* Changes whenever the layout does: the sizes of what is stored tell. */
static uint64_t layout(void) {
  return (uint64_t)FAKENVML_ABI << 48 ^ sizeof(state_t) << 24 ^ sizeof(device_t);
}

int64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

int64_t ps_of_s(double duration_s) {
  return duration_s > 1e6 ? NEVER_PS / 4 : llround(duration_s * PS_PER_S);
}

int64_t state_now_ps(void) {
  return state->is_virtual ? state->virtual_ps : state_ps_of_ns(monotonic_ns());
}

int64_t state_ps_of_ns(int64_t at_ns) {
  int64_t since_ns = at_ns - state->epoch_ns;
  return since_ns > NEVER_PS / PS_PER_NS / 2 ? NEVER_PS / 2 : since_ns * PS_PER_NS;
}

int64_t state_ns_of_ps(int64_t at_ps) {
  int64_t past = at_ps % PS_PER_NS < 0;
  return state->epoch_ns + at_ps / PS_PER_NS - past;
}

const profile_t *state_profile(void) { return &fake_profiles[state->profile]; }

static int find_profile(const char *name, unsigned *found) {
  for (unsigned i = 0; i < fake_profile_count; i++) {
    if (strcmp(fake_profiles[i].preset, name)) continue;
    *found = i;
    return 1;
  }
  return 0;
}

static int make_mutex(pthread_mutex_t *mutex) {
  pthread_mutexattr_t shared;
  int failed = pthread_mutexattr_init(&shared) ||
               pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) ||
               pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST) ||
               pthread_mutex_init(mutex, &shared);
  pthread_mutexattr_destroy(&shared);
  return failed;
}

/* Knobs that the environment names, as name=value,name=value, for every device. */
static void knobs_from_environment(knobs_t *knobs) {
  const char *text = getenv("FAKE_NVML_KNOBS");
  char name[64];
  double value;
  int length;
  while (text && sscanf(text, "%63[^=]=%lf%n", name, &value, &length) == 2) {
    double *knob = knobs_find(knobs, name);
    if (knob && knobs_takes(name, value)) *knob = value;
    else fprintf(stderr, "fake NVIDIA driver: no knob takes %s=%g\n", name, value);
    text += length;
    if (*text++ != ',') break;
  }
}

static int fill(state_t *fresh, unsigned profile, unsigned device_count, int is_virtual) {
  fresh->magic = MAGIC;
  fresh->layout = layout();
  fresh->nonce = (uint64_t)monotonic_ns() << 16 ^ (uint64_t)getpid();
  fresh->device_count = device_count;
  fresh->profile = profile;
  fresh->is_virtual = is_virtual;
  fresh->epoch_ns = is_virtual ? VIRTUAL_EPOCH_NS : monotonic_ns();
  fresh->last_set_ps = -NEVER_PS / 4;
  fresh->last_set_device = MAX_DEVICES;
  if (make_mutex(&fresh->mutex)) return NVML_ERROR_OPERATING_SYSTEM;
  for (unsigned i = 0; i < device_count; i++) {
    device_t *device = &fresh->devices[i];
    device->index = i;
    knobs_defaults(&fake_profiles[profile], &device->knobs);
    knobs_from_environment(&device->knobs);
    board_begin(device, &fake_profiles[profile]);
  }
  __atomic_store_n(&fresh->is_ready, 1, __ATOMIC_RELEASE);
  return NVML_SUCCESS;
}

static void use(state_t *fresh, int file) {
  if (state) munmap(state, size_of(state->device_count));
  if (state_file >= 0) close(state_file);
  flock(file, LOCK_SH | LOCK_NB);
  state_file = file;
  __atomic_store_n(&state, fresh, __ATOMIC_RELEASE);
}

static state_t *map(int file, size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

int state_create(const char *path, const char *profile_name, unsigned device_count,
                 int is_virtual) {
  unsigned profile;
  char fresh_path[4096];
  if (!path || !profile_name || !find_profile(profile_name, &profile))
    return NVML_ERROR_INVALID_ARGUMENT;
  if (device_count > MAX_DEVICES) return NVML_ERROR_INVALID_ARGUMENT;
  /* Made aside and moved into place: whoever maps the old file keeps a whole one. */
  snprintf(fresh_path, sizeof fresh_path, "%s.%d.new", path, (int)getpid());
  int file = open(fresh_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return NVML_ERROR_OPERATING_SYSTEM;
  fchmod(file, 0666);
  size_t size = size_of(device_count);
  state_t *fresh = ftruncate(file, (off_t)size) ? NULL : map(file, size);
  if (!fresh || fill(fresh, profile, device_count, is_virtual) || rename(fresh_path, path)) {
    if (fresh) munmap(fresh, size);
    close(file);
    unlink(fresh_path);
    return NVML_ERROR_OPERATING_SYSTEM;
  }
  use(fresh, file);
  return NVML_SUCCESS;
}

/* Whether what was mapped is a state of this version. */
static int is_state(const state_t *mapped, size_t size) {
  return mapped->magic == MAGIC && mapped->layout == layout() &&
         __atomic_load_n(&mapped->is_ready, __ATOMIC_ACQUIRE) &&
         mapped->device_count <= MAX_DEVICES && mapped->profile < fake_profile_count &&
         size == size_of(mapped->device_count);
}

int state_attach(const char *path) {
  if (!path) return NVML_ERROR_INVALID_ARGUMENT;
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? NVML_ERROR_NOT_FOUND : NVML_ERROR_OPERATING_SYSTEM;
  struct stat found;
  state_t *mapped = NULL;
  if (!fstat(file, &found) && (size_t)found.st_size >= sizeof(state_t))
    mapped = map(file, (size_t)found.st_size);
  int code = mapped && is_state(mapped, (size_t)found.st_size) ? NVML_SUCCESS
                                                               : NVML_ERROR_INVALID_STATE;
  if (!code && !mapped->is_virtual && monotonic_ns() < mapped->epoch_ns)
    code = NVML_ERROR_NOT_FOUND; /* made before a reboot */
  if (!code) {
    use(mapped, file);
    return NVML_SUCCESS;
  }
  if (mapped) munmap(mapped, (size_t)found.st_size);
  close(file);
  return code;
}

static const char *or_else(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

/* Whether a file that is no state of this version may be made anew: our own, of another version
 * (or empty, or under the name that nobody else uses), and nobody lives on it. */
static int may_replace(const char *path, int is_usual) {
  struct stat found;
  uint64_t magic = 0;
  if (lstat(path, &found) || !S_ISREG(found.st_mode) || found.st_uid != geteuid()) return 0;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return 0;
  int is_ours = is_usual || !found.st_size ||
                (read(file, &magic, sizeof magic) == sizeof magic && magic == MAGIC);
  int is_free = !flock(file, LOCK_EX | LOCK_NB);
  close(file);
  return is_ours && is_free;
}

static int complain(int code, const char *path, const char *what) {
  fprintf(stderr, "fake NVIDIA driver: %s: %s\n", path, what);
  return code;
}

static int make_usual(const char *path) {
  char *end;
  const char *count_text = or_else("FAKE_NVML_DEVICES", "1");
  const char *profile = or_else("FAKE_NVML_PROFILE", "rtx3080ti");
  unsigned long device_count = strtoul(count_text, &end, 10);
  unsigned profile_index;
  if (*end || device_count > MAX_DEVICES)
    return complain(NVML_ERROR_INVALID_STATE, count_text, "FAKE_NVML_DEVICES is 0 to 16");
  if (!find_profile(profile, &profile_index))
    return complain(NVML_ERROR_INVALID_STATE, profile, "FAKE_NVML_PROFILE names no board");
  int code = state_create(path, profile, (unsigned)device_count,
                          !strcmp(or_else("FAKE_NVML_TIME", "real"), "virtual"));
  return code ? complain(NVML_ERROR_INVALID_STATE, path, "this state file cannot be made") : 0;
}

static int open_usual(void) {
  char usual[128], guard_path[4200];
  snprintf(usual, sizeof usual, "/tmp/fake-nvml.%d.state", (int)getuid());
  const char *path = or_else("FAKE_NVML_STATE", usual);
  snprintf(guard_path, sizeof guard_path, "%s.lock", path);
  /* First as it is: where everybody may write, nobody may create over another's file. */
  int guard = open(guard_path, O_RDWR | O_CLOEXEC);
  if (guard < 0) guard = open(guard_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (guard < 0) return complain(NVML_ERROR_INVALID_STATE, guard_path, strerror(errno));
  fchmod(guard, 0666);
  flock(guard, LOCK_EX);
  int code = state_attach(path);
  if (code == NVML_ERROR_NOT_FOUND ||
      (code == NVML_ERROR_INVALID_STATE && may_replace(path, path == usual)))
    code = make_usual(path);
  else if (code == NVML_ERROR_INVALID_STATE)
    complain(code, path, "no state file of this version; remove it, or set FAKE_NVML_STATE");
  else if (code)
    code = complain(NVML_ERROR_INVALID_STATE, path, "this state file cannot be opened");
  close(guard);
  return code;
}

int state_require(void) {
  if (__atomic_load_n(&state, __ATOMIC_ACQUIRE)) return NVML_SUCCESS;
  pthread_mutex_lock(&opening);
  int code = state ? NVML_SUCCESS : open_usual();
  pthread_mutex_unlock(&opening);
  return code;
}

/* A process that was killed while it held the mutex may have left a step of time half done: its
 * energy counted and its time not, or its time and not its launches. That is one step, up to the
 * next look of a sensor, and nobody can tell which half; what would lead astray is put right. */
static void go_on_after_a_death(void) {
  for (unsigned i = 0; i < state->device_count; i++) {
    device_t *device = &state->devices[i];
    if (device->at_step >= device->step_count) device->at_step = 0;
  }
}

void state_lock(void) {
  if (pthread_mutex_lock(&state->mutex) != EOWNERDEAD) return;
  go_on_after_a_death();
  pthread_mutex_consistent(&state->mutex);
}

void state_unlock(void) { pthread_mutex_unlock(&state->mutex); }
