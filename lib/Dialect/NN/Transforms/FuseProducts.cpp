//===- FuseProducts.cpp - Products and what stands behind them ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A collective between a product and what follows it keeps the two apart: the
// patterns look at direct users only. Only the tanh form of a GELU is fused: it
// is the one that libraries have behind products, and the cost of the erf
// form's own pass should be seen.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/Transforms/Bodies.h"
#include "galvatron/Dialect/NN/Transforms/Passes.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::nn {
#define GEN_PASS_DEF_NNFUSEPRODUCTSPASS
#include "galvatron/Dialect/NN/Transforms/Passes.h.inc"
} // namespace mlir::nn

using namespace mlir;
using namespace mlir::nn;

namespace {

int64_t rankOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

/// linear + bias_gelu. What the GELU is applied to stays a result where
/// something keeps it; where nothing does, it has no buffer.
struct FuseLinearGelu : OpRewritePattern<BiasGeluOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BiasGeluOp op,
                                PatternRewriter &rewriter) const override {
    auto linear = op.getX().getDefiningOp<LinearOp>();
    if (!op.getApproximate() || !linear || !linear->hasOneUse() ||
        linear.getBias() || rankOf(op.getBias()) != rankOf(linear.getW()) - 1)
      return failure();
    bool kept = !op.getPre().use_empty();
    auto fused = LinearGeluOp::create(
        rewriter, op.getLoc(), op.getY().getType(),
        kept ? op.getPre().getType() : Type(), linear.getX(), linear.getW(),
        op.getBias(), linear.getTransposeWeightAttr(), op.getApproximateAttr());
    if (kept)
      rewriter.replaceAllUsesWith(op.getPre(), fused.getPre());
    rewriter.replaceAllUsesWith(op.getY(), fused.getY());
    rewriter.eraseOp(op);
    rewriter.eraseOp(linear);
    return success();
  }
};

/// linear_input_grad + gelu_grad.
struct FuseLinearGeluGrad : OpRewritePattern<GeluGradOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(GeluGradOp op,
                                PatternRewriter &rewriter) const override {
    auto grad = op.getDy().getDefiningOp<LinearInputGradOp>();
    if (!op.getApproximate() || !grad || !grad->hasOneUse())
      return failure();
    // It stands where the product did, so that what the product reads dies when
    // it did.
    if (Operation *source = op.getX().getDefiningOp();
        source && !source->isBeforeInBlock(grad))
      return failure();
    rewriter.setInsertionPoint(grad);
    rewriter.replaceOpWithNewOp<LinearGeluGradOp>(
        op, op.getDx().getType(), grad.getDy(), grad.getW(), op.getX(),
        grad.getTransposeWeightAttr(), op.getApproximateAttr());
    rewriter.eraseOp(grad);
    return success();
  }
};

/// linear_weight_grad + the bias_grad of the same gradient.
struct FuseWeightBiasGrad : OpRewritePattern<LinearWeightGradOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(LinearWeightGradOp op,
                                PatternRewriter &rewriter) const override {
    if (op.getTransposeWeight())
      return failure();
    for (Operation *user : op.getDy().getUsers()) {
      auto bias = dyn_cast<BiasGradOp>(user);
      if (!bias || rankOf(bias.getDbias()) != rankOf(op.getDw()) - 1)
        continue;
      // The fused operation stands where the product did.
      if (llvm::any_of(bias->getUsers(), [&](Operation *reader) {
            return reader->isBeforeInBlock(op);
          }))
        continue;
      auto fused = LinearWeightBiasGradOp::create(
          rewriter, op.getLoc(),
          TypeRange{op.getDw().getType(), bias.getDbias().getType()}, op.getX(),
          op.getDy());
      rewriter.replaceOp(op, fused.getDw());
      rewriter.replaceOp(bias, fused.getDbias());
      return success();
    }
    return failure();
  }
};

struct NNFuseProductsPass
    : nn::impl::NNFuseProductsPassBase<NNFuseProductsPass> {
  void runOnOperation() override { fuseProducts(getOperation()); }
};

} // namespace

void nn::fuseProducts(func::FuncOp function) {
  if (function.isDeclaration())
    return;
  RewritePatternSet patterns(function.getContext());
  patterns.add<FuseLinearGelu, FuseLinearGeluGrad, FuseWeightBiasGrad>(
      function.getContext());
  (void)applyPatternsGreedily(function, std::move(patterns));
}
