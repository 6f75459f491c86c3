//===- Manifest.h - What a program says about itself ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The manifest is the JSON text inside a compiled program from which the
// runtime learns everything that is not code: docs/manifest.md has every key.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TARGET_MANIFEST_H
#define GALVATRON_TARGET_MANIFEST_H

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace mlir::galvatron {

/// Facts of a program that its IR does not hold.
struct ManifestOptions {
  /// JSON text of the model's configuration as imported, for saving a model;
  /// empty: what the module carries.
  std::string modelConfig;
  /// JSON text of the plan; empty: what the module carries.
  std::string plan;
  /// Milliseconds of one step; nullopt: the plan's "iteration-ms", if any.
  std::optional<double> predictedStepMs;
  /// FLOPs of forward and backward per sample, without recomputation.
  double flopsPerSample = 0;
};

/// The manifest of a module whose roles have been placed by
/// galvatron-allocate-arena. Fails, with a diagnostic, if something that the
/// runtime needs is not there.
FailureOr<std::string> writeManifest(ModuleOp module,
                                     const ManifestOptions &options = {});

} // namespace mlir::galvatron

#endif // GALVATRON_TARGET_MANIFEST_H
