//===- PartitionAttrs.cpp - Attributes of partitioned functions -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

using namespace mlir;
using namespace mlir::galvatron;

//===----------------------------------------------------------------------===//
// PartitionAttr
//===----------------------------------------------------------------------===//

PartitionAttr PartitionAttr::of(Operation *function) {
  return function->getAttrOfType<PartitionAttr>(attrName);
}

PartitionAttr PartitionAttr::withDirection(Direction direction) const {
  return get(getContext(), direction, getAxes(), getSdp(), getZdp(),
             getGathered(), getBorrowed());
}

PartitionAttr PartitionAttr::withShards(int64_t sdp, int64_t zdp,
                                        ArrayRef<int64_t> borrowed) const {
  return get(getContext(), getDirection(), getAxes(), sdp, zdp, getGathered(),
             borrowed.empty() ? DenseI64ArrayAttr()
                              : DenseI64ArrayAttr::get(getContext(), borrowed));
}

//===----------------------------------------------------------------------===//
// StateAttr
//===----------------------------------------------------------------------===//

void mlir::galvatron::printState(raw_ostream &os, AxisState state) {
  if (state.isSplit())
    os << "split " << state.dim();
  else if (state.isRows() && (state.positions() > 1 || state.isBalanced())) {
    os << (state.isBalanced() ? "balanced rows" : "rows");
    if (state.positions() > 1)
      os << ' ' << state.positions();
  } else
    os << (state.isUnreduced() ? "unreduced"
           : state.isRows()    ? "rows"
                               : "replicated");
}

// axes ::= `[` state (`,` state)* `]`
// state ::= `replicated` | `unreduced` | `balanced`? `rows` dimension?
//         | `split` dimension
static FailureOr<StateAttr> parseAxes(AsmParser &parser) {
  SmallVector<AxisState> axes;
  SMLoc loc = parser.getCurrentLocation();
  auto parseState = [&]() -> ParseResult {
    const bool balanced = succeeded(parser.parseOptionalKeyword("balanced"));
    if (balanced) {
      if (parser.parseKeyword("rows"))
        return failure();
    }
    if (!balanced && succeeded(parser.parseOptionalKeyword("replicated"))) {
      axes.push_back(AxisState::replicated());
    } else if (!balanced &&
               succeeded(parser.parseOptionalKeyword("unreduced"))) {
      axes.push_back(AxisState::unreduced());
    } else if (balanced || succeeded(parser.parseOptionalKeyword("rows"))) {
      int64_t positions = 1;
      SMLoc dimLoc = parser.getCurrentLocation();
      OptionalParseResult given = parser.parseOptionalInteger(positions);
      if (given.has_value() && failed(*given))
        return failure();
      if (positions < 1)
        return parser.emitError(dimLoc)
               << "expected positions behind the dimension of samples, found "
               << positions;
      axes.push_back(AxisState::rows(positions, balanced));
    } else if (succeeded(parser.parseOptionalKeyword("split"))) {
      int64_t dim;
      SMLoc dimLoc = parser.getCurrentLocation();
      if (parser.parseInteger(dim))
        return failure();
      if (dim < 0)
        return parser.emitError(dimLoc)
               << "expected a dimension that is split, found " << dim;
      axes.push_back(AxisState::split(dim));
    } else {
      return parser.emitError(parser.getCurrentLocation())
             << "expected 'replicated', 'unreduced', 'rows' or 'split'";
    }
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseState))
    return failure();
  auto state = StateAttr::getChecked([&] { return parser.emitError(loc); },
                                     parser.getContext(), ArrayRef(axes));
  if (!state)
    return failure();
  return state;
}

static void printAxes(AsmPrinter &printer, StateAttr state) {
  printer << '[';
  llvm::interleaveComma(state.getAxes(), printer, [&](AxisState axis) {
    printState(printer.getStream(), axis);
  });
  printer << ']';
}

Attribute StateAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<StateAttr> state = parseAxes(parser);
  if (failed(state) || parser.parseGreater())
    return {};
  return *state;
}

void StateAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printAxes(printer, *this);
  printer << '>';
}

//===----------------------------------------------------------------------===//
// ShardingAttr
//===----------------------------------------------------------------------===//

StateAttr OperandState::getState() const { return cast<StateAttr>(state); }

// sharding ::= `<` part (`,` part)* `>`
// part ::= `results` `=` `(` axes (`,` axes)* `)`
//        | `factors` `=` `[` integer (`,` integer)* `]`
//        | `operands` `=` `{` integer `=` axes (`,` integer `=` axes)* `}`
Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  SmallVector<StateAttr> results;
  SmallVector<int64_t> factors;
  SmallVector<OperandState> operands;
  auto parseResult = [&]() -> ParseResult {
    FailureOr<StateAttr> state = parseAxes(parser);
    if (succeeded(state))
      results.push_back(*state);
    return ParseResult(LogicalResult(state));
  };
  auto parseFactor = [&]() {
    return parser.parseInteger(factors.emplace_back());
  };
  auto parseOperand = [&]() -> ParseResult {
    int64_t operand;
    if (parser.parseInteger(operand) || parser.parseEqual())
      return failure();
    FailureOr<StateAttr> state = parseAxes(parser);
    if (succeeded(state))
      operands.push_back({operand, *state});
    return ParseResult(LogicalResult(state));
  };
  auto parsePart = [&]() -> ParseResult {
    StringRef part;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&part) || parser.parseEqual())
      return failure();
    using Delimiter = AsmParser::Delimiter;
    if (part == "results" && results.empty())
      return parser.parseCommaSeparatedList(Delimiter::Paren, parseResult);
    if (part == "factors" && factors.empty())
      return parser.parseCommaSeparatedList(Delimiter::Square, parseFactor);
    if (part == "operands" && operands.empty())
      return parser.parseCommaSeparatedList(Delimiter::Braces, parseOperand);
    return parser.emitError(loc)
           << "expected 'results', 'factors' and 'operands' once each, found '"
           << part << "'";
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater,
                                     parsePart))
    return {};
  return ShardingAttr::getChecked([&] { return parser.emitError(loc); },
                                  parser.getContext(), ArrayRef(results),
                                  ArrayRef(factors), ArrayRef(operands));
}

void ShardingAttr::print(AsmPrinter &printer) const {
  StringRef comma = "";
  auto begin = [&](StringRef part) -> AsmPrinter & {
    printer << comma << part << " = ";
    comma = ", ";
    return printer;
  };
  printer << '<';
  if (!getResults().empty()) {
    begin("results") << '(';
    llvm::interleaveComma(getResults(), printer,
                          [&](StateAttr state) { printAxes(printer, state); });
    printer << ')';
  }
  if (!getFactors().empty()) {
    begin("factors") << '[';
    llvm::interleaveComma(getFactors(), printer);
    printer << ']';
  }
  if (!getOperands().empty()) {
    begin("operands") << '{';
    llvm::interleaveComma(getOperands(), printer, [&](const OperandState &use) {
      printer << use.operand << " = ";
      printAxes(printer, use.getState());
    });
    printer << '}';
  }
  printer << '>';
}

//===----------------------------------------------------------------------===//
// SliceAttr
//===----------------------------------------------------------------------===//

SliceAttr SliceAttr::of(FunctionOpInterface function, unsigned argument) {
  return function.getArgAttrOfType<SliceAttr>(argument, attrName);
}

AxisState SliceAttr::getStateOn(size_t axis) const {
  return getState() ? getState().getAxes()[axis] : AxisState::replicated();
}
