//===- NumberValues.cpp - galvatron-number-values -------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"
#include "galvatron/Dialect/Galvatron/Transforms/FunctionValues.h"
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h"
#include "galvatron/Support/ValueNumber.h"

#include "mlir/IR/AsmState.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::galvatron {
#define GEN_PASS_DEF_GALVATRONNUMBERVALUES
#include "galvatron/Dialect/Galvatron/Transforms/Passes.h.inc"
} // namespace mlir::galvatron

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::ValueNumber;

namespace {

/// Adds attributes and types to numbers. The printer takes longer than all
/// else, so what most operations have is added by its parts, and of the rest
/// each text is made once.
class Adder {
public:
  explicit Adder(MLIRContext *context) : context(context) {}

  void add(ValueNumber &number, Attribute attribute) {
    if (auto dictionary = dyn_cast<DictionaryAttr>(attribute)) {
      number.add("{").add(uint64_t(dictionary.size()));
      for (NamedAttribute entry : dictionary) {
        number.add(entry.getName().getValue());
        add(number, entry.getValue());
      }
    } else if (auto list = dyn_cast<ArrayAttr>(attribute)) {
      number.add("[").add(uint64_t(list.size()));
      for (Attribute entry : list)
        add(number, entry);
    } else if (auto text = dyn_cast<StringAttr>(attribute)) {
      number.add("s").add(text.getValue());
    } else if (auto integer = dyn_cast<IntegerAttr>(attribute);
               integer && integer.getValue().getBitWidth() <= 64) {
      number.add("i").add(integer.getValue().getZExtValue());
      add(number, integer.getType());
    } else if (auto real = dyn_cast<FloatAttr>(attribute);
               real && real.getType().isF64()) {
      number.add("f").add(llvm::bit_cast<uint64_t>(real.getValueAsDouble()));
    } else if (isa<UnitAttr>(attribute)) {
      number.add("u");
    } else {
      number.add(textOf(attribute));
    }
  }

  void add(ValueNumber &number, Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || tensor.getEncoding())
      return (void)number.add(textOf(type));
    number.add("t").add(uint64_t(tensor.getRank()));
    for (int64_t size : tensor.getShape())
      number.add(uint64_t(size));
    number.add(textOf(tensor.getElementType()));
  }

private:
  /// The text of an attribute or a type.
  template <typename T> StringRef textOf(T value) {
    std::string &text = texts[value.getAsOpaquePointer()];
    if (text.empty()) {
      if (!state)
        state.emplace(context);
      llvm::raw_string_ostream stream(text);
      value.print(stream, *state);
    }
    return text;
  }

  MLIRContext *context;
  std::optional<AsmState> state;
  llvm::DenseMap<const void *, std::string> texts;
};

} // namespace

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

static constexpr StringLiteral kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static constexpr size_t kWholeDigits = 16;

/// The two characters of a part.
static std::string partText(uint64_t number) {
  return {kDigits[number & 63], kDigits[number >> 6 & 63]};
}

static std::string wholeText(uint64_t number) {
  std::string digits = llvm::utohexstr(number, /*LowerCase=*/true);
  return std::string(kWholeDigits - digits.size(), '0') + digits;
}

std::string NumberedValues::str() const {
  std::string text = wholeText(whole) + " ";
  for (const Part &part : parts)
    text += partText(part.number);
  return text;
}

bool NumberedValues::isOf(StringAttr attribute) const {
  return attribute.getValue().take_front(kWholeDigits) == wholeText(whole);
}

void NumberedValues::addNote(InFlightDiagnostic &error,
                             StringRef expected) const {
  SmallVector<StringRef> known;
  for (StringRef rest =
           expected.drop_front(std::min(expected.size(), kWholeDigits + 1));
       rest.size() >= 2; rest = rest.drop_front(2))
    known.push_back(rest.take_front(2));
  if (known.empty())
    return;
  std::string counts;
  if (known.size() != parts.size())
    counts = "expected " + std::to_string(known.size()) +
             " operations and attributes, found " +
             std::to_string(parts.size()) + "; ";
  llvm::StringMap<int64_t> wanted, there;
  for (StringRef text : known)
    ++wanted[text];
  for (const Part &part : parts)
    ++there[partText(part.number)];
  auto name = [&](const Part &part, StringRef what) {
    if (part.op)
      error.attachNote(part.op->getLoc())
          << counts << what << " '" << part.op->getName() << "'";
    else
      error.attachNote() << what << " " << part.what;
  };
  // What is there comes first: what needs something that is missing differs.
  for (const Part &part : parts)
    if (wanted[partText(part.number)]-- <= 0)
      return name(part, "the first that is another, or of other values, is");
  const Part *before = nullptr;
  for (StringRef text : known) {
    if (there[text]-- <= 0)
      return before ? name(*before, "one is missing behind")
                    : (void)(error.attachNote() << "the first is missing");
    before = llvm::find_if(
        parts, [&](const Part &part) { return partText(part.number) == text; });
  }
}

/// The operands of an operation that are memory which it writes.
static SmallVector<Value, 2> writtenBy(Operation &op) {
  SmallVector<Value, 2> values;
  auto interface = dyn_cast<MemoryEffectOpInterface>(op);
  if (!interface)
    return values;
  SmallVector<MemoryEffects::EffectInstance> effects;
  interface.getEffects(effects);
  for (const MemoryEffects::EffectInstance &effect : effects)
    if (isa<MemoryEffects::Write>(effect.getEffect()) && effect.getValue())
      values.push_back(effect.getValue());
  return values;
}

NumberedValues mlir::galvatron::numberValues(func::FuncOp function) {
  llvm::DenseMap<Value, uint64_t> numbers;
  Adder adder(function.getContext());
  ValueNumber whole("function");
  NumberedValues result;
  if (function.isExternal()) {
    result.whole = whole.get();
    return result;
  }
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    DictionaryAttr attributes = function.getArgAttrDict(i);
    ValueNumber made("argument");
    adder.add(made, argument.getType());
    if (attributes)
      adder.add(made, attributes);
    whole.add(made.get());
    result.add(made.add(uint64_t(i)).get(), "argument " + Twine(i));
    numbers[argument] = ValueNumber("argument").add(uint64_t(i)).get();
  }
  // A collective without results is one of the function as a whole, and so is
  // an operation that writes to an argument.
  std::vector<uint64_t> effects;
  for (Operation &op : function.getOps()) {
    ValueNumber made(op.getName().getStringRef());
    adder.add(made, op.getAttrDictionary());
    for (Value operand : op.getOperands())
      made.add(numbers.lookup(operand));
    for (Type type : op.getResultTypes())
      adder.add(made, type);
    SmallVector<Value, 2> written = writtenBy(op);
    if (op.getNumResults() == 0 || !op.use_empty() || !written.empty())
      result.add(made.get(), &op);
    if (op.hasTrait<OpTrait::ReturnLike>()) {
      whole.add(made.get());
      continue;
    }
    if (op.getNumResults() == 0 || !written.empty())
      effects.push_back(made.get());
    // Reads of the memory behind this operation read something else.
    for (Value memory : written)
      numbers[memory] = ValueNumber("written")
                            .add(made.get())
                            .add(numbers.lookup(memory))
                            .get();
    for (OpResult result : op.getResults())
      numbers[result] = ValueNumber("result")
                            .add(made.get())
                            .add(uint64_t(result.getResultNumber()))
                            .get();
  }
  llvm::sort(effects);
  for (uint64_t effect : effects)
    whole.add(effect);
  // Attributes of the function say which dimensions are local, and how a
  // backward pass was split.
  for (NamedAttribute attribute : function->getDiscardableAttrs())
    if (attribute.getName() != kValuesAttr) {
      StringRef name = attribute.getName().getValue();
      ValueNumber made(name);
      adder.add(made, attribute.getValue());
      whole.add(made.get());
      result.add(made.get(), "the attribute '" + name + "'");
    }
  if (ArrayAttr results = function.getResAttrsAttr()) {
    ValueNumber made("results");
    adder.add(made, results);
    whole.add(made.get());
    result.add(made.get(), "an attribute of a result");
  }
  result.whole = whole.get();
  return result;
}

ArrayRef<StringLiteral> mlir::galvatron::settledModuleAttrs() {
  static constexpr StringLiteral names[] = {GalvatronDialect::kTrainingAttr,
                                            GalvatronDialect::kClusterAttr,
                                            GalvatronDialect::kAdaptersAttr};
  return names;
}

NumberedValues mlir::galvatron::numberModel(ModelOp model,
                                            bool withStrategies) {
  Adder adder(model.getContext());
  ValueNumber whole("model");
  NumberedValues result;
  auto module = model->getParentOfType<ModuleOp>();
  for (StringRef name : settledModuleAttrs())
    if (Attribute attribute = module->getAttr(name)) {
      ValueNumber made(name);
      adder.add(made, attribute);
      whole.add(made.get());
      result.add(made.get(), "the module's '" + name + "'");
    }
  for (NamedAttribute attribute : model->getAttrDictionary())
    if (StringAttr name = attribute.getName(); name != kValuesAttr) {
      ValueNumber made(name.getValue());
      adder.add(made, attribute.getValue());
      whole.add(made.get());
      result.add(made.get(), "the model's '" + name.getValue() + "'");
    }
  // Values are told by the layer that makes them, or as data by their place.
  llvm::DenseMap<Value, uint64_t> numbers;
  for (BlockArgument argument : model.getBody().getArguments())
    numbers[argument] = argument.getArgNumber();
  for (LayerOp layer : model.getLayers()) {
    ValueNumber made("layer");
    for (NamedAttribute attribute : layer->getAttrDictionary()) {
      StringAttr name = attribute.getName();
      if (name == layer.getCostsAttrName())
        continue;
      made.add(name.getValue());
      if (name != layer.getStrategyAttrName() || withStrategies) {
        adder.add(made, attribute.getValue());
        continue;
      }
      ::galvatron::Strategy strategy = layer.getStrategyAttr().toStrategy();
      made.add(uint64_t(strategy.checkpoint())).add(uint64_t(strategy.point()));
    }
    for (Value input : layer.getInputs())
      made.add(numbers.lookup(getOrigin(input)));
    for (Value output : layer->getResults())
      numbers[output] = numbers.size();
    whole.add(made.get());
    result.add(made.get(), layer);
  }
  Operation *output = model.getBody().front().getTerminator();
  ValueNumber made("output");
  for (Value value : output->getOperands())
    made.add(numbers.lookup(getOrigin(value)));
  whole.add(made.get());
  result.add(made.get(), output);
  result.whole = whole.get();
  return result;
}

LogicalResult mlir::galvatron::verifyModelNumber(ModelOp model,
                                                 const NumberedValues &found) {
  auto expected = model->getAttrOfType<StringAttr>(kValuesAttr);
  if (expected && found.isOf(expected))
    return success();
  InFlightDiagnostic error = model.emitOpError();
  if (!expected)
    return error << "(M4) expected '" << kValuesAttr << "', found none";
  error << "(M4) expected the layers and the training that functions were made "
           "for, "
        << expected.getValue().take_front(kWholeDigits) << ", found "
        << wholeText(found.whole);
  found.addNote(error, expected.getValue());
  error.attachNote() << "they are changed before the phase 'differentiate', "
                        "strategies before 'partition'";
  return error;
}

LogicalResult mlir::galvatron::verifyValues(Operation *function,
                                            const NumberedValues &found) {
  StringRef name = SymbolTable::getSymbolName(function).getValue();
  auto expected = function->getAttrOfType<StringAttr>(kValuesAttr);
  if (!expected)
    return function->emitOpError()
           << "(V2) expected '" << kValuesAttr << "' on the layer function '"
           << name << "', found none";
  if (found.isOf(expected))
    return success();
  StringRef number = expected.getValue().take_front(kWholeDigits);
  InFlightDiagnostic error = function->emitOpError();
  error << "(V3) expected '" << name << "' to compute the values " << number
        << " that it was made for, found " << wholeText(found.whole);
  found.addNote(error, expected.getValue());
  error.attachNote()
      << "what layers compute is changed before the phase 'differentiate'; "
         "a change that is meant here is numbered by "
         "'galvatron-number-values' or 'galvatron-number-buffers'";
  return error;
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
          function->setAttr(
              kValuesAttr, builder.getStringAttr(numberValues(function).str()));
    bool isPartitioned =
        llvm::any_of(getOperation().getOps<func::FuncOp>(), PartitionAttr::of);
    model->setAttr(kValuesAttr, builder.getStringAttr(
                                    numberModel(model, isPartitioned).str()));
    markAllAnalysesPreserved();
  }
};

} // namespace
