//===- SoftwareModel.cpp - A model as other software is told it -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/SoftwareModel.h"

#include "galvatron/Dialect/Galvatron/IR/Software.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Software/Document.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace galvatron;

/// The document that a module has as its attribute.
static Expected<std::string> documentOf(StringRef text, StringRef path) {
  std::unique_ptr<mlir::MLIRContext> context = createCompilerContext();
  mlir::ScopedDiagnosticHandler quiet(context.get(), [](mlir::Diagnostic &) {});
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
  auto document =
      module ? module.get()->getAttrOfType<mlir::StringAttr>(kSoftwareAttr)
             : mlir::StringAttr();
  if (document)
    return document.getValue().str();
  return makeError(path + ": expected a 'config.json', a shape, or a module "
                          "of galvatron-import --from: other software is told "
                          "sizes, which a module does not have");
}

/// A configuration of Hugging Face's for a model of these sizes.
static Expected<json::Object> configurationOf(const ModelShape &shape) {
  const int64_t positions = std::max(shape.positions, shape.tokens);
  if (shape.gated && shape.rmsNorm && shape.rotary && !shape.biases)
    return json::Object{{"model_type", "llama"},
                        {"hidden_size", shape.hidden},
                        {"intermediate_size", shape.inner},
                        {"num_hidden_layers", shape.layers},
                        {"num_attention_heads", shape.heads},
                        {"num_key_value_heads", shape.keyHeads},
                        {"head_dim", shape.headWidth},
                        {"vocab_size", shape.vocabulary},
                        {"max_position_embeddings", positions},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", shape.rotaryBase},
                        {"hidden_act", "silu"},
                        {"tie_word_embeddings", shape.tied}};
  if (!shape.gated && !shape.rmsNorm && !shape.rotary && shape.biases &&
      shape.tied && shape.keyHeads == shape.heads &&
      shape.headWidth * shape.heads == shape.hidden)
    return json::Object{
        {"model_type", "gpt2"},    {"n_embd", shape.hidden},
        {"n_inner", shape.inner},  {"n_layer", shape.layers},
        {"n_head", shape.heads},   {"vocab_size", shape.vocabulary},
        {"n_positions", positions}};
  return makeError("expected a LLaMA (a gate, RMS norms, rotary positions, no "
                   "biases) or a GPT-2 (layer norms, learned positions, "
                   "biases, a tied head): of other sizes there is a shape, "
                   "in a file with another ending than '.mlir'");
}

Expected<mlir::OwningOpRef<mlir::ModuleOp>>
galvatron::softwareModule(const SoftwareDocument &document, StringRef name,
                          mlir::MLIRContext &context) {
  Expected<json::Object> configuration = configurationOf(document.shape);
  if (!configuration)
    return makeError(name + ": " + toString(configuration.takeError()));
  ImportOptions options;
  options.seqLen = document.shape.tokens;
  ImportNotes notes;
  auto module = importHuggingFaceConfig(
      formatv("{0}", json::Value(std::move(*configuration))).str(), name,
      options, context, &notes);
  if (!module)
    return module.takeError();
  module->get()->setAttr(
      kSoftwareAttr,
      mlir::StringAttr::get(&context, formatv("{0}", document.toJson()).str()));
  return module;
}

Expected<SoftwareDocument> galvatron::readSoftwareDocument(StringRef file) {
  Expected<std::string> content = readInput(file);
  if (!content)
    return content.takeError();
  if (!StringRef(*content).ltrim().starts_with("{"))
    content = documentOf(*content, file);
  if (!content)
    return content.takeError();
  Expected<json::Value> value = parseJson(*content, file);
  if (!value)
    return value.takeError();
  if (!ModelShape::isShape(*value))
    return makeError(file + ": expected a plan, as galvatron-import --from "
                            "writes it, found other JSON");
  Expected<SoftwareDocument> document =
      SoftwareDocument::fromJson(*value, file);
  if (!document)
    return makeError(file + ": " + toString(document.takeError()));
  return document;
}

Expected<SoftwareModel>
galvatron::readSoftwareModel(StringRef name, const ModelOptions &options) {
  if (name.empty())
    return makeError("expected a model: a 'config.json' or a shape");
  if (options.splitBlocks)
    return makeError("option --split-blocks: other software has whole blocks");
  Expected<ImportOptions> import = options.importOptions();
  if (!import)
    return import.takeError();
  std::string path = modelFile(name);
  Expected<std::string> content = readInput(path);
  if (!content)
    return content.takeError();
  if (!StringRef(*content).ltrim().starts_with("{")) {
    content = documentOf(*content, path);
    if (!content)
      return content.takeError();
  }
  Expected<json::Value> value = parseJson(*content, path);
  if (!value)
    return value.takeError();
  SoftwareModel model;
  if (ModelShape::isShape(*value)) {
    Expected<SoftwareDocument> document =
        SoftwareDocument::fromJson(*value, path);
    if (!document)
      return makeError(path + ": " + toString(document.takeError()));
    model.shape = std::move(document->shape);
    model.configuration = std::move(document->configuration);
    if (options.seqLen.getNumOccurrences())
      return makeError("option --seq-len: a shape has its own tokens");
    return model;
  }
  if (!isHuggingFaceConfig(*value))
    return makeError(path + ": expected a 'config.json' or a shape, found "
                            "other JSON");
  Expected<DecoderSizes> sizes =
      readDecoderSizes(*value->getAsObject(), path, *import);
  if (!sizes)
    return sizes.takeError();
  ModelShape &shape = model.shape;
  shape.name = path;
  shape.layers = sizes->layers;
  shape.hidden = sizes->hidden;
  shape.heads = sizes->heads;
  shape.keyHeads = sizes->keyHeads;
  shape.headWidth = sizes->headWidth;
  shape.inner = sizes->inner;
  shape.vocabulary = sizes->vocabulary;
  shape.gated = sizes->gated;
  shape.tied = sizes->tied;
  shape.biases = sizes->biases;
  shape.rmsNorm = sizes->rmsNorm;
  shape.rotary = sizes->rotary;
  shape.rotaryBase = sizes->rotaryBase;
  shape.positions = sizes->positions;
  shape.tokens = import->seqLen ? import->seqLen : sizes->positions;
  model.unsaid = std::move(sizes->unsaid);
  model.notes = std::move(sizes->notes);
  if (Error error = shape.check())
    return makeError(path + ": " + toString(std::move(error)));
  return model;
}
