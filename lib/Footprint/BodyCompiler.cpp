//===- BodyCompiler.cpp - What the passes of a body take ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BodyCompiler.h"
#include "DiagnosticText.h"
#include "LeastTransients.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Conversion/NNToGRT/LayerSteps.h"
#include "galvatron/Dialect/GRT/IR/StreamOrder.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/ModelFlops.h"
#include "galvatron/Dialect/Galvatron/Transforms/SplitBackward.h"

#include "mlir/IR/OperationSupport.h"

using namespace mlir;
using namespace mlir::galvatron;
using ::galvatron::Strategy;

void FunctionWork::addComputation(const FunctionWork &other) {
  for (const ::galvatron::ProductWork &product : other.products)
    addProduct(product.flops, product.size, product.attention);
  movedBytes += other.movedBytes;
  kernels += other.kernels;
}

void FunctionWork::addProduct(double productFlops, double size,
                              bool attention) {
  flops += productFlops;
  for (::galvatron::ProductWork &known : products)
    if (known.size == size && known.attention == attention) {
      known.flops += productFlops;
      return;
    }
  products.push_back({productFlops, size, attention});
}

namespace {

::galvatron::CollectiveGroup groupOf(Axis axis) {
  using Group = ::galvatron::CollectiveGroup;
  return axis == Axis::CP ? Group::Context : Group::Tensor;
}

void addCollective(FunctionWork &work, ::galvatron::Collective kind, Axis axis,
                   int64_t bytes) {
  work.collectives.push_back(
      {groupOf(axis), kind, ::galvatron::CollectiveTime::Forward, bytes});
}

/// Counts the shifts that run beside a step of attention: those of `begun`
/// whose results it does not take, as long as streams have room for them.
void addOverlapped(FunctionWork &work, ArrayRef<ShiftOp> begun,
                   nn::CostOpInterface attention, int64_t samples) {
  ::galvatron::OverlappedCollective added;
  added.calls.calls = 0;
  for (ShiftOp shift : begun)
    if (!llvm::is_contained(attention->getOperands(), shift.getOutput())) {
      // Keys and values are blocks of one size.
      ++added.calls.calls;
      added.calls.bytes += nn::countBytes(shift.getOutput().getType(), samples);
      added.calls.among = groupOf(shift.getAxis());
    }
  int64_t aside = added.calls.calls;
  for (const ::galvatron::OverlappedCollective &known : work.overlapped)
    aside += known.times * known.calls.calls;
  if (added.calls.calls == 0 || aside > grt::kMostShiftsAside)
    return;
  added.calls.kind = ::galvatron::Collective::Shift;
  added.calls.when = ::galvatron::CollectiveTime::Forward;
  if (isComputeBound(attention, samples)) {
    const double flops = attention.getFlops(samples);
    added.product = {
        flops,
        ::galvatron::productSize(flops, attention.getProductElements(samples)),
        /*attention=*/true};
  } else {
    added.movedBytes = attention.getMovedBytes(samples);
  }
  for (::galvatron::OverlappedCollective &known : work.overlapped)
    if (known.calls == added.calls && known.movedBytes == added.movedBytes &&
        known.product.flops == added.product.flops &&
        known.product.size == added.product.size) {
      ++known.times;
      return;
    }
  work.overlapped.push_back(added);
}

FunctionWork measureFunction(func::FuncOp function, int64_t samples) {
  FunctionWork work;
  llvm::SmallPtrSet<Operation *, 8> joined;
  SmallVector<ShiftOp, 4> begun;
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (auto shift = dyn_cast<ShiftOp>(op)) {
      begun.push_back(shift);
    } else if (auto cost = dyn_cast<nn::CostOpInterface>(op);
               cost && cost.isAttention()) {
      addOverlapped(work, begun, cost, samples);
      begun.clear();
    }
    if (isa<AllReduceOp>(op)) {
      grt::JoinedSums run = grt::JoinedSums::from(&op);
      if (!run.empty())
        addCollective(work, ::galvatron::Collective::AllReduce,
                      run.sums.front().getAxis(), run.bytes());
      joined.insert(run.sums.begin(), run.sums.end());
      if (joined.contains(&op))
        continue;
    }
    work.add(op, samples);
  }
  return work;
}

/// A strategy of these axes alone: other levels change nothing of how a
/// function is cut.
Strategy strategyOf(ArrayRef<::galvatron::Level> axes) {
  return cantFail(Strategy::get(axes, /*checkpoint=*/false));
}

void setShards(func::FuncOp function, int64_t sdp, int64_t zdp,
               ArrayRef<int64_t> borrowed) {
  function->setAttr(PartitionAttr::attrName,
                    PartitionAttr::of(function).withShards(sdp, zdp, borrowed));
}

/// A copy behind the function with as many samples.
func::FuncOp cloneWith(func::FuncOp function, int64_t samples) {
  func::FuncOp copy = function.clone();
  function->getBlock()->getOperations().insertAfter(function->getIterator(),
                                                    copy);
  specializeSamples(copy, samples);
  return copy;
}

} // namespace

void FunctionWork::add(Operation &op, int64_t samples) {
  using ::galvatron::Collective;
  auto addBuffer = [&](Collective kind, Axis axis, Value buffer) {
    addCollective(*this, kind, axis, nn::countBytes(buffer.getType(), samples));
  };
  // Balanced blocks are put in order, or out of it, by copies.
  auto addDealing = [&](Type block, Value whole) {
    nn::RowsAttr rows = nn::RowsAttr::of(block);
    if (!rows.getBalanced())
      return;
    movedBytes += 2.0 * double(nn::countBytes(whole.getType(), samples));
    kernels += 1 + rows.getSharers();
  };
  if (auto cost = dyn_cast<nn::CostOpInterface>(op)) {
    double productFlops = cost.getFlops(samples);
    if (isComputeBound(cost, samples))
      addProduct(productFlops,
                 ::galvatron::productSize(productFlops,
                                          cost.getProductElements(samples)),
                 cost.isAttention());
    else
      movedBytes += cost.getMovedBytes(samples);
    ++kernels;
  } else if (auto reduce = dyn_cast<AllReduceOp>(op)) {
    addBuffer(Collective::AllReduce, reduce.getAxis(), reduce.getOutput());
  } else if (auto gather = dyn_cast<AllGatherOp>(op)) {
    addBuffer(Collective::AllGather, gather.getAxis(), gather.getOutput());
  } else if (auto gather = dyn_cast<GatherRowsOp>(op)) {
    addBuffer(Collective::AllGather, gather.getAxis(), gather.getOutput());
    addDealing(gather.getInput().getType(), gather.getOutput());
  } else if (auto scatter = dyn_cast<ReduceScatterRowsOp>(op)) {
    addBuffer(Collective::ReduceScatter, scatter.getAxis(), scatter.getInput());
    addDealing(scatter.getOutput().getType(), scatter.getInput());
  } else if (auto exchange = dyn_cast<AllToAllOp>(op)) {
    // Parts are put in order, or out of it, by copies.
    const int64_t bytes = nn::countBytes(exchange.getPartType(), samples);
    addCollective(*this, Collective::AllToAll, exchange.getAxis(), bytes);
    movedBytes += 2.0 * double(bytes);
    kernels += nn::RowsAttr::of(exchange.getBlockType()).getSharers();
  } else if (auto shift = dyn_cast<ShiftOp>(op)) {
    addBuffer(Collective::Shift, shift.getAxis(), shift.getOutput());
  } else if (auto term = dyn_cast<FirstTermOp>(op)) {
    movedBytes +=
        2.0 * double(nn::countBytes(term.getOutput().getType(), samples));
    ++kernels;
  } else if (auto slice = dyn_cast<SliceRowsOp>(op)) {
    movedBytes +=
        2.0 * double(nn::countBytes(slice.getOutput().getType(), samples));
    ++kernels;
  }
}

BodyCompiler::BodyCompiler(nn::DerivedFunctions functions, StringRef name,
                           std::string bodyHash,
                           const grt::KernelTarget &target)
    : forward(functions.forward), backward(functions.backward),
      name(name.str()), bodyHash(std::move(bodyHash)), target(target),
      gathersOutside(::galvatron::backendTraits(target.backend).streams) {
  variants.push_back({forward, nullptr, backward});
  func::FuncOp recompute =
      nn::buildRecompute(forward, (name + ".recompute").str());
  variants.push_back(
      {recompute ? nn::buildForwardOnly(forward, (name + ".only").str())
                 : forward,
       recompute, backward});
}

llvm::Expected<BodyCompiler::Variant>
BodyCompiler::variantOf(const ::galvatron::KeptValues &kept) {
  auto makeError = [](const Twine &message) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
  };
  if (kept.body != bodyHash)
    return makeError("expected kept values of the body '" + name + "', " +
                     bodyHash + ", found those of " + kept.body +
                     ": the body has changed since they were chosen");
  if (auto known = llvm::find(sets, kept); known != sets.end())
    return Variant(known - sets.begin()) + kKeepsNothing + 1;
  SmallVector<nn::BodyValue> values;
  for (const ::galvatron::KeptValue &value : kept.values)
    values.push_back({unsigned(value.operation), unsigned(value.result)});
  DiagnosticText diagnostics(forward.getContext());
  FailureOr<nn::DerivedFunctions> derived = nn::buildKept(
      {forward, backward}, values, (name + ".kept" + Twine(sets.size())).str());
  if (failed(derived))
    return makeError(diagnostics.text);
  variants.push_back({derived->forward, nullptr, derived->backward});
  sets.push_back(kept);
  return variants.size() - 1;
}

const BodyCompiler::Local &BodyCompiler::localOf(const LocalKey &key) {
  auto [it, fresh] = locals.try_emplace(key);
  if (fresh)
    it->second = makeLocal(key);
  return it->second;
}

BodyCompiler::Local BodyCompiler::makeLocal(const LocalKey &key) {
  const auto &[variant, splits, sharded, axes] = key;
  DiagnosticText diagnostics(forward.getContext());
  Local local;
  const LayerFunctions &whole = variants[variant];
  auto forEachFunction = [&](auto run) {
    for (func::FuncOp function :
         {local.forward, local.recompute, local.backward, local.weight})
      if (function && failed(run(function)))
        return failure();
    return success();
  };
  auto run = [&](grt::LayerStep step) -> LogicalResult {
    switch (step) {
    case grt::LayerStep::Partition: {
      FailureOr<LayerFunctions> cut = partitionForAnySamples(
          whole, strategyOf(axes), "footprint", /*borrowed=*/{});
      if (failed(cut))
        return failure();
      local.forward = cut->forward;
      local.recompute = cut->recompute;
      local.backward = cut->backward;
      local.rowCuts = getRowCuts(*cut);
      return success();
    }
    case grt::LayerStep::Collectives:
      return forEachFunction(insertCollectives);
    case grt::LayerStep::Fuse:
      return forEachFunction([](func::FuncOp function) {
        nn::fuseFunction(function);
        return success();
      });
    case grt::LayerStep::SplitBackward:
      if (splits) {
        setShards(local.backward, sharded ? 2 : 1, 1, {});
        local.weight = splitBackward(local.backward, "footprint.weight");
      }
      return success();
    case grt::LayerStep::FuseProducts:
      if (!::galvatron::backendTraits(target.backend).productEpilogues)
        return success();
      return forEachFunction([](func::FuncOp function) {
        nn::fuseProducts(function);
        return success();
      });
    case grt::LayerStep::Differentiate:
    case grt::LayerStep::Recompute:
    case grt::LayerStep::PlaceKept:
    case grt::LayerStep::Convert:
      break;
    }
    llvm_unreachable("a step for all axes, or for every number of samples");
  };
  for (const grt::LayerStepInfo &info :
       grt::layerSteps(grt::LayerStep::Partition, grt::LayerStep::FuseProducts))
    if (failed(run(info.step))) {
      local.refusal = diagnostics.text;
      break;
    }
  return local;
}

/// Whether the backward functions with and without checkpointing are the same.
bool BodyCompiler::backwardIsIdentical(const LocalKey &plain,
                                       const LocalKey &checkpointed) {
  auto [it, fresh] = identicalBackward.try_emplace(checkpointed);
  if (fresh) {
    func::FuncOp a = localOf(plain).backward,
                 b = localOf(checkpointed).backward;
    it->second =
        a && b && a.getArgAttrsAttr() == b.getArgAttrsAttr() &&
        a.getResAttrsAttr() == b.getResAttrsAttr() &&
        OperationEquivalence::isRegionEquivalentTo(
            &a.getBody(), &b.getBody(), OperationEquivalence::IgnoreLocations);
  }
  return it->second;
}

const std::string &BodyCompiler::whyNot(const Strategy &strategy) {
  auto [it, fresh] = notPartitionable.try_emplace(strategy.axes());
  if (fresh)
    it->second = whyNotPartitionable(forward, strategy).value_or("");
  return it->second;
}

const std::string &BodyCompiler::whyTooLarge(int64_t samples) {
  auto [it, fresh] = tooLarge.try_emplace(samples);
  if (fresh) {
    DiagnosticText diagnostics(forward.getContext());
    if (failed(nn::verifySizes(forward, samples)) ||
        failed(nn::verifySizes(backward, samples)))
      it->second = diagnostics.text;
  }
  return it->second;
}

static llvm::Error refused(const std::string &reason) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), reason);
}

llvm::Expected<const grt::FlatLayout *>
BodyCompiler::layoutOf(func::FuncOp function,
                       const ::galvatron::LayerPartition &partition,
                       ArrayRef<int64_t> borrowed) {
  std::pair key(partition, borrowed.vec());
  auto it = layouts.find(key);
  if (it == layouts.end()) {
    setShards(function, partition.parameterShards, partition.optimizerShards,
              borrowed);
    DiagnosticText diagnostics(function.getContext());
    FailureOr<grt::FlatLayout> layout = grt::getFlatLayout(function);
    if (failed(layout))
      return refused(diagnostics.text);
    it = layouts.try_emplace(std::move(key), std::move(*layout)).first;
  }
  return &it->second;
}

const BodyCompiler::CompiledPass &
BodyCompiler::compiledPass(const PassKey &key) {
  auto [it, fresh] = passes.try_emplace(key);
  if (fresh)
    it->second = compilePass(key);
  return it->second;
}

BodyCompiler::CompiledPass BodyCompiler::compilePass(const PassKey &key) {
  DiagnosticText diagnostics(forward.getContext());
  const Local &local = localOf(key.local);
  func::FuncOp whole = key.pass == Pass::Forward     ? local.forward
                       : key.pass == Pass::Recompute ? local.recompute
                                                     : local.backward;
  CompiledPass result;
  SmallVector<func::FuncOp, 2> sources = {cloneWith(whole, key.samples)};
  if (key.pass == Pass::Backward && local.weight)
    sources.push_back(cloneWith(local.weight, key.samples));
  for (func::FuncOp source : sources)
    setShards(source, key.parameterShards, key.optimizerShards, key.borrowed);
  if (sources.size() == 2 &&
      failed(grt::placeKeptValues(sources[0], sources[1]))) {
    result.refusal = diagnostics.text;
    for (func::FuncOp source : sources)
      source.erase();
    return result;
  }
  for (BlockArgument argument : sources[0].getArguments())
    if (nn::getArgRole(sources[0], argument.getArgNumber()) ==
        nn::ValueRole::Data)
      result.dataBytesPerSample.push_back(
          nn::countBytes(argument.getType(), key.samples) / key.samples);
  for (auto [source, compiled] :
       llvm::zip(sources, std::array<CompiledFunction *, 2>{&result.function,
                                                            &result.weight})) {
    compiled->work = measureFunction(source, key.samples);
    FailureOr<grt::FuncOp> converted =
        grt::convertFunction(source, target, &compiled->regions);
    source = nullptr;
    if (failed(converted) || failed(grt::allocateTransients(*converted))) {
      result.refusal = diagnostics.text;
      if (succeeded(converted))
        converted->erase();
      break;
    }
    compiled->bytes = grt::FunctionBytes::of(*converted);
    for (auto buffer : converted->getBody().getOps<grt::BufferOp>())
      result.readsParameters |=
          buffer.getRegion() == grt::MemoryRegion::Parameter &&
          !buffer->use_empty();
    converted->erase();
  }
  for (func::FuncOp source : sources)
    if (source)
      source.erase();
  return result;
}

llvm::Expected<const BodyCompiler::Local *>
BodyCompiler::localFor(const Strategy &strategy, const LocalKey &key,
                       int64_t samples) {
  if (const std::string &reason = whyNot(strategy); !reason.empty())
    return refused(reason);
  if (const std::string &reason = whyTooLarge(samples); !reason.empty())
    return refused(reason);
  const Local &local = localOf(key);
  if (!local.refusal.empty())
    return refused(local.refusal);
  for (const RowCut &cut : local.rowCuts)
    if (auto reason = cut.whyNot(samples))
      return refused(*reason);
  return &local;
}

const BodyCompiler::MeasuredLayer &
BodyCompiler::measuredLayer(const Local &local, const LocalKey &key,
                            int64_t samples) {
  auto [it, fresh] = measured.try_emplace({key, samples});
  if (!fresh)
    return it->second;
  MeasuredLayer &layer = it->second;
  layer.forward = measureFunction(local.forward, samples);
  layer.backward = measureFunction(local.backward, samples);
  layer.forwardTransient =
      leastTransientBytes(local.forward, samples, /*layout=*/nullptr);
  func::FuncOp forward = local.forward;
  Operation *terminator = forward.getBody().front().getTerminator();
  for (auto [index, value] : llvm::enumerate(terminator->getOperands()))
    if (nn::getResultRole(forward, index) == nn::ValueRole::Stash)
      layer.stashBytes +=
          grt::alignBytes(nn::countBytes(value.getType(), samples));
  return layer;
}

llvm::Expected<CompiledLayer> BodyCompiler::measure(const Strategy &strategy,
                                                    Variant variant,
                                                    ArrayRef<int64_t> borrowed,
                                                    int64_t samples) {
  assert(variant > kKeepsNothing && "others are compiled");
  llvm::Expected<CompiledLayer> plain =
      compile(strategy, kKeepsAll, borrowed, samples, /*splits=*/false);
  if (!plain)
    return plain.takeError();
  ::galvatron::LayerPartition partition = strategy.partition();
  LocalKey key = {variant, false, false, partition.axes};
  llvm::Expected<const Local *> local = localFor(strategy, key, samples);
  if (!local)
    return local.takeError();
  const MeasuredLayer &known = measuredLayer(**local, key, samples);
  PassKey pass = {key, Pass::Backward, samples};
  if (partition.parameterShards > 1) {
    pass.parameterShards = partition.parameterShards;
    pass.borrowed = borrowed.vec();
  }
  auto [transient, fresh] = leastTransients.try_emplace(pass);
  if (fresh)
    transient->second =
        leastTransientBytes((*local)->backward, samples, plain->layout);
  auto bound = [](CompiledFunction &function, const FunctionWork &work,
                  int64_t transient) {
    function.work = work;
    function.bytes.transient = transient;
    function.bytes.buffers.clear();
    function.bytes.stashBuffers.clear();
  };
  CompiledLayer layer = std::move(*plain);
  bound(layer.forward, known.forward, known.forwardTransient);
  bound(layer.backward, known.backward, transient->second);
  layer.forward.regions.stashBytes = known.stashBytes;
  layer.backward.regions.stashBytes = known.stashBytes;
  return layer;
}

llvm::Expected<CompiledLayer> BodyCompiler::compile(const Strategy &strategy,
                                                    Variant variant,
                                                    ArrayRef<int64_t> borrowed,
                                                    int64_t samples,
                                                    bool splits) {
  ::galvatron::LayerPartition partition = strategy.partition();
  bool sharded = partition.parameterShards > 1;
  if (variant == kKeepsNothing && !variants[variant].recompute)
    variant = kKeepsAll;
  bool checkpoint = variant == kKeepsNothing;
  LocalKey key = {variant, splits, splits && sharded, partition.axes};
  llvm::Expected<const Local *> found = localFor(strategy, key, samples);
  if (!found)
    return found.takeError();
  const Local &local = **found;

  // Unsharded parameters and their gradients have fixed offsets, so the degrees
  // of sharding are not in the key. So have gathered ones, if the executor
  // gathers them.
  auto passOf = [&](Pass pass) -> const CompiledPass & {
    PassKey own = {key, pass, samples};
    if (sharded && !(gathersOutside && pass != Pass::Backward)) {
      own.parameterShards = partition.parameterShards;
      own.optimizerShards = partition.optimizerShards;
      own.borrowed = borrowed.vec();
    }
    LocalKey plain = {kKeepsAll, false, false, partition.axes};
    // Backward reuses what a recomputation has gathered.
    if (pass == Pass::Backward && checkpoint && !splits &&
        (!sharded || gathersOutside) && backwardIsIdentical(plain, key))
      own.local = plain;
    return compiledPass(own);
  };
  CompiledLayer layer;
  layer.recomputes = checkpoint;
  llvm::Expected<const grt::FlatLayout *> layout =
      layoutOf(local.forward, partition, borrowed);
  if (!layout)
    return layout.takeError();
  layer.layout = *layout;
  auto take = [&](Pass pass,
                  CompiledFunction &function) -> const CompiledPass & {
    const CompiledPass &compiled = passOf(pass);
    function = compiled.function;
    if (sharded && gathersOutside && pass != Pass::Backward)
      function.bytes.gathered =
          compiled.readsParameters ? layer.layout->gatheredBytes() : 0;
    return compiled;
  };
  const CompiledPass &first = take(Pass::Forward, layer.forward);
  if (!first.refusal.empty())
    return refused(first.refusal);
  layer.dataBytesPerSample = first.dataBytesPerSample;
  if (checkpoint)
    if (const CompiledPass &again = take(Pass::Recompute, layer.recompute);
        !again.refusal.empty())
      return refused(again.refusal);
  const CompiledPass &last = take(Pass::Backward, layer.backward);
  if (!last.refusal.empty())
    return refused(last.refusal);
  layer.split = bool(localOf(key).weight);
  layer.weight = last.weight;
  return layer;
}
