//===- NNVerifyAttention.cpp - Verifiers of attention ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention of every kind, and the bias of relative positions that is added to
// its scores. The numbers in comments are those of the constraints in
// NNOps.td.
//
//===----------------------------------------------------------------------===//

#include "NNVerify.h"

#include <cmath>

using namespace mlir;
using namespace mlir::nn;
using namespace mlir::nn::verifiers;

namespace {

/// Checks outputs of attention and their statistics, which are whole or blocks
/// of rows alike.
LogicalResult verifyOutputs(Operation *op, Value o, Value lse, int64_t samples,
                            int64_t queries, int64_t heads, int64_t width) {
  auto typeOf = [](Value value) {
    return cast<RankedTensorType>(value.getType());
  };
  const SmallVector<int64_t> expected = {samples, queries, width};
  if (wholeShapeOf(o) != expected)
    return op->emitOpError() << "expected 'o' of shape " << printShape(expected)
                             << ", found " << printShape(wholeShapeOf(o));
  RankedTensorType statistics =
      cutLike(o,
              RankedTensorType::get({samples, heads, queries},
                                    typeOf(lse).getElementType()),
              /*positions=*/2);
  if (failed(expectShape(op, "lse", lse, statistics.getShape())))
    return failure();
  return expectType(op, "lse", lse, statistics);
}

LogicalResult verifyAttention(Operation *op, Value qkv, Value o, Value lse,
                              int64_t heads, double dropout) {
  ArrayRef<int64_t> shape = shapeOf(qkv);
  if (shape.size() != 4 || shape[2] != 3 || RowsAttr::of(qkv.getType())) // 1
    return op->emitOpError() << "expected 'qkv' of shape [samples, positions, "
                                "3, heads * head size], found "
                             << printShape(shape);
  if (heads < 1 || shape[3] % heads != 0) // 2
    return op->emitOpError()
           << "expected 'heads' to divide " << shape[3] << ", found " << heads;
  if (failed(verifyOutputs(op, o, lse, shape[0], shape[1], heads,
                           shape[3])) || // 3, 4
      failed(expectElements(op, qkv, {{"o", o}}, {{"lse", lse}})))
    return failure();
  return expectProbability(op, "dropout", dropout);
}

/// Checks attention's documents.
template <typename OpTy> LogicalResult verifyDocuments(OpTy op) {
  if (op.getStarts() && !op.getCausal())
    return op.emitOpError()
           << "expected 'causal' beside 'starts', found it alone";
  int64_t length = op.getDocumentLength();
  if (length < 0 || (length > 0 && !op.getStarts()))
    return op.emitOpError()
           << "expected 'document_length' to be "
           << (length < 0 ? "0 or positive" : "0 without 'starts'")
           << ", found " << length;
  return success();
}

/// Checks what `grouped_attention` and its gradient share; the numbers are
/// those of both.
template <typename OpTy> LogicalResult verifyGroupedAttention(OpTy op) {
  SmallVector<int64_t> q = wholeShapeOf(op.getQ());
  ArrayRef<int64_t> k = shapeOf(op.getK());
  if (q.size() != 4)
    return expectRank(op, "q", op.getQ(), 4);
  if (failed(expectRank(op, "k", op.getK(), 4)) ||
      failed(expectType(op, "v", op.getV(), op.getK().getType())) ||
      failed(expectShape(op, "k", op.getK(), {q[0], k[1], k[2], q[3]}))) // 1
    return failure();
  if (k[2] < 1 || q[2] % k[2] != 0) // 2
    return op.emitOpError() << "expected key heads to divide the " << q[2]
                            << " heads, found " << k[2];
  if (RowsAttr::of(op.getQ().getType()) != RowsAttr::of(op.getO().getType()) ||
      RowsAttr::of(op.getK().getType()))
    return op.emitOpError()
           << "expected queries and outputs to be blocks of the same rows, and "
              "keys to be whole, found "
           << op.getQ().getType() << ", " << op.getO().getType() << " and "
           << op.getK().getType();
  if (failed(verifyOutputs(op, op.getO(), op.getLse(), q[0], q[1], q[2],
                           q[2] * q[3])) || // 3, 4
      failed(expectElements(op, op.getQ(), {{"k", op.getK()}, {"o", op.getO()}},
                            {{"lse", op.getLse()}})) ||
      failed(expectProbability(op, "dropout",
                               op.getDropout().convertToDouble()))) // 5
    return failure();
  int64_t window = op.getWindow();
  if (window < 0) // 6
    return op.emitOpError()
           << "expected 'window' to be 0 or positive, found " << window;
  if (op.getMask() &&
      failed(expectShape(op, "mask", op.getMask(), {k[0], k[1]}))) // 7
    return failure();
  if (op.getStarts() && q[1] != k[1]) // 9
    return op.emitOpError() << "expected as many keys as the " << q[1]
                            << " queries beside 'starts', found " << k[1];
  if (failed(expectStarts(op, op.getStarts(), q[0], q[1])) || // 9
      failed(verifyDocuments(op)))                            // 9, 10
    return failure();
  if (!op.getBias())
    return success();
  if (failed(expectRank(op, "bias", op.getBias(), 3)) ||
      failed(expectElements(op, op.getQ(), {{"bias", op.getBias()}})))
    return failure();
  int64_t whole = shapeOf(op.getBias())[1];
  if (whole < 1 || whole % q[2] != 0) // 8
    return op.emitOpError() << "expected 'bias' of a multiple of the " << q[2]
                            << " heads, found " << whole;
  if (op.getScale().isZero()) // 8
    return op.emitOpError()
           << "expected a 'scale' other than 0 beside a bias, found 0";
  return expectShape(op, "bias", op.getBias(),
                     {q[0], whole, q[1] + k[1] - 1}); // 8
}

/// Checks what changes scores; the number is that of `grouped_attention`.
template <typename OpTy> LogicalResult verifyShape(OpTy op) {
  const double cap = op.getCap().convertToDouble();
  const double distance = op.getDistance().convertToDouble();
  if (!(cap >= 0) || !std::isfinite(cap)) // 11
    return op.emitOpError()
           << "expected 'cap' to be 0 or positive, found " << cap;
  if (!std::isfinite(distance)) // 11
    return op.emitOpError()
           << "expected 'distance' to be finite, found " << distance;
  if (distance != 0 && !op.getCausal()) // 11
    return op.emitOpError()
           << "expected 'causal' beside 'distance', found it alone";
  if (op.getBias() && (cap != 0 || distance != 0)) // 11
    return op.emitOpError()
           << "expected no 'bias' beside 'cap' and 'distance', found both";
  return success();
}

/// Checks what `relative_bias` and its gradient share; the numbers are those of
/// both.
template <typename OpTy>
LogicalResult verifyRelativeBias(OpTy op, StringRef tableName, Value table,
                                 StringRef biasName, Value bias) {
  if (failed(expectRank(op, tableName, table, 2)) ||
      failed(expectRank(op, biasName, bias, 3)))
    return failure();
  int64_t buckets = shapeOf(table)[0], distances = shapeOf(bias)[2];
  int64_t least = op.getBidirectional() ? 4 : 2;
  if (buckets < least || buckets > kMostRelativeBuckets) // 1
    return op.emitOpError()
           << "expected " << least << " to " << kMostRelativeBuckets
           << " buckets, found " << buckets;
  if (failed(expectShape(op, biasName, bias,
                         {shapeOf(bias)[0], shapeOf(table)[1], distances})))
    return failure();     // 2
  if (distances % 2 == 0) // 2
    return op.emitOpError()
           << "expected '" << biasName
           << "' of an odd number of distances, found " << distances;
  int64_t near = buckets / least;
  if (int64_t(op.getMaxDistance()) <= near) // 3
    return op.emitOpError() << "expected 'max_distance' of more than " << near
                            << ", found " << op.getMaxDistance();
  return success();
}

/// Checks what `window_attention` and its gradient share; the numbers are those
/// of both.
template <typename OpTy> LogicalResult verifyWindowAttention(OpTy op) {
  Type type = op.getQ().getType();
  if (failed(expectRank(op, "q", op.getQ(), 5)) ||
      failed(expectType(op, "k", op.getK(), type)) ||
      failed(expectType(op, "v", op.getV(), type))) // 1
    return failure();
  ArrayRef<int64_t> q = shapeOf(op.getQ());
  int64_t window = op.getWindow(), across = op.getAcross(),
          shift = op.getShift();
  if (window < 1 || window * window != q[2]) // 2
    return op.emitOpError()
           << "expected 'window' to be the side of a square of " << q[2]
           << " positions, found " << window;
  if (shift < 0 || shift >= window) // 2
    return op.emitOpError()
           << "expected 'shift' in [0, " << window << "), found " << shift;
  if (across < 1 || q[1] % across != 0) // 3
    return op.emitOpError() << "expected 'across' to divide the " << q[1]
                            << " windows, found " << across;
  int64_t side = 2 * window - 1;
  if (failed(
          expectShape(op, "table", op.getTable(), {side * side, q[3]})) || // 4
      failed(expectShape(op, "o", op.getO(),
                         {q[0], q[1], q[2], q[3] * q[4]})) || // 5
      failed(
          expectShape(op, "lse", op.getLse(), {q[0], q[1], q[3], q[2]})) || // 6
      failed(expectElements(op, op.getQ(),
                            {{"table", op.getTable()}, {"o", op.getO()}},
                            {{"lse", op.getLse()}})) ||
      failed(expectProbability(op, "dropout",
                               op.getDropout().convertToDouble()))) // 7
    return failure();
  if (op.getScale().isZero()) // 7
    return op.emitOpError() << "expected a 'scale' other than 0, found 0";
  return success();
}

} // namespace

LogicalResult WindowAttentionOp::verify() {
  return verifyWindowAttention(*this);
}

LogicalResult WindowAttentionGradOp::verify() {
  Type type = getQ().getType();
  if (failed(verifyWindowAttention(*this)) || // 1, 2, 3, 4, 5, 6, 7
      failed(expectType(*this, "dout", getDout(), getO().getType())) || // 5
      failed(expectType(*this, "dq", getDq(), type)) ||
      failed(expectType(*this, "dk", getDk(), type)) ||
      failed(expectType(*this, "dv", getDv(), type)) ||
      failed(expectElements(*this, getQ(), {}, {{"dtable", getDtable()}})))
    return failure();
  return expectShape(*this, "dtable", getDtable(), shapeOf(getTable())); // 8
}

LogicalResult GroupedAttentionOp::verify() {
  if (failed(verifyGroupedAttention(*this)))
    return failure();
  return verifyShape(*this); // 11
}

LogicalResult GroupedAttentionGradOp::verify() {
  if (failed(verifyGroupedAttention(*this)) || // 1, 2, 3, 4, 5, 6, 7, 8
      failed(verifyShape(*this)) ||            // 12
      failed(expectType(*this, "dout", getDout(), getO().getType())) || // 3
      failed(expectType(*this, "dq", getDq(), getQ().getType())) ||
      failed(expectType(*this, "dk", getDk(), getK().getType())))
    return failure();
  if (failed(expectType(*this, "dv", getDv(), getK().getType()))) // 9
    return failure();
  if (!getBias() != !getDbias()) // 9
    return emitOpError() << "expected 'dbias' if and only if there is a "
                            "'bias', found one alone";
  return getBias() ? expectType(*this, "dbias", getDbias(),
                                getBias().getType()) // 9
                   : success();
}

LogicalResult RelativeBiasOp::verify() {
  if (failed(expectElements(*this, getBias(), {{"table", getTable()}})))
    return failure();
  return verifyRelativeBias(*this, "table", getTable(), "bias", getBias());
}

LogicalResult RelativeBiasGradOp::verify() {
  if (failed(expectElements(*this, getDbias(), {}, {{"dtable", getDtable()}})))
    return failure();
  return verifyRelativeBias(*this, "dtable", getDtable(), "dbias", getDbias());
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this, getQkv(), getO(), getLse(), getHeads(),
                             getDropout().convertToDouble())) ||
      failed(expectStarts(*this, getStarts(), shapeOf(getQkv())[0],
                          shapeOf(getQkv())[1]))) // 6
    return failure();
  return verifyDocuments(*this); // 6, 7
}

LogicalResult AttentionGradOp::verify() {
  if (failed(verifyAttention(*this, getQkv(), getO(), getLse(), getHeads(),
                             getDropout().convertToDouble())) ||
      failed(expectType(*this, "dout", getDout(), getO().getType())) || // 3
      failed(expectStarts(*this, getStarts(), shapeOf(getQkv())[0],
                          shapeOf(getQkv())[1])) || // 7
      failed(verifyDocuments(*this)))               // 7, 8
    return failure();
  return expectType(*this, "dqkv", getDqkv(), getQkv().getType()); // 5
}

/// Error: heads that key heads of a cache do not divide, or that are too wide.
static LogicalResult expectHeads(Operation *op, int64_t heads,
                                 ArrayRef<int64_t> cache) {
  if (heads < 1 || cache[1] < 1 || heads % cache[1] != 0)
    return op->emitOpError() << "expected key heads to divide the " << heads
                             << " heads, found " << cache[1];
  if (cache[3] > kMostCachedHead)
    return op->emitOpError() << "expected heads of at most " << kMostCachedHead
                             << " elements, found " << cache[3];
  return success();
}

/// Error: an operation makes keys or values, which so do not stay.
template <typename OpTy> static LogicalResult expectArguments(OpTy op) {
  for (Value kept : {op.getKeys(), op.getValues()})
    if (Operation *made = kept.getDefiningOp())
      return op.emitOpError()
             << "expected 'keys' and 'values' to be arguments, "
                "which stay, found a result of '"
             << made->getName() << "'";
  return success();
}

/// Error: a bias of kept keys that has no distance for some of them.
static LogicalResult expectBias(CachedAttentionOp op) {
  if (!op.getBias())
    return success();
  if (failed(expectRank(op, "bias", op.getBias(), 3)) ||
      failed(expectElements(op, op.getKeys(), {{"bias", op.getBias()}}, {})))
    return failure();
  ArrayRef<int64_t> bias = shapeOf(op.getBias());
  const int64_t places = shapeOf(op.getKeys())[2], heads = op.getHeads();
  if (failed(expectShape(op, "bias", op.getBias(),
                         {shapeOf(op.getParts()[0])[0], bias[1], bias[2]})))
    return failure();
  if (bias[1] % heads != 0 || bias[1] == 0 || bias[2] % 2 == 0 ||
      bias[2] / 2 < places - 1) // 8
    return op.emitOpError()
           << "expected 'bias' of a multiple of the " << heads
           << " heads and an odd number of at least " << 2 * places - 1
           << " distances, found " << bias[1] << " and " << bias[2];
  if (op.getWindow() != 0 || !op.getCap().isZero() ||
      !op.getDistance().isZero())
    return op.emitOpError() << "expected no window, cap or distance beside "
                               "'bias'"; // 8
  return success();
}

LogicalResult CachedAttentionOp::verify() {
  const size_t parts = getParts().size();
  if (parts != 1 && parts != 3) // 1
    return emitOpError() << "expected 'qkv', or 'q', 'k' and 'v', found "
                         << parts << " operands in front of 'keys'";
  for (Value part : getParts())
    if (failed(expectRank(*this, "parts", part, 4)))
      return failure();
  if (failed(expectRank(*this, "keys", getKeys(), 4)) ||
      failed(expectType(*this, "values", getValues(), getKeys().getType())))
    return failure();
  if (failed(expectArguments(*this))) // 3
    return failure();
  ArrayRef<int64_t> first = shapeOf(getParts()[0]), cache = shapeOf(getKeys());
  const int64_t heads = getHeads(), samples = first[0], head = cache[3];
  if (failed(expectHeads(*this, heads, cache))) // 2, 7
    return failure();
  if (parts == 1) {
    if (failed(expectShape(*this, "qkv", getParts()[0],
                           {samples, 1, 3, heads * head})) || // 1, 2
        failed(expectShape(*this, "keys", getKeys(),
                           {cache[0], heads, cache[2], head}))) // 3
      return failure();
  } else if (failed(expectShape(*this, "q", getParts()[0],
                                {samples, 1, heads, head})) ||
             failed(expectShape(*this, "k", getParts()[1],
                                {samples, 1, cache[1], head})) ||
             failed(expectType(*this, "v", getParts()[2],
                               getParts()[1].getType()))) { // 1, 2
    return failure();
  }
  for (auto [name, value] : {std::pair<StringRef, Value>("rows", getRows()),
                             {"positions", getPositions()}})
    if (failed(expectShape(*this, name, value, {samples, 1}))) // 4
      return failure();
  const int64_t window = getWindow();
  if (window < 0 || window > cache[2]) // 6
    return emitOpError() << "expected 'window' between 0 and the " << cache[2]
                         << " places, found " << window;
  if (!(getCap().convertToDouble() >= 0)) // 6
    return emitOpError() << "expected 'cap' to be 0 or positive, found "
                         << getCap().convertToDouble();
  if (!getDistance().isFinite()) // 6
    return emitOpError() << "expected 'distance' to be finite, found "
                         << getDistance().convertToDouble();
  if (failed(expectElements(*this, getParts()[0],
                            {{"keys", getKeys()}, {"o", getO()}}, {})) ||
      failed(expectBias(*this)))
    return failure();
  return expectShape(*this, "o", getO(), {samples, 1, heads * head}); // 5
}

LogicalResult CachedCrossAttentionOp::verify() {
  for (auto [name, value] : {std::pair<StringRef, Value>("q", getQ()),
                             {"k", getK()},
                             {"keys", getKeys()}})
    if (failed(expectRank(*this, name, value, 4)))
      return failure();
  if (failed(expectType(*this, "v", getV(), getK().getType())) || // 2
      failed(expectType(*this, "values", getValues(), getKeys().getType())) ||
      failed(expectArguments(*this))) // 3
    return failure();
  ArrayRef<int64_t> queries = shapeOf(getQ()), cache = shapeOf(getKeys());
  const int64_t samples = queries[0], heads = queries[2], head = cache[3];
  if (failed(expectHeads(*this, heads, cache))) // 2, 6
    return failure();
  if (failed(expectShape(*this, "q", getQ(), {samples, 1, heads, head})) || // 1
      failed(expectShape(*this, "k", getK(),
                         {samples, cache[2], cache[1], head}))) // 2
    return failure();
  for (auto [name, value] : {std::pair<StringRef, Value>("begins", getBegins()),
                             {"rows", getRows()},
                             {"lengths", getLengths()}})
    if (failed(expectShape(*this, name, value, {samples, 1}))) // 4
      return failure();
  if (failed(expectElements(*this, getQ(),
                            {{"k", getK()}, {"keys", getKeys()}, {"o", getO()}},
                            {})))
    return failure();
  return expectShape(*this, "o", getO(), {samples, 1, heads * head}); // 5
}
