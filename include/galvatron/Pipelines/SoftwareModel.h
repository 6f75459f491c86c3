//===- SoftwareModel.h - A model as other software is told it ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PIPELINES_SOFTWAREMODEL_H
#define GALVATRON_PIPELINES_SOFTWAREMODEL_H

#include "galvatron/Pipelines/ToolOptions.h"
#include "galvatron/Software/Document.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>

namespace galvatron {

/// A model's sizes, and the plan that its file has.
struct SoftwareModel {
  ModelShape shape;
  std::optional<Configuration> configuration;
  /// The mathematics of the model that no launch file of other software
  /// describes; empty: none.
  std::string unsaid;
  ImportNotes notes;
};

/// Reads a decoder's `config.json`, a shape, or a module that softwareModule()
/// made. `options` say how a configuration is read; their own model is not
/// looked at. Errors: another file, a model that is no decoder of equal blocks,
/// `--seq-len` beside a shape or a module.
llvm::Expected<SoftwareModel> readSoftwareModel(llvm::StringRef model,
                                                const ModelOptions &options);

/// Reads what galvatron-import --from writes: a shape, or a module. Errors:
/// another file.
llvm::Expected<SoftwareDocument> readSoftwareDocument(llvm::StringRef file);

/// A module of a model with the document's sizes, and the document as its
/// attribute. Error: sizes that are no LLaMA's or GPT-2's, which other
/// software's files name.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
softwareModule(const SoftwareDocument &document, llvm::StringRef name,
               mlir::MLIRContext &context);

} // namespace galvatron

#endif // GALVATRON_PIPELINES_SOFTWAREMODEL_H
