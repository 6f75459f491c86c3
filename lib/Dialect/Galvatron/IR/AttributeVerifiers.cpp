//===- AttributeVerifiers.cpp - Checks of attributes ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The numbers in the comments are those of the constraints in
// GalvatronAttrs.td.
//
//===----------------------------------------------------------------------===//

#include "Numbers.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Strategy/Plan.h"

#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace mlir::galvatron;

using EmitError = llvm::function_ref<InFlightDiagnostic()>;

LogicalResult StrategyAttr::verify(EmitError emitError,
                                   ArrayRef<StrategyLevel> levels,
                                   bool checkpoint, int64_t point, bool, bool) {
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
  // (C4)
  if (point < 0 || point > ::galvatron::Strategy::kMostPoints ||
      (point > 0 && checkpoint))
    return emitError() << "expected a point from 1 to "
                       << ::galvatron::Strategy::kMostPoints << ", found "
                       << point;
  return success();
}

LogicalResult KeptAttr::verify(EmitError emitError, StringRef,
                               ArrayAttr values) {
  std::vector<::galvatron::KeptValue> parsed;
  for (Attribute entry : values) {
    auto text = dyn_cast<StringAttr>(entry);
    // (C1)
    if (!text)
      return emitError() << "expected kept values as strings, found " << entry;
    auto value = ::galvatron::KeptValue::parse(text.getValue());
    if (!value)
      return emitError() << llvm::toString(value.takeError());
    parsed.push_back(*value);
  }
  // (C2)
  if (llvm::Error error = ::galvatron::checkAscending(parsed))
    return emitError() << llvm::toString(std::move(error));
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
                               int64_t forwardMicroBatches, ArrayAttr sums) {
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
  // (C10)
  if (sums) {
    if (static_cast<int64_t>(sums.size()) != pipelineDegree ||
        !llvm::all_of(sums, llvm::IsaPred<StringAttr>))
      return emitError() << "expected 'sums' of a plan to have a name for each "
                            "of "
                         << pipelineDegree << " stages, found " << sums;
    bool isChosen = false;
    for (auto name : sums.getAsRange<StringAttr>()) {
      auto ofStage = ::galvatron::parseSumTiming(name.getValue());
      if (!ofStage)
        return emitError() << "'sums' of a plan: "
                           << llvm::toString(ofStage.takeError());
      isChosen |= *ofStage != ::galvatron::SumTiming::ByRule;
    }
    if (!isChosen)
      return emitError() << "expected no 'sums' of a plan where all stages are "
                            "'by-rule', found "
                         << sums;
  }
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
      return emitError()
             << "expected a backward pack in 'packs' of a plan, found none";
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

LogicalResult AdaptersAttr::verify(EmitError emitError, int64_t rank,
                                   FloatAttr alpha, bool, ArrayAttr modules,
                                   DenseI64ArrayAttr ranks,
                                   DenseF64ArrayAttr alphas) {
  // (C1)
  if (rank < 1 || !alpha || !alpha.getValue().isFinite())
    return emitError() << "expected adapters of a positive rank and a finite "
                          "'alpha', found rank "
                       << rank << " and " << alpha;
  // (C2)
  auto isName = [](Attribute entry) {
    auto name = dyn_cast<StringAttr>(entry);
    return name && !name.empty();
  };
  if (modules.empty() || !llvm::all_of(modules, isName))
    return emitError() << "expected the names of modules with adapters, found "
                       << modules;
  // (C3)
  if ((ranks && ranks.size() != int64_t(modules.size())) ||
      (alphas && alphas.size() != int64_t(modules.size())))
    return emitError() << "expected ranks and alphas of the " << modules.size()
                       << " modules, found " << ranks << " and " << alphas;
  if ((ranks && !llvm::all_of(ranks.asArrayRef(),
                              [](int64_t each) { return each > 0; })) ||
      (alphas && !llvm::all_of(alphas.asArrayRef(), [](double each) {
         return std::isfinite(each);
       })))
    return emitError() << "expected positive ranks and finite alphas, found "
                       << ranks << " and " << alphas;
  return success();
}

LogicalResult TrainingAttr::verify(EmitError emitError, ::galvatron::Optimizer,
                                   StringRef dtype, bool clip, bool, bool,
                                   bool clipDelayed, FloatAttr labelSmoothing,
                                   FloatAttr zLoss) {
  // (C1) is the parser's. (C2)
  if (!::galvatron::isPlannedDtype(dtype))
    return emitError() << "expected 'dtype' to be "
                       << ::galvatron::plannedDtypeList() << ", found '"
                       << dtype << "'";
  // (C3)
  if (clipDelayed && !clip)
    return emitError() << "expected 'clip_delayed' with 'clip', found it "
                          "without";
  // (C4)
  ::galvatron::TrainingOptions loss;
  for (auto [attribute, value] :
       {std::pair(labelSmoothing, &loss.labelSmoothing),
        std::pair(zLoss, &loss.zLoss)}) {
    if (!attribute)
      continue;
    *value = attribute.getValueAsDouble();
    if (*value == 0)
      return emitError()
             << "expected 'label_smoothing' and 'z_loss' other than "
                "0, found 0";
  }
  if (std::string wrong = loss.wrongLoss(); !wrong.empty())
    return emitError() << wrong;
  return success();
}

LogicalResult PartitionAttr::verify(EmitError emitError, Direction,
                                    ArrayRef<StrategyLevel> axes, int64_t sdp,
                                    int64_t zdp, bool, DenseI64ArrayAttr) {
  // (C1)
  for (int64_t degree : {sdp, zdp})
    if (degree < 1)
      return emitError() << "expected degrees of a partition of at least 1, "
                            "found "
                         << degree;
  for (auto [index, axis] : llvm::enumerate(axes)) {
    if (axis.degree < 2)
      return emitError() << "expected a degree of at least 2 of axis '"
                         << axis.paradigm.name() << "', found " << axis.degree;
    // (C2)
    if (!axis.paradigm->hasAxis())
      return emitError() << "expected paradigms that work inside functions as "
                            "axes, found '"
                         << axis.paradigm.name() << "'";
    for (const StrategyLevel &before : axes.take_front(index))
      if (before.paradigm == axis.paradigm)
        return emitError() << "expected each axis once, found '"
                           << axis.paradigm.name() << "' twice";
  }
  return success();
}

LogicalResult StateAttr::verify(EmitError emitError, ArrayRef<AxisState> axes) {
  // (C1)
  if (axes.empty())
    return emitError() << "expected a state on at least one axis, found none";
  return success();
}

LogicalResult ShardingAttr::verify(EmitError emitError,
                                   ArrayRef<StateAttr> results,
                                   ArrayRef<int64_t> factors,
                                   ArrayRef<OperandState> operands) {
  // (C1)
  std::optional<size_t> axes;
  auto agrees = [&](size_t count) {
    return axes.value_or(count) == count && (axes = count, true);
  };
  bool sameAxes = llvm::all_of(results,
                               [&](StateAttr state) {
                                 return agrees(state.getAxes().size());
                               }) &&
                  (factors.empty() || agrees(factors.size())) &&
                  llvm::all_of(operands, [&](const OperandState &use) {
                    return agrees(use.getState().getAxes().size());
                  });
  if (!sameAxes)
    return emitError() << "expected states and factors of a sharding to speak "
                          "of as many axes, "
                       << *axes;
  // (C2)
  for (int64_t factor : factors)
    if (factor < -1)
      return emitError() << "expected a factor of an operation, or -1, found "
                         << factor;
  // (C3)
  int64_t last = -1;
  for (const OperandState &use : operands) {
    if (use.operand <= last)
      return emitError() << "expected ascending numbers of operands, found "
                         << use.operand << " behind " << last;
    last = use.operand;
  }
  return success();
}

LogicalResult SliceAttr::verify(EmitError emitError, DenseI64ArrayAttr shape,
                                StateAttr state) {
  // (C1)
  if (!state)
    return success();
  for (AxisState axis : state.getAxes())
    if (axis.isUnreduced() || (axis.isRows() && shape) ||
        (axis.isSplit() && shape && axis.dim() >= shape.size())) {
      std::string found;
      llvm::raw_string_ostream stream(found);
      printState(stream, axis);
      return emitError() << "expected a slice to be replicated or split in a "
                            "dimension of its global shape, found '"
                         << found << "'";
    }
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
    return emitError()
           << "expected 'forward_ms', or 'forward_flops' and "
              "'forward_moved_bytes', in the profile of a layer, found neither";
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

LogicalResult PartAttr::verify(EmitError emitError, StringAttr of,
                               int64_t first, int64_t count, int64_t stride) {
  // (C1)
  if (of.empty())
    return emitError() << "expected the name of a tensor, found none";
  // (C2)
  if (first < 0 || count <= 0 || count > stride || first > stride - count)
    return emitError() << "expected at least one row inside the stride of "
                       << stride << ", found " << count << " from " << first
                       << " on";
  return success();
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
  if (group < 0 || group > 3)
    return emitError() << "expected a group from 0 to 3 for tensor "
                       << parameter << ", found " << group;
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
  if ((groups.size() != 2 && groups.size() != 4) ||
      !llvm::all_of(groups, llvm::IsaPred<FlatGroupAttr>))
    return emitError() << "expected 2 groups of parameters, or 4 if some are "
                          "not trained, found "
                       << groups;
  for (Attribute entry : tensors) {
    auto tensor = dyn_cast<FlatTensorAttr>(entry);
    if (!tensor)
      return emitError() << "expected tensors to be #galvatron.flat_tensor, "
                            "found "
                         << entry;
    int64_t end = tensor.getOffset() + tensor.getElements();
    if (tensor.getGroup() >= int64_t(groups.size()))
      return emitError() << "expected tensor " << tensor.getParameter()
                         << " to be in one of " << groups.size()
                         << " groups, found it in group " << tensor.getGroup();
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
