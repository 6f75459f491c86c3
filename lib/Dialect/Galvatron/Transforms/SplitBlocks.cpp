//===- SplitBlocks.cpp - galvatron-split-blocks ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A body is cut where one value is all that the rest needs of what stands in
// front: for a transformer's block the sum behind its attention. No operation
// and no family is known by name; what counts is which values cross, and that
// every part has a matrix of its own.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONSPLITBLOCKS
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;

namespace {

/// One part of a body: a function of its own, and what it takes.
struct Part {
  func::FuncOp function;
  /// Numbers of the body's inputs and parameters that it takes, ascending; the
  /// result of the part in front stands before both.
  SmallVector<unsigned> inputs, params;
};

/// A place in a body: behind its first `operations`, of which the rest needs
/// `value` alone.
struct Cut {
  size_t operations;
  Value value;
};

bool isMatrix(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() > 1;
}

/// Finds where a body can be cut.
class BodyCuts {
public:
  /// `isData` says of every input whether it is a datum of the model, which
  /// several parts may read.
  BodyCuts(func::FuncOp body, ArrayRef<bool> isData)
      : block(body.getBody().front()), isData(isData) {
    for (Operation &op : block.without_terminator())
      operations.push_back(&op);
  }

  /// Where the body is cut, in order; empty if it is one part.
  SmallVector<Cut> find() const {
    Operation *last = block.getTerminator();
    if (last->getNumOperands() != 1 || operations.empty())
      return {};
    Type boundary = last->getOperand(0).getType();
    // A body that hands on what it takes; others convert, and are one part.
    if (llvm::none_of(llvm::seq<unsigned>(0, isData.size()), [&](unsigned i) {
          return !isData[i] && block.getArgument(i).getType() == boundary;
        }))
      return {};
    // Of the cuts with equally many matrices in front the last one: what needs
    // none, as a norm behind the sum, belongs to the part in front.
    size_t all = matricesIn(operations).size();
    llvm::MapVector<size_t, Cut> cuts;
    for (size_t count = 1; count < operations.size(); ++count) {
      Value value = crossing(count);
      if (!value || value.getType() != boundary)
        continue;
      size_t inFront =
          matricesIn(ArrayRef<Operation *>(operations).take_front(count))
              .size();
      if (inFront > 0 && inFront < all)
        cuts[inFront] = {count, value};
    }
    return llvm::map_to_vector(cuts, [](auto &cut) { return cut.second; });
  }

private:
  bool isParameter(BlockArgument argument) const {
    return argument.getArgNumber() >= isData.size();
  }

  llvm::SetVector<Value> matricesIn(ArrayRef<Operation *> list) const {
    llvm::SetVector<Value> matrices;
    for (Operation *op : list)
      for (Value operand : op->getOperands())
        if (auto argument = dyn_cast<BlockArgument>(operand);
            argument && isParameter(argument) && isMatrix(argument))
          matrices.insert(argument);
    return matrices;
  }

  /// The one value that operations behind the first `count` need of these, if
  /// no parameter and no activation is needed on both sides; else null.
  Value crossing(size_t count) const {
    llvm::SmallDenseSet<Operation *> front(operations.begin(),
                                           operations.begin() + count);
    auto isFront = [&](Operation *op) { return front.contains(op); };
    for (BlockArgument argument : block.getArguments()) {
      bool data = !isParameter(argument) && isData[argument.getArgNumber()];
      if (!data && llvm::any_of(argument.getUsers(), isFront) &&
          !llvm::all_of(argument.getUsers(), isFront))
        return {};
    }
    Value found;
    for (Operation *op : front)
      for (Value result : op->getResults()) {
        if (llvm::all_of(result.getUsers(), isFront))
          continue;
        if (found)
          return {};
        found = result;
      }
    return found;
  }

  Block &block;
  SmallVector<bool> isData;
  SmallVector<Operation *> operations;
};

/// Makes the functions of a body's parts.
class BodySplitter {
public:
  BodySplitter(func::FuncOp body, size_t inputs, SymbolTable &symbols)
      : body(body), block(body.getBody().front()), inputs(inputs),
        symbols(symbols) {}

  SmallVector<Part> split(SmallVector<Cut> cuts) {
    cuts.push_back({block.getOperations().size() - 1,
                    block.getTerminator()->getOperand(0)});
    SmallVector<Part> parts;
    Block::iterator begin = block.begin();
    Value before;
    for (const Cut &cut : cuts) {
      auto end = std::next(block.begin(), static_cast<int64_t>(cut.operations));
      parts.push_back(make(begin, end, before, cut.value, parts.size()));
      begin = end;
      before = cut.value;
    }
    return parts;
  }

private:
  Part make(Block::iterator begin, Block::iterator end, Value before,
            Value result, size_t number) {
    Part part;
    llvm::SmallSetVector<unsigned, 8> used;
    for (Operation &op : llvm::make_range(begin, end))
      for (Value operand : op.getOperands())
        if (auto argument = dyn_cast<BlockArgument>(operand))
          used.insert(argument.getArgNumber());
    for (BlockArgument argument : block.getArguments())
      // Arguments that nothing reads stay with the first part.
      if (used.contains(argument.getArgNumber()) ||
          (number == 0 && argument.use_empty()))
        (argument.getArgNumber() < inputs ? part.inputs : part.params)
            .push_back(argument.getArgNumber());

    SmallVector<Type> types;
    if (before)
      types.push_back(before.getType());
    SmallVector<unsigned> taken = part.inputs;
    taken.append(part.params);
    for (unsigned argument : taken)
      types.push_back(block.getArgument(argument).getType());
    OpBuilder builder(body);
    part.function = func::FuncOp::create(
        builder, body.getLoc(),
        (body.getSymName() + "." + llvm::Twine(number)).str(),
        builder.getFunctionType(types, result.getType()));
    part.function.setPrivate();
    symbols.insert(part.function);
    copyAttributes(part.function, taken, before ? 1 : 0);

    Block *entry = part.function.addEntryBlock();
    IRMapping mapping;
    if (before)
      mapping.map(before, entry->getArgument(0));
    for (auto [i, argument] : llvm::enumerate(taken))
      mapping.map(block.getArgument(argument),
                  entry->getArgument(i + (before ? 1 : 0)));
    builder.setInsertionPointToStart(entry);
    for (Operation &op : llvm::make_range(begin, end))
      builder.clone(op, mapping);
    func::ReturnOp::create(builder, body.getLoc(), mapping.lookup(result));
    return part;
  }

  /// Attributes of arguments, and what the function says of those factors that
  /// its arguments name.
  void copyAttributes(func::FuncOp made, ArrayRef<unsigned> taken,
                      unsigned shift) {
    llvm::StringSet<> factors;
    for (auto [i, argument] : llvm::enumerate(taken)) {
      DictionaryAttr attributes = body.getArgAttrDict(argument);
      if (!attributes)
        continue;
      made.setArgAttrs(i + shift, attributes);
      if (auto names = attributes.getAs<ArrayAttr>(nn::kFactorsAttr))
        for (auto name : names.getAsRange<StringAttr>())
          factors.insert(name.getValue());
    }
    for (NamedAttribute attribute : body->getDiscardableAttrs()) {
      Attribute value = attribute.getValue();
      if (auto units = dyn_cast<DictionaryAttr>(value))
        value = DictionaryAttr::get(
            made.getContext(),
            llvm::filter_to_vector(units, [&](NamedAttribute unit) {
              return factors.contains(unit.getName());
            }));
      else if (auto names = dyn_cast<ArrayAttr>(value))
        value = ArrayAttr::get(
            made.getContext(), llvm::filter_to_vector(names, [&](Attribute n) {
              auto name = dyn_cast<StringAttr>(n);
              return !name || factors.contains(name.getValue());
            }));
      if (auto list = dyn_cast<ArrayAttr>(value); list && list.empty())
        continue;
      if (auto units = dyn_cast<DictionaryAttr>(value); units && units.empty())
        continue;
      made->setAttr(attribute.getName(), value);
    }
  }

  func::FuncOp body;
  Block &block;
  size_t inputs;
  SymbolTable &symbols;
};

/// Names for the parts of a layer: where the names of its parameters go apart
/// behind what all of them have in common, the piece with the most elements of
/// each part, as "attn" and "mlp" of "h.3.attn.c_attn.weight" and
/// "h.3.mlp.c_fc.weight". Numbers where that does not tell parts apart.
SmallVector<std::string> namesOfParts(LayerOp layer, ArrayRef<Part> parts,
                                      size_t inputs, SymbolTable &symbols) {
  SmallVector<FlatSymbolRefAttr> params = layer.getParamSymbols();
  auto piecesOf = [](FlatSymbolRefAttr param) {
    SmallVector<StringRef> pieces;
    param.getValue().split(pieces, '.');
    return pieces;
  };
  size_t common = params.empty() ? 0 : piecesOf(params[0]).size();
  for (FlatSymbolRefAttr param : params) {
    SmallVector<StringRef> first = piecesOf(params[0]), own = piecesOf(param);
    size_t same = 0;
    while (same < std::min({common, first.size(), own.size()}) &&
           first[same] == own[same])
      ++same;
    common = same;
  }
  SmallVector<std::string> names;
  llvm::StringSet<> seen;
  for (const Part &part : parts) {
    llvm::MapVector<StringRef, int64_t> elements;
    for (unsigned param : part.params) {
      FlatSymbolRefAttr symbol = params[param - inputs];
      SmallVector<StringRef> pieces = piecesOf(symbol);
      auto parameter = symbols.lookup<ParameterOp>(symbol.getValue());
      if (common < pieces.size() && parameter)
        elements[pieces[common]] += parameter.getTensorType().getNumElements();
    }
    const auto *largest = llvm::max_element(
        elements, [](auto &a, auto &b) { return a.second < b.second; });
    if (largest == elements.end() || !seen.insert(largest->first).second)
      break;
    names.push_back(largest->first.str());
  }
  if (names.size() != parts.size()) {
    names.clear();
    for (size_t i = 0; i < parts.size(); ++i)
      names.push_back(std::to_string(i));
  }
  return names;
}

struct SplitBlocksPass
    : mlir::galvatron::impl::GalvatronSplitBlocksBase<SplitBlocksPass> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto model : getOperation().getOps<ModelOp>())
      if (failed(splitModel(model, symbols)))
        return signalPassFailure();
    for (func::FuncOp body : splitBodies)
      if (SymbolTable::symbolKnownUseEmpty(body, getOperation()))
        symbols.erase(body);
  }

private:
  LogicalResult splitModel(ModelOp model, SymbolTable &symbols) {
    SmallVector<LayerOp, 8> layers = model.getLayers();
    for (LayerOp layer : layers)
      if (layer.getStrategyAttr() || layer.getStageAttr() ||
          layer.getForwardAttr() || layer->getParentOp() != model)
        return layer.emitOpError("expected a layer that is not planned yet, "
                                 "found one with a strategy, a stage or "
                                 "functions of passes");
    SmallVector<SmallVector<Part>> partsOf;
    for (LayerOp layer : layers)
      partsOf.emplace_back(partsOfLayer(layer, symbols));
    if (llvm::all_of(partsOf, [](auto &parts) { return parts.empty(); }))
      return success();
    // Masks of dropout stay those of the whole layer.
    Builder builder(&getContext());
    for (auto [number, layer] : llvm::enumerate(layers))
      if (!layer.getDropoutKeyAttr())
        layer.setDropoutKeyAttr(
            builder.getI64IntegerAttr(static_cast<int64_t>(number)));
    for (auto [layer, parts] : llvm::zip_equal(layers, partsOf))
      if (!parts.empty())
        replace(layer, parts, symbols);
    for (auto [number, layer] : llvm::enumerate(model.getLayers()))
      if (layer.getDropoutKeyAttr().getInt() == static_cast<int64_t>(number))
        layer.removeDropoutKeyAttr();
    return success();
  }

  /// The parts of a layer's body, made once; empty if it is not cut.
  ArrayRef<Part> partsOfLayer(LayerOp layer, SymbolTable &symbols) {
    auto body = layer.getCalleeAttr()
                    ? symbols.lookup<func::FuncOp>(layer.getCallee().value())
                    : func::FuncOp();
    if (!body || body.isExternal())
      return {};
    SmallVector<bool> isData = layer.getDataInputs();
    auto [it, fresh] =
        parts.try_emplace({body.getSymName().str(),
                           std::vector<bool>(isData.begin(), isData.end())});
    if (fresh) {
      SmallVector<Cut> cuts = BodyCuts(body, isData).find();
      if (!cuts.empty()) {
        it->second = BodySplitter(body, isData.size(), symbols).split(cuts);
        splitBodies.push_back(body);
      }
    }
    return it->second;
  }

  void replace(LayerOp layer, ArrayRef<Part> parts, SymbolTable &symbols) {
    size_t inputs = layer.getInputs().size();
    SmallVector<std::string> names =
        namesOfParts(layer, parts, inputs, symbols);
    SmallVector<FlatSymbolRefAttr> params = layer.getParamSymbols();
    OpBuilder builder(layer);
    Value before;
    for (auto [part, name] : llvm::zip_equal(parts, names)) {
      func::FuncOp function = part.function;
      SmallVector<Value> operands;
      if (before)
        operands.push_back(before);
      for (unsigned input : part.inputs)
        operands.push_back(layer.getInputs()[input]);
      SmallVector<StringRef> symbolsOfPart;
      for (unsigned param : part.params)
        symbolsOfPart.push_back(params[param - inputs].getValue());
      auto made =
          LayerOp::create(builder, layer.getLoc(), function.getResultTypes(),
                          (layer.getLayerName() + "." + name).str(),
                          function.getSymName(), operands, symbolsOfPart);
      made.setDropoutKeyAttr(layer.getDropoutKeyAttr());
      before = made.getResult(0);
    }
    layer.getResult(0).replaceAllUsesWith(before);
    layer.erase();
  }

  std::map<std::pair<std::string, std::vector<bool>>, SmallVector<Part>> parts;
  SmallVector<func::FuncOp> splitBodies;
};

} // namespace
