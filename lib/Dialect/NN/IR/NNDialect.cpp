//===- NNDialect.cpp - The nn dialect -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/NN/IR/NN.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::nn;

#include "galvatron/Dialect/NN/IR/NNDialect.cpp.inc"
#include "galvatron/Dialect/NN/IR/NNInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "galvatron/Dialect/NN/IR/NNAttrs.cpp.inc"

void NNDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "galvatron/Dialect/NN/IR/NNAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "galvatron/Dialect/NN/IR/NNOps.cpp.inc"
      >();
}

int64_t nn::countElements(Type type, int64_t samples) {
  RowsAttr rows = RowsAttr::of(type);
  int64_t unknown =
      rows ? samples * rows.getLength() / rows.getDegree() : samples;
  int64_t count = 1;
  for (int64_t dim : cast<RankedTensorType>(type).getShape())
    count *= ShapedType::isDynamic(dim) ? unknown : dim;
  return count;
}

RankedTensorType nn::withSamples(RankedTensorType type, int64_t samples) {
  if (type.hasStaticShape())
    return type;
  RowsAttr rows = RowsAttr::of(type);
  SmallVector<int64_t> shape(type.getShape());
  for (int64_t &dim : shape)
    if (ShapedType::isDynamic(dim))
      dim = rows ? samples * rows.getLength() / rows.getDegree() : samples;
  return type.clone(shape);
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

RowsAttr RowsAttr::of(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? dyn_cast_or_null<RowsAttr>(tensor.getEncoding()) : nullptr;
}

LogicalResult RowsAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t length, int64_t degree, bool,
                               int64_t behind, int64_t within) {
  if (length < 1 || degree < 2 || behind < 0) // 1
    return emitError() << "expected blocks of rows of a length of at least 1 "
                          "on at least 2 ranks, found "
                       << length << " and " << degree;
  if (within < 1 || degree <= within || degree % within != 0) // 1
    return emitError() << "expected " << degree
                       << " blocks of rows to be as many of each block that "
                          "they are cut from, found "
                       << within << " of these";
  return success();
}

LogicalResult
RowsAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                         function_ref<InFlightDiagnostic()> emitError) const {
  if (int64_t(shape.size()) <= getBehind()) // 2
    return emitError() << "expected a block of rows to have a dimension of "
                          "them, found none";
  const int64_t rows = shape[getBehind()];
  if (!ShapedType::isDynamic(rows) &&
      rows * getDegree() % getLength() != 0) // 2
    return emitError() << "expected " << getDegree() << " blocks of " << rows
                       << " rows to be samples of " << getLength();
  if (!ShapedType::isDynamic(rows) && getBalanced() && rows % 2 != 0) // 2
    return emitError() << "expected a balanced block of an even number of "
                          "rows, found "
                       << rows;
  return success();
}

/// Cuts a block of rows again.
static RankedTensorType cutBlock(RankedTensorType block, RowsAttr rows,
                                 int64_t degree) {
  assert(rows.getWithin() == 1 && rows.getBehind() == 0 &&
         "a block of all rows, with its rows in front");
  SmallVector<int64_t> shape(block.getShape());
  if (!ShapedType::isDynamic(shape[0])) {
    assert(shape[0] % degree == 0 && "the degree divides the rows");
    shape[0] /= degree;
  }
  return RankedTensorType::get(
      shape, block.getElementType(),
      RowsAttr::get(block.getContext(), rows.getLength(),
                    rows.getDegree() * degree, rows.getBalanced(),
                    /*behind=*/0, /*within=*/rows.getDegree()));
}

RankedTensorType nn::cutRows(RankedTensorType whole, int64_t degree,
                             int64_t positions, bool balanced) {
  if (RowsAttr rows = RowsAttr::of(whole)) {
    assert(rows.getBalanced() == balanced && "a block is cut as it was");
    return cutBlock(whole, rows, degree);
  }
  ArrayRef<int64_t> shape = whole.getShape();
  int64_t samples = shape[0], length = shape[positions];
  assert((ShapedType::isDynamic(samples) || samples * length % degree == 0) &&
         "the degree divides the rows");
  SmallVector<int64_t> block = {
      ShapedType::isDynamic(samples) ? samples : samples * length / degree};
  llvm::append_range(block, shape.slice(1, positions - 1));
  llvm::append_range(block, shape.drop_front(positions + 1));
  return RankedTensorType::get(block, whole.getElementType(),
                               RowsAttr::get(whole.getContext(), length, degree,
                                             balanced, /*behind=*/0,
                                             /*within=*/1));
}

RankedTensorType nn::joinRows(RankedTensorType block) {
  RowsAttr rows = RowsAttr::of(block);
  assert(rows && "a block of rows");
  ArrayRef<int64_t> shape = block.getShape();
  if (rows.getWithin() > 1) {
    SmallVector<int64_t> joined(shape);
    if (!ShapedType::isDynamic(joined[0]))
      joined[0] *= rows.getSharers();
    return RankedTensorType::get(
        joined, block.getElementType(),
        RowsAttr::get(block.getContext(), rows.getLength(), rows.getWithin(),
                      rows.getBalanced(), /*behind=*/0, /*within=*/1));
  }
  SmallVector<int64_t> whole = {ShapedType::isDynamic(shape[0])
                                    ? shape[0]
                                    : shape[0] * rows.getDegree() /
                                          rows.getLength(),
                                rows.getLength()};
  llvm::append_range(whole, shape.drop_front());
  return RankedTensorType::get(whole, block.getElementType());
}

int64_t nn::countBytes(Type type, int64_t samples) {
  int64_t bits = cast<RankedTensorType>(type).getElementTypeBitWidth();
  return countElements(type, samples) * bits / 8;
}

Type nn::accumulatorElement(Type element) {
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

static constexpr StringLiteral roleNames[] = {
    "input",    "data",           "parameter",
    "output",   "loss",           "stash",
    "gradient", "input_gradient", "parameter_gradient"};

bool nn::listsFactor(Operation *function, StringRef attribute,
                     StringRef factor) {
  auto names = function->getAttrOfType<ArrayAttr>(attribute);
  return names && llvm::any_of(names, [&](Attribute entry) {
           auto name = dyn_cast<StringAttr>(entry);
           return name && name.getValue() == factor;
         });
}

StringRef nn::stringifyRole(ValueRole role) {
  return roleNames[static_cast<unsigned>(role)];
}

std::optional<ValueRole> nn::symbolizeRole(StringRef text) {
  for (auto [index, name] : llvm::enumerate(roleNames))
    if (name == text)
      return static_cast<ValueRole>(index);
  return std::nullopt;
}

LogicalResult NNDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name != kFactorUnitsAttr && name != kUnevenAttr && name != kSharedAttr)
    return op->emitOpError()
           << "expected '" << kFactorUnitsAttr << "', '" << kUnevenAttr
           << "' or '" << kSharedAttr << "', found '" << name << "'";
  if (name == kFactorUnitsAttr) {
    auto dictionary = dyn_cast<DictionaryAttr>(attribute.getValue());
    if (!dictionary)
      return op->emitOpError()
             << "expected '" << name << "' to be a dictionary";
    for (NamedAttribute entry : dictionary) {
      auto units = dyn_cast<IntegerAttr>(entry.getValue());
      if (!units || units.getInt() < 1)
        return op->emitOpError()
               << "expected a positive number of units for "
                  "factor '"
               << entry.getName().getValue() << "', found " << entry.getValue();
    }
  }
  if (name == kUnevenAttr || name == kSharedAttr) {
    auto units = op->getAttrOfType<DictionaryAttr>(kFactorUnitsAttr);
    auto array = dyn_cast<ArrayAttr>(attribute.getValue());
    if (!array)
      return op->emitOpError() << "expected '" << name << "' to be an array";
    for (Attribute entry : array) {
      auto factor = dyn_cast<StringAttr>(entry);
      if (!factor || !units || !units.contains(factor.getValue()))
        return op->emitOpError()
               << "expected '" << name << "' to name factors of '"
               << kFactorUnitsAttr << "', found " << entry;
      // A rank's part of a shared factor is one unit or several.
      if (name == kSharedAttr &&
          listsFactor(op, kUnevenAttr, factor.getValue()))
        return op->emitOpError()
               << "expected factor " << factor << " to be in one of '"
               << kUnevenAttr << "' and '" << kSharedAttr << "'";
    }
  }
  return success();
}

static LogicalResult verifyRole(Operation *op, NamedAttribute attribute) {
  auto role = dyn_cast<StringAttr>(attribute.getValue());
  if (role && symbolizeRole(role.getValue()))
    return success();
  return op->emitOpError() << "expected '" << kRoleAttr
                           << "' to be a role of a layer function, found "
                           << attribute.getValue();
}

static LogicalResult verifyFrozen(Operation *op, unsigned argument,
                                  NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  auto type =
      function
          ? dyn_cast<RankedTensorType>(function.getArgumentTypes()[argument])
          : nullptr;
  if (type && isa<FloatType>(type.getElementType()) &&
      isa<UnitAttr>(attribute.getValue()))
    return success();
  return op->emitOpError()
         << "expected '" << kFrozenAttr
         << "', without a value, on a parameter or an input of "
            "floating-point elements, found it on argument "
         << argument;
}

LogicalResult mlir::nn::verifyHasRoles(FunctionOpInterface function) {
  auto missing = [&](StringRef what, unsigned index) {
    return function.emitOpError()
           << "expected '" << kRoleAttr << "' on " << what << " " << index
           << " of the layer function '" << function.getName()
           << "', found none";
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (!function.getArgAttr(i, kRoleAttr))
      return missing("argument", i);
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (!function.getResultAttr(i, kRoleAttr))
      return missing("result", i);
  return success();
}

LogicalResult NNDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                     unsigned,
                                                     NamedAttribute attribute) {
  return attribute.getName() == kRoleAttr ? verifyRole(op, attribute)
                                          : success();
}

LogicalResult NNDialect::verifyRegionArgAttribute(Operation *op,
                                                  unsigned region,
                                                  unsigned argument,
                                                  NamedAttribute attribute) {
  if (attribute.getName() == kRoleAttr)
    return verifyRole(op, attribute);
  if (attribute.getName() == kFrozenAttr)
    return verifyFrozen(op, argument, attribute);
  if (attribute.getName() == kMadeOfAttr) {
    auto what = dyn_cast<StringAttr>(attribute.getValue());
    if (isa<FunctionOpInterface>(op) && what &&
        (what.getValue() == kSource || what.getValue() == kParameters))
      return success();
    return op->emitOpError()
           << "expected '" << kMadeOfAttr << "' to be '" << kSource << "' or '"
           << kParameters << "' on an argument of a function, found "
           << attribute.getValue();
  }
  if (attribute.getName() != kFactorsAttr)
    return success();
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitOpError()
           << "expected '" << kFactorsAttr << "' on an argument of a function";
  auto type = dyn_cast<RankedTensorType>(function.getArgumentTypes()[argument]);
  auto names = dyn_cast<ArrayAttr>(attribute.getValue());
  if (!type || !names || int64_t(names.size()) != type.getRank())
    return op->emitOpError()
           << "expected '" << kFactorsAttr << "' of argument " << argument
           << " to name one factor a dimension, found " << attribute.getValue();
  auto units = op->getAttrOfType<DictionaryAttr>(kFactorUnitsAttr);
  bool found = false;
  for (auto [dim, entry] : llvm::enumerate(names)) {
    auto factor = dyn_cast<StringAttr>(entry);
    if (!factor)
      return op->emitOpError()
             << "expected factor names to be strings, found " << entry;
    if (factor.empty())
      continue;
    if (found)
      return op->emitOpError() << "expected at most one factor in '"
                               << kFactorsAttr << "' of argument " << argument
                               << ", found " << attribute.getValue();
    found = true;
    auto count = units ? units.getAs<IntegerAttr>(factor.getValue()) : nullptr;
    if (!count)
      return op->emitOpError()
             << "expected factor '" << factor.getValue() << "' of argument "
             << argument << " in '" << kFactorUnitsAttr << "', found no entry";
    if (type.getDimSize(dim) % count.getInt() != 0)
      return op->emitOpError()
             << "expected dimension " << dim << " of argument " << argument
             << " to be a multiple of the " << count.getInt()
             << " units of factor '" << factor.getValue() << "', found "
             << type.getDimSize(dim);
    if (listsFactor(op, kSharedAttr, factor.getValue()) &&
        type.getDimSize(dim) != count.getInt())
      return op->emitOpError()
             << "expected dimension " << dim << " of argument " << argument
             << " to have the " << count.getInt() << " units of factor '"
             << factor.getValue() << "', which ranks may share, found "
             << type.getDimSize(dim);
  }
  return success();
}

#define GET_OP_CLASSES
#include "galvatron/Dialect/NN/IR/NNOps.cpp.inc"
