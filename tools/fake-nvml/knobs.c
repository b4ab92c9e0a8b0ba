#include "knobs.h"

#include <stddef.h>
#include <string.h>

static const struct {
  const char *name;
  size_t offset;
} table[] = {
#define KNOB_ENTRY(name, value) {#name, offsetof(knobs_t, name)},
    KNOBS(KNOB_ENTRY)
#undef KNOB_ENTRY
};

void knobs_defaults(const profile_t *p, knobs_t *knobs) {
#define KNOB_DEFAULT(name, value) knobs->name = (double)(value);
  KNOBS(KNOB_DEFAULT)
#undef KNOB_DEFAULT
}

double *knobs_find(knobs_t *knobs, const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!strcmp(table[i].name, name)) return (double *)((char *)knobs + table[i].offset);
  }
  return NULL;
}
