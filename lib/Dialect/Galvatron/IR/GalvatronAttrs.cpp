//===- GalvatronAttrs.cpp - Attributes of the dialect ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::galvatron;

#include "galvatron/Dialect/Galvatron/IR/GalvatronEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "galvatron/Dialect/Galvatron/IR/GalvatronAttrs.cpp.inc"

void GalvatronDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "galvatron/Dialect/Galvatron/IR/GalvatronAttrs.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// StrategyAttr
//===----------------------------------------------------------------------===//

// strategy ::= `<` `[` (paradigm `=` degree (`,` paradigm `=` degree)*)? `]`
//              (`,` `ckpt`)? `>`
Attribute StrategyAttr::parse(AsmParser &parser, Type) {
  SmallVector<StrategyLevel> levels;
  auto parseLevel = [&]() -> ParseResult {
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    StrategyLevel level;
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<Paradigm> paradigm = symbolizeParadigm(keyword);
    if (!paradigm)
      return parser.emitError(loc)
             << "expected a paradigm 'dp', 'sdp' or 'tp', found '" << keyword
             << "'";
    level.paradigm = *paradigm;
    if (parser.parseEqual() || parser.parseInteger(level.degree))
      return failure();
    levels.push_back(level);
    return success();
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseLevel))
    return {};
  bool checkpoint = succeeded(parser.parseOptionalComma());
  if ((checkpoint && parser.parseKeyword("ckpt")) || parser.parseGreater())
    return {};
  return parser.getChecked<StrategyAttr>(loc, parser.getContext(), levels,
                                         checkpoint);
}

void StrategyAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getLevels(), printer, [&](const StrategyLevel &level) {
    printer << stringifyParadigm(level.paradigm) << " = " << level.degree;
  });
  printer << "]" << (getCheckpoint() ? ", ckpt" : "") << ">";
}

int64_t StrategyAttr::getDevices() const {
  int64_t devices = 1;
  for (const StrategyLevel &level : getLevels())
    devices *= level.degree;
  return devices;
}

int64_t StrategyAttr::getDegree(Paradigm paradigm) const {
  for (const StrategyLevel &level : getLevels())
    if (level.paradigm == paradigm)
      return level.degree;
  return 1;
}

int64_t StrategyAttr::getSampleShards() const {
  return getDegree(Paradigm::DP) * getDegree(Paradigm::SDP);
}

std::string StrategyAttr::getNotation() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::interleave(
      getLevels(), stream,
      [&](const StrategyLevel &level) {
        stream << stringifyParadigm(level.paradigm) << level.degree;
      },
      ".");
  if (getLevels().empty())
    stream << "single";
  if (getCheckpoint())
    stream << ".ckpt";
  return text;
}

//===----------------------------------------------------------------------===//
// ClusterAttr
//===----------------------------------------------------------------------===//

int64_t ClusterAttr::getDeviceCount() const {
  int64_t devices = 0;
  for (auto node : getNodes().getAsRange<NodeAttr>())
    devices += node.getCount() * node.getDevices();
  return devices;
}

StringRef ClusterAttr::getBackend() const {
  return cast<DeviceTypeAttr>(getDeviceTypes()[0]).getBackend();
}
