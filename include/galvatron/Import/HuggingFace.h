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
#include <vector>

namespace galvatron {

struct ImportOptions {
  /// Tokens of a sample; 0 takes the longest the model has positions for.
  int64_t seqLen = 0;
  /// Element type of parameters and activations: f32, f64 or bf16.
  std::string dtype = "f32";
  /// Tokens that a decoder beside the encoder reads and predicts; 0: as many
  /// as the encoder's.
  int64_t decoderSeqLen = 0;
  /// Fields that pass whatever they say, as long as the family does not read
  /// them; a field inside another one as `rope_scaling.alpha`.
  std::vector<std::string> ignoredFields;
  /// Whether a part was asked for by name: then the model must have parts.
  bool namesPart = false;
};

/// Notes of a reader of a configuration, besides its result.
struct ImportNotes {
  /// Fields that say nothing of the model and are worth a line, as "'name':
  /// value", and the names of `ImportOptions::ignoredFields`.
  std::vector<std::string> passed, ignored;
  /// The part of a larger model that was imported; empty: the model is whole.
  std::string part;
  /// The note about the file's own code (`auto_map`), in place of which the
  /// library's family is taken; or empty.
  std::string code;

  /// A line for each of them, with `prefix` in front: the part that was taken,
  /// what was passed over and ignored, and a warning about code.
  std::string str(llvm::StringRef prefix, llvm::StringRef fileName) const;
  /// The sentences that belong to a module and a plan: the ignored fields.
  std::vector<std::string> records() const;
};

/// Loads the dialects that an imported module needs.
void loadImportDialects(mlir::MLIRContext &context);

/// Imports `text`, the content of a configuration file; of a model for images
/// and text the language model alone, whose configuration then goes with the
/// module. Errors begin with
/// `fileName` and name the field: missing, of the wrong type, out of range,
/// contradicting another field, unsupported, or one that could mean another
/// model. `notes`, if given, gets what passed; fields that were ignored by name
/// stand in the module's attribute `galvatron.notes`, too.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importHuggingFaceConfig(llvm::StringRef text, llvm::StringRef fileName,
                        const ImportOptions &options,
                        mlir::MLIRContext &context,
                        ImportNotes *notes = nullptr);

/// The layers of a model whose family cannot be imported, by the sizes that its
/// configuration gives.
struct EstimatedProfile {
  llvm::json::Object profile; ///< a layer profile JSON
  std::string notice;         ///< what was assumed, in a line for the user
  ImportNotes notes;          ///< fields that passed
};

/// Whether a model of the configuration's `model_type` can be imported.
bool isImportedFamily(const llvm::json::Object &config);

/// Estimates FLOPs and bytes of a configuration of another family, as a stack
/// of equal transformer blocks between an embedding and a head. `elementBytes`
/// are those of one element of `dtype`; `seqLen` is in tokens a sample, 0 takes
/// as many as there are positions. Errors name the field that is missing, or
/// that says that the model is something else: experts, images, two stacks.
llvm::Expected<EstimatedProfile>
estimateHuggingFaceConfig(const llvm::json::Object &config,
                          llvm::StringRef fileName, llvm::StringRef dtype,
                          int64_t elementBytes, const ImportOptions &options);

/// Sizes of a decoder of equal blocks, in elements, and the kinds of its norms,
/// positions and biases, as other training software takes them.
struct DecoderSizes {
  int64_t layers = 1, hidden = 1, heads = 1, keyHeads = 1, headWidth = 1;
  int64_t inner = 1, vocabulary = 1, positions = 0;
  bool gated = false, tied = false, biases = false;
  bool rmsNorm = true, rotary = true;
  double rotaryBase = 1e4;
  /// The mathematics that these sizes do not describe; empty: they are
  /// complete.
  std::string unsaid;
  ImportNotes notes; ///< fields that passed
};

/// Reads the sizes of a decoder's configuration, imported family or not; of a
/// model for images and text those of its language model. Errors are those of
/// estimateHuggingFaceConfig(), more tokens than positions, and what other
/// software is not told of: encoders, windows that the tokens of a sample do
/// not fit into, a table of words that is narrower than the model.
llvm::Expected<DecoderSizes> readDecoderSizes(const llvm::json::Object &config,
                                              llvm::StringRef fileName,
                                              const ImportOptions &options);

/// Whether `value` looks like a Hugging Face configuration (it has a
/// `model_type`), as opposed to a layer profile.
bool isHuggingFaceConfig(const llvm::json::Value &value);

} // namespace galvatron

#endif // GALVATRON_IMPORT_HUGGINGFACE_H
