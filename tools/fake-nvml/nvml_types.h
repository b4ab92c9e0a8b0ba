/* The part of NVML's interface that is modelled, as nvidia-ml-py has it. */
#ifndef FAKE_NVML_TYPES_H
#define FAKE_NVML_TYPES_H

#include <stdint.h>

#define NVML_API __attribute__((visibility("default")))

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_OPERATING_SYSTEM = 17,
  NVML_ERROR_IN_USE = 19,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
  NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_NOT_READY = 27,
  NVML_ERROR_INVALID_STATE = 29,
  NVML_ERROR_UNKNOWN = 999,
};

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO, CLOCK_TYPE_COUNT };

#define CLOCK_LIMIT_TDP 0xffffff01u
#define CLOCK_LIMIT_UNLIMITED 0xffffff02u

#define REASON_GPU_IDLE 0x1u
#define REASON_SW_POWER_CAP 0x4u
#define REASON_HW_SLOWDOWN 0x8u
#define REASON_SYNC_BOOST 0x10u
#define REASON_SW_THERMAL 0x20u
#define REASON_HW_THERMAL 0x40u
#define REASON_HW_POWER_BRAKE 0x80u

typedef struct {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
} nvml_pci_t;

typedef struct {
  unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
  char bus_id[32];
} nvml_pci_ext_t;

typedef struct {
  unsigned long long total_bytes, free_bytes, used_bytes;
} nvml_memory_t;

typedef struct {
  unsigned version;
  unsigned long long total_bytes, reserved_bytes, free_bytes, used_bytes;
} nvml_memory_v2_t;

typedef struct {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
} nvml_process_t;

typedef struct {
  unsigned version;
  int sensor, temp_c;
} nvml_temperature_t;

typedef struct {
  unsigned version;
  int clock_type, pstate, offset_mhz, least_offset_mhz, most_offset_mhz;
} nvml_clock_offset_t;

typedef struct {
  unsigned version, scope, limit_mw;
} nvml_power_value_t;

typedef struct {
  unsigned version, type;
  union {
    char text[41];
    unsigned char bytes[16];
  } value;
} nvml_uuid_t;

typedef struct {
  unsigned id, scope;
  long long timestamp_us, latency_us;
  int value_type, return_code;
  union {
    double real;
    unsigned u32;
    unsigned long long u64;
  } value;
} nvml_field_t;

enum { VALUE_DOUBLE = 0, VALUE_U32 = 1, VALUE_U64 = 3 };

_Static_assert(sizeof(nvml_pci_t) == 68, "PCI record");
_Static_assert(sizeof(nvml_memory_v2_t) == 0x28, "memory record");
_Static_assert(sizeof(nvml_process_t) == 24, "process record");
_Static_assert(sizeof(nvml_temperature_t) == 0xc, "temperature record");
_Static_assert(sizeof(nvml_clock_offset_t) == 0x18, "clock offset record");
_Static_assert(sizeof(nvml_power_value_t) == 0xc, "power value record");
_Static_assert(sizeof(nvml_uuid_t) == 0x34, "UUID record");
_Static_assert(sizeof(nvml_field_t) == 40, "field value record");

#endif
