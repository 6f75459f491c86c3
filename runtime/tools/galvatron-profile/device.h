//===- device.h - Measures what a device achieves -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_DEVICE_H
#define GALVATRON_PROFILE_DEVICE_H

#include "measure.h"

namespace grt::profile {

/// Measures one device of a backend that has one, alone: products and attention
/// in bf16 up to cubes of `largest`, other kernels of a transformer block.
/// Times are the device's own. Throws grt::Error.
Measurement measureDevice(const std::string &backend, int64_t largest,
                          const MeasureOptions &options);

} // namespace grt::profile

#endif // GALVATRON_PROFILE_DEVICE_H
