//===- EstimatedProfile.cpp - Layers of families that cannot be imported --===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The cost of a transformer follows from its sizes, which nearly all
// configurations give under one of a few names, and from what its family is,
// which a table says. That is enough to plan for a family before it can be
// executed. Every other field is refused that could mean another model.
//
//===----------------------------------------------------------------------===//

#include "EstimatedFamilies.h"
#include "EstimatedSizes.h"
#include "Family.h"
#include "galvatron/Import/HuggingFace.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/Support/FormatVariadic.h"

using namespace galvatron;

namespace {

using Sizes = EstimatedSizes;

llvm::json::Object profileOf(const Sizes &sizes, int64_t tokens,
                             llvm::StringRef dtype, int64_t bytes) {
  // Exact up to 2^53 and the reader's to refuse beyond its limits.
  const double h = double(sizes.hidden), a = double(sizes.queries),
               k = double(sizes.keys), f = double(sizes.inner),
               v = double(sizes.vocabulary), s = double(tokens), b(bytes);
  const double projections = sizes.gated ? 2 : 1; // into the feed-forward
  const double weights = sizes.blockProducts;
  auto layer =
      [](llvm::StringRef name, double count,
         std::initializer_list<std::pair<llvm::StringRef, double>> numbers) {
        llvm::json::Object entry{{"name", name}, {"count", int64_t(count)}};
        for (auto [key, value] : numbers)
          if (llvm::StringRef(key).contains("flops"))
            entry[key] = value;
          else
            entry[key] = int64_t(value);
        return entry;
      };
  // Kept for backward: both norms' results, q, k and v, what attention gives,
  // the sum behind it, and the feed-forward in front of and behind its
  // activation. Attention streams over the keys and keeps no scores.
  const double kept = 3 * h + 2 * a + 2 * k + (projections + 1) * f;
  // Read and written besides the products: two norms, two sums, the activation.
  const double moved = 2 * 2 * h + 2 * 3 * h + (projections + 1) * f;
  const double pairs = sizes.attendedPairs(tokens) / double(sizes.layers);
  const double borrowed = sizes.tied ? sizes.tableElements : 0;
  llvm::json::Array layers;
  layers.push_back(layer("embed", 1,
                         {{"forward-flops", 2 * s * sizes.embeddingProducts},
                          {"forward-moved-bytes", 2 * s * h * b},
                          {"forward-kernels", 2},
                          {"parameter-bytes", sizes.embedding * b},
                          {"boundary-bytes", 4 * s},
                          {"intermediate-bytes", 0}}));
  layers.push_back(
      layer("block", double(sizes.layers),
            {{"forward-flops", 2 * s * weights},
             {"forward-attention-flops", 4 * pairs * a},
             {"forward-attention-bytes", s * (2 * a + 2 * k) * b},
             {"forward-moved-bytes", s * moved * b},
             {"forward-kernels", double(sizes.blockKernels)},
             {"parameter-bytes", (weights + sizes.blockVectors) * b},
             {"boundary-bytes", s * h * b},
             {"intermediate-bytes", s * kept * b},
             {"tp-replicated-bytes", s * 3 * h * b}}));
  layers.push_back(layer("head", 1,
                         {{"forward-flops", 2 * s * sizes.headProducts},
                          {"forward-moved-bytes", s * (2 * h + 2 * v) * b},
                          {"forward-kernels", 3},
                          {"parameter-bytes", (sizes.head + borrowed) * b},
                          {"borrowed-bytes", borrowed * b},
                          {"boundary-bytes", s * h * b},
                          {"intermediate-bytes", s * (h + v) * b},
                          {"tp-replicated-bytes", s * h * b}}));
  return llvm::json::Object{
      {"version", 1}, {"dtype", dtype}, {"layers", std::move(layers)}};
}

/// A line about what was read and concluded.
std::string noticeOf(const Sizes &sizes, llvm::StringRef modelType,
                     int64_t tokens) {
  int64_t slide = llvm::count_if(
      sizes.windows, [&](int64_t window) { return window && window < tokens; });
  std::string windows =
      slide ? ", windows on " + std::to_string(slide) + " of them" : "";
  llvm::StringRef source =
      sizes.fromWeights ? "counted from the shapes in model.safetensors"
      : sizes.knownFamily
          ? "counted by the family's table"
          : "of an unknown family: gate, biases and positions are concluded";
  return llvm::formatv("'{0}' cannot be executed; planned from an estimate: "
                       "{1} blocks of width {2}{3}, queries {4}, keys {5}, "
                       "{6}feed-forward {7}, {8} words, {9} tokens; {10}, head "
                       "{11}, {12} parameters, {13}",
                       modelType, sizes.layers, sizes.hidden, windows,
                       sizes.queries, sizes.keys, sizes.gated ? "gated " : "",
                       sizes.inner, sizes.vocabulary, tokens,
                       sizes.causal ? "causal" : "not causal",
                       sizes.tied ? "tied" : "not tied",
                       int64_t(sizes.parameters()), source)
      .str();
}

} // namespace

llvm::Expected<EstimatedProfile> galvatron::estimateHuggingFaceConfig(
    const llvm::json::Object &config, llvm::StringRef fileName,
    llvm::StringRef dtype, int64_t elementBytes, const ImportOptions &options) {
  if (!config.getString("model_type"))
    return makeError(fileName + ": field 'model_type': expected a string");
  llvm::StringRef modelType = *config.getString("model_type");
  if (llvm::Error error = refuseForeign(modelType, fileName))
    return error;
  ConfigReader reader(config, fileName, modelType, options.ignoredFields);
  reader.refuseFirst(
      ("'" + modelType + "' can neither be executed nor estimated with it")
          .str());
  bool hasWeights = hasWeightsBeside(fileName);
  Sizes sizes = readEstimatedSizes(reader, hasWeights);
  if (llvm::Error error = reader.finish())
    return error;
  EstimatedProfile result;
  if (llvm::Error error =
          takeNotes(reader, options.ignoredFields, result.notes))
    return error;
  int64_t seqLen = options.seqLen ? options.seqLen : sizes.positions;
  if (!seqLen)
    return makeError(fileName +
                     ": field 'max_position_embeddings': missing; --seq-len "
                     "gives the tokens of a sample");
  // Limits that keep every product below exact in a double.
  constexpr int64_t kMost = int64_t(1) << 24;
  for (int64_t size : {sizes.hidden, sizes.queries, sizes.inner,
                       sizes.vocabulary, sizes.layers, seqLen})
    if (size > kMost)
      return makeError(fileName + ": expected sizes of at most " +
                       llvm::Twine(kMost) + ", found " + llvm::Twine(size));
  if (hasWeights) {
    llvm::Expected<WeightShapes> shapes =
        readWeightShapes(fileName, sizes.layers, sizes.vocabulary);
    if (!shapes)
      return shapes.takeError();
    if (llvm::Error error = takeWeights(sizes, *shapes, reader))
      return error;
  }
  result.profile = profileOf(sizes, seqLen, dtype, elementBytes);
  result.notice = noticeOf(sizes, modelType, seqLen);
  return result;
}
