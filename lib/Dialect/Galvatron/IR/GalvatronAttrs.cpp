//===- GalvatronAttrs.cpp - Attributes of the dialect ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include "galvatron/Cluster/Cluster.h"
#include "galvatron/Strategy/Strategy.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
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

// levels ::= `[` (paradigm `=` degree (`,` paradigm `=` degree)*)? `]`
FailureOr<SmallVector<StrategyLevel>>
mlir::galvatron::parseLevels(AsmParser &parser) {
  SmallVector<StrategyLevel> levels;
  auto parseLevel = [&]() -> ParseResult {
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    StrategyLevel level{{}, 0};
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<::galvatron::Paradigm> paradigm =
        ::galvatron::ParadigmRegistry::find(keyword);
    if (!paradigm)
      return parser.emitError(loc)
             << "expected a paradigm " << ::galvatron::ParadigmRegistry::names()
             << ", found '" << keyword << "'";
    level.paradigm = *paradigm;
    if (parser.parseEqual() || parser.parseInteger(level.degree))
      return failure();
    levels.push_back(level);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseLevel))
    return failure();
  return levels;
}

void mlir::galvatron::printLevels(AsmPrinter &printer,
                                  ArrayRef<StrategyLevel> levels) {
  printer << '[';
  llvm::interleaveComma(levels, printer, [&](const StrategyLevel &level) {
    printer << level.paradigm.name() << " = " << level.degree;
  });
  printer << ']';
}

// strategy ::= `<` levels (`,` `ckpt` (`=` point)?)? (`,` `opt_host`)? (`,`
// `act_host`)? `>`
Attribute StrategyAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess())
    return {};
  FailureOr<SmallVector<StrategyLevel>> levels = parseLevels(parser);
  if (failed(levels))
    return {};
  // Words stand in this order; one that is not there is left out.
  StringRef words[] = {"ckpt", "opt_host", "act_host"};
  bool isThere[] = {false, false, false};
  int64_t point = 0;
  size_t next = 0;
  while (succeeded(parser.parseOptionalComma())) {
    size_t found = next;
    while (found < std::size(words) &&
           failed(parser.parseOptionalKeyword(words[found])))
      ++found;
    if (found == std::size(words)) {
      parser.emitError(parser.getCurrentLocation())
          << "expected 'ckpt', 'opt_host' or 'act_host', in this order and "
             "each "
             "once";
      return {};
    }
    isThere[found] = true;
    next = found + 1;
    if (found == 0 && succeeded(parser.parseOptionalEqual())) {
      SMLoc numberLoc = parser.getCurrentLocation();
      if (parser.parseInteger(point))
        return {};
      if (point < 1 || point > ::galvatron::Strategy::kMostPoints) {
        parser.emitError(numberLoc) << "expected a point from 1 to "
                                    << ::galvatron::Strategy::kMostPoints
                                    << ", found " << point; // (C4)
        return {};
      }
      isThere[0] = false;
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<StrategyAttr>(loc, parser.getContext(), *levels,
                                         isThere[0], point, isThere[1],
                                         isThere[2]);
}

void StrategyAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printLevels(printer, getLevels());
  printer << (getCheckpoint() ? ", ckpt" : "");
  if (getPoint() > 0)
    printer << ", ckpt = " << getPoint();
  printer << (getStatesAtHome() ? ", opt_host" : "")
          << (getActivationsAtHome() ? ", act_host" : "") << ">";
}

int64_t StrategyAttr::getDevices() const {
  int64_t devices = 1;
  for (const StrategyLevel &level : getLevels())
    devices *= level.degree;
  return devices;
}

int64_t StrategyAttr::getSampleShards() const {
  return toStrategy().sampleShards();
}

std::string StrategyAttr::getNotation() const { return toStrategy().str(); }

StrategyAttr StrategyAttr::get(MLIRContext *context,
                               const ::galvatron::Strategy &strategy) {
  return get(context, strategy.levels(), strategy.checkpoint(),
             strategy.point(), strategy.home().states,
             strategy.home().activations);
}

::galvatron::Strategy StrategyAttr::toStrategy() const {
  // The verifier of the attribute has asked it.
  auto strategy =
      cantFail(::galvatron::Strategy::get(getLevels(), getCheckpoint()));
  if (getPoint() > 0)
    strategy = strategy.withPoint(getPoint());
  return strategy.withHome({getStatesAtHome(), getActivationsAtHome()});
}

//===----------------------------------------------------------------------===//
// KeptAttr
//===----------------------------------------------------------------------===//

KeptAttr KeptAttr::get(MLIRContext *context,
                       const ::galvatron::KeptValues &kept) {
  SmallVector<Attribute> values;
  for (const ::galvatron::KeptValue &value : kept.values)
    values.push_back(StringAttr::get(context, value.str()));
  return get(context, kept.body, ArrayAttr::get(context, values));
}

::galvatron::KeptValues KeptAttr::toKeptValues() const {
  ::galvatron::KeptValues kept;
  kept.body = getBody().str();
  for (auto value : getValues().getAsRange<StringAttr>())
    kept.values.push_back(
        cantFail(::galvatron::KeptValue::parse(value.getValue())));
  return kept;
}

//===----------------------------------------------------------------------===//
// TrainingAttr
//===----------------------------------------------------------------------===//

FailureOr<::galvatron::Optimizer>
mlir::galvatron::parseOptimizer(AsmParser &parser) {
  std::string name;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseString(&name))
    return failure();
  if (auto optimizer = ::galvatron::optimizerNamed(name))
    return *optimizer;
  // (C1)
  return parser.emitError(loc)
         << "expected 'optimizer' to be " << ::galvatron::optimizerList()
         << ", found '" << name << "'";
}

void mlir::galvatron::printOptimizer(AsmPrinter &printer,
                                     ::galvatron::Optimizer optimizer) {
  printer.printString(::galvatron::optimizerName(optimizer));
}

//===----------------------------------------------------------------------===//
// PlanAttr
//===----------------------------------------------------------------------===//

::galvatron::Offload PlanAttr::getOffloaded() const {
  // The attribute's verifier has parsed it.
  return getOffload()
             ? cantFail(::galvatron::parseOffload(getOffload().getValue()))
             : ::galvatron::Offload::Off;
}

::galvatron::SumTiming PlanAttr::getSumsOf(int64_t stage) const {
  if (!getSums())
    return ::galvatron::SumTiming::ByRule;
  return llvm::cantFail(::galvatron::parseSumTiming(
      cast<StringAttr>(getSums()[stage]).getValue()));
}

::galvatron::ScheduleShape PlanAttr::getShape(int64_t chunks) const {
  if (!getPacks()) {
    auto shape = ::galvatron::ScheduleShape::of(
        getPipelineDegree(), getMicroBatches(), chunks, getOffloaded());
    shape.passTimes = getChunkTimes();
    return shape;
  }
  ArrayRef<int64_t> forward = cast<DenseI64ArrayAttr>(getPacks()[0]),
                    backward = cast<DenseI64ArrayAttr>(getPacks()[1]);
  return ::galvatron::ScheduleShape::ofPacks(
      getPipelineDegree(), getMicroBatches(), getOffloaded(), forward.vec(),
      backward.vec(), getForwardMicroBatches());
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

int64_t ClusterAttr::getThreadsPerDevice() const {
  int64_t most = 1;
  for (auto node : getNodes().getAsRange<NodeAttr>())
    most = std::max(most, ::galvatron::NodeGroup::threadsPerDevice(
                              node.getCores(), node.getDevices()));
  return most;
}

StringRef ClusterAttr::getBackend() const {
  auto backendOf = [&](NodeAttr node) {
    for (auto type : getDeviceTypes().getAsRange<DeviceTypeAttr>())
      if (type.getName() == node.getDeviceType())
        return type.getBackend();
    llvm_unreachable("a verified node names a device type");
  };
  StringRef backend = backendOf(cast<NodeAttr>(getNodes()[0]));
  for (auto node : getNodes().getAsRange<NodeAttr>())
    if (backendOf(node) != backend)
      return "";
  return backend;
}

//===----------------------------------------------------------------------===//
// ProfileAttr and FlatTensorAttr
//===----------------------------------------------------------------------===//

std::optional<double> ProfileAttr::getForwardTime() const {
  return getForwardMs() ? std::optional(getForwardMs().getValueAsDouble())
                        : std::nullopt;
}

std::optional<double> ProfileAttr::getBackwardTime() const {
  std::optional<double> forward = getForwardTime();
  if (!forward)
    return std::nullopt;
  return getBackwardMs() ? getBackwardMs().getValueAsDouble() : 2 * *forward;
}

int64_t FlatTensorAttr::getElements() const {
  int64_t elements = 1;
  for (int64_t size : getLocalShape().asArrayRef())
    elements *= size;
  return elements;
}

//===----------------------------------------------------------------------===//
// PartValueAttr
//===----------------------------------------------------------------------===//

PartValueAttr PartValueAttr::ofParameter(MLIRContext *context,
                                         int64_t parameter) {
  return get(context, parameter, PartLifetime::Own, /*wide=*/false,
             /*offset=*/-1);
}

PartValueAttr PartValueAttr::ofLifetime(MLIRContext *context,
                                        PartLifetime lifetime) {
  return get(context, /*parameter=*/-1, lifetime, /*wide=*/false,
             /*offset=*/-1);
}

PartValueAttr PartValueAttr::ofGradient(MLIRContext *context) {
  return get(context, /*parameter=*/-1, PartLifetime::Own, /*wide=*/true,
             /*offset=*/-1);
}

PartValueAttr PartValueAttr::in(DictionaryAttr attributes) {
  return attributes ? attributes.getAs<PartValueAttr>(attrName)
                    : PartValueAttr();
}

PartValueAttr PartValueAttr::placed(MLIRContext *context,
                                    DictionaryAttr attributes, int64_t offset) {
  PartValueAttr is = in(attributes);
  return get(context, /*parameter=*/-1,
             is ? is.getLifetime() : PartLifetime::Own, is && is.getWide(),
             offset);
}

bool PartValueAttr::isWide(DictionaryAttr attributes) {
  PartValueAttr is = in(attributes);
  return is && is.getWide();
}

PartLifetime PartValueAttr::lifetimeOf(DictionaryAttr attributes) {
  PartValueAttr is = in(attributes);
  return is ? is.getLifetime() : PartLifetime::Own;
}
