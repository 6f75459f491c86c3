//===- ValueNames.cpp - Values of a body in the model's words -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ValueNames.h"

#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::NamedValue;

namespace {

/// "a.b" of "a.b.c"; empty of "c".
StringRef parentOf(StringRef name) {
  return name.contains('.') ? name.rsplit('.').first : StringRef();
}

/// The common beginning of dotted names, up to a dot.
std::string commonParent(ArrayRef<std::string> names) {
  if (names.empty())
    return "";
  StringRef common = parentOf(names.front());
  for (StringRef name : names)
    while (!common.empty() &&
           !(name.starts_with(common) &&
             name.drop_front(common.size()).starts_with(".")))
      common = parentOf(common);
  return common.str();
}

std::string joined(StringRef parent, StringRef name) {
  return (parent.empty() ? name : parent + "." + name).str();
}

StringRef shortName(Operation &op) {
  StringRef name = op.getName().stripDialect();
  return name.ends_with("attention") ? "attention" : name;
}

bool isProduct(Operation &op) { return shortName(op).starts_with("linear"); }
bool isAttention(Operation &op) { return shortName(op) == "attention"; }
bool isNorm(Operation &op) { return shortName(op).ends_with("norm"); }

class Namer {
public:
  Namer(func::FuncOp body, ArrayRef<std::string> parameters) {
    std::vector<std::string> owners;
    for (StringRef parameter : parameters)
      owners.push_back(parentOf(parameter).str());
    std::string common = commonParent(owners);
    unsigned first = body.getNumArguments() - parameters.size();
    for (auto [index, owner] : llvm::enumerate(owners)) {
      StringRef module = owner;
      if (!common.empty())
        module = module.drop_front(common.size() + 1);
      moduleOf[body.getArgument(first + index)] = module.str();
    }
    for (Operation &op : body.getBody().front().without_terminator())
      if (std::string module = moduleOfOp(op); !module.empty())
        ++operationsOf[module];
  }

  /// A name that no operation before has.
  std::string nameOf(Operation &op) {
    std::string name = wantedName(op);
    int64_t &times = taken[name];
    if (++times > 1)
      name += "." + std::to_string(times);
    for (Value result : op.getResults())
      names[result] = name;
    return name;
  }

private:
  std::string moduleOfOp(Operation &op) const {
    for (Value operand : op.getOperands())
      if (auto it = moduleOf.find(operand); it != moduleOf.end())
        return it->second;
    return "";
  }

  std::string wantedName(Operation &op) {
    // Attention may read a table of biases; it is no part of that.
    if (std::string module = moduleOfOp(op);
        !module.empty() && !isAttention(op)) {
      bool isLast = ++namedOf[module] == operationsOf[module];
      return isLast ? module : joined(module, shortName(op));
    }
    std::vector<std::string> operands;
    bool allNamed = true;
    for (Value operand : op.getOperands()) {
      auto it = names.find(operand);
      if (it != names.end())
        operands.push_back(it->second);
      allNamed &= it != names.end();
    }
    if (isAttention(op))
      return joined(commonParent(operands), shortName(op));
    if (operands.size() == 1 && allNamed)
      return joined(operands.front(), shortName(op));
    return joined(allNamed ? commonParent(operands) : "", shortName(op));
  }

  DenseMap<Value, std::string> moduleOf, names;
  llvm::StringMap<int64_t> operationsOf, namedOf, taken;
};

/// The modules that the operations of a body belong to.
class Modules {
public:
  explicit Modules(Block &block) {
    int64_t products = 0;
    for (Operation &op : block) {
      hasAttention |= isAttention(op);
      products += isProduct(op);
    }
    // A layer that is a feed-forward part alone has several products.
    isFeedForward = !hasAttention && products > 1;
    for (Operation &op : block)
      attentionsLeft += isAttention(op);
  }

  /// Operations come in their order.
  std::vector<std::string> of(Operation &op) {
    if (isNorm(op))
      return {"layernorm"};
    if (isAttention(op)) {
      --attentionsLeft;
      return {"core_attn"};
    }
    // The first product behind the last attention is its output projection.
    if (hasAttention && attentionsLeft == 0)
      productsBehind += isProduct(op);
    bool inside = hasAttention ? productsBehind > 1 : isFeedForward;
    return inside && shortName(op) != "add" ? std::vector<std::string>{"mlp"}
                                            : std::vector<std::string>{};
  }

private:
  bool hasAttention = false, isFeedForward = false;
  int64_t attentionsLeft = 0, productsBehind = 0;
};

} // namespace

std::vector<NamedValue>
mlir::galvatron::nameValues(func::FuncOp body,
                            ArrayRef<std::string> parameters) {
  Block &block = body.getBody().front();
  Namer namer(body, parameters);
  Modules modules(block);
  std::vector<NamedValue> values;
  for (auto [number, op] : llvm::enumerate(block.without_terminator())) {
    std::string name = namer.nameOf(op);
    std::vector<std::string> own = modules.of(op);
    DenseMap<Value, std::string> resultNames;
    if (auto named = dyn_cast<OpAsmOpInterface>(op))
      named.getAsmResultNames([&](Value value, StringRef text) {
        resultNames[value] = text.str();
      });
    for (auto [index, result] : llvm::enumerate(op.getResults())) {
      if (nn::isLossType(result.getType()))
        continue;
      NamedValue value;
      value.value = {int64_t(number), int64_t(index)};
      std::string suffix = resultNames.lookup(result);
      value.name =
          index == 0
              ? name
              : joined(name, suffix.empty() ? std::to_string(index) : suffix);
      value.modules = own;
      values.push_back(std::move(value));
    }
  }
  return values;
}
