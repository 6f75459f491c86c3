//===- Swin.cpp - The Swin family -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The Swin transformer (Liu et al., arXiv 2103.14030) with its head for
// classes, in the layout of its Hugging Face checkpoints. Attention runs inside
// windows of a grid of positions, which every other block turns by half a
// window; where a stage ends, four positions become one of twice the width.
//
// Blocks of a stage share two bodies, one that turns and one that does not. The
// probabilities of dropped paths grow from block to block; a body takes them
// from the number of its layer.
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"
#include "Family.h"
#include "galvatron/Support/Units.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <tuple>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

/// The library's epsilon of norms outside blocks, whatever the configuration.
constexpr double kPatchNormEps = 1e-5;

/// The bound keeps every byte count of a model within 64 bits.
constexpr int64_t kMostWidth = int64_t(1) << 31;

/// Blocks over one grid.
struct Stage {
  EncoderConfig config;
  int64_t blocks;
  int64_t rows, columns; ///< of the grid
  bool turns;            ///< whether every other block does

  int64_t positions() const { return rows * columns; }
};

class Swin : public FamilyModel {
public:
  explicit Swin(ConfigReader &reader);

  int64_t positions() const override { return stages.front().positions(); }
  StringRef positionsField() const override { return "image_size"; }
  LengthRule lengthRule() const override { return LengthRule::Exactly; }
  void build(ModelBuilder &builder) const override;

private:
  void readImages(ConfigReader &reader);
  void readStages(ConfigReader &reader);

  BodyParameters embedParameters() const;
  BodyParameters blockParameters(const Stage &stage) const;
  BodyParameters mergeParameters(const Stage &stage) const;
  BodyParameters headParameters() const;

  void writeEmbed(ModelBuilder &b) const;
  void writeBlock(ModelBuilder &b, int64_t index, bool turned) const;
  void writeMerge(ModelBuilder &b, int64_t index) const;
  void writeHead(ModelBuilder &b) const;

  RankedTensorType stream(ModelBuilder &b, const Stage &stage) const {
    return b.activation({stage.config.width}, stage.positions());
  }
  RankedTensorType images(ModelBuilder &b) const {
    return b.images(channels, imageRows, imageColumns);
  }

  EncoderConfig config; ///< of the first stage, but for its feed-forward
  std::vector<Stage> stages;
  int64_t window, channels, classes;
  int64_t imageRows, imageColumns, patchRows, patchColumns;
  bool absolutePositions;
  double dropPath; ///< of the last block
};

std::string stageName(int64_t index) {
  return ("layers." + Twine(index) + ".").str();
}
std::string blockName(int64_t stage, int64_t block) {
  return stageName(stage) + ("blocks." + Twine(block)).str();
}
std::string bodyName(int64_t stage, bool turned) {
  return ("swin.stage" + Twine(stage) + (turned ? ".turned" : "")).str();
}
const std::string kEncoder = "swin.encoder.";

Swin::Swin(ConfigReader &reader)
    : config(EncoderConfig::readCommon(reader, /*normEps=*/1e-5,
                                       /*dropout=*/0.0)) {
  reader.expectArchitecture({"SwinForImageClassification"});
  config.width = reader.positiveOr("embed_dim", 96);
  config.projectionBias = reader.booleanOr("qkv_bias", true);
  absolutePositions = reader.booleanOr("use_absolute_embeddings", false);
  dropPath = reader.probabilityOr("drop_path_rate", 0.1);
  readImages(reader);
  if (absolutePositions &&
      (imageRows % patchRows || imageColumns % patchColumns))
    reader.fail(
        "use_absolute_embeddings",
        "expected images of whole patches, as the library does, found " +
            Twine(imageRows) + " by " + Twine(imageColumns) +
            " in patches of " + Twine(patchRows) + " by " +
            Twine(patchColumns));
  readStages(reader);
  classes = reader.classes();
  reader.expectPlain("problem_type", "single_label_classification");
  // Files of before 5.0 have it; the library never read it.
  reader.expectPlain("path_norm", true);
  // Fields of the classes that restore images or hand out features.
  reader.passOver(
      {"encoder_stride", "out_features", "out_indices", "stage_names"});
  // All files of the library had it before version 5; there are no words.
  reader.passOver("tie_word_embeddings");
}

void Swin::readImages(ConfigReader &reader) {
  channels = reader.positiveOr("num_channels", 3);
  std::tie(imageRows, imageColumns) = reader.sizeOr("image_size", 224);
  std::tie(patchRows, patchColumns) = reader.sizeOr("patch_size", 4);
  // Bytes of f64, so that all that is counted from here on fits. Patches may
  // reach beyond the image.
  int64_t bytes = multiplyBytes(
      multiplyBytes(channels * 8, llvm::alignTo(imageRows, patchRows)),
      llvm::alignTo(imageColumns, patchColumns));
  if (bytes > kMostLayerBytes)
    reader.fail("image_size", "expected images of at most " +
                                  Twine(kMostLayerBytes) +
                                  " bytes in f64, found " + Twine(imageRows) +
                                  " by " + Twine(imageColumns) + " of " +
                                  Twine(channels) + " channels");
}

void Swin::readStages(ConfigReader &reader) {
  std::vector<int64_t> depths = reader.positivesOr("depths", {2, 2, 6, 2});
  std::vector<int64_t> heads = reader.positivesOr("num_heads", {3, 6, 12, 24});
  double ratio = reader.positiveNumberOr("mlp_ratio", 4.0);
  window = reader.positiveOr("window_size", 7);
  if (heads.size() != depths.size())
    reader.fail("num_heads", "expected a number of heads for each of the " +
                                 Twine(depths.size()) + " stages, found " +
                                 Twine(heads.size()));
  heads.resize(depths.size(), 1);
  int64_t rows = llvm::divideCeil(imageRows, patchRows);
  int64_t columns = llvm::divideCeil(imageColumns, patchColumns);
  int64_t width = config.width;
  // The library works these out and writes them; they must be what it would.
  reader.expectPlain("num_layers", int64_t(depths.size()));
  for (auto [blocks, count] : llvm::zip(depths, heads)) {
    Stage stage = {config, blocks, rows, columns, /*turns=*/true};
    int64_t index = int64_t(stages.size());
    double inner = ratio * double(width);
    if (width >= kMostWidth || !(inner < double(kMostWidth))) {
      reader.fail("depths", "expected widths below " + Twine(kMostWidth) +
                                ", found more in stage " + Twine(index));
      break;
    }
    stage.config.width = width;
    stage.config.heads = count;
    stage.config.inner = int64_t(inner);
    if (stage.config.inner < 1)
      reader.fail("mlp_ratio", "expected a feed-forward with elements for a "
                               "width of " +
                                   Twine(width));
    if (width % count)
      reader.fail("num_heads", "expected a divisor of the width " +
                                   Twine(width) + " of stage " + Twine(index) +
                                   ", found " + Twine(count));
    int64_t side = std::min(rows, columns);
    if (side < window)
      reader.fail("window_size", "expected at most the smaller side of the "
                                 "grid of stage " +
                                     Twine(index) + ", " + Twine(rows) +
                                     " by " + Twine(columns) + ", found " +
                                     Twine(window));
    // A window that is the whole side has nothing to be turned into.
    stage.turns = side > window && window > 1;
    stages.push_back(stage);
    rows = llvm::divideCeil(rows, 2);
    columns = llvm::divideCeil(columns, 2);
    width *= 2;
  }
  if (!stages.empty())
    reader.expectPlain("hidden_size", stages.back().config.width);
}

BodyParameters Swin::embedParameters() const {
  int64_t width = config.width, patch = channels * patchRows * patchColumns;
  BodyParameters list = {
      {"patch_embeddings.projection.weight",
       {width, channels, patchRows, patchColumns},
       config.normal(),
       {width, patch}},
      {"patch_embeddings.projection.bias", {width}, Initial::zeros()}};
  config.addNorm(list, "norm");
  if (absolutePositions)
    list.push_back({"position_embeddings",
                    {1, positions(), width},
                    Initial::zeros(),
                    {positions(), width}});
  return list;
}

BodyParameters Swin::blockParameters(const Stage &stage) const {
  const EncoderConfig &c = stage.config;
  int64_t side = 2 * window - 1;
  BodyParameters list;
  c.addNorm(list, "layernorm_before");
  list.push_back({"attention.self.relative_position_bias_table",
                  {side * side, c.heads},
                  Initial::zeros(),
                  {},
                  {"", "heads"}});
  c.addAttention(list, "attention.self.");
  c.addNorm(list, "layernorm_after");
  c.addFeedForward(list);
  return list;
}

BodyParameters Swin::mergeParameters(const Stage &stage) const {
  EncoderConfig merged = stage.config;
  merged.width *= 4;
  BodyParameters list;
  merged.addNorm(list, "norm");
  list.push_back({"reduction.weight",
                  {2 * stage.config.width, merged.width},
                  config.normal()});
  return list;
}

BodyParameters Swin::headParameters() const {
  const EncoderConfig &last = stages.back().config;
  BodyParameters list;
  last.addNorm(list, "swin.layernorm");
  last.addDense(list, "classifier", classes, last.width, "classes");
  return list;
}

void Swin::writeEmbed(ModelBuilder &b) const {
  b.body("swin.embed", {images(b)}, embedParameters(),
         stream(b, stages.front()), {},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = b.patches(inputs[0], patchRows, patchColumns,
                               /*pad=*/true);
           x = config.dense(b, x, config.width, p);
           x = config.norm(b, x, p, kPatchNormEps);
           if (absolutePositions)
             x = b.positionAdd(x, p.next());
           return b.dropout(x, config.hiddenDropout, 0);
         });
}

void Swin::writeBlock(ModelBuilder &b, int64_t index, bool turned) const {
  const Stage &stage = stages[index];
  const EncoderConfig &c = stage.config;
  int64_t allBlocks = 0;
  for (const Stage &other : stages)
    allBlocks += other.blocks;
  double rate = allBlocks > 1 ? dropPath / double(allBlocks - 1) : 0;
  WindowGrid grid = {stage.rows, stage.columns, window,
                     turned ? window / 2 : 0};
  RankedTensorType type = stream(b, stage);
  b.body(bodyName(index, turned), {type}, blockParameters(stage), type,
         {{"heads", c.heads}, {"ffn", c.inner}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = inputs[0], table;
           Value part = c.norm(b, x, p);
           table = p.next();
           auto [q, k, v] = c.projections(b, b.windows(part, grid), p);
           AttentionOptions options = c.attentionOptions();
           // Behind the windows: what was put around the grid is gone.
           part = b.joinWindows(
               b.windowAttention(q, k, v, table, grid, options), grid);
           part = b.dropout(c.dense(b, part, c.width, p), c.hiddenDropout, 1);
           // Embeddings and what merges the stages before are layers too.
           part = b.dropPath(part, rate, /*firstLayer=*/1 + index, 2);
           x = b.add(x, part);
           part = c.feedForward(b, c.norm(b, x, p), p);
           return b.add(x, b.dropout(part, c.hiddenDropout, 3));
         });
}

void Swin::writeMerge(ModelBuilder &b, int64_t index) const {
  const Stage &stage = stages[index];
  EncoderConfig merged = stage.config;
  merged.width *= 4;
  WindowGrid grid = {stage.rows, stage.columns, /*window=*/2, /*shift=*/0};
  b.body(("swin.merge" + Twine(index)).str(), {stream(b, stage)},
         mergeParameters(stage), stream(b, stages[index + 1]), {},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = b.mergeWindows(inputs[0], grid);
           x = merged.norm(b, x, p, kPatchNormEps);
           return b.linear(x, p.next(), {2 * stage.config.width},
                           /*transpose=*/true);
         });
}

void Swin::writeHead(ModelBuilder &b) const {
  const EncoderConfig &c = stages.back().config;
  b.body("swin.head", {stream(b, stages.back()), b.classes()}, headParameters(),
         b.loss(), {{"classes", classes, /*uneven=*/true}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value pooled = b.mean(c.norm(b, inputs[0], p));
           return b.crossEntropy(c.dense(b, pooled, classes, p), inputs[1],
                                 classes);
         });
}

void Swin::build(ModelBuilder &b) const {
  auto blockPrefix = [](int64_t stage, int64_t block) {
    return kEncoder + blockName(stage, block) + ".";
  };
  auto mergePrefix = [](int64_t stage) {
    return kEncoder + stageName(stage) + "downsample.";
  };
  int64_t count = int64_t(stages.size());
  b.declare("swin.embeddings.", embedParameters());
  writeEmbed(b);
  for (int64_t s = 0; s < count; ++s) {
    const Stage &stage = stages[s];
    for (int64_t block = 0; block < stage.blocks; ++block)
      b.declare(blockPrefix(s, block), blockParameters(stage));
    writeBlock(b, s, /*turned=*/false);
    if (stage.turns && stage.blocks > 1)
      writeBlock(b, s, /*turned=*/true);
    if (s + 1 == count)
      continue;
    b.declare(mergePrefix(s), mergeParameters(stage));
    writeMerge(b, s);
  }
  b.declare("", headParameters());
  writeHead(b);

  b.model("swin", {{"images", images(b)}, {"classes", b.classes(), classes}},
          [&](ValueRange data) {
            Value x = b.layer("embeddings", "swin.embed", data[0],
                              stream(b, stages.front()), "swin.embeddings.",
                              embedParameters());
            for (int64_t s = 0; s < count; ++s) {
              const Stage &stage = stages[s];
              for (int64_t block = 0; block < stage.blocks; ++block)
                x = b.layer(blockName(s, block),
                            bodyName(s, stage.turns && block % 2), x,
                            stream(b, stage), blockPrefix(s, block),
                            blockParameters(stage));
              if (s + 1 < count)
                x = b.layer(stageName(s) + "downsample",
                            ("swin.merge" + Twine(s)).str(), x,
                            stream(b, stages[s + 1]), mergePrefix(s),
                            mergeParameters(stage));
            }
            return b.layer("head", "swin.head", {x, data[1]}, b.loss(), "",
                           headParameters());
          });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readSwin(ConfigReader &reader) {
  return std::make_unique<Swin>(reader);
}
