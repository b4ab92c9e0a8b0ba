#include "knobs.h"

#include <stddef.h>
#include <string.h>

static const struct {
  const char *name;
  size_t offset;
  const char *usual;
  double least, most;
} table[] = {
#define KNOB_ENTRY(name, value, least, most) {#name, offsetof(knobs_t, name), #value, least, most},
    KNOBS(KNOB_ENTRY)
#undef KNOB_ENTRY
};

void knobs_defaults(const profile_t *p, knobs_t *knobs) {
#define KNOB_DEFAULT(name, value, least, most) knobs->name = (double)(value);
  KNOBS(KNOB_DEFAULT)
#undef KNOB_DEFAULT
}

int knobs_takes(const char *name, double value) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].name, name)) continue;
    return (value >= table[i].least && value <= table[i].most) ||
           (value == 0 && !strcmp(table[i].usual, "0.0"));
  }
  return 0;
}

double *knobs_find(knobs_t *knobs, const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!strcmp(table[i].name, name)) return (double *)((char *)knobs + table[i].offset);
  }
  return NULL;
}
