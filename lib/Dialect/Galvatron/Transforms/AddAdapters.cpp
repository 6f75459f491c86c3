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

#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"
#include "galvatron/Dialect/Galvatron/Transforms/Adapters.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"
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

/// The module that a parameter is a weight of in checkpoints; empty if it is
/// none.
StringRef moduleOf(StringRef parameter) {
  return parameter.consume_back(kWeightSuffix) ? parameter : StringRef();
}
StringRef moduleOf(ParameterOp parameter) {
  PartAttr part = parameter.getPartAttr();
  return moduleOf(part ? part.getOf().getValue() : parameter.getSymName());
}

/// A module that gets an adapter.
struct Target {
  std::string module;
  /// The arguments of the body that are its weight; several if checkpoints have
  /// the weights of products as one tensor.
  std::vector<unsigned> arguments;
  int64_t rank;
  double alpha;

  auto key() const { return std::tuple(arguments, rank, alpha); }
};

/// Builds the adapters of one body.
class BodyAdapter {
public:
  BodyAdapter(func::FuncOp body) : body(body), builder(body.getContext()) {}

  /// Adds the adapter of a module. Its matrices become the last arguments, as
  /// `torch.nn.Linear` has weights: A, [rank, in], and [out.., rank] for each
  /// product of the module.
  LogicalResult add(const Target &target) {
    rank = target.rank;
    SmallVector<nn::LinearOp> products;
    for (unsigned argument : target.arguments)
      products.push_back(getProduct(body.getArgument(argument)));
    nn::LinearOp first = *llvm::min_element(products, [](auto a, auto b) {
      return a != b && a->isBeforeInBlock(b);
    });
    auto [type, in, factors] = describe(first);
    Value a;
    if (failed(addParameter({rank, type.getDimSize(in)},
                            {builder.getStringAttr(""), factors[in]}, type, a)))
      return failure();
    builder.setInsertionPointAfter(first);
    Location loc = first.getLoc();
    Value x = first.getX();
    SmallVector<int64_t> low(
        cast<RankedTensorType>(x.getType()).getShape().drop_back());
    low.push_back(rank);
    Type lowType = type.clone(low);
    Value down = nn::LinearOp::create(builder, loc, lowType, x, a,
                                      /*bias=*/Value(), builder.getUnitAttr());
    Value scaled = nn::ScaleOp::create(
        builder, loc, lowType, down,
        builder.getF64FloatAttr(target.alpha / double(rank)),
        /*rounded=*/UnitAttr());
    for (nn::LinearOp product : products) {
      if (product == first)
        builder.setInsertionPointAfterValue(scaled);
      else
        builder.setInsertionPointAfter(product);
      if (failed(addBehind(product, scaled)))
        return failure();
    }
    return success();
  }

private:
  /// The type of a product's weight, the dimension of its inputs there, and the
  /// factors of all.
  std::tuple<RankedTensorType, unsigned, SmallVector<Attribute>>
  describe(nn::LinearOp product) {
    auto weight = cast<BlockArgument>(product.getW());
    auto type = cast<RankedTensorType>(weight.getType());
    auto names = body.getArgAttrOfType<ArrayAttr>(weight.getArgNumber(),
                                                  nn::kFactorsAttr);
    return {type, product.getTransposeWeight() ? type.getRank() - 1 : 0,
            names ? llvm::to_vector(names)
                  : SmallVector<Attribute>(type.getRank(),
                                           builder.getStringAttr(""))};
  }

  /// Adds a product of what A gives with a matrix of its own to what `product`
  /// gives.
  LogicalResult addBehind(nn::LinearOp product, Value scaled) {
    auto [type, in, factors] = describe(product);
    SmallVector<int64_t> out(type.getShape());
    out.erase(out.begin() + in);
    out.push_back(rank);
    factors.erase(factors.begin() + in);
    factors.push_back(builder.getStringAttr(""));
    Value b;
    if (failed(addParameter(out, factors, type, b)))
      return failure();
    Location loc = product.getLoc();
    Value y = product.getY();
    Value up = nn::LinearOp::create(builder, loc, y.getType(), scaled, b,
                                    /*bias=*/Value(), builder.getUnitAttr());
    auto sum = nn::AddOp::create(builder, loc, y.getType(), y, up);
    y.replaceAllUsesExcept(sum, sum);
    return success();
  }

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
  int64_t rank = 0; ///< of the adapter that is being added
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
      Pattern pattern{text.str(), "", int64_t(rank), double(alpha)};
      SmallVector<StringRef> pieces;
      text.split(pieces, ':');
      if (pieces.size() > 3 ||
          (pieces.size() > 1 &&
           (pieces[1].getAsInteger(10, pattern.rank) || pattern.rank < 1)) ||
          (pieces.size() > 2 && (pieces[2].getAsDouble(pattern.alpha) ||
                                 !std::isfinite(pattern.alpha))))
        return module.emitError()
               << "expected modules as NAME, NAME:RANK or NAME:RANK:ALPHA, "
                  "found '"
               << text << "'";
      // A name alone is that of a module anywhere, as PEFT takes it.
      pattern.isEnd = !pieces[0].contains('*') && !pieces[0].contains('.');
      pattern.glob = pieces[0].str();
      if (llvm::Error error =
              llvm::GlobPattern::create(pattern.glob).takeError())
        return module.emitError()
               << "expected names of modules with '*', found '" << text
               << "': " << llvm::toString(std::move(error));
      patterns.push_back(std::move(pattern));
    }
    if (patterns.empty())
      return module.emitError(
          "expected names of the modules that get adapters, "
          "found none");
    return success();
  }

  struct Pattern {
    std::string text, glob;
    int64_t rank;
    double alpha;
    bool isEnd = false; ///< of a name, behind a point
    bool isUsed = false;

    bool matches(StringRef moduleName) const {
      auto isLike = [&](const Twine &text) {
        SmallString<64> buffer;
        return cantFail(llvm::GlobPattern::create(text.toStringRef(buffer)))
            .match(moduleName);
      };
      return isLike(glob) || (isEnd && isLike("*." + glob));
    }
  };

  /// The first pattern that asks for a module; null if none does.
  const Pattern *findPattern(StringRef moduleName) {
    const Pattern *found = nullptr;
    for (Pattern &pattern : patterns)
      if (pattern.matches(moduleName)) {
        pattern.isUsed = true;
        if (!found)
          found = &pattern;
      }
    return found;
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
      FailureOr<std::vector<Target>> targets =
          findTargets(layer, users, symbols);
      if (failed(targets))
        return failure();
      asked.push_back(std::move(*targets));
    }
    for (const Pattern &pattern : patterns)
      if (!pattern.isUsed)
        return model.emitOpError()
               << "expected products with weights called '" << pattern.text
               << "' for adapters, found none; there are "
               << namesOfProducts(model);
    // What was declared before is not trained any more.
    for (auto parameter : getOperation().getOps<ParameterOp>())
      parameter.setFrozen(true);
    for (auto [layer, targets] : llvm::zip_equal(model.getLayers(), asked))
      if (failed(adapt(layer, targets, symbols)))
        return failure();
    for (Operation *body : replaced)
      if (SymbolTable::symbolKnownUseEmpty(body, getOperation()))
        symbols.erase(body);
    describeAdapters();
    return success();
  }

  /// Says on the module which adapters there are.
  void describeAdapters() {
    Builder builder(&getContext());
    SmallVector<StringRef> modules;
    SmallVector<int64_t> ranks;
    SmallVector<double> alphas;
    for (const std::vector<Target> &targets : asked)
      for (const Target &target : targets) {
        modules.push_back(target.module);
        ranks.push_back(target.rank);
        alphas.push_back(target.alpha);
      }
    // The first has the rank and alpha of those that have none of their own.
    bool isSame = llvm::all_equal(ranks) && llvm::all_equal(alphas);
    getOperation()->setAttr(
        GalvatronDialect::kAdaptersAttr,
        AdaptersAttr::get(
            &getContext(), isSame ? ranks.front() : int64_t(rank),
            builder.getF64FloatAttr(isSame ? alphas.front() : double(alpha)),
            inFirst.value_or(false), builder.getStrArrayAttr(modules),
            isSame ? nullptr : builder.getDenseI64ArrayAttr(ranks),
            isSame ? nullptr : builder.getDenseF64ArrayAttr(alphas)));
  }

  /// The modules of a layer that are asked for, whose weights are those of
  /// products of its own.
  FailureOr<std::vector<Target>>
  findTargets(LayerOp layer, const llvm::DenseMap<StringAttr, unsigned> &users,
              SymbolTable &symbols) {
    auto body = symbols.lookup<func::FuncOp>(layer.getCallee().value());
    std::vector<Target> targets;
    llvm::StringMap<int64_t> rowsLeft; // of modules of several weights
    for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols())) {
      auto parameter = symbols.lookup<ParameterOp>(symbol.getValue());
      StringRef name = moduleOf(parameter);
      unsigned argument = layer.getInputs().size() + index;
      nn::LinearOp product = getProduct(body.getArgument(argument));
      const Pattern *pattern =
          name.empty() || !product ? nullptr : findPattern(name);
      if (!pattern)
        continue;
      if (users.lookup(symbol.getAttr()) > 1)
        return layer.emitOpError()
               << "expected no adapter of '" << name
               << "', whose weight is tied to another layer";
      PartAttr part = parameter.getPartAttr();
      auto target = llvm::find_if(
          targets, [&](const Target &each) { return each.module == name; });
      if (target == targets.end()) {
        targets.push_back({name.str(), {}, pattern->rank, pattern->alpha});
        target = std::prev(targets.end());
        if (part)
          rowsLeft[name] = part.getStride();
      }
      if (part)
        rowsLeft[name] -= part.getCount();
      if (!target->arguments.empty()) {
        nn::LinearOp other = getProduct(body.getArgument(target->arguments[0]));
        if (product.getX() != other.getX())
          return layer.emitOpError()
                 << "expected no adapter of '" << name
                 << "', whose rows are multiplied with different values";
      }
      target->arguments.push_back(argument);
    }
    for (const auto &[name, rows] : rowsLeft)
      if (rows != 0)
        return layer.emitOpError()
               << "expected all of '" << name
               << "', which gets an adapter, to be weights of products of one "
                  "layer, found others for "
               << rows << " of its rows";
    return targets;
  }

  /// The last pieces of the names that could have been asked for.
  static std::string namesOfProducts(ModelOp model) {
    llvm::SetVector<StringRef> names;
    SmallVector<ProductModule> products = getProductModules(model);
    for (const ProductModule &product : products)
      names.insert(StringRef(product.name)
                       .substr(StringRef(product.name).rfind('.') + 1));
    std::string text = llvm::join(names.getArrayRef(), ", ");
    return text.empty() ? "none" : text;
  }

  /// The inputs of a layer that nothing trained has made: backward passes end
  /// at the lowest adapter.
  std::vector<unsigned> findFrozenInputs(LayerOp layer) {
    std::vector<unsigned> inputs;
    for (auto [index, isData] : llvm::enumerate(layer.getDataInputs()))
      if (!isData && !trained.contains(getOrigin(layer.getInputs()[index])))
        inputs.push_back(unsigned(index));
    return inputs;
  }

  /// Gives a layer the body with its adapters, and their parameters.
  LogicalResult adapt(LayerOp layer, ArrayRef<Target> targets,
                      SymbolTable &symbols) {
    auto original = symbols.lookup<func::FuncOp>(layer.getCallee().value());
    unsigned inputs = layer.getInputs().size();
    std::vector<unsigned> frozen = findFrozenInputs(layer);
    if (!targets.empty() ||
        frozen.size() < size_t(llvm::count(layer.getDataInputs(), false)))
      trained.insert(layer->result_begin(), layer->result_end());
    BodyKey key{original.getSymName().str(), {}, frozen};
    for (const Target &target : targets)
      std::get<1>(key).push_back(target.key());
    func::FuncOp &body = bodies[key];
    if (!body) {
      body = original.clone();
      symbols.insert(body, Block::iterator(original->getNextNode()));
      replaced.insert(original);
      for (unsigned i = inputs; i < body.getNumArguments(); ++i)
        frozen.push_back(i);
      for (unsigned i : frozen)
        body.setArgAttr(i, nn::kFrozenAttr, UnitAttr::get(&getContext()));
      BodyAdapter adapter(body);
      for (const Target &target : targets)
        if (failed(adapter.add(target)))
          return failure();
    }
    layer.setCalleeAttr(FlatSymbolRefAttr::get(body));
    return declare(layer, targets, body, symbols);
  }

  /// Declares the matrices of a layer's adapters and hands them to it.
  LogicalResult declare(LayerOp layer, ArrayRef<Target> targets,
                        func::FuncOp body, SymbolTable &symbols) {
    unsigned inputs = layer.getInputs().size();
    SmallVector<FlatSymbolRefAttr> params = layer.getParamSymbols();
    SmallVector<Attribute> all(params.begin(), params.end());
    auto add = [&](ParameterOp weight, StringRef module, bool isFirst) {
      auto view = cast<RankedTensorType>(
          body.getArgument(inputs + all.size()).getType());
      all.push_back(declare(weight, module, isFirst, view));
    };
    for (const Target &target : targets) {
      for (unsigned argument : target.arguments) {
        FlatSymbolRefAttr symbol = params[argument - inputs];
        auto weight = symbols.lookup<ParameterOp>(symbol.getValue());
        bool isTurned =
            !getProduct(body.getArgument(argument)).getTransposeWeight();
        if (inFirst && *inFirst != isTurned)
          return layer.emitOpError()
                 << "expected weights of all adapters in one order, found '"
                 << target.module << "' in another one";
        inFirst = isTurned;
        if (argument == target.arguments.front())
          add(weight, target.module, /*isFirst=*/true);
        add(weight, moduleOf(weight.getSymName()), /*isFirst=*/false);
      }
    }
    layer.setParamsAttr(ArrayAttr::get(&getContext(), all));
    return success();
  }

  /// The name that PEFT's files have of A or B of a module.
  static std::string nameOf(StringRef module, bool isFirst) {
    return ("base_model.model." + module + (isFirst ? ".lora_A" : ".lora_B") +
            kWeightSuffix)
        .str();
  }

  /// Declares A or B of a module. B of one of several products is a part, as
  /// its weight is.
  FlatSymbolRefAttr declare(ParameterOp weight, StringRef module, bool isFirst,
                            RankedTensorType view) {
    int64_t last = view.getShape().back();
    auto type = view.clone({view.getNumElements() / last, last});
    OpBuilder builder(weight);
    builder.setInsertionPointAfter(lastDeclared ? lastDeclared : weight);
    // The variance of PyTorch's uniform distribution for products.
    FloatAttr deviation =
        isFirst ? builder.getF64FloatAttr(1 / std::sqrt(3.0 * double(last)))
                : FloatAttr();
    PartAttr part = isFirst ? PartAttr() : weight.getPartAttr();
    if (part)
      part = PartAttr::get(
          &getContext(),
          builder.getStringAttr(nameOf(moduleOf(weight), /*isFirst=*/false)),
          part.getFirst(), part.getCount(), part.getStride());
    auto made = ParameterOp::create(
        builder, weight.getLoc(), nameOf(module, isFirst), type,
        isFirst ? "normal" : "zeros", deviation, /*value=*/FloatAttr(),
        /*decay=*/true, /*copies=*/ArrayAttr(), part, /*frozen=*/false);
    lastDeclared = made;
    return FlatSymbolRefAttr::get(made.getSymNameAttr());
  }

  SmallVector<Pattern> patterns;
  SmallVector<std::vector<Target>> asked; ///< by layer
  /// By name, adapters, and frozen inputs.
  using BodyKey =
      std::tuple<std::string,
                 std::vector<decltype(std::declval<Target>().key())>,
                 std::vector<unsigned>>;
  std::map<BodyKey, func::FuncOp> bodies;
  DenseSet<Value> trained; ///< by layers in front of that which is looked at
  llvm::SetVector<Operation *> replaced;
  Operation *lastDeclared = nullptr;
  std::optional<bool> inFirst; ///< unknown in front of the first adapter
};

} // namespace

SmallVector<ProductModule> mlir::galvatron::getProductModules(ModelOp model) {
  SymbolTable symbols(model->getParentOfType<ModuleOp>());
  llvm::DenseMap<StringAttr, unsigned> users;
  for (LayerOp layer : model.getLayers())
    for (FlatSymbolRefAttr symbol : layer.getParamSymbols())
      ++users[symbol.getAttr()];
  SmallVector<ProductModule> products;
  llvm::StringSet<> known;
  for (LayerOp layer : model.getLayers()) {
    auto body = layer.getCalleeAttr()
                    ? symbols.lookup<func::FuncOp>(layer.getCallee().value())
                    : func::FuncOp();
    for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols())) {
      StringRef name = moduleOf(symbols.lookup<ParameterOp>(symbol.getValue()));
      if (body && users.lookup(symbol.getAttr()) == 1 && !name.empty() &&
          getProduct(body.getArgument(layer.getInputs().size() + index)) &&
          known.insert(name).second)
        products.push_back({name.str(), layer});
    }
  }
  return products;
}

SmallVector<OtherModule> mlir::galvatron::getOtherModules(ModelOp model) {
  SymbolTable symbols(model->getParentOfType<ModuleOp>());
  struct Uses {
    unsigned layers = 0;
    bool areProducts = true, anyEmbeds = false;
  };
  llvm::MapVector<StringAttr, Uses> all; // by parameter
  for (LayerOp layer : model.getLayers()) {
    auto body = layer.getCalleeAttr()
                    ? symbols.lookup<func::FuncOp>(layer.getCallee().value())
                    : func::FuncOp();
    if (!body)
      continue;
    for (auto [index, symbol] : llvm::enumerate(layer.getParamSymbols())) {
      BlockArgument argument =
          body.getArgument(layer.getInputs().size() + index);
      Uses &uses = all[symbol.getAttr()];
      ++uses.layers;
      uses.areProducts &= bool(getProduct(argument));
      uses.anyEmbeds |=
          llvm::any_of(argument.getUsers(), llvm::IsaPred<nn::EmbeddingOp>);
    }
  }
  llvm::StringSet<> known;
  for (const ProductModule &product : getProductModules(model))
    known.insert(product.name);
  SmallVector<OtherModule> others;
  for (const auto &[symbol, uses] : all) {
    auto parameter = symbols.lookup<ParameterOp>(symbol);
    SmallVector<StringRef> names = {moduleOf(parameter)};
    if (ArrayAttr copies = parameter.getCopiesAttr())
      for (StringAttr copy : copies.getAsRange<StringAttr>())
        names.push_back(moduleOf(copy.getValue()));
    StringRef why = uses.layers > 1 ? "whose weight is tied to another layer"
                    : uses.anyEmbeds
                        ? "which is an embedding"
                        : "whose weight is not that of one product";
    for (StringRef name : names)
      if (!name.empty() && known.insert(name).second)
        others.push_back({name.str(), why.str(), uses.areProducts});
  }
  return others;
}
