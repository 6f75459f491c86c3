//===- NumberValues.cpp - galvatron-number-values -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/FunctionValues.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Support/ValueNumber.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONNUMBERVALUES
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::ValueNumber;

template <typename T> static std::string textOf(T value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

std::string mlir::galvatron::numberValues(func::FuncOp function) {
  llvm::DenseMap<Value, uint64_t> numbers;
  ValueNumber whole("function");
  if (function.isExternal())
    return whole.str();
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    DictionaryAttr attributes = function.getArgAttrDict(i);
    whole.add(textOf(argument.getType()));
    whole.add(attributes ? textOf(attributes) : "");
    numbers[argument] = ValueNumber("argument").add(uint64_t(i)).get();
  }
  // A collective without results is one of the function as a whole.
  std::vector<uint64_t> effects;
  for (Operation &op : function.getOps()) {
    ValueNumber made(op.getName().getStringRef());
    made.add(textOf(op.getAttrDictionary()));
    for (Value operand : op.getOperands())
      made.add(numbers.lookup(operand));
    for (Type type : op.getResultTypes())
      made.add(textOf(type));
    if (op.hasTrait<OpTrait::ReturnLike>()) {
      whole.add(made.get());
      continue;
    }
    if (op.getNumResults() == 0)
      effects.push_back(made.get());
    for (OpResult result : op.getResults())
      numbers[result] = ValueNumber("result")
                            .add(made.get())
                            .add(uint64_t(result.getResultNumber()))
                            .get();
  }
  llvm::sort(effects);
  for (uint64_t effect : effects)
    whole.add(effect);
  // What is local, and what is split backward by, are attributes of the whole.
  for (NamedAttribute attribute : function->getDiscardableAttrs())
    if (attribute.getName() != kValuesAttr)
      whole.add(attribute.getName().getValue())
          .add(textOf(attribute.getValue()));
  if (ArrayAttr results = function.getResAttrsAttr())
    whole.add(textOf(results));
  return whole.str();
}

LogicalResult mlir::galvatron::verifyValues(Operation *function,
                                            StringRef found) {
  StringRef name = SymbolTable::getSymbolName(function).getValue();
  auto expected = function->getAttrOfType<StringAttr>(kValuesAttr);
  if (!expected)
    return function->emitOpError()
           << "(V2) expected '" << kValuesAttr << "' on the layer function '"
           << name << "', found none";
  if (expected.getValue() == found)
    return success();
  return (function->emitOpError()
          << "(V3) expected '" << name << "' to compute the values "
          << expected.getValue() << " that it was made for, found " << found)
             .attachNote()
         << "what layers compute is changed before the phase 'differentiate'; "
            "a change that is meant here is numbered by "
            "'galvatron-number-values' or 'galvatron-number-buffers'";
}

namespace {

struct NumberValuesPass
    : mlir::galvatron::impl::GalvatronNumberValuesBase<NumberValuesPass> {
  void runOnOperation() override {
    Builder builder(&getContext());
    ModelOp model = getModel(getOperation());
    if (!model)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    for (LayerOp layer : model.getLayers())
      for (FlatSymbolRefAttr symbol :
           {layer.getForwardAttr(), layer.getRecomputeAttr(),
            layer.getBackwardAttr(), layer.getPackForwardAttr()})
        if (auto function =
                symbol ? symbols.lookup<func::FuncOp>(symbol.getValue())
                       : func::FuncOp())
          function->setAttr(kValuesAttr,
                            builder.getStringAttr(numberValues(function)));
    markAllAnalysesPreserved();
  }
};

} // namespace
