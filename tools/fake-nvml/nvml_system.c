/* Driver, discovery and identity. */
#include <stdio.h>
#include <string.h>

#include "calls.h"

#define CUDA_VERSION 13020

static int initialise(const char *symbol) {
  calls_configure();
  int code = call_unlocked(symbol);
  return code ? code : calls_initialise();
}

NVML_API int nvmlInit(void) { return initialise(__func__); }
NVML_API int nvmlInit_v2(void) { return initialise(__func__); }
NVML_API int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return initialise(__func__);
}

NVML_API int nvmlShutdown(void) {
  int code = call_unlocked(__func__);
  return code ? code : calls_shut_down();
}

static const struct {
  int code;
  const char *text;
} error_texts[] = {
    {0, "Success"},
    {1, "Uninitialized"},
    {2, "Invalid Argument"},
    {3, "Not Supported"},
    {4, "Insufficient Permissions"},
    {6, "Not Found"},
    {7, "Insufficient Size"},
    {9, "Driver Not Loaded"},
    {10, "Timeout"},
    {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"},
    {15, "GPU is lost"},
    {16, "GPU requires reset"},
    {17, "The operating system has blocked the request"},
    {18, "Driver/library version mismatch"},
    {19, "In use by another client"},
    {20, "Insufficient Memory"},
    {21, "No data"},
    {23, "Insufficient Resources"},
    {24, "Frequency not supported"},
    {25, "Argument version mismatch"},
    {26, "Deprecated"},
    {27, "Not ready"},
    {28, "No GPU found"},
    {29, "Invalid state"},
};

NVML_API const char *nvmlErrorString(int code) {
  for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++) {
    if (error_texts[i].code == code) return error_texts[i].text;
  }
  return "Unknown Error";
}

static int put_text(char *text, unsigned size, const char *value) {
  if (!text) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(value) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(text, value);
  return NVML_SUCCESS;
}

NVML_API int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  CALL();
  return call_end(put_text(text, size, driver_version()));
}

NVML_API int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  char version[80];
  CALL();
  snprintf(version, sizeof version, "13.%s", driver_version());
  return call_end(put_text(text, size, version));
}

NVML_API int nvmlSystemGetCudaDriverVersion(int *version) {
  CALL();
  NEED(version);
  *version = CUDA_VERSION;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  CALL();
  NEED(version);
  *version = CUDA_VERSION;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size) {
  char path[64], name[256] = "";
  CALL();
  snprintf(path, sizeof path, "/proc/%u/comm", pid);
  FILE *file = fopen(path, "re");
  if (!file) return call_end(NVML_ERROR_NOT_FOUND);
  if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = 0;
  fclose(file);
  return call_end(put_text(text, size, name));
}

/* ---- discovery ---------------------------------------------------------------------------- */

static int device_count(const char *symbol, unsigned *count) {
  int code = call_begin(symbol);
  if (code) return code;
  NEED(count);
  *count = state->device_count;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetCount(unsigned *count) { return device_count(__func__, count); }
NVML_API int nvmlDeviceGetCount_v2(unsigned *count) { return device_count(__func__, count); }

static int give_handle(unsigned index, int mig, void **handle) {
  if (!handle || index >= state->device_count) return NVML_ERROR_INVALID_ARGUMENT;
  if (device_is_lost(&state->devices[index])) return NVML_ERROR_GPU_IS_LOST;
  *handle = handle_of(index, mig);
  return NVML_SUCCESS;
}

NVML_API int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) {
  CALL();
  return call_end(give_handle(index, -1, handle));
}

NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  CALL();
  return call_end(give_handle(index, -1, handle));
}

static uint64_t scramble(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

static void uuid_of(unsigned index, int mig, char text[64]) {
  uint64_t seed = (uint64_t)(state->profile + 1) << 16 | index << 8 | (unsigned)(mig + 1);
  uint64_t a = scramble(seed * 0x9e3779b97f4a7c15ull), b = scramble(a + seed);
  snprintf(text, 64, "%s-%08x-%04x-%04x-%04x-%012llx", mig < 0 ? "GPU" : "MIG",
           (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xffff),
           (unsigned)(b >> 48), (unsigned long long)(b & 0xffffffffffffull));
}

static int mig_count(unsigned index) {
  const knobs_t *knobs = &state->devices[index].knobs;
  return knobs->mig_mode > 0 ? (int)knobs->mig_count : 0;
}

static int find_uuid(const char *uuid, void **handle) {
  char text[64];
  if (!uuid) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < state->device_count; i++) {
    for (int mig = -1; mig < mig_count(i); mig++) {
      uuid_of(i, mig, text);
      if (!strcmp(text, uuid)) return give_handle(i, mig, handle);
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

NVML_API int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  CALL();
  return call_end(find_uuid(uuid, handle));
}

NVML_API int nvmlDeviceGetHandleByUUIDV(const nvml_uuid_t *uuid, void **handle) {
  CALL();
  NEED(uuid);
  if (uuid->version != 0x1000034) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  if (uuid->type != 1) return call_end(NVML_ERROR_NOT_SUPPORTED);
  return call_end(find_uuid(uuid->value.text, handle));
}

/* `domain:bus:device.function`, the domain of any length or left out. */
static int find_bus(const char *text, void **handle) {
  unsigned domain = 0, bus, slot;
  if (!text) return NVML_ERROR_INVALID_ARGUMENT;
  if (sscanf(text, "%x:%x:%x.", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(text, "%x:%x.", &bus, &slot) != 2) return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (domain || slot || bus < 1 || bus > state->device_count) return NVML_ERROR_NOT_FOUND;
  return give_handle(bus - 1, -1, handle);
}

NVML_API int nvmlDeviceGetHandleByPciBusId(const char *bus_id, void **handle) {
  CALL();
  return call_end(find_bus(bus_id, handle));
}

NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle) {
  CALL();
  return call_end(find_bus(bus_id, handle));
}

/* ---- identity ----------------------------------------------------------------------------- */

#define ANY_DEVICE_CALL(handle)                                      \
  device_t *device;                                                  \
  int mig, begun_ = call_any_device(__func__, handle, &device, &mig); \
  if (begun_) return begun_

NVML_API int nvmlDeviceGetIndex(void *handle, unsigned *index) {
  ANY_DEVICE_CALL(handle);
  NEED(index);
  *index = mig < 0 ? device->index : (unsigned)mig;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
  char uuid[64];
  ANY_DEVICE_CALL(handle);
  uuid_of(device->index, mig, uuid);
  return call_end(put_text(text, size, uuid));
}

NVML_API int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
  char name[128];
  ANY_DEVICE_CALL(handle);
  snprintf(name, sizeof name, "%s%s", state_profile()->name, mig < 0 ? "" : " MIG 1g");
  return call_end(put_text(text, size, name));
}

NVML_API int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is_mig) {
  ANY_DEVICE_CALL(handle);
  NEED(is_mig);
  *is_mig = mig >= 0;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent) {
  ANY_DEVICE_CALL(handle);
  NEED(parent && mig >= 0);
  *parent = handle_of(device->index, -1);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance) {
  DEVICE_CALL(handle);
  NEED(instance);
  if (!state_profile()->is_data_center) return call_end(NVML_ERROR_NOT_SUPPORTED);
  if ((int)index >= mig_count(device->index)) return call_end(NVML_ERROR_NOT_FOUND);
  *instance = handle_of(device->index, (int)index);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
  DEVICE_CALL(handle);
  NEED(count);
  *count = state_profile()->is_data_center ? 7 : 0;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
  DEVICE_CALL(handle);
  NEED(current && pending);
  if (!state_profile()->is_data_center) return call_end(NVML_ERROR_NOT_SUPPORTED);
  *current = *pending = device->knobs.mig_mode > 0;
  return call_end(NVML_SUCCESS);
}

static int pci_info(const char *symbol, void *handle, nvml_pci_t *info) {
  device_t *device;
  int mig, code = call_any_device(symbol, handle, &device, &mig);
  if (code) return code;
  NEED(info);
  *info = (nvml_pci_t){.bus = device->index + 1, .device_id = state_profile()->pci_device_id};
  snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "0000:%02X:00.0", info->bus);
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlDeviceGetPciInfo(void *h, nvml_pci_t *info) { return pci_info(__func__, h, info); }
NVML_API int nvmlDeviceGetPciInfo_v2(void *h, nvml_pci_t *info) {
  return pci_info(__func__, h, info);
}
NVML_API int nvmlDeviceGetPciInfo_v3(void *h, nvml_pci_t *info) {
  return pci_info(__func__, h, info);
}

NVML_API int nvmlDeviceGetPciInfoExt(void *handle, nvml_pci_ext_t *info) {
  DEVICE_CALL(handle);
  NEED(info);
  if (info->version != 0x1000040) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  info->domain = info->device = info->subsystem_id = 0;
  info->bus = device->index + 1;
  info->device_id = state_profile()->pci_device_id;
  info->base_class = 3;
  info->sub_class = 2;
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  return call_end(NVML_SUCCESS);
}
