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
             << "expected a paradigm " << ::galvatron::paradigmNames()
             << ", found '" << keyword << "'";
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
  return toStrategy().sampleShards();
}

std::string StrategyAttr::getNotation() const { return toStrategy().str(); }

static_assert(static_cast<int>(Paradigm::DP) ==
                      static_cast<int>(::galvatron::Paradigm::DP) &&
                  static_cast<int>(Paradigm::SDP) ==
                      static_cast<int>(::galvatron::Paradigm::SDP) &&
                  static_cast<int>(Paradigm::TP) ==
                      static_cast<int>(::galvatron::Paradigm::TP) &&
                  static_cast<int>(Paradigm::ZDP) ==
                      static_cast<int>(::galvatron::Paradigm::ZDP),
              "the dialect and the planner number paradigms alike");

StrategyAttr StrategyAttr::get(MLIRContext *context,
                               const ::galvatron::Strategy &strategy) {
  SmallVector<StrategyLevel> levels;
  for (const ::galvatron::Level &level : strategy.levels())
    levels.push_back({static_cast<Paradigm>(level.paradigm), level.degree});
  return get(context, levels, strategy.checkpoint());
}

::galvatron::Strategy StrategyAttr::toStrategy() const {
  SmallVector<::galvatron::Level> levels;
  for (const StrategyLevel &level : getLevels())
    levels.push_back(
        {static_cast<::galvatron::Paradigm>(level.paradigm), level.degree});
  // The verifier of the attribute checks what Strategy::get checks.
  return cantFail(::galvatron::Strategy::get(levels, getCheckpoint()));
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

::galvatron::ScheduleShape PlanAttr::getShape(int64_t chunks) const {
  if (!getPacks()) {
    auto shape = ::galvatron::ScheduleShape::of(
        getPipelineDegree(), getMicroBatches(), chunks, getOffloaded());
    shape.passTimes = getChunkTimes();
    return shape;
  }
  ArrayRef<int64_t> forward = cast<DenseI64ArrayAttr>(getPacks()[0]),
                    backward = cast<DenseI64ArrayAttr>(getPacks()[1]);
  return ::galvatron::ScheduleShape::ofPacks(getPipelineDegree(),
                                             getMicroBatches(), getOffloaded(),
                                             forward.vec(), backward.vec());
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
// PartitionAttr
//===----------------------------------------------------------------------===//

PartitionAttr PartitionAttr::of(Operation *function) {
  return function->getAttrOfType<PartitionAttr>(attrName);
}

PartitionAttr PartitionAttr::withDirection(Direction direction) const {
  return get(getContext(), direction, getTp(), getSdp(), getZdp(),
             getGathered(), getBorrowed());
}
