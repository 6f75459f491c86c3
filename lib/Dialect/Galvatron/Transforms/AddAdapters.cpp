//===- AddAdapters.cpp - galvatron-add-adapters ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// Low-rank adapters (Hu et al., LoRA, ICLR 2022): beside a product with a
// weight W, which is not trained any more, stand two with matrices A and B,
// which are: y = x W + alpha / rank (x A) B, of which B begins as zero.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/GlobPattern.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONADDADAPTERS
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

constexpr StringRef kWeightSuffix = ".weight";

/// The one product whose weight an argument of a body is, if it is nothing
/// else.
nn::LinearOp getProduct(BlockArgument argument) {
  if (!argument.hasOneUse())
    return {};
  OpOperand &use = *argument.use_begin();
  auto product = dyn_cast<nn::LinearOp>(use.getOwner());
  return product && product.getW() == argument && product.getX() != argument
             ? product
             : nn::LinearOp();
}

/// Builds the adapters of one body.
class BodyAdapter {
public:
  BodyAdapter(func::FuncOp body, int64_t rank, double scale)
      : body(body), builder(body.getContext()), rank(rank), scale(scale) {}

  /// Adds one beside the product of a weight. Its two matrices become the last
  /// arguments, as `torch.nn.Linear` has weights: [rank, in] and [out.., rank].
  LogicalResult add(unsigned argument) {
    BlockArgument weight = body.getArgument(argument);
    nn::LinearOp product = getProduct(weight);
    auto type = cast<RankedTensorType>(weight.getType());
    auto factors = body.getArgAttrOfType<ArrayAttr>(argument, nn::kFactorsAttr);
    SmallVector<Attribute> names =
        factors
            ? llvm::to_vector(factors)
            : SmallVector<Attribute>(type.getRank(), builder.getStringAttr(""));
    SmallVector<int64_t> out(type.getShape());
    unsigned in = product.getTransposeWeight() ? type.getRank() - 1 : 0;
    int64_t width = out[in];
    Attribute inName = names[in];
    out.erase(out.begin() + in);
    names.erase(names.begin() + in);
    out.push_back(rank);
    names.push_back(builder.getStringAttr(""));
    Value a, b;
    if (failed(addParameter({rank, width}, {builder.getStringAttr(""), inName},
                            type, a)) ||
        failed(addParameter(out, names, type, b)))
      return failure();

    builder.setInsertionPointAfter(product);
    Location loc = product.getLoc();
    Value x = product.getX(), y = product.getY();
    SmallVector<int64_t> low(
        cast<RankedTensorType>(x.getType()).getShape().drop_back());
    low.push_back(rank);
    Type lowType = type.clone(low);
    UnitAttr transposed = builder.getUnitAttr();
    Value down = nn::LinearOp::create(builder, loc, lowType, x, a,
                                      /*bias=*/Value(), transposed);
    Value scaled = nn::ScaleOp::create(builder, loc, lowType, down,
                                       builder.getF64FloatAttr(scale),
                                       /*rounded=*/UnitAttr());
    Value up = nn::LinearOp::create(builder, loc, y.getType(), scaled, b,
                                    /*bias=*/Value(), transposed);
    auto sum = nn::AddOp::create(builder, loc, y.getType(), y, up);
    y.replaceAllUsesExcept(sum, sum);
    return success();
  }

private:
  LogicalResult addParameter(ArrayRef<int64_t> shape,
                             ArrayRef<Attribute> factors, RankedTensorType like,
                             Value &added) {
    unsigned index = body.getNumArguments();
    NamedAttrList attrs;
    if (llvm::any_of(factors, [](Attribute name) {
          return !cast<StringAttr>(name).empty();
        }))
      attrs.set(nn::kFactorsAttr, builder.getArrayAttr(factors));
    if (failed(body.insertArgument(index, like.clone(shape),
                                   attrs.getDictionary(body.getContext()),
                                   body.getLoc())))
      return failure();
    added = body.getArgument(index);
    return success();
  }

  func::FuncOp body;
  OpBuilder builder;
  int64_t rank;
  double scale;
};

struct AddAdaptersPass
    : mlir::galvatron::impl::GalvatronAddAdaptersBase<AddAdaptersPass> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(checkOptions()))
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    for (ModelOp model : getOperation().getOps<ModelOp>())
      if (failed(adapt(model, symbols)))
        return signalPassFailure();
  }

private:
  LogicalResult checkOptions() {
    ModuleOp module = getOperation();
    if (rank < 1)
      return module.emitError()
             << "expected adapters of a rank of at least 1, found " << rank;
    if (getAdapters(module))
      return module.emitError("expected a module without adapters, found some");
    SmallVector<StringRef> texts;
    StringRef(layers).split(texts, ';', -1, /*KeepEmpty=*/false);
    for (StringRef text : texts) {
      // A name alone is that of a module anywhere, as PEFT takes it.
      bool isWhole = text.contains('*') || text.contains('.');
      std::string glob = ((isWhole ? "" : "*.") + text).str();
      if (llvm::Error error = llvm::GlobPattern::create(glob).takeError())
        return module.emitError()
               << "expected names of modules with '*', found '" << text
               << "': " << llvm::toString(std::move(error));
      patterns.push_back({text.str(), std::move(glob), false});
    }
    if (patterns.empty())
      return module.emitError(
          "expected names of the modules that get adapters, "
          "found none");
    return success();
  }

  /// Whether the module of a parameter is asked for.
  bool isAsked(StringRef moduleName) {
    bool asked = false;
    for (Pattern &pattern : patterns)
      if (cantFail(llvm::GlobPattern::create(pattern.glob)).match(moduleName))
        asked = pattern.isUsed = true;
    return asked;
  }

  LogicalResult adapt(ModelOp model, SymbolTable &symbols) {
    llvm::DenseMap<StringAttr, unsigned> users; // layers of a parameter
    for (LayerOp layer : model.getLayers()) {
      if (layer.getStrategyAttr() || layer.getStageAttr() ||
          layer.getForwardAttr())
        return layer.emitOpError("expected a layer that is not planned yet, "
                                 "found one with a strategy, a stage or "
                                 "functions of passes");
      if (!layer.getCalleeAttr())
        return layer.emitOpError(
            "expected a layer with a body, which adapters need, "
            "found none");
      for (FlatSymbolRefAttr symbol : layer.getParamSymbols())
        ++users[symbol.getAttr()];
    }
    for (LayerOp layer : model.getLayers()) {
      FailureOr<SmallVector<unsigned>> arguments =
          findWeights(layer, users, symbols);
      if (failed(arguments))
        return failure();
      asked.push_back(std::move(*arguments));
    }
    for (const Pattern &pattern : patterns)
      if (!pattern.isUsed)
        return model.emitOpError()
               << "expected products with weights called '" << pattern.text
               << "' for adapters, found none; there are "
               << namesOfProducts(model, users, symbols);
    // What was declared before is not trained any more.
    for (auto parameter : getOperation().getOps<ParameterOp>())
      parameter.setFrozen(true);
    for (auto [layer, arguments] : llvm::zip_equal(model.getLayers(), asked))
      if (failed(adapt(layer, arguments, symbols)))
        return failure();
    for (Operation *body : replaced)
      if (SymbolTable::symbolKnownUseEmpty(body, getOperation()))
        symbols.erase(body);
    Builder builder(&getContext());
    getOperation()->setAttr(
        GalvatronDialect::kAdaptersAttr,
        AdaptersAttr::get(&getContext(), rank, builder.getF64FloatAttr(alpha),
                          inFirst, builder.getStrArrayAttr(modules)));
    return success();
  }

  static StringRef moduleOf(FlatSymbolRefAttr symbol) {
    StringRef name = symbol.getValue();
    return name.consume_back(kWeightSuffix) ? name : StringRef();
  }

  /// The arguments of the layer's body that are weights of products of its own
  /// and asked for.
  FailureOr<SmallVector<unsigned>>
  findWeights(LayerOp layer, const llvm::DenseMap<StringAttr, unsigned> &users,
              SymbolTable &symbols) {
    auto body = symbols.lookup<func::FuncOp>(layer.getCallee().value());
    SmallVector<unsigned> arguments;
    for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols())) {
      StringRef name = moduleOf(symbol);
      unsigned argument = layer.getInputs().size() + index;
      nn::LinearOp product = getProduct(body.getArgument(argument));
      if (name.empty() || !product || !isAsked(name))
        continue;
      auto parameter = symbols.lookup<ParameterOp>(symbol.getValue());
      if (users.lookup(symbol.getAttr()) > 1)
        return layer.emitOpError()
               << "expected no adapter of '" << name
               << "', whose weight is tied to another layer";
      if (PartAttr part = parameter.getPartAttr())
        return layer.emitOpError()
               << "expected no adapter of '" << name
               << "', whose weight is a part of '" << part.getOf().getValue()
               << "' in checkpoints, as the adapter would be of all of it";
      arguments.push_back(argument);
    }
    return arguments;
  }

  /// The last pieces of the names that could have been asked for.
  std::string namesOfProducts(ModelOp model,
                              const llvm::DenseMap<StringAttr, unsigned> &users,
                              SymbolTable &symbols) {
    llvm::SetVector<StringRef> names;
    for (LayerOp layer : model.getLayers()) {
      auto body = symbols.lookup<func::FuncOp>(layer.getCallee().value());
      for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols()))
        if (users.lookup(symbol.getAttr()) == 1 && !moduleOf(symbol).empty() &&
            getProduct(body.getArgument(layer.getInputs().size() + index)))
          names.insert(
              moduleOf(symbol).substr(moduleOf(symbol).rfind('.') + 1));
    }
    std::string text = llvm::join(names.getArrayRef(), ", ");
    return text.empty() ? "none" : text;
  }

  /// Gives a layer the body with its adapters, and their parameters.
  LogicalResult adapt(LayerOp layer, ArrayRef<unsigned> arguments,
                      SymbolTable &symbols) {
    auto original = symbols.lookup<func::FuncOp>(layer.getCallee().value());
    unsigned inputs = layer.getInputs().size();
    func::FuncOp &body = bodies[{original.getSymName().str(), arguments.vec()}];
    if (!body) {
      body = original.clone();
      symbols.insert(body, Block::iterator(original->getNextNode()));
      replaced.insert(original);
      for (unsigned i = inputs; i < body.getNumArguments(); ++i)
        body.setArgAttr(i, nn::kFrozenAttr, UnitAttr::get(&getContext()));
      BodyAdapter adapter(body, rank, alpha / double(rank));
      for (unsigned argument : arguments)
        if (failed(adapter.add(argument)))
          return failure();
    }
    layer.setCalleeAttr(FlatSymbolRefAttr::get(body));
    SmallVector<FlatSymbolRefAttr> params = layer.getParamSymbols();
    SmallVector<Attribute> all(params.begin(), params.end());
    for (auto [number, argument] : llvm::enumerate(arguments)) {
      FlatSymbolRefAttr weight = params[argument - inputs];
      auto declared = symbols.lookup<ParameterOp>(weight.getValue());
      unsigned first = inputs + params.size() + 2 * number;
      nn::LinearOp product = getProduct(body.getArgument(argument));
      if (!modules.empty() && inFirst == product.getTransposeWeight())
        return layer.emitOpError()
               << "expected weights of all adapters in one order, found '"
               << moduleOf(weight) << "' in another one";
      inFirst = !product.getTransposeWeight();
      modules.push_back(moduleOf(weight));
      for (unsigned matrix : {0u, 1u})
        all.push_back(declare(declared, moduleOf(weight), matrix,
                              cast<RankedTensorType>(
                                  body.getArgument(first + matrix).getType())));
    }
    layer.setParamsAttr(ArrayAttr::get(&getContext(), all));
    return success();
  }

  /// Declares A or B of a module, under the name that PEFT's files have.
  FlatSymbolRefAttr declare(ParameterOp weight, StringRef name, unsigned matrix,
                            RankedTensorType view) {
    int64_t last = view.getShape().back();
    auto type = view.clone({view.getNumElements() / last, last});
    OpBuilder builder(weight);
    builder.setInsertionPointAfter(lastDeclared ? lastDeclared : weight);
    bool isFirst = matrix == 0;
    // The variance of PyTorch's uniform distribution for products.
    FloatAttr deviation =
        isFirst ? builder.getF64FloatAttr(1 / std::sqrt(3.0 * double(last)))
                : FloatAttr();
    auto made = ParameterOp::create(
        builder, weight.getLoc(),
        ("base_model.model." + name + (isFirst ? ".lora_A" : ".lora_B") +
         kWeightSuffix)
            .str(),
        type, isFirst ? "normal" : "zeros", deviation, /*value=*/FloatAttr(),
        /*decay=*/true, /*copies=*/ArrayAttr(), PartAttr(), /*frozen=*/false);
    lastDeclared = made;
    return FlatSymbolRefAttr::get(made.getSymNameAttr());
  }

  struct Pattern {
    std::string text, glob;
    bool isUsed;
  };
  SmallVector<Pattern> patterns;
  SmallVector<SmallVector<unsigned>> asked; ///< by layer
  /// By name and arguments with adapters.
  std::map<std::pair<std::string, std::vector<unsigned>>, func::FuncOp> bodies;
  llvm::SetVector<Operation *> replaced;
  SmallVector<StringRef> modules;
  Operation *lastDeclared = nullptr;
  bool inFirst = false;
};

} // namespace
