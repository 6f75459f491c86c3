//===- RoundedTimes.h - Times that searches add up --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Times are rounded once, layer by layer and transfer by transfer: whoever
// searches and whoever prices a plan adds the same integers.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_ROUNDEDTIMES_H
#define GALVATRON_COST_ROUNDEDTIMES_H

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Support/Units.h"

namespace galvatron {

inline Picoseconds layerPicoseconds(const LayerTime &time) {
  return toPicoseconds(time.total());
}
inline Picoseconds layerNosyncPicoseconds(const LayerTime &time) {
  return toPicoseconds(time.totalNosync());
}
/// A layer's part of what a step's update and norm add to Eq. 9. All stages do
/// them at the same time, once the norms have met: the sum over the stages
/// counts one of `stages` equal ones.
inline Picoseconds updatePicoseconds(const LayerTimeParts &parts,
                                     int64_t stages) {
  return toPicoseconds((parts.norm + parts.update) /
                       static_cast<double>(stages));
}
inline Picoseconds transferPicoseconds(const ReshardRate &rate,
                                       int64_t bytesPerSample,
                                       int64_t samples) {
  return bytesPerSample == 0
             ? 0
             : toPicoseconds(rate.seconds(static_cast<double>(bytesPerSample),
                                          static_cast<double>(samples)));
}

} // namespace galvatron

#endif // GALVATRON_COST_ROUNDEDTIMES_H
