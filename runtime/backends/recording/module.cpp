//===- module.cpp - The recording backend as a library --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Around the kernels of the CPU backend. GRT_CHECK_SEED picks the order.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"
#include "recording.h"

#include <cstdlib>

extern "C" __attribute__((visibility("default"))) const grt_backend *
grt_backend_get(void) {
  static const grt_backend *table = []() -> const grt_backend * {
    try {
      static const grt::BackendHandle cpu("cpu", "");
      if (const char *seed = std::getenv("GRT_CHECK_SEED"))
        grt::recording::setSeed(std::strtoull(seed, nullptr, 10));
      return grt::recording::backendAround(&*cpu);
    } catch (...) {
      return nullptr;
    }
  }();
  return table;
}
