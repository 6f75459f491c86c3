//===- ExchangeName.h - Names of exchanges inside layers --------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The collectives inside a layer's functions, by axis and kind: for traces and
// for reports of what keeps a link busy.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_EXCHANGENAME_H
#define GALVATRON_COST_EXCHANGENAME_H

#include "galvatron/Cost/LayerCost.h"
#include "galvatron/Cost/LayerModel.h"

namespace galvatron {

/// Returns the axis and kind of the collectives that run inside the functions
/// of a layer at one of these times, the longest first: "tp all-reduce",
/// "cp shift", "cp all-to-all + tp all-reduce". Empty if there is none.
std::string exchangeName(const LayerFootprint &footprint,
                         const StrategyLinks &links,
                         llvm::ArrayRef<CollectiveTime> times);

/// Returns the seconds of all collectives of a micro-batch inside the functions
/// of a layer that are among this group, as if nothing ran beside them.
double exchangeSeconds(const LayerFootprint &footprint,
                       const StrategyLinks &links, CollectiveGroup among);

} // namespace galvatron

#endif // GALVATRON_COST_EXCHANGENAME_H
