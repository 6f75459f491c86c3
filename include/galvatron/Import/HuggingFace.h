//===- HuggingFace.h - Models from Hugging Face -----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From a Hugging Face `config.json` to a module with one `galvatron.model`.
// `model_type` decides which family; parameters bear the names and shapes of
// the family's checkpoints.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_IMPORT_HUGGINGFACE_H
#define GALVATRON_IMPORT_HUGGINGFACE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <string>

namespace galvatron {

struct ImportOptions {
  /// Tokens of a sample; 0 takes the longest the model has positions for.
  int64_t seqLen = 0;
  /// Element type of parameters and activations: f32, f64 or bf16.
  std::string dtype = "f32";
};

/// Loads the dialects that an imported module needs.
void loadImportDialects(mlir::MLIRContext &context);

/// Imports `text`, the content of a configuration file. Errors begin with
/// `fileName` and name the field: missing, of the wrong type, out of range,
/// contradicting another field or unsupported.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importHuggingFaceConfig(llvm::StringRef text, llvm::StringRef fileName,
                        const ImportOptions &options,
                        mlir::MLIRContext &context);

/// Whether `value` looks like a Hugging Face configuration (it has a
/// `model_type`), as opposed to a layer profile.
bool isHuggingFaceConfig(const llvm::json::Value &value);

} // namespace galvatron

#endif // GALVATRON_IMPORT_HUGGINGFACE_H
