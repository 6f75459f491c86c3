//===- Family.h - What an importer of a family provides ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_FAMILY_H
#define GALVATRON_LIB_IMPORT_FAMILY_H

#include "ConfigReader.h"
#include "ModelBuilder.h"
#include "galvatron/Import/HuggingFace.h"

#include <memory>

namespace galvatron {

/// A configuration of one family, read and checked.
class FamilyModel {
public:
  virtual ~FamilyModel() = default;
  /// The longest sequence, and the field that says so.
  virtual int64_t positions() const = 0;
  virtual llvm::StringRef positionsField() const = 0;
  /// Which lengths sequences may have.
  enum class LengthRule { AtMost, Exactly, Free };
  virtual LengthRule lengthRule() const { return LengthRule::AtMost; }
  /// Whether there are sequences of a second length.
  virtual bool hasDecoder() const { return false; }
  /// Declares parameters, writes bodies and the layers that call them.
  virtual void build(ModelBuilder &builder) const = 0;
};

/// Reads the configuration of a family; errors are the reader's.
using ReadFamily = std::unique_ptr<FamilyModel> (*)(ConfigReader &reader);

/// bart, mbart and pegasus: `reader` knows which.
std::unique_ptr<FamilyModel> readBart(ConfigReader &reader);
std::unique_ptr<FamilyModel> readBert(ConfigReader &reader);
/// roberta, xlm-roberta and camembert.
std::unique_ptr<FamilyModel> readRoberta(ConfigReader &reader);
std::unique_ptr<FamilyModel> readAlbert(ConfigReader &reader);
std::unique_ptr<FamilyModel> readElectra(ConfigReader &reader);
std::unique_ptr<FamilyModel> readDistilBert(ConfigReader &reader);
std::unique_ptr<FamilyModel> readOpt(ConfigReader &reader);
std::unique_ptr<FamilyModel> readGpt2(ConfigReader &reader);
/// llama, mistral, qwen2 and qwen3: `reader` knows which.
std::unique_ptr<FamilyModel> readLlama(ConfigReader &reader);
std::unique_ptr<FamilyModel> readGemma(ConfigReader &reader);
std::unique_ptr<FamilyModel> readGemma2(ConfigReader &reader);
std::unique_ptr<FamilyModel> readGemma3(ConfigReader &reader);
std::unique_ptr<FamilyModel> readBloom(ConfigReader &reader);
/// cohere and cohere2: `reader` knows which.
std::unique_ptr<FamilyModel> readCohere(ConfigReader &reader);
std::unique_ptr<FamilyModel> readGptJ(ConfigReader &reader);
std::unique_ptr<FamilyModel> readMpt(ConfigReader &reader);
std::unique_ptr<FamilyModel> readFalcon(ConfigReader &reader);
std::unique_ptr<FamilyModel> readGptNeoX(ConfigReader &reader);
std::unique_ptr<FamilyModel> readPhi3(ConfigReader &reader);
/// glm and glm4: `reader` knows which.
std::unique_ptr<FamilyModel> readGlm(ConfigReader &reader);
std::unique_ptr<FamilyModel> readGranite(ConfigReader &reader);
std::unique_ptr<FamilyModel> readModernBert(ConfigReader &reader);
std::unique_ptr<FamilyModel> readOlmo(ConfigReader &reader);
std::unique_ptr<FamilyModel> readOlmo2(ConfigReader &reader);
std::unique_ptr<FamilyModel> readOlmo3(ConfigReader &reader);
std::unique_ptr<FamilyModel> readPhi(ConfigReader &reader);
std::unique_ptr<FamilyModel> readSmolLM3(ConfigReader &reader);
std::unique_ptr<FamilyModel> readStableLM(ConfigReader &reader);
std::unique_ptr<FamilyModel> readStarcoder2(ConfigReader &reader);
std::unique_ptr<FamilyModel> readSwin(ConfigReader &reader);
std::unique_ptr<FamilyModel> readT5(ConfigReader &reader);
std::unique_ptr<FamilyModel> readMT5(ConfigReader &reader);
std::unique_ptr<FamilyModel> readUMT5(ConfigReader &reader);
/// vit, deit and dinov2: `reader` knows which.
std::unique_ptr<FamilyModel> readVit(ConfigReader &reader);

/// Notes what `reader`, which has finished, passed over. An ignored field that
/// the file does not have is an error.
llvm::Error takeNotes(const ConfigReader &reader,
                      llvm::ArrayRef<std::string> ignored, ImportNotes &notes);

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_FAMILY_H
