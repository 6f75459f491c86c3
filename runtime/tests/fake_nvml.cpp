//===- fake_nvml.cpp - A management library of tests ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// libnvidia-ml.so.1 of a machine that GRT_TEST_NVML describes: the driver's
// CUDA (12040), then for each card its compute capability (90), GiB in all and
// free, and a process that is on it (0: none), all separated by spaces.
// GRT_TEST_HEALTH gives six numbers of all cards: compute mode, divided, state
// and status of the fabric, errors of the memory, reasons for low clocks. The
// signatures are those of the manual.
//
//===----------------------------------------------------------------------===//

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

namespace {

struct Card {
  int capability = 0;
  unsigned long long totalGiB = 0, freeGiB = 0;
  unsigned process = 0;
};

struct Machine {
  int cuda = 0;
  std::vector<Card> cards;
};

const Machine &machine() {
  static const Machine made = [] {
    const char *text = std::getenv("GRT_TEST_NVML");
    std::istringstream words(text ? text : "");
    Machine result;
    words >> result.cuda;
    for (Card card; words >> card.capability >> card.totalGiB >> card.freeGiB >>
                    card.process;)
      result.cards.push_back(card);
    return result;
  }();
  return made;
}

const Card &cardOf(void *device) {
  return machine().cards.at(size_t(reinterpret_cast<intptr_t>(device) - 1));
}

} // namespace

namespace {
/// The number at this place of GRT_TEST_HEALTH; 0 without.
int health(int place) {
  const char *text = std::getenv("GRT_TEST_HEALTH");
  std::istringstream words(text ? text : "");
  int number = 0;
  for (int i = 0; i <= place; ++i)
    if (!(words >> number))
      return 0;
  return number;
}
} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() { return std::getenv("GRT_TEST_NVML") ? 0 : 9; }
EXPORT int nvmlShutdown() { return 0; }
EXPORT const char *nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
  std::snprintf(text, bytes, "550.54.14");
  return 0;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = machine().cuda;
  return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = unsigned(machine().cards.size());
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device) {
  *device = reinterpret_cast<void *>(intptr_t(number) + 1);
  return number < machine().cards.size() ? 0 : 2;
}
EXPORT int nvmlDeviceGetName(void *, char *text, unsigned bytes) {
  std::snprintf(text, bytes, "Card");
  return 0;
}
EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned bytes) {
  std::snprintf(text, bytes, "GPU-%d",
                int(reinterpret_cast<intptr_t>(device) - 1));
  return 0;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major,
                                              int *minor) {
  *major = cardOf(device).capability / 10;
  *minor = cardOf(device).capability % 10;
  return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
  const Card &card = cardOf(device);
  memory[0] = card.totalGiB << 30;
  memory[1] = card.freeGiB << 30;
  memory[2] = memory[0] - memory[1];
  return 0;
}
/// Numbers behind an id of 16 letters: domain, bus, device, two more.
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, void *info) {
  const unsigned numbers[5] = {
      0, 0x1b + unsigned(reinterpret_cast<intptr_t>(device)) - 1, 0, 0, 0};
  std::memcpy(static_cast<char *>(info) + 16, numbers, sizeof(numbers));
  return 0;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device,
                                                   unsigned *count,
                                                   void *processes) {
  const Card &card = cardOf(device);
  *count = card.process ? 1 : 0;
  std::memcpy(processes, &card.process, sizeof(card.process));
  return 0;
}
EXPORT int nvmlDeviceGetComputeMode(void *, int *mode) {
  *mode = health(0);
  return 0;
}
EXPORT int nvmlDeviceGetMigMode(void *, unsigned *current, unsigned *pending) {
  *current = *pending = unsigned(health(1));
  return 0;
}
/// 16 bytes of an id, a status, a number, and a byte of a state.
EXPORT int nvmlDeviceGetGpuFabricInfo(void *, void *info) {
  auto *bytes = static_cast<char *>(info);
  const int status = health(3);
  std::memcpy(bytes + 16, &status, sizeof(status));
  bytes[24] = char(health(2));
  return 0;
}
EXPORT int nvmlDeviceGetTotalEccErrors(void *, int type, int counter,
                                       unsigned long long *count) {
  *count = type == 1 && counter == 0 ? unsigned(health(4)) : 0;
  return 0;
}
EXPORT int nvmlDeviceGetRemappedRows(void *, unsigned *corrected,
                                     unsigned *uncorrected, unsigned *pending,
                                     unsigned *failed) {
  *corrected = *uncorrected = *pending = *failed = 0;
  return 0;
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *,
                                                     unsigned long long *bits) {
  *bits = unsigned(health(5));
  return 0;
}
EXPORT int nvmlDeviceGetClockInfo(void *, int type, unsigned *megahertz) {
  *megahertz = type == 1 ? 1980 : 0;
  return 0;
}
