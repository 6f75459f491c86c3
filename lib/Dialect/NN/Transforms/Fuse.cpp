//===- Fuse.cpp - Fusion of neighbouring nn operations
//---------------------===//
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

struct NNFusePass : nn::impl::NNFusePassBase<NNFusePass> {
  void runOnOperation() override { fuseFunction(getOperation()); }
};

} // namespace

void nn::fuseFunction(func::FuncOp function) {
  if (function.isDeclaration())
    return;
  RewritePatternSet patterns(function.getContext());
  patterns.add<FuseBiasGelu, FuseLinearBias, FuseDropoutAdd>(
      function.getContext());
  (void)applyPatternsGreedily(function, std::move(patterns));
}
