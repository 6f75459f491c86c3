//===- ModelBuilder.h - Writes a model in nn operations ---------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The common parts of importers: parameters by their names in checkpoints,
// bodies, and the chain of layers that calls them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_IMPORT_MODELBUILDER_H
#define GALVATRON_LIB_IMPORT_MODELBUILDER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace galvatron {

/// How a parameter starts.
struct Initial {
  /// "normal", "constant", "ones", "zeros" or "sinusoids", which is not trained
  llvm::StringRef kind;
  double deviation = 0; ///< of "normal"
  double value = 0;     ///< of "constant"
  static Initial normal(double deviation) { return {"normal", deviation}; }
  static Initial constant(double value) { return {"constant", 0, value}; }
  static Initial ones() { return {"ones"}; }
  static Initial zeros() { return {"zeros"}; }
  static Initial sinusoids() { return {"sinusoids"}; }
};

/// The place of a parameter in a tensor of files that holds several: of every
/// `stride` rows it has `count` from `first` on.
struct StoredPart {
  std::string of; ///< behind the prefix of the layer
  int64_t first, count, stride;
};

/// A tensor of a checkpoint and what a body makes of it. The two have the same
/// elements in the same order, which is why weights come from and go to
/// checkpoints as they are; a weight stored `[out, in]` is not turned round but
/// multiplied as it lies (`nn.linear` with `transpose_weight`).
struct BodyParameter {
  std::string name; ///< behind the prefix of the layer
  llvm::SmallVector<int64_t> stored;
  Initial initial;
  /// The shape that the body sees; empty: that of the checkpoint.
  llvm::SmallVector<int64_t> seen = {};
  /// The factor that each dimension of it carries ("" for none).
  llvm::SmallVector<llvm::StringRef> factors = {};
  /// Whether the whole name is `name` and another layer declares it.
  bool borrowed = false;
  /// Whole names of tensors that are copies of it in files.
  llvm::SmallVector<std::string> copies = {};
  /// The tensor of files that has it among others; absent: its own.
  std::optional<StoredPart> part = std::nullopt;
  /// Whether nothing trains it, as no sinusoids.
  bool frozen = false;
  bool isTrained() const { return !frozen && initial.kind != "sinusoids"; }

  llvm::ArrayRef<int64_t> shape() const {
    return seen.empty() ? llvm::ArrayRef(stored) : llvm::ArrayRef(seen);
  }
};
using BodyParameters = std::vector<BodyParameter>;

/// A factor of a body: its name, its indivisible units, whether it may be cut
/// into ceil-sized shards, and whether ranks may share a unit.
struct BodyFactor {
  llvm::StringRef name;
  int64_t units;
  bool uneven = false;
  bool shared = false;
};

/// An argument of the model: what it is, and what its integers are less than.
struct ModelDatum {
  llvm::StringRef kind;
  mlir::RankedTensorType type;
  int64_t below = 0;
  llvm::StringRef name = {}; ///< empty: that of the kind
};

/// The options of a layer of attention besides its products.
struct AttentionOptions {
  double scale;
  double dropout = 0;
  int64_t window = 0; ///< 0: none
  bool causal = true;
  mlir::Value mask = {}; ///< [samples, keys]; null: none
  mlir::Value bias = {}; ///< by head and distance; null: none
  int64_t opIndex = 0;   ///< of its dropout
  double cap = 0;        ///< of scaled scores; 0: none
  double distance = 0;   ///< what distances times slopes count; 0: nothing
};

/// Windows of a grid of positions; `shift` says how far it is turned.
struct WindowGrid {
  int64_t rows, columns, window, shift;
  /// Windows side by side, and all of them.
  int64_t across() const;
  int64_t count() const;
};

class ModelBuilder {
public:
  using Values = llvm::SmallVector<mlir::Value>;

  /// `configText` goes with the model.
  ModelBuilder(int64_t seqLen, int64_t decoderSeqLen, mlir::Type elementType,
               llvm::StringRef configText, mlir::MLIRContext &context);

  int64_t getSeqLen() const { return seqLen; }
  int64_t getDecoderSeqLen() const { return decoderSeqLen; }
  mlir::OpBuilder &getBuilder() { return builder; }

  // Types; `length` 0 is `getSeqLen()`.

  /// [samples, positions, dims..] of the element type.
  mlir::RankedTensorType activation(llvm::ArrayRef<int64_t> dims,
                                    int64_t length = 0);
  /// [samples, positions] of token numbers, or of a mask of positions.
  mlir::RankedTensorType tokens(int64_t length = 0);
  /// [samples, heads, distances] of the element type.
  mlir::RankedTensorType relativeBias(int64_t heads, int64_t length);
  /// [samples] of class numbers.
  mlir::RankedTensorType classes();
  /// [samples, channels, rows, columns] of the element type.
  mlir::RankedTensorType images(int64_t channels, int64_t rows,
                                int64_t columns);
  mlir::RankedTensorType loss();
  /// `shape` with samples in front, of the accumulator type.
  mlir::RankedTensorType statistics(llvm::ArrayRef<int64_t> shape);

  // Module level.

  /// Declares the parameters that are not borrowed, with `prefix` in front of
  /// their names. Those of two and more dimensions decay, if they are trained.
  void declare(const llvm::Twine &prefix, const BodyParameters &parameters);
  /// Declares a model of equal blocks: `embed` behind `prefix`, `block` behind
  /// `blockPrefix(i)` for each of `blocks` blocks, and `head`.
  void declareBlocks(llvm::StringRef prefix, const BodyParameters &embed,
                     llvm::function_ref<std::string(int64_t)> blockPrefix,
                     int64_t blocks, const BodyParameters &block,
                     const BodyParameters &head) {
    declare(prefix, embed);
    for (int64_t index = 0; index < blocks; ++index)
      declare(blockPrefix(index), block);
    declare("", head);
  }
  /// A body: `write` gets its inputs and its parameters and returns its result.
  void body(llvm::StringRef name, llvm::ArrayRef<mlir::Type> inputs,
            const BodyParameters &parameters, mlir::Type result,
            llvm::ArrayRef<BodyFactor> factors,
            llvm::function_ref<mlir::Value(mlir::ValueRange inputs,
                                           mlir::ValueRange parameters)>
                write);
  /// Makes a body with several results.
  void bodyOfSeveral(llvm::StringRef name, llvm::ArrayRef<mlir::Type> inputs,
                     const BodyParameters &parameters,
                     llvm::ArrayRef<mlir::Type> results,
                     llvm::ArrayRef<BodyFactor> factors,
                     llvm::function_ref<Values(mlir::ValueRange inputs,
                                               mlir::ValueRange parameters)>
                         write);
  /// Tokens, and the ones behind them as labels.
  std::vector<ModelDatum> nextTokenData(int64_t vocabulary);
  /// The model: `write` gets its data and returns the loss.
  void model(llvm::StringRef name, llvm::ArrayRef<ModelDatum> data,
             llvm::function_ref<mlir::Value(mlir::ValueRange data)> write);
  /// A layer of the model.
  mlir::Value layer(const llvm::Twine &name, llvm::StringRef callee,
                    mlir::ValueRange inputs, mlir::Type result,
                    const llvm::Twine &prefix,
                    const BodyParameters &parameters);
  /// Makes a layer with several results.
  Values layerOfSeveral(const llvm::Twine &name, llvm::StringRef callee,
                        mlir::ValueRange inputs,
                        llvm::ArrayRef<mlir::Type> results,
                        const llvm::Twine &prefix,
                        const BodyParameters &parameters);
  mlir::OwningOpRef<mlir::ModuleOp> finish() { return std::move(module); }

  // Operations, at the insertion point. Those with a probability of 0 are left
  // out.

  /// The row of token `padding` gets no gradient.
  mlir::Value embedding(mlir::Value tokens, mlir::Value table,
                        std::optional<int64_t> padding = std::nullopt);
  /// Images cut into patches, with `pad` also what is no whole one, and a
  /// learnt row in front of them.
  mlir::Value patches(mlir::Value images, int64_t rows, int64_t columns,
                      bool pad = false);
  mlir::Value prepend(mlir::Value x, mlir::Value token);
  /// One position of every sample.
  mlir::Value take(mlir::Value x, int64_t position);
  /// The mean over all positions; `besideFirst`: over all but the first, behind
  /// that one.
  mlir::Value mean(mlir::Value x, bool besideFirst = false);
  /// Positions of a grid in windows; back; and the positions of a window as
  /// one.
  mlir::Value windows(mlir::Value x, const WindowGrid &grid);
  mlir::Value joinWindows(mlir::Value x, const WindowGrid &grid);
  mlir::Value mergeWindows(mlir::Value x, const WindowGrid &grid);
  /// The row of the first position is `first`.
  mlir::Value positionAdd(mlir::Value x, mlir::Value table, int64_t first = 0);
  /// Projects to the trailing dimensions `dims`; `transpose`: the weight is
  /// [dims.., in].
  mlir::Value linear(mlir::Value x, mlir::Value weight,
                     llvm::ArrayRef<int64_t> dims, bool transpose);
  mlir::Value biasAdd(mlir::Value x, mlir::Value bias);
  /// `beta` is null: there is none.
  mlir::Value layerNorm(mlir::Value x, mlir::Value gamma, mlir::Value beta,
                        double eps);
  /// A layer norm without weights.
  mlir::Value standardize(mlir::Value x, double eps);
  /// Over as many of the last dimensions as `gamma` has; `unitOffset`: scaled
  /// by 1 + gamma.
  mlir::Value rmsNorm(mlir::Value x, mlir::Value gamma, double eps,
                      bool unitOffset = false);
  /// `interleaved`: pairs are neighbours, else half of what is rotated apart.
  mlir::Value rotary(mlir::Value x, llvm::ArrayRef<double> frequencies,
                     double factor, bool interleaved = false);
  mlir::Value gelu(mlir::Value x, bool tanh);
  mlir::Value relu(mlir::Value x);
  /// cap * tanh(x / cap).
  mlir::Value softCap(mlir::Value x, double cap);
  /// Elements no further from 0 than `limit`.
  mlir::Value clip(mlir::Value x, double limit);
  mlir::Value gatedGelu(mlir::Value gate, mlir::Value up, bool tanh = true);
  mlir::Value gatedSilu(mlir::Value gate, mlir::Value up);
  /// Causal; the heads side by side.
  mlir::Value attention(mlir::Value qkv, int64_t heads, double scale,
                        double dropout);
  mlir::Value groupedAttention(mlir::Value q, mlir::Value k, mlir::Value v,
                               const AttentionOptions &options);
  /// Attention inside windows, with a table of relative positions. Of `options`
  /// the scale and the dropout count.
  mlir::Value windowAttention(mlir::Value q, mlir::Value k, mlir::Value v,
                              mlir::Value table, const WindowGrid &grid,
                              const AttentionOptions &options);
  /// The value that `AttentionOptions::bias` takes, from a table of buckets by
  /// heads.
  mlir::Value relativeBias(mlir::Value table, mlir::RankedTensorType type,
                           int64_t maxDistance, bool bidirectional);
  /// `rounded`: by what the element type holds of the factor.
  mlir::Value scale(mlir::Value x, double factor, bool rounded = false);
  /// Rows times a vector, element by element.
  mlir::Value columnScale(mlir::Value x, mlir::Value vector);
  mlir::Value dropout(mlir::Value x, double p, int64_t opIndex);
  /// Drops samples with the probability `rate` times the number of layers
  /// behind `firstLayer`.
  mlir::Value dropPath(mlir::Value x, double rate, int64_t firstLayer,
                       int64_t opIndex);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value crossEntropy(mlir::Value logits, mlir::Value labels,
                           int64_t classes);

private:
  int64_t seqLen, decoderSeqLen;
  mlir::Type elementType, statisticsType;
  std::string configText;
  mlir::OpBuilder builder;
  mlir::Location loc;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace galvatron

#endif // GALVATRON_LIB_IMPORT_MODELBUILDER_H
