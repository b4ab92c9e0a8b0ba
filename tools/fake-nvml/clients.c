/* Which processes hold the driver, and what becomes of its settings when the last one leaves. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "board.h"
#include "clocks.h"
#include "nvml_types.h"
#include "state.h"

/* Field 22 of /proc/PID/stat: when the process started, in ticks since boot; 0: no such process. */
uint64_t process_started(pid_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = 0;
  char *at = strrchr(text, ')');
  char process_state = 0;
  unsigned long long started = 0;
  if (at) {
    sscanf(at + 2,
           "%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
           &process_state, &started);
  }
  return process_state == 'Z' || process_state == 'X' ? 0 : started;
}

int process_lives(pid_t pid, uint64_t started) {
  if (pid <= 0 || (kill(pid, 0) && errno == ESRCH)) return 0;
  uint64_t found = process_started(pid);
  return found && (!started || found == started);
}

static int any_client(void) {
  for (unsigned i = 0; i < MAX_CLIENTS; i++) {
    if (state->clients[i].pid) return 1;
  }
  for (unsigned i = 0; i < state->device_count; i++) {
    if (state->devices[i].step_count) return 1;
  }
  return 0;
}

static void last_left(void) {
  if (any_client()) return;
  for (unsigned i = 0; i < state->device_count; i++) {
    device_t *device = &state->devices[i];
    if (device->is_persistent) continue;
    board_sync(device);
    driver_unload(device);
  }
}

void clients_purge(void) {
  int died = 0;
  for (unsigned i = 0; i < MAX_CLIENTS; i++) {
    client_t *client = &state->clients[i];
    if (!client->pid || process_lives(client->pid, client->started)) continue;
    client->pid = 0;
    died = 1;
  }
  for (unsigned i = 0; i < state->device_count; i++) {
    device_t *device = &state->devices[i];
    if (!device->step_count || process_lives(device->runner_pid, device->runner_started)) continue;
    board_sync(device);
    board_stop(device);
    died = 1;
  }
  if (died) last_left();
}

int clients_add(void) {
  clients_purge();
  pid_t own = getpid();
  client_t *free_slot = NULL;
  for (unsigned i = 0; i < MAX_CLIENTS; i++) {
    if (state->clients[i].pid == own) return NVML_SUCCESS;
    if (!state->clients[i].pid && !free_slot) free_slot = &state->clients[i];
  }
  if (!free_slot) return NVML_ERROR_INSUFFICIENT_RESOURCES;
  *free_slot = (client_t){.pid = own, .started = process_started(own)};
  return NVML_SUCCESS;
}

void clients_drop(void) {
  pid_t own = getpid();
  for (unsigned i = 0; i < MAX_CLIENTS; i++) {
    if (state->clients[i].pid == own) state->clients[i].pid = 0;
  }
  clients_purge();
  last_left();
}

void driver_unload(device_t *device) {
  clocks_forget(device);
  board_forget(device);
}
