//===- Fuse.cpp - Fusion of neighbouring nn operations --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Dialect/NN/Transforms/Passes.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::nn {
#define GEN_PASS_DEF_NNFUSEPASS
#include "galvatron/Dialect/NN/Transforms/Passes.h.inc"
} // namespace mlir::nn

using namespace mlir;
using namespace mlir::nn;

namespace {

/// The operation behind `value` if its only user is in the same block and is
/// the one asking.
template <typename OpTy> OpTy getOnlyUsed(Value value) {
  auto op = value.getDefiningOp<OpTy>();
  return op && value.hasOneUse() ? op : nullptr;
}

/// bias_add + gelu. The biased value may have other users (the stash): it is
/// the first result of the fused operation.
struct FuseBiasGelu : OpRewritePattern<GeluOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(GeluOp op,
                                PatternRewriter &rewriter) const override {
    auto bias = op.getX().getDefiningOp<BiasAddOp>();
    if (!bias)
      return failure();
    auto fused = BiasGeluOp::create(
        rewriter, op.getLoc(),
        TypeRange{bias.getY().getType(), op.getY().getType()}, bias.getX(),
        bias.getBias(), op.getApproximateAttr());
    rewriter.replaceOp(op, fused.getY());
    // Users of the biased value that stand before the GELU would not be
    // dominated by the fused operation.
    rewriter.moveOpAfter(fused, bias);
    rewriter.replaceOp(bias, fused.getPre());
    return success();
  }
};

/// linear + bias_add.
struct FuseLinearBias : OpRewritePattern<BiasAddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BiasAddOp op,
                                PatternRewriter &rewriter) const override {
    auto linear = getOnlyUsed<LinearOp>(op.getX());
    if (!linear || linear.getBias())
      return failure();
    // A bias that feeds a GELU is fused there, where it saves a pass over
    // memory; here it would only save the same pass in another place.
    if (llvm::any_of(op->getUsers(),
                     [](Operation *u) { return isa<GeluOp>(u); }))
      return failure();
    auto wType = cast<RankedTensorType>(linear.getW().getType());
    auto bType = cast<RankedTensorType>(op.getBias().getType());
    if (bType.getRank() != wType.getRank() - 1)
      return failure();
    rewriter.replaceOpWithNewOp<LinearOp>(
        op, op.getY().getType(), linear.getX(), linear.getW(), op.getBias(),
        linear.getTransposeWeightAttr());
    return success();
  }
};

/// dropout + add.
struct FuseDropoutAdd : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AddOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [x, residual] :
         {std::pair(op.getB(), op.getA()), std::pair(op.getA(), op.getB())}) {
      auto dropout = getOnlyUsed<DropoutOp>(x);
      if (!dropout)
        continue;
      rewriter.replaceOpWithNewOp<DropoutAddOp>(
          op, op.getY().getType(), dropout.getX(), residual, dropout.getPAttr(),
          dropout.getOpIndexAttr(), dropout.getColShardedAttr());
      return success();
    }
    return failure();
  }
};

/// add or dropout_add + layer_norm. The sum is the residual stream: it goes on
/// to the next addition and is kept for backward, so it stays a result.
struct FuseAddLayerNorm : OpRewritePattern<LayerNormOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(LayerNormOp op,
                                PatternRewriter &rewriter) const override {
    Value x, residual;
    auto p = rewriter.getF64FloatAttr(0);
    auto opIndex = rewriter.getI64IntegerAttr(0);
    Operation *sum = op.getX().getDefiningOp();
    if (auto dropout = dyn_cast_or_null<DropoutAddOp>(sum)) {
      if (dropout.getColSharded())
        return failure();
      x = dropout.getX();
      residual = dropout.getResidual();
      p = dropout.getPAttr();
      opIndex = dropout.getOpIndexAttr();
    } else if (auto add = dyn_cast_or_null<AddOp>(sum)) {
      x = add.getB();
      residual = add.getA();
      // Dropout goes into the addition first.
      if (cast<RankedTensorType>(x.getType()).getRank() < 2 ||
          getOnlyUsed<DropoutOp>(x) || getOnlyUsed<DropoutOp>(residual))
        return failure();
      // The sum takes the place of x, which an argument cannot give.
      if (!x.getDefiningOp())
        std::swap(x, residual);
    } else {
      return failure();
    }
    if (!op.getBeta())
      return failure();
    // It stands where the sum did, before all of that one's users.
    for (Value parameter : {op.getGamma(), op.getBeta()})
      if (Operation *source = parameter.getDefiningOp();
          source && !source->isBeforeInBlock(sum))
        return failure();
    rewriter.setInsertionPoint(sum);
    auto fused = AddLayerNormOp::create(
        rewriter, op.getLoc(),
        TypeRange{op.getX().getType(), op.getY().getType(),
                  op.getStats().getType()},
        x, residual, op.getGamma(), op.getBeta(), op.getEpsAttr(), p, opIndex);
    rewriter.replaceOp(op, {fused.getY(), fused.getStats()});
    rewriter.replaceOp(sum, fused.getSum());
    return success();
  }
};

/// layer_norm_grad + the addition of the gradient that went past the norm.
struct FuseLayerNormAddGrad : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AddOp op,
                                PatternRewriter &rewriter) const override {
    for (auto [dx, residual] :
         {std::pair(op.getB(), op.getA()), std::pair(op.getA(), op.getB())}) {
      auto grad = getOnlyUsed<LayerNormGradOp>(dx);
      if (!grad || grad.getDx() != dx || !grad.getDbeta())
        continue;
      // The fused operation stands where the addition did, since what is added
      // may come after the norm's gradient.
      if (llvm::any_of(grad->getUsers(), [&](Operation *user) {
            return user != op && user->isBeforeInBlock(op);
          }))
        continue;
      auto fused = LayerNormAddGradOp::create(
          rewriter, op.getLoc(), grad.getResultTypes(), grad.getDy(),
          grad.getX(), grad.getStats(), grad.getGamma(), residual);
      rewriter.replaceOp(op, fused.getDx());
      rewriter.replaceAllUsesWith(grad.getDgamma(), fused.getDgamma());
      rewriter.replaceAllUsesWith(grad.getDbeta(), fused.getDbeta());
      rewriter.eraseOp(grad);
      return success();
    }
    return failure();
  }
};

struct NNFusePass : nn::impl::NNFusePassBase<NNFusePass> {
  void runOnOperation() override { fuseFunction(getOperation()); }
};

} // namespace

void nn::fuseFunction(func::FuncOp function) {
  if (function.isDeclaration())
    return;
  RewritePatternSet patterns(function.getContext());
  patterns.add<FuseBiasGelu, FuseLinearBias, FuseDropoutAdd, FuseAddLayerNorm,
               FuseLayerNormAddGrad>(function.getContext());
  (void)applyPatternsGreedily(function, std::move(patterns));
}
