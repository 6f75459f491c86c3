//===- QuickPipeline.h - A pipeline at once ---------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The fallback of an exact search that has no time left: all layers have one
// layout class, and memory is traded for time stage by stage, by one price of a
// byte.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SEARCH_QUICKPIPELINE_H
#define GALVATRON_SEARCH_QUICKPIPELINE_H

#include "galvatron/Search/PipelineSearch.h"

namespace galvatron {

/// A pipeline with these layers per stage that fits, often a good one; nothing
/// if no class gives one.
std::optional<PipelineSolution>
quickPipeline(const PipelineProblem &problem,
              const std::vector<int64_t> &partition);

} // namespace galvatron

#endif // GALVATRON_SEARCH_QUICKPIPELINE_H
