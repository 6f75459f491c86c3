//===- NNKernels.cpp - Kernels of nn operations ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// The order of buffers, integers and reals is that of grt/kernels.def.
//
//===----------------------------------------------------------------------===//

#include "NNShapes.h"

using namespace mlir;
using namespace mlir::nn;

namespace {

/// What EMBEDDING_GRAD takes for no token.
constexpr int64_t kNoPadding = -1;

/// The length that a block of rows is cut from, 0 where `x` is no block.
int64_t lengthOf(Value x) {
  RowsAttr rows = RowsAttr::of(x.getType());
  return rows ? rows.getLength() : 0;
}
/// The shape by which kernels that count positions go: a block of rows is one
/// sample, and they are told the length.
SmallVector<int64_t> positionShape(Value x) {
  SmallVector<int64_t> shape;
  if (RowsAttr::of(x.getType()))
    shape.push_back(1);
  llvm::append_range(shape, typeOf(x).getShape());
  return shape;
}
bool isBalanced(Value x) {
  RowsAttr rows = RowsAttr::of(x.getType());
  return rows && rows.getBalanced();
}
/// Appends the length of a block of rows, which the integers of whole samples
/// end without, and whether the block is balanced.
void addLength(SmallVectorImpl<int64_t> &ints, Value x) {
  if (int64_t length = lengthOf(x))
    ints.push_back(length);
  if (isBalanced(x))
    ints.push_back(1);
}
/// Appends of how many tokens or labels a block of rows has its own.
void addRowsOfBlocks(SmallVectorImpl<int64_t> &ints, Value x, Value all) {
  if (lengthOf(x))
    ints.push_back(size(all));
  if (isBalanced(x))
    ints.push_back(1);
}

/// The integers of dropout's kernels, `between` among them. Behind them is the
/// length that a block of rows is cut from, 0 where there is none, and whether
/// the block is balanced and one of those of a block.
SmallVector<int64_t> dropoutInts(Value x, ArrayRef<int64_t> between) {
  int64_t samples = typeOf(x).getDimSize(0), columns = last(x);
  SmallVector<int64_t> ints = {samples, size(x) / samples / columns, columns};
  llvm::append_range(ints, between);
  ints.push_back(lengthOf(x));
  RowsAttr rows = RowsAttr::of(x.getType());
  const bool isOfBlock = rows && rows.getWithin() > 1;
  if (isOfBlock || isBalanced(x))
    ints.push_back(isBalanced(x));
  if (isOfBlock)
    ints.push_back(1);
  return ints;
}

/// The integers of the attention kernels up to the strides.
using AttentionShape = SmallVector<int64_t, 16>;
AttentionShape attentionShape(Value qkv, Value o, int64_t heads) {
  ArrayRef<int64_t> shape = typeOf(qkv).getShape();
  int64_t size = shape[3] / heads, stride = 3 * shape[3];
  if (lengthOf(o))
    return {1,
            typeOf(o).getDimSize(0),
            shape[0] * shape[1],
            heads,
            heads,
            size,
            stride,
            stride,
            stride};
  return {shape[0], shape[1], shape[1], heads, heads,
          size,     stride,   stride,   stride};
}
AttentionShape attentionShape(Value queries, Value keys) {
  SmallVector<int64_t> q = positionShape(queries);
  ArrayRef<int64_t> k = typeOf(keys).getShape();
  int64_t queryStride = q[2] * q[3], keyStride = k[2] * k[3];
  int64_t keyRows = lengthOf(queries) ? k[0] * k[1] : k[1];
  return {q[0], q[1],        keyRows,   q[2],     k[2],
          q[3], queryStride, keyStride, keyStride};
}

/// What stands behind the scratch of an attention kernel.
struct MaskAndBias {
  Value mask, starts;      ///< null: none
  SmallVector<Value> bias; ///< and its gradient
  int64_t heads = 0;       ///< of the bias

  MaskAndBias() = default;
  /// `operands` end in those of `op` that may be missing.
  template <typename OpTy> MaskAndBias(OpTy op, ArrayRef<Value> operands) {
    if (op.getBias()) {
      bias.push_back(operands.back());
      heads = typeOf(op.getBias()).getDimSize(1);
      operands = operands.drop_back();
    }
    if (op.getStarts()) {
      starts = operands.back();
      operands = operands.drop_back();
    }
    if (op.getMask())
      mask = operands.back();
  }
  /// Of an operation that can have no more than documents.
  template <typename OpTy>
  static MaskAndBias startsOf(OpTy op, ArrayRef<Value> operands) {
    MaskAndBias result;
    if (op.getStarts())
      result.starts = operands.back();
    return result;
  }
};

/// Calls an attention kernel; `buffers` are those in front of its scratch,
/// `like` has the type it computes in, `shape` are the reals of one that
/// changes scores.
template <typename OpTy>
void emitAttention(KernelEmitter &emitter, StringRef kernel, OpTy op,
                   Value like, SmallVector<Value> buffers, AttentionShape ints,
                   int64_t window = 0, const MaskAndBias &besides = {},
                   ArrayRef<double> shape = {}) {
  ints.append({op.getCausal(), int64_t(op.getOpIndex()), window});
  if (!besides.bias.empty())
    ints.push_back(besides.heads);
  ints.append({bool(besides.mask), bool(besides.starts)});
  addLength(ints, op.getO());
  if (op.getHeadsOfBlocks()) {
    // No block of rows; a kernel with biases or changed scores knows none.
    if (kernel.starts_with("attention"))
      ints.append({/*length=*/0, /*balanced=*/0});
    ints.push_back(1);
  }
  // Statistics of a block are the kernel's, one run of queries behind the
  // other.
  if (lengthOf(op.getO()))
    buffers[4] = emitter.view(buffers[4], 0, typeOf(op.getLse()));
  buffers.push_back(
      emitter.scratch(kernel, ints, typeOf(like).getElementType()));
  llvm::append_range(buffers, besides.bias);
  for (Value value : {besides.mask, besides.starts})
    if (value)
      buffers.push_back(value);
  SmallVector<double> reals = {op.getScale().convertToDouble(),
                               op.getDropout().convertToDouble()};
  llvm::append_range(reals, shape);
  emitter.kernel(kernel, buffers, ints, reals);
}

/// The kernel of an attention of separate queries and keys without its ending,
/// and the reals that it takes besides.
template <typename OpTy>
std::pair<std::string, SmallVector<double>> groupedKernel(OpTy op) {
  const double cap = op.getCap().convertToDouble();
  const double distance = op.getDistance().convertToDouble();
  if (cap != 0 || distance != 0)
    return {"shaped_attention", {cap, distance}};
  return {op.getBias() ? "biased_attention" : "attention", {}};
}

/// Moves positions between a grid, of the type of `grid`, and its windows.
template <typename OpTy>
void emitWindows(KernelEmitter &emitter, Value from, Value to, OpTy op,
                 Value grid, bool join) {
  emitter.kernel("windows", {from, to},
                 {typeOf(grid).getDimSize(0), int64_t(op.getRows()),
                  int64_t(op.getColumns()), last(grid), int64_t(op.getWindow()),
                  int64_t(op.getShift()), op.getMerge(), join});
}

/// Calls a kernel of attention in windows; `buffers` are those in front of its
/// scratch, `tableGradient` is null forward.
template <typename OpTy>
void emitWindowAttention(KernelEmitter &emitter, StringRef kernel, OpTy op,
                         SmallVector<Value> buffers, Value table,
                         Value tableGradient, int64_t mode) {
  ArrayRef<int64_t> q = typeOf(op.getQ()).getShape();
  SmallVector<int64_t> ints = {q[0],
                               q[1] / int64_t(op.getAcross()),
                               int64_t(op.getAcross()),
                               int64_t(op.getWindow()),
                               int64_t(op.getShift()),
                               q[3],
                               q[4],
                               int64_t(op.getOpIndex())};
  if (tableGradient)
    ints.push_back(mode);
  buffers.push_back(
      emitter.scratch(kernel, ints, typeOf(op.getQ()).getElementType()));
  buffers.push_back(table);
  if (tableGradient)
    buffers.push_back(tableGradient);
  emitter.kernel(
      kernel, buffers, ints,
      {op.getScale().convertToDouble(), op.getDropout().convertToDouble()});
}

/// Copies `rows` rows of `width` elements of `type`, which stand `fromStride`
/// and `toStride` elements after each other.
void emitCopy(KernelEmitter &emitter, Value from, Value to, Type type,
              int64_t rows, int64_t width, int64_t fromStride,
              int64_t toStride) {
  int64_t bytes = type.getIntOrFloatBitWidth() / 8;
  emitter.kernel("copy", {from, to},
                 {rows, width * bytes, fromStride * bytes, toStride * bytes});
}

/// Elements of `type`'s tensor from one sample to the next, and its width.
struct Positions {
  int64_t samples, count, width;
  Type element;
  explicit Positions(Value value)
      : samples(typeOf(value).getDimSize(0)),
        count(typeOf(value).getDimSize(1)), width(last(value)),
        element(typeOf(value).getElementType()) {}
  int64_t stride() const { return count * width; }
  int64_t bytesOf(int64_t positions) const {
    return positions * width * element.getIntOrFloatBitWidth() / 8;
  }
};

/// Queries, keys and values inside the packed buffer.
SmallVector<Value> unpack(KernelEmitter &emitter, Value packed,
                          RankedTensorType type) {
  SmallVector<Value> parts;
  int64_t bytes = type.getShape().back() * type.getElementTypeBitWidth() / 8;
  for (int64_t i = 0; i < 3; ++i)
    parts.push_back(emitter.view(packed, i * bytes, type));
  return parts;
}

/// The integers of the kernels of relative positions.
template <typename OpTy>
SmallVector<int64_t> relativeShape(Value bias, Value table, OpTy op) {
  ArrayRef<int64_t> shape = typeOf(bias).getShape();
  return {shape[0],
          shape[1],
          (shape[2] + 1) / 2,
          typeOf(table).getDimSize(0),
          int64_t(op.getMaxDistance()),
          op.getBidirectional()};
}

/// Kernels with several accumulated results, numbers `indices`, have one mode
/// for all of them: if only some accumulate, the others add to zeros.
int64_t emitCommonMode(KernelEmitter &emitter, ArrayRef<unsigned> indices,
                       ArrayRef<Value> results) {
  int64_t mode = 0;
  for (unsigned index : indices)
    mode = std::max(mode, emitter.accumulateMode(index));
  for (unsigned index : indices)
    if (emitter.accumulateMode(index) != mode)
      emitter.kernel("zero", {results[index]}, {});
  return mode;
}

/// Result 1 is the gradient of the scale, 2 that of the shift where there is
/// one.
void emitNormGrad(StringRef kernel, Value x, KernelEmitter &emitter,
                  ArrayRef<Value> operands, ArrayRef<Value> results) {
  int64_t n = last(x);
  int64_t mode = emitCommonMode(
      emitter, ArrayRef<unsigned>{1, 2}.take_front(results.size() - 1),
      results);
  SmallVector<Value> buffers(operands);
  buffers.append(results.begin(), results.end());
  emitter.kernel(kernel, buffers, {size(x) / n, n, mode});
}

/// Appends what a product of buffers 0 and 1 works in, where the backend wants
/// that.
void addProductScratch(KernelEmitter &emitter, SmallVectorImpl<Value> &buffers,
                       Value result, ArrayRef<int64_t> sizes, bool transA,
                       bool transB, int64_t mode) {
  auto element = [](Value buffer) {
    return cast<ShapedType>(buffer.getType()).getElementType();
  };
  Value scratch = emitter.scratch(
      "gemm", {sizes[0], sizes[1], sizes[2], transA, transB, mode, 0},
      element(buffers[0]), element(result));
  if (scratch)
    buffers.push_back(scratch);
}

/// `operands` are both factors and, with `hasBias`, the bias.
void emitProduct(KernelEmitter &emitter, ArrayRef<Value> operands, Value result,
                 int64_t m, int64_t n, int64_t k, bool transA, bool transB,
                 int64_t mode, bool hasBias = false) {
  SmallVector<Value> buffers = {operands[0], operands[1], result};
  if (hasBias)
    buffers.push_back(operands[2]);
  addProductScratch(emitter, buffers, result, {m, n, k}, transA, transB, mode);
  emitter.kernel("gemm", buffers, {m, n, k, transA, transB, mode, hasBias});
}

/// The part of a table, of type `type`, from row `first` on.
Value rowsFrom(KernelEmitter &emitter, Value table, RankedTensorType type,
               int64_t first) {
  if (first == 0)
    return table;
  const int64_t bytes =
      first * type.getDimSize(1) * type.getElementTypeBitWidth() / 8;
  return emitter.view(table, bytes, type);
}

} // namespace

void EmbeddingOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                              ArrayRef<Value> results) {
  const int64_t first = getFirst();
  Value table = rowsFrom(emitter, operands[1], typeOf(getTable()), first);
  emitter.kernel("embedding", {operands[0], table, results[0]},
                 {size(getTokens()), last(getTable()),
                  typeOf(getTable()).getDimSize(0) - first, getSharded()});
}

void EmbeddingGradOp::emitKernels(KernelEmitter &emitter,
                                  ArrayRef<Value> operands,
                                  ArrayRef<Value> results) {
  const int64_t first = getFirst();
  if (first != 0)
    emitter.kernel("zero", {results[0]}, {});
  SmallVector<int64_t> ints = {size(getDy()) / last(getTable()),
                               last(getTable()),
                               typeOf(getTable()).getDimSize(0) - first,
                               getSharded(),
                               first != 0 ? 1 : emitter.accumulateMode(0),
                               getPadding() ? int64_t(*getPadding())
                                            : kNoPadding};
  addRowsOfBlocks(ints, getDy(), getTokens());
  Value table = rowsFrom(emitter, results[0], typeOf(getDtable()), first);
  emitter.kernel("embedding_grad", {operands[0], operands[1], table}, ints);
}

void PositionAddOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  SmallVector<int64_t> ints = positionShape(getX());
  ints.append({int64_t(getFirst()), bool(getStarts())});
  addLength(ints, getX());
  SmallVector<Value> buffers = {operands[0], operands[1], results[0]};
  llvm::append_range(buffers, operands.drop_front(2));
  emitter.kernel("position_add", buffers, ints);
}
int PositionAddOp::getReusableOperand(unsigned) { return 0; }

void PositionGradOp::emitKernels(KernelEmitter &emitter,
                                 ArrayRef<Value> operands,
                                 ArrayRef<Value> results) {
  SmallVector<int64_t> ints = positionShape(getDy());
  ints.append({typeOf(getDtable()).getDimSize(0), emitter.accumulateMode(0),
               int64_t(getFirst()), bool(getStarts())});
  addLength(ints, getDy());
  SmallVector<Value> buffers = {operands[0], results[0]};
  llvm::append_range(buffers, operands.drop_front(1));
  emitter.kernel("position_grad", buffers, ints);
}

void PatchesOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  ArrayRef<int64_t> images = typeOf(getImages()).getShape();
  emitter.kernel("patches", {operands[0], results[0]},
                 {images[0], images[1], images[2], images[3],
                  int64_t(getRows()), int64_t(getColumns()), getPad()});
}

void WindowsOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  emitWindows(emitter, operands[0], results[0], *this, getX(), /*join=*/false);
}

void JoinWindowsOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  emitWindows(emitter, operands[0], results[0], *this, getY(), /*join=*/true);
}

void WindowAttentionOp::emitKernels(KernelEmitter &emitter,
                                    ArrayRef<Value> operands,
                                    ArrayRef<Value> results) {
  SmallVector<Value> buffers(operands.take_front(3));
  buffers.append(results.begin(), results.end());
  emitWindowAttention(emitter, "window_attention", *this, std::move(buffers),
                      operands[3], /*tableGradient=*/{}, /*mode=*/0);
}

void WindowAttentionGradOp::emitKernels(KernelEmitter &emitter,
                                        ArrayRef<Value> operands,
                                        ArrayRef<Value> results) {
  SmallVector<Value> buffers(operands.take_front(6));
  llvm::append_range(buffers, results.take_front(3));
  emitWindowAttention(emitter, "window_attention_grad", *this,
                      std::move(buffers), operands[6], results[3],
                      emitter.accumulateMode(3));
}

// By how much a grid is turned decides what stands where.
SmallVector<StringRef> WindowsOp::getFreeAttributes() {
  return {getShiftAttrName()};
}
SmallVector<StringRef> JoinWindowsOp::getFreeAttributes() {
  return {getShiftAttrName()};
}
SmallVector<StringRef> WindowAttentionOp::getFreeAttributes() {
  return {getShiftAttrName()};
}
SmallVector<StringRef> WindowAttentionGradOp::getFreeAttributes() {
  return {getShiftAttrName()};
}

void DropPathOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  int64_t samples = typeOf(getX()).getDimSize(0);
  emitter.kernel("drop_path", {operands[0], results[0]},
                 {samples, size(getX()) / samples, int64_t(getOpIndex()),
                  int64_t(getFirstLayer())},
                 {getRate().convertToDouble()});
}
int DropPathOp::getReusableOperand(unsigned) { return 0; }

void MeanOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                         ArrayRef<Value> results) {
  SmallVector<int64_t> ints(typeOf(getX()).getShape());
  ints.push_back(getBesideFirst());
  emitter.kernel("mean", {operands[0], results[0]}, ints);
}

void MeanGradOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  SmallVector<int64_t> ints(typeOf(getDx()).getShape());
  ints.push_back(getBesideFirst());
  emitter.kernel("mean_grad", {operands[0], results[0]}, ints);
}

void TransposeOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                              ArrayRef<Value> results) {
  ArrayRef<int64_t> shape = typeOf(getX()).getShape();
  int64_t rows = shape[shape.size() - 2], columns = shape.back();
  emitter.kernel("transpose", {operands[0], results[0]},
                 {size(getX()) / (rows * columns), rows, columns});
}

/// `back`: from the part to the whole.
static void emitOwnPart(KernelEmitter &emitter, ArrayRef<Value> operands,
                        ArrayRef<Value> results, Value whole, Value part,
                        int64_t dim, int64_t ranks, bool back) {
  ArrayRef<int64_t> shape = typeOf(whole).getShape();
  int64_t own = typeOf(part).getDimSize(dim), rows = 1;
  for (int64_t size : shape.take_front(dim))
    rows *= size;
  emitter.kernel("own_part", {operands[0], results[0]},
                 {rows, shape[dim] / own, size(part) / rows, ranks, back});
}
void OwnPartOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  emitOwnPart(emitter, operands, results, getX(), getY(), int64_t(getDim()),
              int64_t(getRanks()), /*back=*/false);
}
void OwnPartGradOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  emitOwnPart(emitter, operands, results, getDx(), getDy(), int64_t(getDim()),
              int64_t(getRanks()), /*back=*/true);
}

void PrependOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  Positions x(getX()), y(getY());
  emitCopy(emitter, operands[1], results[0], y.element, y.samples, y.width,
           /*fromStride=*/0, y.stride());
  emitCopy(emitter, operands[0],
           emitter.view(results[0], y.bytesOf(1), typeOf(getX())), y.element,
           y.samples, x.stride(), x.stride(), y.stride());
}

void PrependGradOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  Positions dx(getDx()), dy(getDy());
  emitCopy(emitter, emitter.view(operands[0], dy.bytesOf(1), typeOf(getDx())),
           results[0], dy.element, dy.samples, dx.stride(), dy.stride(),
           dx.stride());
  Value rows = emitter.temporary(
      RankedTensorType::get({dy.samples, dy.width}, dy.element));
  emitCopy(emitter, operands[0], rows, dy.element, dy.samples, dy.width,
           dy.stride(), dy.width);
  emitter.kernel("bias_grad", {rows, results[1]},
                 {dy.samples, dy.width, emitter.accumulateMode(1)});
}

void TakeOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                         ArrayRef<Value> results) {
  Positions x(getX());
  emitCopy(emitter,
           emitter.view(operands[0], x.bytesOf(getPosition()), typeOf(getY())),
           results[0], x.element, x.samples, x.width, x.stride(), x.width);
}

void TakeGradOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  Positions dx(getDx());
  emitter.kernel("zero", {results[0]}, {});
  emitCopy(emitter, operands[0],
           emitter.view(results[0], dx.bytesOf(getPosition()), typeOf(getDy())),
           dx.element, dx.samples, dx.width, dx.width, dx.stride());
}

void LinearOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                           ArrayRef<Value> results) {
  int64_t in = last(getX()), rows = size(getX()) / in;
  emitProduct(emitter, operands, results[0], rows, size(getW()) / in, in, false,
              getTransposeWeight(), 0, bool(getBias()));
}

void LinearInputGradOp::emitKernels(KernelEmitter &emitter,
                                    ArrayRef<Value> operands,
                                    ArrayRef<Value> results) {
  int64_t in = last(getDx()), rows = size(getDx()) / in;
  emitProduct(emitter, operands, results[0], rows, in, size(getW()) / in, false,
              !getTransposeWeight(), 0);
}

void LinearWeightGradOp::emitKernels(KernelEmitter &emitter,
                                     ArrayRef<Value> operands,
                                     ArrayRef<Value> results) {
  int64_t in = last(getX()), rows = size(getX()) / in;
  int64_t out = size(getDy()) / rows;
  int64_t mode = emitter.accumulateMode(0);
  if (getTransposeWeight())
    emitProduct(emitter, {operands[1], operands[0]}, results[0], out, in, rows,
                true, false, mode);
  else
    emitProduct(emitter, operands, results[0], in, out, rows, true, false,
                mode);
}

void LinearGeluOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                               ArrayRef<Value> results) {
  int64_t in = last(getX()), rows = size(getX()) / in, out = size(getW()) / in;
  SmallVector<Value> buffers(operands);
  buffers.append(results.begin(), results.end());
  addProductScratch(emitter, buffers, results[0], {rows, out, in}, false,
                    getTransposeWeight(), 0);
  emitter.kernel("gemm_gelu", buffers,
                 {rows, out, in, 0, getTransposeWeight(), getApproximate(),
                  getPre() ? 1 : 0});
}

void LinearGeluGradOp::emitKernels(KernelEmitter &emitter,
                                   ArrayRef<Value> operands,
                                   ArrayRef<Value> results) {
  int64_t in = last(getDx()), rows = size(getDx()) / in;
  int64_t out = size(getW()) / in;
  SmallVector<Value> buffers = {operands[0], operands[1], operands[2],
                                results[0]};
  addProductScratch(emitter, buffers, results[0], {rows, in, out}, false,
                    !getTransposeWeight(), 0);
  emitter.kernel("gemm_gelu_grad", buffers,
                 {rows, in, out, 0, !getTransposeWeight(), getApproximate()});
}

void LinearWeightBiasGradOp::emitKernels(KernelEmitter &emitter,
                                         ArrayRef<Value> operands,
                                         ArrayRef<Value> results) {
  int64_t in = last(getX()), rows = size(getX()) / in;
  int64_t out = size(getDy()) / rows;
  int64_t mode = emitCommonMode(emitter, {0, 1}, results);
  SmallVector<Value> buffers = {operands[0], operands[1], results[0],
                                results[1]};
  addProductScratch(emitter, buffers, results[0], {in, out, rows}, true, false,
                    mode);
  emitter.kernel("gemm_bias_grad", buffers, {in, out, rows, mode});
}

void BiasAddOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  int64_t n = size(getBias());
  emitter.kernel("bias_add", {operands[0], operands[1], results[0]},
                 {size(getX()) / n, n});
}
int BiasAddOp::getReusableOperand(unsigned) { return 0; }

void BiasGradOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  int64_t n = size(getDbias());
  emitter.kernel("bias_grad", {operands[0], results[0]},
                 {size(getDy()) / n, n, emitter.accumulateMode(0)});
}

void LayerNormOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                              ArrayRef<Value> results) {
  int64_t n = last(getX());
  SmallVector<Value> buffers(operands);
  buffers.append(results.begin(), results.end());
  emitter.kernel(getBeta() ? "layer_norm" : "centered_norm", buffers,
                 {size(getX()) / n, n}, {getEps().convertToDouble()});
}

void LayerNormGradOp::emitKernels(KernelEmitter &emitter,
                                  ArrayRef<Value> operands,
                                  ArrayRef<Value> results) {
  emitNormGrad(getDbeta() ? "layer_norm_grad" : "centered_norm_grad", getX(),
               emitter, operands, results);
}
int LayerNormGradOp::getReusableOperand(unsigned index) {
  return index == 0 ? 0 : -1;
}

void AddLayerNormOp::emitKernels(KernelEmitter &emitter,
                                 ArrayRef<Value> operands,
                                 ArrayRef<Value> results) {
  SmallVector<Value> buffers(operands);
  buffers.append(results.begin(), results.end());
  emitter.kernel("add_layer_norm", buffers,
                 dropoutInts(getX(), int64_t(getOpIndex())),
                 {getEps().convertToDouble(), getP().convertToDouble()});
}
int AddLayerNormOp::getReusableOperand(unsigned index) {
  return index == 0 ? 0 : -1;
}

void LayerNormAddGradOp::emitKernels(KernelEmitter &emitter,
                                     ArrayRef<Value> operands,
                                     ArrayRef<Value> results) {
  emitNormGrad("layer_norm_add_grad", getX(), emitter, operands, results);
}
int LayerNormAddGradOp::getReusableOperand(unsigned index) {
  return index == 0 ? 0 : -1;
}

void RMSNormOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  int64_t n = size(getGamma());
  emitter.kernel("rms_norm", {operands[0], operands[1], results[0], results[1]},
                 {size(getX()) / n, n, getUnitOffset()},
                 {getEps().convertToDouble()});
}

void RMSNormGradOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  int64_t n = size(getGamma());
  SmallVector<Value> buffers(operands);
  buffers.append(results.begin(), results.end());
  emitter.kernel(
      "rms_norm_grad", buffers,
      {size(getX()) / n, n, emitter.accumulateMode(1), getUnitOffset()});
}
int RMSNormGradOp::getReusableOperand(unsigned index) {
  return index == 0 ? 0 : -1;
}

void RotaryOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                           ArrayRef<Value> results) {
  ArrayRef<double> frequencies = getFrequencies();
  SmallVector<double> reals = {getFactor().convertToDouble()};
  reals.append(frequencies.begin(), frequencies.end());
  SmallVector<int64_t> ints = positionShape(getX());
  ints.append({getInverse(), int64_t(frequencies.size()), getInterleaved()});
  addLength(ints, getX());
  SmallVector<Value> buffers = {operands[0], results[0]};
  if (getAt()) {
    ints.append({/*length=*/0, /*balanced=*/0, /*hasPositions=*/1});
    buffers.push_back(operands[1]);
  }
  emitter.kernel("rotary", buffers, ints, reals);
}
int RotaryOp::getReusableOperand(unsigned) { return 0; }

void GatedSiluOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                              ArrayRef<Value> results) {
  emitter.kernel("gated_silu", {operands[0], operands[1], results[0]},
                 {size(getGate())});
}
int GatedSiluOp::getReusableOperand(unsigned) { return 0; }

void GatedSiluGradOp::emitKernels(KernelEmitter &emitter,
                                  ArrayRef<Value> operands,
                                  ArrayRef<Value> results) {
  emitter.kernel(
      "gated_silu_grad",
      {operands[0], operands[1], operands[2], results[0], results[1]},
      {size(getGate())});
}
// The gradient dies here, what the forward pass kept may not.
int GatedSiluGradOp::getReusableOperand(unsigned index) {
  return index == 0 ? 2 : 1;
}

void GatedGeluOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                              ArrayRef<Value> results) {
  emitter.kernel("gated_gelu", {operands[0], operands[1], results[0]},
                 {size(getGate()), getExact()});
}
int GatedGeluOp::getReusableOperand(unsigned) { return 0; }

void GatedGeluGradOp::emitKernels(KernelEmitter &emitter,
                                  ArrayRef<Value> operands,
                                  ArrayRef<Value> results) {
  emitter.kernel(
      "gated_gelu_grad",
      {operands[0], operands[1], operands[2], results[0], results[1]},
      {size(getGate()), getExact()});
}
// As for the gated SiLU.
int GatedGeluGradOp::getReusableOperand(unsigned index) {
  return index == 0 ? 2 : 1;
}

void ReluOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                         ArrayRef<Value> results) {
  emitter.kernel("relu", {operands[0], results[0]}, {size(getX())});
}
int ReluOp::getReusableOperand(unsigned) { return 0; }

void ReluGradOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  emitter.kernel("relu_grad", {operands[0], operands[1], results[0]},
                 {size(getY())});
}
int ReluGradOp::getReusableOperand(unsigned) { return 1; }

void SoftCapOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  emitter.kernel("soft_cap", {operands[0], results[0]}, {size(getX())},
                 {getCap().convertToDouble()});
}
int SoftCapOp::getReusableOperand(unsigned) { return 0; }

void SoftCapGradOp::emitKernels(KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  emitter.kernel("soft_cap_grad", {operands[0], operands[1], results[0]},
                 {size(getY())}, {getCap().convertToDouble()});
}
int SoftCapGradOp::getReusableOperand(unsigned) { return 1; }

void ScaleOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                          ArrayRef<Value> results) {
  llvm::APFloat factor = getFactor();
  bool losesInfo;
  if (getRounded())
    factor.convert(
        cast<FloatType>(typeOf(getX()).getElementType()).getFloatSemantics(),
        llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  emitter.kernel("scale", {operands[0], results[0]}, {size(getX())},
                 {factor.convertToDouble()});
}
int ScaleOp::getReusableOperand(unsigned) { return 0; }

void RelativeBiasOp::emitKernels(KernelEmitter &emitter,
                                 ArrayRef<Value> operands,
                                 ArrayRef<Value> results) {
  emitter.kernel("relative_bias", {operands[0], results[0]},
                 relativeShape(getBias(), getTable(), *this));
}

void RelativeBiasGradOp::emitKernels(KernelEmitter &emitter,
                                     ArrayRef<Value> operands,
                                     ArrayRef<Value> results) {
  SmallVector<int64_t> ints = relativeShape(getDbias(), getDtable(), *this);
  ints.push_back(emitter.accumulateMode(0));
  emitter.kernel("relative_bias_grad", {operands[0], results[0]}, ints);
}

void GeluOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                         ArrayRef<Value> results) {
  emitter.kernel("gelu", {operands[0], results[0]},
                 {size(getX()), getApproximate()});
}
int GeluOp::getReusableOperand(unsigned) { return 0; }

void GeluGradOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  emitter.kernel("gelu_grad", {operands[0], operands[1], results[0]},
                 {size(getX()), getApproximate()});
}
int GeluGradOp::getReusableOperand(unsigned) { return 1; }

void BiasGeluOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                             ArrayRef<Value> results) {
  int64_t n = size(getBias());
  emitter.kernel("bias_gelu",
                 {operands[0], operands[1], results[0], results[1]},
                 {size(getX()) / n, n, getApproximate()});
}
int BiasGeluOp::getReusableOperand(unsigned index) {
  return index == 0 ? 0 : -1;
}

void AttentionOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                              ArrayRef<Value> results) {
  SmallVector<Value> buffers = unpack(emitter, operands[0], typeOf(getQkv()));
  buffers.append(results.begin(), results.end());
  emitAttention(emitter, "attention", *this, getQkv(), std::move(buffers),
                attentionShape(getQkv(), getO(), getHeads()), /*window=*/0,
                MaskAndBias::startsOf(*this, operands));
}

void AttentionGradOp::emitKernels(KernelEmitter &emitter,
                                  ArrayRef<Value> operands,
                                  ArrayRef<Value> results) {
  SmallVector<Value> buffers = unpack(emitter, operands[0], typeOf(getQkv()));
  buffers.append({operands[1], operands[2], operands[3]});
  buffers.append(unpack(emitter, results[0], typeOf(getDqkv())));
  emitAttention(emitter, "attention_grad", *this, getQkv(), std::move(buffers),
                attentionShape(getQkv(), getO(), getHeads()), /*window=*/0,
                MaskAndBias::startsOf(*this, operands));
}

void GroupedAttentionOp::emitKernels(KernelEmitter &emitter,
                                     ArrayRef<Value> operands,
                                     ArrayRef<Value> results) {
  SmallVector<Value> buffers(operands.take_front(3));
  buffers.append(results.begin(), results.end());
  auto [kernel, shape] = groupedKernel(*this);
  emitAttention(emitter, kernel, *this, getQ(), std::move(buffers),
                attentionShape(getQ(), getK()), getWindow(),
                MaskAndBias(*this, operands), shape);
}

void CachedAttentionOp::emitKernels(KernelEmitter &emitter,
                                    ArrayRef<Value> operands,
                                    ArrayRef<Value> results) {
  const size_t parts = getParts().size();
  ArrayRef<int64_t> cache = typeOf(getKeys()).getShape();
  SmallVector<Value> buffers(operands.take_front(parts));
  const int64_t heads = getHeads(), head = cache[3];
  int64_t queryStride = heads * head, keyStride = cache[1] * head;
  if (parts == 1) {
    buffers = unpack(emitter, operands[0], typeOf(getParts()[0]));
    queryStride = keyStride = 3 * heads * head;
  }
  llvm::append_range(buffers, operands.slice(parts, 4));
  buffers.push_back(results[0]);
  SmallVector<int64_t> ints = {typeOf(getO()).getDimSize(0), cache[0],
                               cache[2]};
  ints.append({heads, cache[1], head, queryStride, keyStride, keyStride});
  ints.push_back(int64_t(getWindow()));
  if (getBias()) {
    buffers.push_back(operands.back());
    ArrayRef<int64_t> bias = typeOf(getBias()).getShape();
    ints.append({/*hasBias=*/1, bias[1], bias[2]});
  } else {
    ints.append(3, 0);
  }
  emitter.kernel("cached_attention", buffers, ints,
                 {getScale().convertToDouble(), getCap().convertToDouble(),
                  getDistance().convertToDouble()});
}

void CachedCrossAttentionOp::emitKernels(KernelEmitter &emitter,
                                         ArrayRef<Value> operands,
                                         ArrayRef<Value> results) {
  ArrayRef<int64_t> queries = typeOf(getQ()).getShape(),
                    cache = typeOf(getKeys()).getShape();
  SmallVector<Value> buffers(operands);
  buffers.push_back(results[0]);
  const int64_t heads = queries[2], head = cache[3], shared = cache[1] * head;
  emitter.kernel("cached_cross_attention", buffers,
                 {queries[0], cache[0], cache[2], heads, cache[1], head,
                  heads * head, shared, shared},
                 {getScale().convertToDouble()});
}

void GroupedAttentionGradOp::emitKernels(KernelEmitter &emitter,
                                         ArrayRef<Value> operands,
                                         ArrayRef<Value> results) {
  SmallVector<Value> buffers(operands.take_front(6));
  llvm::append_range(buffers, results.take_front(3));
  MaskAndBias besides(*this, operands);
  llvm::append_range(besides.bias, results.drop_front(3));
  auto [kernel, shape] = groupedKernel(*this);
  emitAttention(emitter, kernel + "_grad", *this, getQ(), std::move(buffers),
                attentionShape(getQ(), getK()), getWindow(), besides, shape);
}

void DropoutOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                            ArrayRef<Value> results) {
  emitter.kernel("dropout", {operands[0], results[0]},
                 dropoutInts(getX(), {int64_t(getOpIndex()), getColSharded()}),
                 {getP().convertToDouble()});
}
int DropoutOp::getReusableOperand(unsigned) { return 0; }

void DropoutAddOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                               ArrayRef<Value> results) {
  emitter.kernel("dropout_add", {operands[0], operands[1], results[0]},
                 dropoutInts(getX(), {int64_t(getOpIndex()), getColSharded()}),
                 {getP().convertToDouble()});
}
int DropoutAddOp::getReusableOperand(unsigned) { return 0; }

void AddOp::emitKernels(KernelEmitter &emitter, ArrayRef<Value> operands,
                        ArrayRef<Value> results) {
  emitter.kernel("add", {operands[0], operands[1], results[0]}, {size(getA())});
}
int AddOp::getReusableOperand(unsigned) { return 0; }

/// A vocabulary that is not divided has its statistics made first.
static void emitRegularizedLoss(CrossEntropyOp op, KernelEmitter &emitter,
                                ArrayRef<Value> operands,
                                ArrayRef<Value> results) {
  const int64_t columns = last(op.getLogits()),
                rows = size(op.getLogits()) / columns;
  SmallVector<int64_t> shape = {rows, columns, int64_t(op.getClasses()),
                                /*sharded=*/op.getStats() != nullptr};
  Value stats;
  if (op.getStats()) {
    stats = operands[2];
  } else {
    Type element = accumulatorElement(typeOf(op.getLogits()).getElementType());
    stats = emitter.temporary(
        RankedTensorType::get({rows, op.getStatistics()}, element));
    SmallVector<int64_t> ints = shape;
    addRowsOfBlocks(ints, op.getLogits(), op.getLabels());
    emitter.kernel("regularized_stats", {operands[0], operands[1], stats},
                   ints);
  }
  shape.push_back(op.getStats() ? typeOf(op.getStats()).getDimSize(0) : 1);
  addRowsOfBlocks(shape, op.getLogits(), op.getLabels());
  emitter.kernel(
      "regularized_cross_entropy",
      {operands[0], operands[1], stats, results[1], results[0]}, shape,
      {op.getSmoothing().convertToDouble(), op.getZLoss().convertToDouble()});
}

void CrossEntropyOp::emitKernels(KernelEmitter &emitter,
                                 ArrayRef<Value> operands,
                                 ArrayRef<Value> results) {
  int64_t columns = last(getLogits()), rows = size(getLogits()) / columns;
  if (isRegularized())
    return emitRegularizedLoss(*this, emitter, operands, results);
  if (getStats()) {
    SmallVector<int64_t> ints = {rows, columns, int64_t(getClasses()),
                                 /*sharded=*/1,
                                 typeOf(getStats()).getDimSize(0)};
    addRowsOfBlocks(ints, getLogits(), getLabels());
    emitter.kernel(
        "cross_entropy",
        {operands[0], operands[1], operands[2], results[1], results[0]}, ints);
    return;
  }
  // Nothing stands between the statistics and their use.
  Type element = accumulatorElement(typeOf(getLogits()).getElementType());
  Value stats = emitter.temporary(RankedTensorType::get({rows, 3}, element));
  SmallVector<int64_t> ints = {rows, columns};
  addRowsOfBlocks(ints, getLogits(), getLabels());
  emitter.kernel("softmax_cross_entropy",
                 {operands[0], operands[1], stats, results[1], results[0]},
                 ints);
}
int CrossEntropyOp::getReusableOperand(unsigned index) {
  return index == 1 ? 0 : -1;
}

void SoftmaxStatsOp::emitKernels(KernelEmitter &emitter,
                                 ArrayRef<Value> operands,
                                 ArrayRef<Value> results) {
  SmallVector<int64_t> ints = {size(getLogits()) / last(getLogits()),
                               last(getLogits()), int64_t(getClasses()), 1};
  addRowsOfBlocks(ints, getLogits(), getLabels());
  emitter.kernel(getTotal() ? "regularized_stats" : "softmax_stats",
                 {operands[0], operands[1], results[0]}, ints);
}

// Rows in front of the first have to be zeroed.
bool EmbeddingGradOp::supportsAccumulation(unsigned) { return getFirst() == 0; }
bool RelativeBiasGradOp::supportsAccumulation(unsigned) { return true; }
bool WindowAttentionGradOp::supportsAccumulation(unsigned index) {
  return index == 3;
}
bool PositionGradOp::supportsAccumulation(unsigned) { return true; }
bool PrependGradOp::supportsAccumulation(unsigned index) { return index == 1; }
bool LinearWeightGradOp::supportsAccumulation(unsigned) { return true; }
bool LinearWeightBiasGradOp::supportsAccumulation(unsigned) { return true; }
bool RMSNormGradOp::supportsAccumulation(unsigned index) { return index == 1; }
bool BiasGradOp::supportsAccumulation(unsigned) { return true; }
bool LayerNormGradOp::supportsAccumulation(unsigned index) { return index > 0; }
bool LayerNormAddGradOp::supportsAccumulation(unsigned index) {
  return index > 0;
}
