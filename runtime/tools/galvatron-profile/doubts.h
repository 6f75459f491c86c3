//===- doubts.h - What a measurement cannot be ------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_DOUBTS_H
#define GALVATRON_PROFILE_DOUBTS_H

#include "layers.h"
#include "measure.h"

#include <string>
#include <vector>

namespace grt::profile {

/// Ticks of a machine's processors since it began: at work, and in all.
struct ProcessorTicks {
  double busy = 0, all = 0;
};

/// Parses the first line of /proc/stat; zeros if it is not of that form.
ProcessorTicks parseTicks(const std::string &stat);
/// Returns how many of `cores` were at work between two readings.
double busyCores(const ProcessorTicks &before, const ProcessorTicks &after,
                 int cores);
/// Watches the machine for a fifth of a second, in which this process sleeps.
double busyCoresNow();

/// Returns what of the measurement is no property of the machine: times of
/// nothing, a larger message or product that is much quicker than a smaller
/// one, f64 above f32, and other processes at work on `othersBusy` cores.
std::vector<std::string> doubts(const Measurement &measurement,
                                double othersBusy);
/// The same of a model's layers: a larger micro-batch that is much quicker than
/// a smaller one, and other processes.
std::vector<std::string> doubts(const LayerProfile &profile, double othersBusy);

} // namespace grt::profile

#endif // GALVATRON_PROFILE_DOUBTS_H
