/* GPM: activity between two samples, counted in cycles (Hopper and later). */
#include <stdlib.h>

#include "board.h"
#include "calls.h"

typedef struct {
  int64_t at_ps;
  unsigned device;
  double cycles, active_cycles, tensor_cycles, busy_s, dram_s;
} sample_t;

typedef struct {
  unsigned id;
  int return_code;
  double value;
  char *short_name, *long_name, *unit;
} metric_t;

typedef struct {
  unsigned version, metric_count;
  sample_t *earlier, *later;
  metric_t metrics[]; /* its length grew without a new version: touch what is asked for alone */
} metrics_get_t;

typedef struct {
  unsigned version, is_supported;
} support_t;

_Static_assert(sizeof(metric_t) == 40, "GPM metric record");

NVML_API int nvmlGpmQueryDeviceSupport(void *handle, support_t *support) {
  DEVICE_CALL(handle);
  NEED(support);
  if (support->version != 1) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  support->is_supported = (unsigned)state_profile()->has_gpm;
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlGpmSampleAlloc(sample_t **sample) {
  CALL();
  NEED(sample);
  *sample = calloc(1, sizeof **sample);
  return call_end(*sample ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_API int nvmlGpmSampleFree(sample_t *sample) {
  CALL();
  NEED(sample);
  free(sample);
  return call_end(NVML_SUCCESS);
}

NVML_API int nvmlGpmSampleGet(void *handle, sample_t *sample) {
  DEVICE_CALL(handle);
  NEED(sample);
  if (!state_profile()->has_gpm) return call_end(NVML_ERROR_NOT_SUPPORTED);
  *sample = (sample_t){
      .at_ps = device->now_ps,
      .device = device->index,
      .cycles = device->sm_cycles,
      .active_cycles = device->active_cycles,
      .tensor_cycles = device->tensor_cycles,
      .busy_s = device->busy_s,
      .dram_s = device->dram_s,
  };
  return call_end(NVML_SUCCESS);
}

static int put_metric(metric_t *metric, const sample_t *a, const sample_t *b) {
  const knobs_t *knobs = &state->devices[a->device].knobs;
  double since_s = (double)(b->at_ps - a->at_ps) / PS_PER_S;
  double cycles = b->cycles - a->cycles;
  double active = cycles > 0 ? (b->active_cycles - a->active_cycles) / cycles : 0.0;
  double tensor = cycles > 0 ? (b->tensor_cycles - a->tensor_cycles) / cycles : 0.0;
  metric->unit = "%";
  switch (metric->id) {
    case 1: metric->value = 100.0 * (b->busy_s - a->busy_s) / since_s; break;
    case 2: metric->value = 100.0 * active; break;
    case 3: metric->value = 100.0 * active * knobs->occupancy_ratio; break;
    case 5: case 7: metric->value = 100.0 * tensor * knobs->tensor_ratio; break;
    case 6: case 8: case 9: case 11: case 12: case 13: metric->value = 0.0; break;
    case 10: metric->value = 100.0 * (b->dram_s - a->dram_s) / since_s; break;
    case 20: case 21: metric->value = 0.0; metric->unit = "MiB/s"; break;
    case 248: metric->value = b->cycles; metric->unit = "cycles"; break;
    case 249: metric->value = b->active_cycles; metric->unit = "cycles"; break;
    default: return NVML_ERROR_NOT_SUPPORTED;
  }
  return NVML_SUCCESS;
}

NVML_API int nvmlGpmMetricsGet(metrics_get_t *request) {
  CALL();
  NEED(request && request->earlier && request->later);
  if (request->version != 1) return call_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  const sample_t *a = request->earlier, *b = request->later;
  NEED(a->device == b->device && a->device < state->device_count && b->at_ps > a->at_ps);
  for (unsigned i = 0; i < request->metric_count; i++) {
    metric_t *metric = &request->metrics[i];
    metric->value = 0.0;
    metric->short_name = metric->long_name = "fake";
    metric->return_code = put_metric(metric, a, b);
  }
  return call_end(NVML_SUCCESS);
}
