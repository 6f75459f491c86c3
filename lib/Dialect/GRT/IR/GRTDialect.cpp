//===- GRTDialect.cpp - The grt dialect -----------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/IR/GRT.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::grt;

#include "galvatron/Dialect/GRT/IR/GRTDialect.cpp.inc"
#include "galvatron/Dialect/GRT/IR/GRTEnums.cpp.inc"

void GRTDialect::initialize() {
  registerAttributes();
  addOperations<
#define GET_OP_LIST
#include "galvatron/Dialect/GRT/IR/GRTOps.cpp.inc"
      >();
}

LogicalResult GRTDialect::verifyOperationAttribute(Operation *op,
                                                   NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == kTextsBeginAttr) {
    if (mayWaitForTexts(op) && isa<UnitAttr>(attribute.getValue()))
      return success();
    return op->emitOpError() << "expected '" << name
                             << "', without a value, on a kernel or a "
                                "collective, found "
                             << attribute.getValue();
  }
  if (name != kModelAttr)
    return op->emitOpError() << "expected 'grt.model', found '" << name << "'";
  if (!isa<ModuleOp>(op))
    return op->emitOpError()
           << "expected '" << name << "' on a module, found it here";
  if (!isa<ModelAttr>(attribute.getValue()))
    return op->emitOpError() << "expected a #grt.model as '" << name
                             << "', found " << attribute.getValue();
  return success();
}

bool mlir::grt::isBufferType(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref && memref.hasStaticShape() && memref.getLayout().isIdentity() &&
         !memref.getMemorySpace() && getAbiDType(memref.getElementType());
}

StringRef mlir::grt::getBackend(ModuleOp module) {
  auto cluster = mlir::galvatron::getCluster(module);
  return cluster ? cluster.getBackend() : "cpu";
}

KernelTarget mlir::grt::getKernelTarget(ModuleOp module) {
  auto cluster = mlir::galvatron::getCluster(module);
  return cluster
             ? KernelTarget{cluster.getBackend(), cluster.getThreadsPerDevice()}
             : KernelTarget();
}

int64_t mlir::grt::getByteSize(ShapedType type) {
  return type.getNumElements() * getElementBytes(type.getElementType());
}

/// Reads `[[0, 1, 0, 0, 2], ...]` into one flat array.
static ParseResult parseTransfers(OpAsmParser &parser,
                                  DenseI64ArrayAttr &transfers) {
  SmallVector<int64_t> numbers;
  auto parseTransfer = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    size_t before = numbers.size();
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
          return parser.parseInteger(numbers.emplace_back());
        }))
      return failure();
    if (numbers.size() - before != 5)
      return parser.emitError(loc) << "expected a transfer of 5 numbers, found "
                                   << numbers.size() - before;
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                     parseTransfer))
    return failure();
  transfers = parser.getBuilder().getDenseI64ArrayAttr(numbers);
  return success();
}

static void printTransfers(OpAsmPrinter &printer, Operation *,
                           DenseI64ArrayAttr transfers) {
  ArrayRef<int64_t> numbers = transfers.asArrayRef();
  printer << '[';
  for (size_t i = 0; i < numbers.size(); i += 5) {
    printer << (i ? ", [" : "[");
    llvm::interleaveComma(
        numbers.slice(i, std::min<size_t>(5, numbers.size() - i)), printer);
    printer << ']';
  }
  printer << ']';
}

/// Reads `[1.0e-05, 0.1]`.
static ParseResult parseReals(OpAsmParser &parser, DenseF64ArrayAttr &reals) {
  SmallVector<double> numbers;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
        return parser.parseFloat(numbers.emplace_back());
      }))
    return failure();
  reals = DenseF64ArrayAttr::get(parser.getContext(), numbers);
  return success();
}

/// Prints every digit that a real has: lists of them would have six.
static void printReals(OpAsmPrinter &printer, Operation *,
                       DenseF64ArrayAttr reals) {
  Builder builder(reals.getContext());
  printer << '[';
  llvm::interleaveComma(reals.asArrayRef(), printer, [&](double real) {
    printer.printAttributeWithoutType(builder.getF64FloatAttr(real));
  });
  printer << ']';
}

#define GET_OP_CLASSES
#include "galvatron/Dialect/GRT/IR/GRTOps.cpp.inc"
