//===- axes.h - Axes and streams, for C++ -----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The lists of axes.def as tables. Who asks what an axis or a stream is for asks
// here: an axis that is added is a row of the list and a kind of levels.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_AXES_H
#define GRT_AXES_H

#include "grt/abi.h"

#include <cstdint>

namespace grt {

/// A row of the list of axes, which says what each member is.
struct AxisForm {
  const char *name;
  bool cuts, values, parameters;
  uint32_t streams, shares;
};

/// All axes, by number.
inline constexpr AxisForm axisForms[] = {
#define GRT_AXIS(NAME, name, number, cuts, values, parameters, streams,        \
                 shares)                                                       \
  {#name, cuts, values, parameters, streams, shares},
#include "grt/axes.def"
};

/// A row of the list of streams.
struct StreamForm {
  const char *name;
  bool first;
};

/// All streams, by number.
inline constexpr StreamForm streamForms[] = {
#define GRT_STREAM(NAME, Name, name, number, first) {#name, first},
#include "grt/axes.def"
};

// Rows stand in the order of their numbers.
constexpr bool areNumbered() {
  uint32_t axes = 0, streams = 0;
  bool inOrder = true;
#define GRT_AXIS(NAME, name, number, ...) inOrder &= axes++ == number;
#define GRT_STREAM(NAME, Name, name, number, ...)                              \
  inOrder &= streams++ == number;
#include "grt/axes.def"
  return inOrder;
}
static_assert(areNumbered());

/// True if groups of two axes may have two ranks in common. All groups of one
/// axis share a communicator.
constexpr bool axesShareRanks(uint32_t one, uint32_t other) {
  return one == other || (axisForms[one].shares >> other & 1) ||
         (axisForms[other].shares >> one & 1);
}

} // namespace grt

#endif // GRT_AXES_H
