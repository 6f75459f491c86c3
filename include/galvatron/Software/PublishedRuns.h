//===- PublishedRuns.h - Published runs behind an execution -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Step times that others have published, and what was predicted of them:
// lib/Software/PublishedRuns.csv, which benchmarks/prediction/published writes.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_PUBLISHEDRUNS_H
#define GALVATRON_SOFTWARE_PUBLISHEDRUNS_H

#include "galvatron/Software/Configuration.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/JSON.h"

namespace galvatron {

/// A step that others have measured, priced by an execution.
struct PublishedRun {
  llvm::StringRef execution, source, id;
  llvm::StringRef device;   ///< a built-in type
  llvm::StringRef strategy; ///< of the blocks
  int64_t devices = 1, parameters = 1, tokens = 1;
  int64_t batch = 1, microBatch = 1, tensor = 1, pipeline = 1, context = 1;
  double seconds = 0, predicted = 0; ///< of a step

  /// "8.0B, 128 samples of 8192 tokens on 8 h100, pp1 zdp8, 1 a micro-batch".
  std::string str() const;
  llvm::json::Value toJson() const;
};

/// The published runs that an execution was compared with.
struct Standing {
  int64_t runs = 0;       ///< published; 0: unchecked
  double medianError = 0; ///< of their steps, percent
};

llvm::ArrayRef<PublishedRun> publishedRuns();

Standing standingOf(llvm::StringRef execution);

/// The published run of an execution that is most like a configuration on
/// devices of a type; null: there is none. Sizes, degrees, the batch and its
/// tokens are compared by the logarithms of their ratios, where one of the
/// model counts twice; another type of card counts as a factor of 4 between
/// models.
const PublishedRun *nearestRun(llvm::StringRef execution,
                               const ModelShape &shape,
                               const Configuration &configuration,
                               llvm::StringRef deviceType);

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_PUBLISHEDRUNS_H
