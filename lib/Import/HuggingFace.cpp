//===- HuggingFace.cpp - Models from Hugging Face -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Import/HuggingFace.h"

#include "EstimatedFamilies.h"
#include "Family.h"
#include "LanguagePart.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/FormatVariadic.h"

using namespace galvatron;

namespace {

/// The families by `model_type`.
struct FamilyEntry {
  llvm::StringLiteral modelType;
  ReadFamily read;
};
constexpr FamilyEntry kFamilies[] = {
    {"albert", readAlbert},
    {"bart", readBart},
    {"bert", readBert},
    {"bloom", readBloom},
    {"camembert", readRoberta},
    {"cohere", readCohere},
    {"cohere2", readCohere},
    {"deit", readVit},
    {"dinov2", readVit},
    {"distilbert", readDistilBert},
    {"electra", readElectra},
    {"falcon", readFalcon},
    {"gemma", readGemma},
    {"gemma2", readGemma2},
    {"gemma3_text", readGemma3},
    {"glm", readGlm},
    {"glm4", readGlm},
    {"gpt2", readGpt2},
    {"gpt_neox", readGptNeoX},
    {"gptj", readGptJ},
    {"granite", readGranite},
    {"llama", readLlama},
    {"mbart", readBart},
    {"mistral", readLlama},
    {"modernbert", readModernBert},
    {"mpt", readMpt},
    {"mt5", readMT5},
    {"olmo", readOlmo},
    {"olmo2", readOlmo2},
    {"olmo3", readOlmo3},
    {"opt", readOpt},
    {"pegasus", readBart},
    {"phi", readPhi},
    {"phi3", readPhi3},
    {"qwen2", readLlama},
    {"qwen3", readLlama},
    {"roberta", readRoberta},
    {"smollm3", readSmolLM3},
    {"stablelm", readStableLM},
    {"starcoder2", readStarcoder2},
    {"swin", readSwin},
    {"t5", readT5},
    {"umt5", readUMT5},
    {"vit", readVit},
    {"xlm-roberta", readRoberta},
};

/// The longest sequence that an i32 counts, with distances both ways.
constexpr int64_t kLongestSequence = int64_t(1) << 30;

const FamilyEntry *findFamily(llvm::StringRef modelType) {
  const auto *family = llvm::find_if(kFamilies, [&](const auto &entry) {
    return entry.modelType == modelType;
  });
  return family == std::end(kFamilies) ? nullptr : family;
}

} // namespace

void galvatron::loadImportDialects(mlir::MLIRContext &context) {
  context.loadDialect<mlir::func::FuncDialect, mlir::nn::NNDialect,
                      mlir::galvatron::GalvatronDialect>();
}

bool galvatron::isImportedFamily(const llvm::json::Object &config) {
  auto modelType = config.getString("model_type");
  if (modelType && hasLanguagePart(config)) {
    auto part = languagePart(config, "");
    bool broken = !part;
    llvm::consumeError(part.takeError());
    // Its import says what is wrong.
    return broken || isImportedFamily(*part);
  }
  return modelType && findFamily(*modelType);
}

bool galvatron::isHuggingFaceConfig(const llvm::json::Value &value) {
  const llvm::json::Object *object = value.getAsObject();
  return object && object->get("model_type");
}

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
galvatron::importHuggingFaceConfig(llvm::StringRef text,
                                   llvm::StringRef fileName,
                                   const ImportOptions &options,
                                   mlir::MLIRContext &context,
                                   ImportNotes *notes) {
  loadImportDialects(context);
  llvm::Expected<llvm::json::Value> value = parseJson(text, fileName);
  if (!value)
    return value.takeError();
  llvm::json::Object *object = value->getAsObject();
  if (!object)
    return makeError(fileName + ": expected a JSON object");
  ImportNotes own;
  std::string partText;
  if (hasLanguagePart(*object)) {
    llvm::Expected<llvm::json::Object> part = languagePart(*object, fileName);
    if (!part)
      return part.takeError();
    own.part = "the language model of '" +
               object->getString("model_type")->str() + "'";
    *object = std::move(*part);
    partText = llvm::formatv("{0}", *value).str();
    text = partText;
  }
  if (!object->get("model_type"))
    return makeError(fileName + ": field 'model_type': missing");
  if (options.namesPart && own.part.empty())
    return makeError("option --part: expected a model for images and text, "
                     "found '" +
                     fileName + "'");
  auto modelType = object->getString("model_type");
  if (!modelType)
    return makeError(fileName + ": field 'model_type': expected a string");
  const FamilyEntry *family = findFamily(*modelType);
  if (!family) {
    if (llvm::Error error = refuseForeign(*modelType, fileName))
      return error;
    std::string known;
    llvm::raw_string_ostream stream(known);
    llvm::interleaveComma(kFamilies, stream, [&](const auto &entry) {
      stream << "'" << entry.modelType << "'";
    });
    return makeError(fileName + ": field 'model_type': unknown model type '" +
                     *modelType + "', expected one of " + known);
  }

  ConfigReader reader(*object, fileName, *modelType, options.ignoredFields);
  std::unique_ptr<FamilyModel> model = family->read(reader);
  if (llvm::Error error = reader.finish())
    return error;
  if (llvm::Error error = takeNotes(reader, options.ignoredFields, own))
    return error;
  int64_t seqLen = options.seqLen ? options.seqLen : model->positions();
  using LengthRule = FamilyModel::LengthRule;
  LengthRule rule = model->lengthRule();
  if (rule == LengthRule::Exactly && seqLen != model->positions())
    return makeError(fileName + ": expected no sequence length for '" +
                     *modelType + "', whose field '" + model->positionsField() +
                     "' makes it " + llvm::Twine(model->positions()) +
                     ", found " + llvm::Twine(seqLen));
  if (rule == LengthRule::AtMost && seqLen > model->positions())
    return makeError(fileName + ": field '" + model->positionsField() +
                     "': expected at least the sequence length " +
                     llvm::Twine(seqLen) + ", found " +
                     llvm::Twine(model->positions()));
  if (seqLen > kLongestSequence || options.decoderSeqLen > kLongestSequence)
    return makeError(fileName + ": expected sequences of at most " +
                     llvm::Twine(kLongestSequence) + " tokens, found " +
                     llvm::Twine(std::max(seqLen, options.decoderSeqLen)));
  if (rule == LengthRule::AtMost && options.decoderSeqLen > model->positions())
    return makeError(fileName + ": field '" + model->positionsField() +
                     "': expected at least the sequence length " +
                     llvm::Twine(options.decoderSeqLen) +
                     " of the decoder, found " +
                     llvm::Twine(model->positions()));
  if (options.decoderSeqLen && !model->hasDecoder())
    return makeError(fileName +
                     ": expected no sequence length of a decoder "
                     "for '" +
                     *modelType + "', which has one stack of layers, found " +
                     llvm::Twine(options.decoderSeqLen));
  mlir::Builder builder(&context);
  mlir::Type elementType = llvm::StringSwitch<mlir::Type>(options.dtype)
                               .Case("f32", builder.getF32Type())
                               .Case("f64", builder.getF64Type())
                               .Case("bf16", builder.getBF16Type())
                               .Default({});
  if (!elementType)
    return makeError("expected the element type 'f32', 'f64' or 'bf16', found "
                     "'" +
                     options.dtype + "'");

  ModelBuilder writer(seqLen,
                      options.decoderSeqLen ? options.decoderSeqLen : seqLen,
                      elementType, compactJson(text), context);
  model->build(writer);
  mlir::OwningOpRef<mlir::ModuleOp> module = writer.finish();
  llvm::SmallVector<llvm::StringRef> records;
  std::vector<std::string> sentences = own.records();
  llvm::append_range(records, sentences);
  if (!records.empty())
    (*module)->setAttr(mlir::galvatron::GalvatronDialect::kNotesAttr,
                       builder.getStrArrayAttr(records));
  if (notes)
    *notes = std::move(own);
  if (mlir::failed(mlir::verify(*module)))
    return makeError(fileName + ": the imported module does not verify");
  return module;
}
