//===- options.h - Command line of galvatron-profile ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef GALVATRON_PROFILE_OPTIONS_H
#define GALVATRON_PROFILE_OPTIONS_H

#include "grt/session.h"

#include <cstdint>
#include <string>
#include <vector>

namespace grt::profile {

struct Options {
  bool help = false, version = false, quick = false;
  int ranks = 0;       ///< 0: one per core
  double seconds = 0;  ///< 0: 2 with --quick, else 60
  uint64_t memory = 0; ///< bytes of a rank; 0: a share of the machine's
  std::string backend; ///< with a device; empty: ranks on the CPU
  /// The largest edge of a device's products; with `layers` the most samples of
  /// a micro-batch.
  int64_t largest = 8192;
  /// The model whose layers are measured; empty: the machine is. Then `memory`
  /// is what a layer may use of a device.
  std::string layers;
  std::vector<std::string> compileOptions; ///< that galvatron-compile is given
  int threadsPerRank = 0;                  ///< with `layers`; 0: all cores
  uint64_t hostMemory = 0; ///< with `layers`, bytes; 0: what is available
  std::string output = "-";
  std::string json; ///< empty: none
};

Status parseOptions(int count, char **arguments, Options &options);
const char *helpText();

} // namespace grt::profile

#endif // GALVATRON_PROFILE_OPTIONS_H
