//===- cards_backend.cpp - A plug-in that has several devices -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// libgrt_cards.so: the CPU's backend, and as many devices as GRT_TEST_CARDS
// names, separated by commas. A name is a device's identity, so
// that one may stand there twice. GRT_TEST_CARDS_LOG is a file that gets a line
// for each rank that begins: process, device, rank, GOMP_SPINCOUNT.
//
//===----------------------------------------------------------------------===//

#include "grt/backend.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

int chosen = 0;

const grt_backend &cpu() {
  static const grt_backend *table = [] {
    void *library = dlopen(CPU_BACKEND, RTLD_NOW | RTLD_LOCAL);
    auto get = reinterpret_cast<decltype(&grt_backend_get)>(
        library ? dlsym(library, "grt_backend_get") : nullptr);
    if (!get)
      std::abort();
    return get();
  }();
  return *table;
}

std::vector<std::string> cards() {
  const char *names = std::getenv("GRT_TEST_CARDS");
  std::istringstream list(names ? names : "card");
  std::vector<std::string> result;
  for (std::string name; std::getline(list, name, ',');)
    result.push_back(name);
  return result;
}

int32_t countDevices(int32_t *count, char *message, size_t bytes) {
  *count = int32_t(cards().size());
  if (*count)
    return 0;
  std::snprintf(message, bytes, "no cards");
  return 1;
}

int32_t useDevice(int32_t device, char *, size_t) {
  chosen = device;
  return 0;
}

int32_t identity(char *text, size_t bytes, char *, size_t) {
  std::snprintf(text, bytes, "%s", cards().at(size_t(chosen)).c_str());
  return 0;
}

void *createRank(int32_t rank, int32_t threads) {
  if (const char *path = std::getenv("GRT_TEST_CARDS_LOG"))
    if (FILE *log = std::fopen(path, "a")) {
      const char *spins = std::getenv("GOMP_SPINCOUNT");
      std::fprintf(log, "%d %s %d %s\n", int(getpid()),
                   cards().at(size_t(chosen)).c_str(), rank,
                   spins ? spins : "-");
      std::fclose(log);
    }
  return cpu().create_rank(rank, threads);
}

} // namespace

extern "C" __attribute__((visibility("default"))) const grt_backend *
grt_backend_get(void) {
  static const grt_backend table = [] {
    grt_backend made = cpu();
    made.name = "cards";
    made.create_rank = createRank;
    made.count_devices = countDevices;
    made.use_device = useDevice;
    made.device_identity = identity;
    return made;
  }();
  return &table;
}
