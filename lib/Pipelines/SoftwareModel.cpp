//===- SoftwareModel.cpp - A model as other software is told it -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/SoftwareModel.h"

#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Software/Document.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

using namespace llvm;
using namespace galvatron;

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
  if (!StringRef(*content).ltrim().starts_with("{"))
    return makeError(path + ": expected a 'config.json' or a shape: other "
                            "software is told sizes, which a module does not "
                            "have");
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
