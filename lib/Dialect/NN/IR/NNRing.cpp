//===- NNRing.cpp - Attention in a ring -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The operations of NNRingOps.td, and how attention becomes them: ranks keep
// their queries and pass keys and values round; backward the gradients of keys
// and values go with them, and come home a step later. The numbers in comments
// are those of the constraints there.
//
//===----------------------------------------------------------------------===//

#include "NNShapes.h"
#include "NNVerify.h"

using namespace mlir;
using namespace mlir::nn;
using namespace mlir::nn::verifiers;

namespace {

/// The factors of operations that work on positions by their number.
constexpr int kRingSamples = 0, kRingHeads = 1, kRingPositions = 2;

using Dims = SmallVector<int>;
const Dims kHeadRows = {kRingSamples, kRingPositions, kRingHeads, kNoFactor};
const Dims kOutputRows = {kRingSamples, kRingPositions, kRingHeads};
const Dims kStatistics = {kRingSamples, kRingHeads, kRingPositions};
const Dims kPackedRows = {kRingSamples, kRingPositions, kNoFactor, kRingHeads};
const Dims kMask = {kRingSamples, kNoFactor};

/// A type of the same shape with the accumulators' elements.
RankedTensorType accumulatorOf(Value value) {
  return typeOf(value).clone(
      accumulatorElement(typeOf(value).getElementType()));
}

} // namespace

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

/// Checks what a step and its gradient share; the numbers are a step's.
template <typename OpTy> static LogicalResult verifyStep(OpTy op) {
  RowsAttr rows = RowsAttr::of(op.getQ().getType());
  ArrayRef<int64_t> q = shapeOf(op.getQ()), k = shapeOf(op.getK());
  if (!rows || RowsAttr::of(op.getK().getType()) != rows) // 1
    return op.emitOpError()
           << "expected queries and keys to be blocks of the same rows, found "
           << op.getQ().getType() << " and " << op.getK().getType();
  if (failed(expectRank(op, "q", op.getQ(), 3)) ||
      failed(expectRank(op, "k", op.getK(), 3)) ||
      failed(expectType(op, "v", op.getV(), op.getK().getType())) ||
      failed(expectShape(op, "k", op.getK(), {q[0], k[1], q[2]}))) // 1
    return failure();
  if (k[1] < 1 || q[1] % k[1] != 0) // 1
    return op.emitOpError() << "expected key heads to divide the " << q[1]
                            << " heads, found " << k[1];
  auto blockOf = [&](Value like, ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, typeOf(like).getElementType(), rows);
  };
  if (failed(expectType(op, "o", op.getO(),
                        blockOf(op.getO(), {q[0], q[1] * q[2]}))) ||
      failed(expectType(op, "lse", op.getLse(),
                        blockOf(op.getLse(), {q[0], q[1]}))) || // 2
      failed(expectElements(op, op.getQ(), {{"k", op.getK()}},
                            {{"lse", op.getLse()}})) ||
      failed(expectProbability(op, "dropout",
                               op.getDropout().convertToDouble()))) // 5
    return failure();
  const int64_t distance = op.getDistance();
  if (distance < 0 || distance >= rows.getDegree()) // 4
    return op.emitOpError() << "expected 'distance' to be one of 0 to "
                            << rows.getDegree() - 1 << ", found " << distance;
  if (!op.getMask())
    return success();
  return expectShape(op, "mask", op.getMask(),
                     joinRows(typeOf(op.getQ())).getShape().take_front(2)); // 6
}

/// Checks optional operands, which are there all or none, against results of
/// their types.
static LogicalResult verifyBefore(Operation *op, ArrayRef<StringRef> names,
                                  ArrayRef<Value> before,
                                  ArrayRef<Value> after) {
  const auto present =
      llvm::count_if(before, [](Value value) -> bool { return bool(value); });
  if (present != 0 && size_t(present) != before.size())
    return op->emitOpError()
           << "expected all of the " << before.size()
           << " values of the steps before or none, found " << present;
  for (auto [name, one, other] : llvm::zip_equal(names, before, after))
    if (one && failed(expectType(op, name, one, other.getType())))
      return failure();
  return success();
}

LogicalResult RingAttentionOp::verify() {
  if (failed(verifyStep(*this)) || // 1, 2, 4, 5, 6
      failed(expectElements(*this, getQ(), {}, {{"o", getO()}}))) // 2
    return failure();
  return verifyBefore(*this, {"before", "lse_before"},
                      {getBefore(), getLseBefore()}, {getO(), getLse()}); // 3
}

LogicalResult RingAttentionGradOp::verify() {
  if (failed(verifyStep(*this)) || // 1, 4, 5, 6
      failed(expectType(*this, "dout", getDout(), getO().getType())) ||
      failed(expectElements(*this, getQ(), {{"o", getO()}})) || // 1
      failed(expectType(*this, "dq", getDq(), accumulatorOf(getQ()))) ||
      failed(expectType(*this, "dk", getDk(), accumulatorOf(getK()))) ||
      failed(expectType(*this, "dv", getDv(), accumulatorOf(getV())))) // 2
    return failure();
  return verifyBefore(*this, {"dq_before", "dk_before", "dv_before"},
                      {getDqBefore(), getDkBefore(), getDvBefore()},
                      {getDq(), getDk(), getDv()}); // 3
}

LogicalResult RoundOp::verify() {
  if (failed(expectShape(*this, "y", getY(), shapeOf(getX())))) // 1
    return failure();
  return expectElements(*this, getY(), {}, {{"x", getX()}}); // 1
}

/// Checks packed values and their parts.
template <typename OpTy> static LogicalResult verifyPacked(OpTy op) {
  ArrayRef<int64_t> packed = shapeOf(op.getQkv()), q = shapeOf(op.getQ());
  if (packed.size() != 3 || q.size() != 3 ||
      packed != ArrayRef<int64_t>({q[0], 3, q[1] * q[2]}) ||
      RowsAttr::of(op.getQkv().getType()) != RowsAttr::of(op.getQ().getType()))
    return op.emitOpError()
           << "expected 'qkv' to be [rows, 3, heads * head size] of "
           << op.getQ().getType() << ", found " << op.getQkv().getType();
  if (failed(expectType(op, "k", op.getK(), op.getQ().getType())) ||
      failed(expectType(op, "v", op.getV(), op.getQ().getType())))
    return failure();
  return expectElements(op, op.getQkv(), {{"q", op.getQ()}});
}

LogicalResult UnpackOp::verify() { return verifyPacked(*this); } // 1
LogicalResult PackOp::verify() { return verifyPacked(*this); }   // 1

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

namespace {

/// The rows that a block has of one sample.
struct SampleRun {
  int64_t sample, first, count;
};

/// The runs of block `number` of `rows` rows.
SmallVector<SampleRun> runsOf(RowsAttr block, int64_t rows, int64_t number) {
  SmallVector<SampleRun> runs;
  const int64_t length = block.getLength();
  auto add = [&](int64_t row, int64_t count) {
    while (count > 0) {
      const int64_t first = row % length, own = std::min(count, length - first);
      runs.push_back({row / length, first, own});
      row += own;
      count -= own;
    }
  };
  if (!block.getBalanced()) {
    add(number * rows, rows);
    return runs;
  }
  const int64_t half = rows / 2;
  add(number * half, half);
  add((2 * block.getDegree() - 1 - number) * half, half);
  return runs;
}

/// Pairs of a query and a key of one head that the busiest rank has in a step.
double pairsOfStep(RowsAttr block, int64_t rows, int64_t distance,
                   bool causal) {
  double most = 0;
  const int64_t degree = block.getDegree();
  for (int64_t rank = 0; rank < degree; ++rank) {
    double pairs = 0;
    const auto keys = runsOf(block, rows, (rank + degree - distance) % degree);
    for (const SampleRun &q : runsOf(block, rows, rank))
      for (const SampleRun &k : keys) {
        if (q.sample != k.sample)
          continue;
        if (!causal || k.first + k.count <= q.first)
          pairs += double(q.count) * double(k.count);
        else if (k.first == q.first)
          pairs += double(q.count) * double(q.count) / 2;
      }
    most = std::max(most, pairs);
  }
  return most;
}

/// FLOPs and elements of one product of a step over all heads.
struct StepProduct {
  double flops, elements;
};
template <typename OpTy> StepProduct stepProduct(OpTy op, int64_t samples) {
  RankedTensorType q = typeOf(op.getQ());
  const double heads = double(q.getDimSize(1)), size = double(q.getDimSize(2));
  const int64_t rows = countElements(q, samples) / q.getDimSize(1) /
                       std::max<int64_t>(q.getDimSize(2), 1);
  const double pairs =
      pairsOfStep(RowsAttr::of(q), rows, op.getDistance(), op.getCausal());
  const double all = double(rows) * double(rows);
  const double seen = all > 0 ? pairs / all : 0;
  return {2 * heads * size * pairs,
          seen * heads * (2 * double(rows) * size + all)};
}

} // namespace

double RingAttentionOp::getFlops(int64_t samples) {
  return 2 * stepProduct(*this, samples).flops;
}
double RingAttentionOp::getProductElements(int64_t samples) {
  return 2 * stepProduct(*this, samples).elements;
}
bool RingAttentionOp::isAttention() { return true; }
double RingAttentionGradOp::getFlops(int64_t samples) {
  return 5 * stepProduct(*this, samples).flops;
}
double RingAttentionGradOp::getProductElements(int64_t samples) {
  return 5 * stepProduct(*this, samples).elements;
}
bool RingAttentionGradOp::isAttention() { return true; }
double RoundOp::getFlops(int64_t) { return 0; }
double UnpackOp::getFlops(int64_t) { return 0; }
double PackOp::getFlops(int64_t) { return 0; }

//===----------------------------------------------------------------------===//
// Factors
//===----------------------------------------------------------------------===//

FactorRule RingAttentionOp::getFactorRule() {
  FactorRule rule{{kHeadRows, kHeadRows, kHeadRows},
                  {kOutputRows, kStatistics}};
  if (getBefore())
    rule.operands.append({kOutputRows, kStatistics});
  if (getMask())
    rule.operands.push_back(kMask);
  return rule;
}

FactorRule RingAttentionGradOp::getFactorRule() {
  FactorRule rule{
      {kHeadRows, kHeadRows, kHeadRows, kOutputRows, kStatistics, kOutputRows},
      {kHeadRows, kHeadRows, kHeadRows}};
  if (getDqBefore())
    rule.operands.append({kHeadRows, kHeadRows, kHeadRows});
  if (getMask())
    rule.operands.push_back(kMask);
  return rule;
}

// The kernel numbers heads by the rank of tensor parallelism.
bool RingAttentionOp::mayBeReplicated(const ShardContext &axis) {
  return !axis.numbersParts() || getDropout().convertToDouble() == 0;
}
bool RingAttentionGradOp::mayBeReplicated(const ShardContext &axis) {
  return !axis.numbersParts() || getDropout().convertToDouble() == 0;
}
bool RingAttentionOp::mixesPositions() { return true; }
bool RingAttentionGradOp::mixesPositions() { return true; }

int64_t RingAttentionOp::getOperandDistance(unsigned index) {
  return index == 1 || index == 2 ? int64_t(getDistance()) : 0;
}
int64_t RingAttentionOp::getResultDistance(unsigned) { return 0; }
int64_t RingAttentionGradOp::getOperandDistance(unsigned index) {
  const bool isOfKeys =
      index == 1 || index == 2 || (getDqBefore() && (index == 7 || index == 8));
  return isOfKeys ? int64_t(getDistance()) : 0;
}
int64_t RingAttentionGradOp::getResultDistance(unsigned index) {
  return index == 0 ? 0 : int64_t(getDistance());
}

FactorRule RoundOp::getFactorRule() {
  SmallVector<int> dims;
  for (int64_t i = 0; i < typeOf(getX()).getRank(); ++i)
    dims.push_back(int(i));
  return {{dims}, {dims}};
}
// A part of the heads is one of each packed row.
FactorRule UnpackOp::getFactorRule() {
  const Dims heads = {kRingSamples, kRingHeads, kNoFactor};
  return {{{kRingSamples, kNoFactor, kRingHeads}}, {heads, heads, heads}};
}
FactorRule PackOp::getFactorRule() {
  const Dims heads = {kRingSamples, kRingHeads, kNoFactor};
  return {{heads, heads, heads}, {{kRingSamples, kNoFactor, kRingHeads}}};
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

ElementRole RingAttentionOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
ElementRole RingAttentionGradOp::getElementRole(unsigned) {
  return ElementRole::Accumulator;
}
void RingAttentionOp::removeDropout() {
  setDropoutAttr(Builder(*this).getF64FloatAttr(0));
}
void RingAttentionGradOp::removeDropout() {
  setDropoutAttr(Builder(*this).getF64FloatAttr(0));
}

//===----------------------------------------------------------------------===//
// From attention to steps
//===----------------------------------------------------------------------===//

namespace {

/// The operands and attributes that all steps of an attention share.
struct Steps {
  OpBuilder &builder;
  Location loc;
  const ShardContext &ring;
  Value q, k, v, mask;
  bool causal;
  APFloat scale, dropout;
  int64_t opIndex;

  /// Rounds a sum to the elements of `like`.
  Value rounded(Value sum, Value like) {
    if (typeOf(sum).getElementType() == typeOf(like).getElementType())
      return sum;
    return RoundOp::create(
        builder, loc, typeOf(sum).clone(typeOf(like).getElementType()), sum);
  }
  /// Passes keys and values on, beside the step that has them still.
  std::pair<Value, Value> next() {
    return {ring.shift(builder, loc, k), ring.shift(builder, loc, v)};
  }

  /// `o` and `lse` have the types of the results.
  std::pair<Value, Value> forward(Value o, Value lse) {
    Value sum, statistics;
    for (int64_t step = 0; step < ring.size(); ++step) {
      std::pair<Value, Value> behind;
      if (step + 1 < ring.size())
        behind = next();
      auto attention = RingAttentionOp::create(
          builder, loc, TypeRange{accumulatorOf(o), lse.getType()}, q, k, v,
          sum, statistics, mask, causal, scale, step, dropout, opIndex);
      sum = attention.getO();
      statistics = attention.getLse();
      std::tie(k, v) = behind;
    }
    return {rounded(sum, o), statistics};
  }

  SmallVector<Value> backward(Value o, Value lse, Value dout) {
    Value dq, dk, dv;
    const Value first = k;
    for (int64_t step = 0; step < ring.size(); ++step) {
      std::pair<Value, Value> behind;
      if (step + 1 < ring.size())
        behind = next();
      auto grad = RingAttentionGradOp::create(
          builder, loc,
          TypeRange{accumulatorOf(q), accumulatorOf(first),
                    accumulatorOf(first)},
          q, k, v, o, lse, dout, dq, dk, dv, mask, causal, scale, step, dropout,
          opIndex);
      dq = grad.getDq();
      // Behind the last step they come home.
      dk = ring.shift(builder, loc, grad.getDk());
      dv = ring.shift(builder, loc, grad.getDv());
      std::tie(k, v) = behind;
    }
    return {rounded(dq, q), rounded(dk, q), rounded(dv, q)};
  }
};

template <typename OpTy>
Steps stepsOf(OpTy op, OpBuilder &builder, const ShardContext &ring, Value q,
              Value k, Value v, Value mask) {
  return {builder,
          op.getLoc(),
          ring,
          q,
          k,
          v,
          mask,
          op.getCausal(),
          op.getScale(),
          op.getDropout(),
          int64_t(op.getOpIndex())};
}

/// Takes the packed values of a block apart.
template <typename OpTy>
Steps packedSteps(OpTy op, OpBuilder &builder, const ShardContext &ring) {
  RankedTensorType packed = typeOf(op.getQkv());
  const auto heads = int64_t(op.getHeads());
  auto part = RankedTensorType::get(
      {packed.getDimSize(0), heads, packed.getDimSize(2) / heads},
      packed.getElementType(), packed.getEncoding());
  auto parts = UnpackOp::create(builder, op.getLoc(),
                                TypeRange{part, part, part}, op.getQkv());
  return stepsOf(op, builder, ring, parts.getQ(), parts.getK(), parts.getV(),
                 /*mask=*/{});
}

/// The reason that both kinds of attention share.
constexpr StringLiteral kDocuments =
    "packs documents into a sample, and a step of a ring has no starts of them";

template <typename OpTy> std::string whyNotGrouped(OpTy op) {
  auto positionsOf = [](Value value) { return typeOf(value).getDimSize(1); };
  if (op.getStarts())
    return kDocuments.str();
  if (op.getWindow() != 0)
    return "has a window, of whose keys a ring would pass all on";
  if (op.getBias())
    return "has biases by distance, and a step of a ring adds none";
  if (!op.getDistance().isZero())
    return "has slopes by distance, and a step of a ring adds none";
  if (!op.getCap().isZero())
    return "caps scores, and a step of a ring does not";
  if (positionsOf(op.getQ()) != positionsOf(op.getK()))
    return "has " + std::to_string(positionsOf(op.getQ())) + " queries and " +
           std::to_string(positionsOf(op.getK())) +
           " keys to a sample, and a ring passes blocks of as many keys as "
           "queries";
  return "";
}

} // namespace

std::string AttentionOp::whyNotInRing() {
  return getStarts() ? kDocuments.str() : "";
}
std::string AttentionGradOp::whyNotInRing() {
  return getStarts() ? kDocuments.str() : "";
}
std::string GroupedAttentionOp::whyNotInRing() { return whyNotGrouped(*this); }
std::string GroupedAttentionGradOp::whyNotInRing() {
  return whyNotGrouped(*this);
}

FactorRule AttentionOp::getRingRule() {
  return {{kPackedRows}, {kOutputRows, kStatistics}};
}
FactorRule AttentionGradOp::getRingRule() {
  return {{kPackedRows, kOutputRows, kStatistics, kOutputRows}, {kPackedRows}};
}
FactorRule GroupedAttentionOp::getRingRule() {
  FactorRule rule{{kHeadRows, kHeadRows, kHeadRows},
                  {kOutputRows, kStatistics}};
  if (getMask())
    rule.operands.push_back(kMask);
  return rule;
}
FactorRule GroupedAttentionGradOp::getRingRule() {
  FactorRule rule{
      {kHeadRows, kHeadRows, kHeadRows, kOutputRows, kStatistics, kOutputRows},
      {kHeadRows, kHeadRows, kHeadRows}};
  if (getMask())
    rule.operands.push_back(kMask);
  return rule;
}

SmallVector<Value> AttentionOp::expandInRing(OpBuilder &builder,
                                             const ShardContext &ring) {
  auto [o, lse] = packedSteps(*this, builder, ring).forward(getO(), getLse());
  return {o, lse};
}

SmallVector<Value> AttentionGradOp::expandInRing(OpBuilder &builder,
                                                 const ShardContext &ring) {
  SmallVector<Value> grads =
      packedSteps(*this, builder, ring).backward(getO(), getLse(), getDout());
  return {PackOp::create(builder, getLoc(), getDqkv().getType(), grads[0],
                         grads[1], grads[2])};
}

SmallVector<Value> GroupedAttentionOp::expandInRing(OpBuilder &builder,
                                                    const ShardContext &ring) {
  auto [o, lse] =
      stepsOf(*this, builder, ring, getQ(), getK(), getV(), getMask())
          .forward(getO(), getLse());
  return {o, lse};
}

SmallVector<Value>
GroupedAttentionGradOp::expandInRing(OpBuilder &builder,
                                     const ShardContext &ring) {
  return stepsOf(*this, builder, ring, getQ(), getK(), getV(), getMask())
      .backward(getO(), getLse(), getDout());
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Calls the kernel of a step. `buffers` are those in front of its scratch, of
/// which the one of `lse` has number 4.
template <typename OpTy>
static void emitStep(KernelEmitter &emitter, StringRef kernel, OpTy op,
                     SmallVector<Value> buffers, Value mask, bool adds) {
  RowsAttr block = RowsAttr::of(op.getQ().getType());
  ArrayRef<int64_t> q = typeOf(op.getQ()).getShape();
  const int64_t keyHeads = typeOf(op.getK()).getDimSize(1);
  const int64_t rows = q[0], queryStride = q[1] * q[2],
                keyStride = keyHeads * q[2];
  SmallVector<int64_t> ints = {1,
                               rows,
                               rows,
                               q[1],
                               keyHeads,
                               q[2],
                               queryStride,
                               keyStride,
                               keyStride,
                               op.getCausal(),
                               int64_t(op.getOpIndex()),
                               /*window=*/0,
                               bool(mask),
                               block.getLength(),
                               block.getBalanced(),
                               rows * block.getDegree(),
                               int64_t(op.getDistance()),
                               adds};
  // Statistics of a block are the kernel's, one run of queries behind the
  // other.
  buffers[4] = emitter.view(buffers[4], 0, typeOf(op.getLse()));
  buffers.push_back(
      emitter.scratch(kernel, ints, typeOf(op.getQ()).getElementType()));
  if (mask)
    buffers.push_back(mask);
  emitter.kernel(
      kernel, buffers, ints,
      {op.getScale().convertToDouble(), op.getDropout().convertToDouble()});
}

/// Puts what steps before have given where this one adds to it, unless it is
/// there.
static void continueIn(KernelEmitter &emitter, ValueRange values,
                       ArrayRef<Value> before, ArrayRef<Value> results) {
  for (auto [value, from, to] : llvm::zip_equal(values, before, results))
    if (from != to) {
      const int64_t bytes = countBytes(value.getType(), /*samples=*/1);
      emitter.kernel("copy", {from, to}, {1, bytes, bytes, bytes});
    }
}

void RingAttentionOp::emitKernels(KernelEmitter &emitter,
                                  ArrayRef<Value> operands,
                                  ArrayRef<Value> results) {
  const bool adds = bool(getBefore());
  if (adds)
    continueIn(emitter, getResults(), operands.slice(3, 2), results);
  SmallVector<Value> buffers(operands.take_front(3));
  llvm::append_range(buffers, results);
  emitStep(emitter, "ring_attention", *this, std::move(buffers),
           getMask() ? operands.back() : Value(), adds);
}
int RingAttentionOp::getReusableOperand(unsigned index) {
  return getBefore() ? int(3 + index) : -1;
}

void RingAttentionGradOp::emitKernels(KernelEmitter &emitter,
                                      ArrayRef<Value> operands,
                                      ArrayRef<Value> results) {
  const bool adds = bool(getDqBefore());
  if (adds)
    continueIn(emitter, getResults(), operands.slice(6, 3), results);
  SmallVector<Value> buffers(operands.take_front(6));
  llvm::append_range(buffers, results);
  emitStep(emitter, "ring_attention_grad", *this, std::move(buffers),
           getMask() ? operands.back() : Value(), adds);
}
int RingAttentionGradOp::getReusableOperand(unsigned index) {
  return getDqBefore() ? int(6 + index) : -1;
}

void RoundOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                          ArrayRef<Value> results) {
  emitter.kernel("round", {results[0], operands[0]}, {size(getX())});
}

/// Copies parts of packed rows, or back.
static void emitPacking(KernelEmitter &emitter, Value packed,
                        ArrayRef<Value> parts, RankedTensorType packedType,
                        bool packs) {
  const int64_t bytes =
      packedType.getElementTypeBitWidth() / 8 * packedType.getDimSize(2);
  for (auto [number, part] : llvm::enumerate(parts)) {
    Value place = emitter.view(packed, int64_t(number) * bytes, packedType);
    SmallVector<int64_t> ints = {packedType.getDimSize(0), bytes, 3 * bytes,
                                 bytes};
    if (packs) {
      std::swap(ints[2], ints[3]);
      emitter.kernel("copy", {part, place}, ints);
    } else {
      emitter.kernel("copy", {place, part}, ints);
    }
  }
}

void UnpackOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                           ArrayRef<Value> results) {
  emitPacking(emitter, operands[0], results, typeOf(getQkv()), /*packs=*/false);
}

void PackOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                         ArrayRef<Value> results) {
  emitPacking(emitter, results[0], operands, typeOf(getQkv()), /*packs=*/true);
}
