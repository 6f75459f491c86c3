//===- Verifiers.cpp - Checks of attributes and operations ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The numbers in the comments are those of the constraints in GalvatronAttrs.td
// and GalvatronOps.td.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cluster/Measured.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Strategy/Plan.h"
#include "galvatron/Support/Units.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::galvatron;

using EmitError = llvm::function_ref<InFlightDiagnostic()>;

namespace {

/// A finite f64 number; optionally positive.
bool isNumber(Attribute attribute, bool positive) {
  auto number = dyn_cast_or_null<FloatAttr>(attribute);
  if (!number || !number.getType().isF64())
    return false;
  double value = number.getValueAsDouble();
  return std::isfinite(value) && (positive ? value > 0 : value >= 0);
}

} // namespace

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

LogicalResult StrategyAttr::verify(EmitError emitError,
                                   ArrayRef<StrategyLevel> levels, bool) {
  llvm::SmallSet<::galvatron::Paradigm, 4> seen;
  for (const StrategyLevel &level : levels) {
    // (C1)
    if (!seen.insert(level.paradigm).second)
      return emitError() << "expected every paradigm at most once in a "
                            "strategy, found two levels of '"
                         << level.paradigm.name() << "'";
    // (C2)
    if (level.degree < 2)
      return emitError() << "expected a degree of at least 2 for '"
                         << level.paradigm.name() << "', found "
                         << level.degree;
  }
  // (C3)
  if (auto strategy = ::galvatron::Strategy::get(levels, false); !strategy)
    return emitError() << llvm::toString(strategy.takeError());
  return success();
}

static std::vector<::galvatron::PassTimes>
toPassTimes(DenseI64ArrayAttr numbers) {
  std::vector<::galvatron::PassTimes> times;
  for (int64_t i = 0; numbers && i + 3 < numbers.size(); i += 4)
    times.push_back(
        {numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  return times;
}

std::vector<::galvatron::PassTimes> PlanAttr::getChunkTimes() const {
  return toPassTimes(getPassTimes());
}

LogicalResult PlanAttr::verify(EmitError emitError, int64_t batch,
                               int64_t microBatches, StringRef schedule,
                               int64_t pipelineDegree, int64_t memory,
                               ArrayAttr devices, StringAttr offload,
                               DenseI64ArrayAttr passTimes, ArrayAttr packs,
                               int64_t forwardMicroBatches) {
  // (C1)
  for (auto [name, value] : {std::pair<StringRef, int64_t>{"batch", batch},
                             {"micro_batches", microBatches},
                             {"pipeline_degree", pipelineDegree}})
    if (value < 1)
      return emitError() << "expected '" << name
                         << "' of a plan to be at least 1, found " << value;
  if (memory < 0)
    return emitError() << "expected 'memory' of a plan not to be negative, "
                          "found "
                       << memory;
  // (C2)
  if (batch % microBatches)
    return emitError() << "expected 'micro_batches' to divide 'batch', found "
                       << microBatches << " and " << batch;
  // (C3)
  auto kind = ::galvatron::parseSchedule(schedule);
  if (!kind)
    return emitError() << llvm::toString(kind.takeError());
  // (C6)
  if (offload) {
    auto kept = ::galvatron::parseOffload(offload.getValue());
    if (!kept)
      return emitError() << llvm::toString(kept.takeError());
    if (*kept == ::galvatron::Offload::Off)
      return emitError() << "expected 'offload' of a plan to be 'optimizer' or "
                            "'all', found 'off', which no plan says";
  }
  // (C7)
  if (passTimes) {
    ::galvatron::ScheduleShape shape{pipelineDegree, microBatches};
    int64_t ofStages = 4 * pipelineDegree;
    if (passTimes.empty() || passTimes.size() % ofStages)
      return emitError() << "expected 'pass_times' of a plan to have four "
                            "numbers of every chunk, found "
                         << passTimes.size();
    shape.chunks = passTimes.size() / ofStages;
    shape.passTimes = toPassTimes(passTimes);
    if (llvm::Error error = (*kind)->check(shape))
      return emitError() << "'pass_times' of a plan: "
                         << llvm::toString(std::move(error));
  }
  // (C9)
  if (forwardMicroBatches < 0 || (forwardMicroBatches > 0 && !packs) ||
      (forwardMicroBatches > 0 && batch % forwardMicroBatches))
    return emitError() << "expected 'forward_micro_batches' to divide 'batch', "
                          "beside 'packs', found "
                       << forwardMicroBatches << " and " << batch;
  // (C8)
  if (packs) {
    if (packs.size() != 2 ||
        !llvm::all_of(packs, llvm::IsaPred<DenseI64ArrayAttr>))
      return emitError()
             << "expected two lists of first layers as 'packs' of a "
                "plan, found "
             << packs;
    auto kept = offload ? *::galvatron::parseOffload(offload.getValue())
                        : ::galvatron::Offload(::galvatron::Offload::Off);
    auto shape = ::galvatron::ScheduleShape::ofPacks(
        pipelineDegree, microBatches, kept,
        cast<DenseI64ArrayAttr>(packs[0]).asArrayRef().vec(),
        cast<DenseI64ArrayAttr>(packs[1]).asArrayRef().vec(),
        forwardMicroBatches);
    if (!shape.hasPacks())
      return emitError() << "expected a backward pack in 'packs' of a plan";
    if (llvm::Error error = (*kind)->check(shape))
      return emitError() << llvm::toString(std::move(error));
  }
  if (!devices)
    return success();
  // (C4)
  if (static_cast<int64_t>(devices.size()) != pipelineDegree)
    return emitError() << "expected 'devices' of a plan to have a list for "
                          "each of "
                       << pipelineDegree << " stages, found " << devices.size();
  // (C5)
  std::vector<bool> seen;
  for (Attribute list : devices) {
    auto numbers = dyn_cast<DenseI64ArrayAttr>(list);
    if (!numbers || numbers.empty())
      return emitError() << "expected a list of devices for every stage, found "
                         << list;
    seen.resize(seen.size() + numbers.size());
  }
  for (auto numbers : devices.getAsRange<DenseI64ArrayAttr>())
    for (int64_t device : numbers.asArrayRef()) {
      if (device < 0 || device >= static_cast<int64_t>(seen.size()) ||
          seen[device])
        return emitError() << "expected the devices 0 to " << seen.size() - 1
                           << " in 'devices', each once, found " << device;
      seen[device] = true;
    }
  return success();
}

LogicalResult PartValueAttr::verify(EmitError emitError, int64_t parameter,
                                    PartLifetime lifetime, bool wide,
                                    int64_t offset) {
  // (C1)
  for (int64_t number : {parameter, offset})
    if (number < -1)
      return emitError() << "expected numbers of at least -1, found " << number;
  // (C2)
  if (parameter >= 0 && (lifetime != PartLifetime::Own || wide || offset >= 0))
    return emitError()
           << "expected nothing of a kept value for the gradient of "
              "parameter "
           << parameter;
  return success();
}

LogicalResult TrainingAttr::verify(EmitError emitError, ::galvatron::Optimizer,
                                   StringRef dtype, bool clip, bool, bool,
                                   bool clipDelayed) {
  // (C1) is the parser's. (C2)
  if (!::galvatron::isPlannedDtype(dtype))
    return emitError() << "expected 'dtype' to be "
                       << ::galvatron::plannedDtypeList() << ", found '"
                       << dtype << "'";
  // (C3)
  if (clipDelayed && !clip)
    return emitError() << "expected 'clip_delayed' with 'clip', found it "
                          "without";
  return success();
}

LogicalResult PartitionAttr::verify(EmitError emitError, Direction, int64_t tp,
                                    int64_t sdp, int64_t zdp, bool,
                                    DenseI64ArrayAttr) {
  // (C1)
  for (int64_t degree : {tp, sdp, zdp})
    if (degree < 1)
      return emitError() << "expected degrees of a partition of at least 1, "
                            "found "
                         << degree;
  return success();
}

LogicalResult ShardingAttr::verify(EmitError emitError,
                                   DenseI64ArrayAttr results, int64_t factor,
                                   DenseI64ArrayAttr reduce) {
  // (C1)
  auto numbers = [](DenseI64ArrayAttr list) {
    return list ? list.asArrayRef() : ArrayRef<int64_t>();
  };
  if (factor < -1 ||
      llvm::any_of(
          numbers(results), [](int64_t dim) { return dim < -2; }) ||
      llvm::any_of(numbers(reduce), [](int64_t index) { return index < 0; }))
    return emitError() << "expected dimensions of results, -1 or -2, numbers "
                          "of operands, and a factor or -1 in a sharding";
  return success();
}

LogicalResult SliceAttr::verify(EmitError emitError, DenseI64ArrayAttr view,
                                int64_t dim) {
  // (C1)
  if (dim < -1 || (view && dim >= view.size()))
    return emitError()
           << "expected 'dim' of a slice to be -1 or a dimension of "
              "the view, found "
           << dim;
  return success();
}

/// Numbers of a layer, each with its name.
static LogicalResult
verifyCounts(EmitError emitError, StringRef what,
             ArrayRef<std::pair<StringRef, int64_t>> counts,
             ArrayRef<std::pair<StringRef, FloatAttr>> numbers) {
  for (auto [name, value] : counts)
    if (value < 0)
      return emitError() << "expected '" << name << "' of a " << what
                         << " not to be negative, found " << value;
  for (auto [name, value] : numbers)
    if (value && !isNumber(value, /*positive=*/false))
      return emitError() << "expected '" << name << "' of a " << what
                         << " to be a non-negative f64, found " << value;
  return success();
}

LogicalResult
ProfileAttr::verify(EmitError emitError, int64_t parameterBytes,
                    int64_t boundaryBytes, int64_t intermediateBytes,
                    FloatAttr forwardMs, FloatAttr backwardMs,
                    FloatAttr forwardFlops, int64_t forwardMovedBytes,
                    int64_t tpAllreduceBytes, int64_t tpReplicatedBytes) {
  // (C1)
  if (!forwardMs && (!forwardFlops || forwardMovedBytes == 0))
    return emitError() << "expected 'forward_ms', or 'forward_flops' and "
                          "'forward_moved_bytes', in the profile of a layer";
  // (C2)
  return verifyCounts(emitError, "profile",
                      {{"parameter_bytes", parameterBytes},
                       {"boundary_bytes", boundaryBytes},
                       {"intermediate_bytes", intermediateBytes},
                       {"forward_moved_bytes", forwardMovedBytes},
                       {"tp_allreduce_bytes", tpAllreduceBytes},
                       {"tp_replicated_bytes", tpReplicatedBytes}},
                      {{"forward_ms", forwardMs},
                       {"backward_ms", backwardMs},
                       {"forward_flops", forwardFlops}});
}

LogicalResult CostsAttr::verify(EmitError emitError, int64_t parameters,
                                int64_t parameterBytes, int64_t boundaryBytes,
                                int64_t intermediateBytes,
                                int64_t backwardBytes, FloatAttr forwardFlops,
                                FloatAttr backwardFlops,
                                FloatAttr forwardMovedBytes,
                                FloatAttr backwardMovedBytes) {
  // (C1)
  return verifyCounts(emitError, "layer's costs",
                      {{"parameters", parameters},
                       {"parameter_bytes", parameterBytes},
                       {"boundary_bytes", boundaryBytes},
                       {"intermediate_bytes", intermediateBytes},
                       {"backward_bytes", backwardBytes}},
                      {{"forward_flops", forwardFlops},
                       {"backward_flops", backwardFlops},
                       {"forward_moved_bytes", forwardMovedBytes},
                       {"backward_moved_bytes", backwardMovedBytes}});
}

LogicalResult FlatTensorAttr::verify(EmitError emitError,
                                     FlatSymbolRefAttr parameter, int64_t group,
                                     int64_t offset, DenseI64ArrayAttr view,
                                     DenseI64ArrayAttr localShape,
                                     int64_t tpDim) {
  // (C1)
  if (group != 0 && group != 1)
    return emitError() << "expected group 0 or 1 for tensor " << parameter
                       << ", found " << group;
  if (offset < 0)
    return emitError() << "expected the offset of tensor " << parameter
                       << " not to be negative, found " << offset;
  // (C2)
  if (view.size() != localShape.size())
    return emitError() << "expected 'view' and 'local_shape' of equal rank for "
                          "tensor "
                       << parameter << ", found " << view.size() << " and "
                       << localShape.size();
  // (C3)
  if (tpDim < -1 || tpDim >= view.size())
    return emitError() << "expected 'tp_dim' to be -1 or a dimension of the "
                          "view for tensor "
                       << parameter << ", found " << tpDim;
  return success();
}

LogicalResult FlatGroupAttr::verify(EmitError emitError, int64_t elements,
                                    int64_t shardElements) {
  // (C1)
  if (elements < 0 || shardElements < 0 || shardElements > elements)
    return emitError() << "expected a group's shard of at most its " << elements
                       << " elements, found " << shardElements;
  return success();
}

LogicalResult LayoutAttr::verifyParameters(EmitError emitError,
                                           ArrayAttr tensors,
                                           ArrayAttr groups) {
  // (C2)
  if (groups.size() != 2 || !llvm::all_of(groups, llvm::IsaPred<FlatGroupAttr>))
    return emitError() << "expected 2 groups of parameters, found " << groups;
  for (Attribute entry : tensors) {
    auto tensor = dyn_cast<FlatTensorAttr>(entry);
    if (!tensor)
      return emitError() << "expected tensors to be #galvatron.flat_tensor, "
                            "found "
                         << entry;
    int64_t end = tensor.getOffset() + tensor.getElements();
    auto group = cast<FlatGroupAttr>(groups[tensor.getGroup()]);
    if (end > group.getElements())
      return emitError() << "expected tensor " << tensor.getParameter()
                         << " to lie inside the " << group.getElements()
                         << " elements of group " << tensor.getGroup()
                         << ", found elements " << tensor.getOffset() << " to "
                         << end;
  }
  return success();
}

LogicalResult LayoutAttr::verify(EmitError emitError, int64_t samples,
                                 int64_t inputBytes, int64_t outputBytes,
                                 int64_t stashBytes,
                                 int64_t recomputeStashBytes,
                                 int64_t bytesPerUnit, ArrayAttr tensors,
                                 ArrayAttr groups, ArrayAttr data) {
  // (C1)
  if (samples < 1)
    return emitError() << "expected at least one sample in the layout of a "
                          "layer, found "
                       << samples;
  if (failed(verifyCounts(emitError, "layout",
                          {{"input_bytes", inputBytes},
                           {"output_bytes", outputBytes},
                           {"stash_bytes", stashBytes},
                           {"recompute_stash_bytes", recomputeStashBytes},
                           {"bytes_per_unit", bytesPerUnit}},
                          {})))
    return failure();
  if (failed(verifyParameters(emitError, tensors, groups)))
    return failure();
  // (C3)
  if (data && !llvm::all_of(data, llvm::IsaPred<StringAttr>))
    return emitError() << "expected names of data in the layout of a layer, "
                          "found "
                       << data;
  return success();
}

LogicalResult LinkAttr::verify(EmitError emitError, FloatAttr bandwidth,
                               FloatAttr latency) {
  // (C1)
  if (!isNumber(bandwidth, /*positive=*/true))
    return emitError()
           << "expected 'bandwidth' of a link to be a positive f64, found "
           << bandwidth;
  if (!isNumber(latency, /*positive=*/false))
    return emitError()
           << "expected 'latency' of a link to be a non-negative f64, found "
           << latency;
  return success();
}

/// Positive f64 numbers, two by two.
static bool arePairs(ArrayAttr numbers) {
  return numbers.size() % 2 == 0 && llvm::all_of(numbers, [](Attribute entry) {
           return isNumber(entry, /*positive=*/true);
         });
}

LogicalResult
DeviceTypeAttr::verify(EmitError emitError, StringRef name, StringRef backend,
                       int64_t memory, DictionaryAttr flops,
                       FloatAttr memoryBandwidth, FloatAttr overlapSlowdown,
                       FloatAttr kernelOverhead, int64_t reservedMemory,
                       ArrayAttr efficiency, ArrayAttr attentionEfficiency,
                       FloatAttr optimizerBandwidth, FloatAttr hostOverhead,
                       FloatAttr hostBandwidth, FloatAttr hostMemoryBandwidth) {
  auto error = [&]() {
    return emitError() << "device type '" << name << "': ";
  };
  // (C1)
  if (memory < 1)
    return error() << "expected 'memory' to be positive, found " << memory;
  // (C2)
  if (backend != "cpu" && backend != "cuda")
    return error() << "expected 'backend' to be 'cpu' or 'cuda', found '"
                   << backend << "'";
  // (C3)
  if (flops.empty())
    return error() << "expected 'flops' for at least one element type";
  for (NamedAttribute entry : flops)
    if (!isNumber(entry.getValue(), /*positive=*/true))
      return error() << "expected 'flops' of '" << entry.getName().getValue()
                     << "' to be a positive f64, found " << entry.getValue();
  // (C4)
  if (!isNumber(memoryBandwidth, /*positive=*/true))
    return error() << "expected 'memory_bandwidth' to be a positive f64, found "
                   << memoryBandwidth;
  if (!isNumber(overlapSlowdown, /*positive=*/true) ||
      overlapSlowdown.getValueAsDouble() < 1.0)
    return error()
           << "expected 'overlap_slowdown' to be an f64 of at least 1, found "
           << overlapSlowdown;
  if (!isNumber(kernelOverhead, /*positive=*/false))
    return error()
           << "expected 'kernel_overhead' to be a non-negative f64, found "
           << kernelOverhead;
  // (C5)
  for (ArrayAttr curve : {efficiency, attentionEfficiency})
    if (curve && !arePairs(curve))
      return error() << "expected an efficiency to be pairs of a size and a "
                        "fraction, found "
                     << curve;
  // (C6)
  if (optimizerBandwidth && !isNumber(optimizerBandwidth, /*positive=*/false))
    return error()
           << "expected 'optimizer_bandwidth' to be a non-negative f64, found "
           << optimizerBandwidth;
  for (auto [key, value] : {std::pair("host_overhead", hostOverhead),
                            {"host_bandwidth", hostBandwidth},
                            {"host_memory_bandwidth", hostMemoryBandwidth}})
    if (value && !isNumber(value, /*positive=*/false))
      return error() << "expected '" << key
                     << "' to be a non-negative f64, found " << value;
  return success();
}

LogicalResult NodeAttr::verify(EmitError emitError, int64_t count, StringRef,
                               int64_t devices, LinkAttr, LinkAttr, int64_t) {
  // (C1)
  if (count < 1 || devices < 1)
    return emitError() << "expected 'count' and 'devices' of a node to be at "
                          "least 1, found "
                       << count << " and " << devices;
  return success();
}

LogicalResult CollectiveAttr::verify(EmitError emitError, StringRef kind,
                                     int64_t, bool, int64_t, int64_t,
                                     ArrayAttr times) {
  // (C1)
  if (!::galvatron::parseCollective(kind))
    return emitError() << "expected 'all-reduce', 'all-gather', "
                          "'reduce-scatter' or 'send', found '"
                       << kind << "'";
  // (C2)
  if (times.empty() || !arePairs(times))
    return emitError() << "expected 'times' to be pairs of bytes and seconds, "
                          "found "
                       << times;
  return success();
}

LogicalResult ClusterAttr::verify(EmitError emitError, StringRef name,
                                  ArrayAttr deviceTypes, ArrayAttr nodes,
                                  LinkAttr network, ArrayAttr matrix,
                                  ArrayAttr collectives) {
  auto error = [&]() { return emitError() << "cluster '" << name << "': "; };
  // (C1)
  llvm::StringSet<> names;
  if (deviceTypes.empty() || nodes.empty())
    return error() << "expected at least one device type and one node";
  for (Attribute attribute : deviceTypes) {
    auto type = dyn_cast<DeviceTypeAttr>(attribute);
    if (!type)
      return error() << "expected #galvatron.device_type, found " << attribute;
    if (!names.insert(type.getName()).second)
      return error() << "found two device types '" << type.getName() << "'";
  }
  int64_t nodeCount = 0, deviceCount = 0;
  bool allHaveNetwork = true;
  for (Attribute attribute : nodes) {
    auto node = dyn_cast<NodeAttr>(attribute);
    if (!node)
      return error() << "expected #galvatron.node, found " << attribute;
    // (C2)
    if (!names.contains(node.getDeviceType()))
      return error() << "a node has the unknown device type '"
                     << node.getDeviceType() << "'";
    // (C3)
    if (node.getDevices() > 1 && !node.getLink())
      return error() << "expected a link in a node of " << node.getDevices()
                     << " devices";
    allHaveNetwork &= bool(node.getNetwork());
    nodeCount += node.getCount();
    deviceCount += node.getCount() * node.getDevices();
  }
  // (C4)
  if (nodeCount > 1 && !network && !allHaveNetwork)
    return error() << "expected a network between " << nodeCount << " nodes";
  // (C6)
  if (collectives)
    for (Attribute table : collectives)
      if (!isa<CollectiveAttr>(table))
        return error() << "expected #galvatron.collective, found " << table;
  // (C5)
  if (!matrix)
    return success();
  bool square = static_cast<int64_t>(matrix.size()) == deviceCount;
  for (Attribute row : matrix) {
    auto numbers = dyn_cast<DenseF64ArrayAttr>(row);
    square &= numbers && static_cast<int64_t>(numbers.size()) == deviceCount;
  }
  if (!square)
    return error() << "expected 'bandwidth_matrix' to have " << deviceCount
                   << " rows of " << deviceCount << " f64 numbers";
  return success();
}

//===----------------------------------------------------------------------===//
// ParameterOp
//===----------------------------------------------------------------------===//

LogicalResult ParameterOp::verify() {
  // (C1)
  auto tensor = dyn_cast<RankedTensorType>(getType());
  if (!tensor || !tensor.hasStaticShape() ||
      llvm::is_contained(tensor.getShape(), 0) ||
      !tensor.getElementType().isIntOrFloat())
    return emitOpError() << "expected a tensor type of static shape with at "
                            "least one element, found "
                         << getType();
  int64_t bytes = (tensor.getElementTypeBitWidth() + 7) / 8;
  for (int64_t dim : tensor.getShape())
    bytes = ::galvatron::multiplyBytes(bytes, dim);
  if (bytes > ::galvatron::kMostLayerBytes)
    return emitOpError() << "expected parameter '" << getSymName()
                         << "' to take at most " << ::galvatron::kMostLayerBytes
                         << " bytes, found " << getType();
  // (C2)
  StringRef init = getInit();
  if (init != "normal" && init != "zeros" && init != "ones")
    return emitOpError()
           << "expected 'init' to be 'normal', 'zeros' or 'ones', found '"
           << init << "'";
  // (C3)
  bool normal = init == "normal";
  if (normal && !getStdAttr())
    return emitOpError("expected 'std' beside the init 'normal'");
  if (!normal && getStdAttr())
    return emitOpError() << "expected no 'std' beside the init '" << init
                         << "'";
  if (normal && !isNumber(getStdAttr(), /*positive=*/true))
    return emitOpError() << "expected 'std' to be positive, found "
                         << getStdAttr();
  return success();
}

//===----------------------------------------------------------------------===//
// ModelOp
//===----------------------------------------------------------------------===//

LogicalResult ModelOp::verify() {
  // (C7)
  if (std::optional<StringRef> config = getConfig()) {
    auto json = llvm::json::parse(*config);
    if (!json)
      return emitOpError() << "expected 'config' to be the text of a JSON "
                              "object: "
                           << llvm::toString(json.takeError());
    if (!json->getAsObject())
      return emitOpError()
             << "expected 'config' to be the text of a JSON object, found "
                "another value";
  }
  return success();
}

LogicalResult ModelOp::verifyRegions() {
  // (C1)
  for (BlockArgument argument : getBlock().getArguments()) {
    auto tensor = dyn_cast<RankedTensorType>(argument.getType());
    if (!tensor || tensor.getRank() == 0 || !tensor.isDynamicDim(0) ||
        tensor.getNumDynamicDims() != 1)
      return emitOpError() << "expected argument " << argument.getArgNumber()
                           << " to be a tensor whose first dimension alone is "
                              "dynamic, found "
                           << argument.getType();
  }
  // (C2)
  SmallVector<DataAttr> data = getDeclaredData();
  if (getDataAttr() && data.size() != getBlock().getNumArguments())
    return emitOpError() << "expected the data of "
                         << getBlock().getNumArguments() << " arguments, found "
                         << data.size();
  llvm::StringSet<> names;
  for (auto [datum, argument] : llvm::zip(data, getBlock().getArguments())) {
    if (datum.getType() != argument.getType())
      return emitOpError() << "expected data '" << datum.getName()
                           << "' to have the type of its argument, "
                           << argument.getType() << ", found "
                           << datum.getType();
    if (!names.insert(datum.getName()).second)
      return emitOpError() << "expected arguments of different names, found "
                              "two called '"
                           << datum.getName() << "'";
  }
  // (C3)
  if (getBlock().empty() || !isa<OutputOp>(getBlock().back()))
    return emitOpError("expected the body to end with 'galvatron.output'");
  for (Operation &op : getBlock())
    if (!isa<LayerOp, StageOp, TransferOp, ReshardOp, OutputOp>(op)) {
      auto diagnostic = emitOpError()
                        << "expected only layers, stages, transfers and "
                           "reshards in a model, found '"
                        << op.getName() << "'";
      diagnostic.attachNote(op.getLoc()) << "it stands here";
      return diagnostic;
    }

  llvm::StringMap<LayerOp> byName;
  SmallVector<LayerOp, 8> layers = getLayers();
  int64_t lastStage = 0;
  for (auto [index, layer] : llvm::enumerate(layers)) {
    // (C4)
    auto [position, inserted] = byName.try_emplace(layer.getLayerName(), layer);
    if (!inserted) {
      auto diagnostic = layer.emitOpError()
                        << "has the name '" << layer.getLayerName()
                        << "' of another layer";
      diagnostic.attachNote(position->second.getLoc()) << "which stands here";
      return diagnostic;
    }
    // (C6)
    if (static_cast<bool>(layer.getStageAttr()) !=
        static_cast<bool>(layers.front().getStageAttr()))
      return layer.emitOpError()
             << "expected either every layer to have a stage or none, but '"
             << (layer.getStageAttr() ? layers.front() : layer).getLayerName()
             << "' has none";
    // (C5)
    if (!layer.getStageAttr())
      continue;
    int64_t stage = *layer.getStage();
    if (index == 0 && stage != 0)
      return layer.emitOpError()
             << "expected the first layer in stage 0, found stage " << stage;
    if (stage < lastStage || stage > lastStage + 1)
      return layer.emitOpError()
             << "expected stage " << lastStage << " or " << lastStage + 1
             << " after a layer of stage " << lastStage << ", found " << stage;
    lastStage = stage;
  }

  llvm::DenseMap<int64_t, StageOp> owner;
  int64_t next = 0;
  for (StageOp stage : getStages()) {
    // (C5)
    if (static_cast<int64_t>(stage.getIndex()) != next)
      return stage.emitOpError() << "expected stage " << next << ", found "
                                 << static_cast<int64_t>(stage.getIndex());
    ++next;
    // (C8)
    for (int64_t device : stage.getDevices()) {
      auto [position, inserted] = owner.try_emplace(device, stage);
      // Stages with the same devices are chunks of one.
      if (inserted || position->second.getDevices() == stage.getDevices())
        continue;
      auto diagnostic = stage.emitOpError()
                        << "uses device " << device << " of stage "
                        << static_cast<int64_t>(position->second.getIndex());
      diagnostic.attachNote(position->second.getLoc())
          << "the other stage is here";
      return diagnostic;
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// LayerOp
//===----------------------------------------------------------------------===//

LogicalResult LayerOp::verify() {
  // (C1)
  bool body = getCalleeAttr() || getForwardAttr();
  if (body == isOpaque())
    return emitOpError() << "expected layer '" << getLayerName()
                         << "' to have either a body or a profile, found "
                         << (body ? "both" : "neither");
  // (C6)
  if (getStageAttr() && getStageAttr().getInt() < 0)
    return emitOpError() << "expected 'stage' not to be negative, found "
                         << getStageAttr().getInt();
  // (C7)
  if (getRecomputeAttr() &&
      (!getStrategyAttr() || !getStrategyAttr().getCheckpoint()))
    return emitOpError() << "expected a strategy with ckpt beside 'recompute'";
  // (C9)
  if (getWeightAttr() && (!getBackwardAttr() || getRecomputeAttr()))
    return emitOpError() << "expected 'weight' beside 'backward' and without "
                            "'recompute'";
  // (C10)
  if ((getPackForwardAttr() && !getForwardAttr()) ||
      (getPackLayoutAttr() && (!getPackForwardAttr() || !getLayoutAttr())))
    return emitOpError() << "expected 'pack_forward' beside 'forward', and "
                            "'pack_layout' beside both it and 'layout'";
  // (C8)
  llvm::StringSet<> names;
  for (FlatSymbolRefAttr param : getParamSymbols())
    if (!names.insert(param.getValue()).second)
      return emitOpError() << "names the parameter '" << param.getValue()
                           << "' twice";
  return success();
}

LogicalResult LayerOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto module = (*this)->getParentOfType<ModuleOp>();
  // (C2)
  auto checkFunction = [&](FlatSymbolRefAttr symbol, StringRef role,
                           Operation *&function) -> LogicalResult {
    if (!symbol)
      return success();
    function = symbolTable.lookupSymbolIn(module, symbol);
    if (!function)
      return emitOpError() << "expected '" << role
                           << "' to name a function, found no '"
                           << symbol.getValue() << "'";
    if (isLayerFunction(function))
      return success();
    auto diagnostic = emitOpError()
                      << "expected '" << role << "' to name a function, but '"
                      << symbol.getValue() << "' is a '" << function->getName()
                      << "'";
    diagnostic.attachNote(function->getLoc()) << "which stands here";
    return diagnostic;
  };
  Operation *callee = nullptr, *other = nullptr;
  if (failed(checkFunction(getCalleeAttr(), "callee", callee)) ||
      failed(checkFunction(getForwardAttr(), "forward", other)) ||
      failed(checkFunction(getRecomputeAttr(), "recompute", other)) ||
      failed(checkFunction(getBackwardAttr(), "backward", other)) ||
      failed(checkFunction(getWeightAttr(), "weight", other)) ||
      failed(checkFunction(getPackForwardAttr(), "pack_forward", other)) ||
      failed(checkFunction(getUpdateAttr(), "update", other)) ||
      failed(checkFunction(getNormAttr(), "norm", other)))
    return failure();
  // (C3)
  SmallVector<ParameterOp> parameters;
  for (FlatSymbolRefAttr symbol : getParamSymbols()) {
    Operation *target = symbolTable.lookupSymbolIn(module, symbol);
    auto parameter = dyn_cast_or_null<ParameterOp>(target);
    if (!parameter) {
      auto diagnostic = emitOpError() << "expected '" << symbol.getValue()
                                      << "' to name a galvatron.parameter, ";
      if (target)
        diagnostic << "but it is a '" << target->getName() << "'";
      else
        diagnostic << "found no such symbol";
      return diagnostic;
    }
    parameters.push_back(parameter);
  }

  // (C4) A bufferized body has no operands; then there is nothing to compare.
  auto function = dyn_cast_or_null<FunctionOpInterface>(callee);
  if (!function || function->getName().getStringRef() == "grt.func")
    return success();
  ArrayRef<Type> arguments = function.getArgumentTypes();
  ArrayRef<Type> results = function.getResultTypes();
  auto mismatch = [&](InFlightDiagnostic diagnostic) -> LogicalResult {
    diagnostic.attachNote(function->getLoc())
        << "'" << getCalleeAttr().getValue() << "' is here";
    return diagnostic;
  };
  size_t expected = getInputs().size() + parameters.size();
  if (arguments.size() != expected)
    return mismatch(emitOpError()
                    << "passes " << getInputs().size() << " operands and "
                    << parameters.size() << " parameters, but '" << *getCallee()
                    << "' takes " << arguments.size() << " arguments");
  for (auto [index, input] : llvm::enumerate(getInputs()))
    if (input.getType() != arguments[index])
      return mismatch(emitOpError()
                      << "expected operand " << index << " of type "
                      << arguments[index] << ", found " << input.getType());
  if (results.size() != getNumResults())
    return mismatch(emitOpError()
                    << "has " << getNumResults() << " results, but '"
                    << *getCallee() << "' returns " << results.size());
  for (auto [index, type] : llvm::enumerate(getResultTypes()))
    if (type != results[index])
      return mismatch(emitOpError()
                      << "expected result " << index << " of type "
                      << results[index] << ", found " << type);
  // (C5)
  for (auto [index, parameter] : llvm::enumerate(parameters)) {
    auto argument =
        dyn_cast<RankedTensorType>(arguments[getInputs().size() + index]);
    RankedTensorType type = parameter.getTensorType();
    if (!argument || !argument.hasStaticShape() ||
        argument.getElementType() != type.getElementType() ||
        argument.getNumElements() != type.getNumElements())
      return mismatch(emitOpError()
                      << "passes parameter '" << parameter.getSymName()
                      << "' of type " << type << " as "
                      << arguments[getInputs().size() + index]
                      << ", expected the same element type and number of "
                         "elements");
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

LogicalResult StageOp::verifyRegions() {
  // (C1)
  llvm::SmallSet<int64_t, 16> devices;
  if (getDevices().empty())
    return emitOpError("expected at least one device");
  for (int64_t device : getDevices())
    if (device < 0 || !devices.insert(device).second)
      return emitOpError() << "expected distinct, non-negative devices, found "
                           << device << (device < 0 ? "" : " twice");
  // (C6)
  for (Operation &op : getBlock())
    if (!isa<LayerOp, ReshardOp, YieldOp>(op))
      return emitOpError()
             << "expected only layers and reshards in a stage, found '"
             << op.getName() << "'";
  // (C2)
  auto yield = cast<YieldOp>(getBlock().getTerminator());
  if (yield.getOperandTypes() != getResultTypes())
    return yield.emitOpError()
           << "expected the types of the stage's results: " << getResultTypes()
           << ", found " << yield.getOperandTypes();
  int64_t index = getIndex();
  for (LayerOp layer : getLayers()) {
    // (C3)
    if (!layer.getStageAttr() || layer.getStageAttr().getInt() != index)
      return layer.emitOpError() << "expected stage " << index << " of the "
                                 << "operation around it";
    // (C4)
    StrategyAttr strategy = layer.getStrategyAttr();
    if (strategy &&
        strategy.getDevices() != static_cast<int64_t>(getDevices().size()))
      return layer.emitOpError()
             << "has the strategy '" << strategy.getNotation() << "' for "
             << strategy.getDevices() << " devices, but its stage has "
             << getDevices().size();
  }
  // (C5)
  for (Operation &op : getBlock())
    for (Value operand : op.getOperands()) {
      if (operand.getParentBlock() == &getBlock() ||
          isa<BlockArgument>(operand))
        continue;
      auto transfer = operand.getDefiningOp<TransferOp>();
      if (!transfer || static_cast<int64_t>(transfer.getTo()) != index)
        return op.emitOpError() << "uses a value from outside of stage "
                                << index << " that was not transferred to it";
    }
  return success();
}

LogicalResult TransferOp::verify() {
  int64_t from = getFrom(), to = getTo();
  // (C1)
  if (from < 0 || to != from + 1)
    return emitOpError() << "expected a transfer to the next stage, found from "
                         << from << " to " << to;
  // (C2)
  if (auto stage = getInput().getDefiningOp<StageOp>())
    if (static_cast<int64_t>(stage.getIndex()) == from)
      return success();
  if (auto transfer = getInput().getDefiningOp<TransferOp>())
    if (static_cast<int64_t>(transfer.getTo()) == from)
      return success();
  return emitOpError() << "expected a value of stage " << from;
}

LogicalResult ReshardOp::verify() {
  // (C1)
  if (getFrom().getDevices() != getTo().getDevices())
    return emitOpError() << "expected strategies for the same devices, found '"
                         << getFrom().getNotation() << "' for "
                         << getFrom().getDevices() << " and '"
                         << getTo().getNotation() << "' for "
                         << getTo().getDevices();
  return success();
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

LogicalResult AllGatherOp::verify() {
  // (C1)
  RankedTensorType input = getInput().getType(), output = getOutput().getType();
  bool fine = input.getElementType() == output.getElementType() &&
              output.getRank() == input.getRank() + 1 &&
              output.getShape().drop_front() == input.getShape() &&
              output.getShape().front() >= 2;
  if (!fine)
    return emitOpError() << "expected " << input
                         << " behind a new dimension of at least 2, found "
                         << output;
  return success();
}

LogicalResult GatherParametersOp::verify() {
  // (C1)
  if (getAxis() != Axis::SDP)
    return emitOpError() << "expected the axis 'sdp', found '"
                         << stringifyAxis(getAxis()) << "'";
  return success();
}

LogicalResult ReduceScatterGradientsOp::verify() {
  // (C1)
  if (getAxis() != Axis::SDP)
    return emitOpError() << "expected the axis 'sdp', found '"
                         << stringifyAxis(getAxis()) << "'";
  return success();
}

bool mlir::galvatron::isLayerFunction(Operation *op) {
  StringRef name = op->getName().getStringRef();
  return name == "func.func" || name == "grt.func";
}
