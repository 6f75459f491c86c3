//===- VerifyLayers.cpp - Layers of roles against each other --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VerifyLayers.h"

#include "galvatron/Dialect/GRT/IR/KernelCalls.h"
#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Dialect/Galvatron/IR/Executable.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Strategy/ReshardPlan.h"
#include "grt/data_bounds.h"

#include <map>
#include <set>

using namespace mlir;
using namespace mlir::grt;
using ::galvatron::Strategy;
using mlir::galvatron::FlatGroupAttr;
using mlir::galvatron::FlatTensorAttr;
using mlir::galvatron::ParameterOp;

namespace {

class LayersVerifier {
public:
  explicit LayersVerifier(ReadProgram &read)
      : read(read), module(read.roles.front()->getParentOfType<ModuleOp>()),
        plan(mlir::galvatron::getPlan(module)) {
    for (Operation &op : *module.getBody())
      if (auto parameter = dyn_cast<ParameterOp>(op))
        parameters[parameter.getSymNameAttr()].op = parameter;
      else if (auto function = dyn_cast<FuncOp>(op))
        functions[function.getSymNameAttr()] = function;
      else if (auto exchange = dyn_cast<ExchangeOp>(op))
        exchanges[exchange.getSymNameAttr()] = exchange;
  }

  LogicalResult run() {
    FailureOr<SmallVector<PlacedChunk>> placed =
        getChunks(ArrayRef<RoleOp>(read.roles));
    if (failed(placed))
      return failure();
    chunks = std::move(*placed);
    modelData = getModelData(module);
    training = mlir::galvatron::getTraining(module);
    if (failed(verifyOrder()) || failed(verifyOwners()))
      return failure();
    for (const PlacedChunk &chunk : chunks) {
      if (failed(verifySlots(chunk)))
        return failure();
      for (LayerOp layer : chunk.chunk.layers)
        if (failed(verifyLayer(layer, chunk.chunk)))
          return failure();
      if (failed(verifyReshards(chunk)))
        return failure();
    }
    return verifyCuts();
  }

private:
  /// (R1) Layers are numbered from 0 along the chunks, without gaps.
  LogicalResult verifyOrder() {
    for (bool forwardOnly : {true, false}) {
      int64_t next = 0;
      for (const PlacedChunk &placed : chunks)
        if (placed.chunk.forwardOnly == forwardOnly)
          for (LayerOp layer : placed.chunk.layers)
            if (layer.getIndex() != int64_t(next++))
              return layer.emitOpError()
                     << "(R1) expected layer '" << layer.getLayerName()
                     << "' to have the index " << next - 1 << ", found "
                     << layer.getIndex();
    }
    return success();
  }

  /// (R2) Every parameter has one owner; readTaskProgram has found that none
  /// has two.
  LogicalResult verifyOwners() {
    for (const PlacedChunk &placed : chunks)
      for (LayerOp layer : placed.chunk.layers)
        for (auto tensor : layer.getTensors().getAsRange<FlatTensorAttr>())
          if (tensor.getGroup() % mlir::galvatron::kTrainedGroups == 0)
            parameters[tensor.getParameter().getAttr()].isOwned = true;
    for (auto parameter : module.getOps<ParameterOp>())
      if (!parameters[parameter.getSymNameAttr()].isOwned)
        return parameter.emitOpError()
               << "(R2) expected '" << parameter.getSymName()
               << "' to have an owner among the layers, found none";
    return success();
  }

  LogicalResult verifySlots(const PlacedChunk &placed) {
    if (!plan || !read.program.schedule)
      return success();
    int64_t each = int64_t(chunks.size()) / int64_t(read.roles.size());
    int64_t expected =
        read.program.schedule->slots(plan.getShape(each), placed.chunk.number);
    if (placed.chunk.slots == expected)
      return success();
    return placed.chunk.op->emitOpError()
           << "(R3) expected the " << expected << " slots of schedule '"
           << plan.getSchedule() << "', found " << placed.chunk.slots;
  }

  LogicalResult verifyLayer(LayerOp layer, const RoleChunk &chunk) {
    return success(succeeded(verifySamples(layer, chunk.forwardOnly)) &&
                   succeeded(verifyTensors(layer)) &&
                   succeeded(verifyFunctions(layer, chunk)) &&
                   succeeded(verifyData(layer, chunk)));
  }

  /// (R4) A layer has its strategy's share of a micro-batch.
  LogicalResult verifySamples(LayerOp layer, bool forwardOnly) {
    if (!plan)
      return success();
    int64_t count = forwardOnly && read.program.forwardMicroBatches
                        ? read.program.forwardMicroBatches
                        : plan.getMicroBatches();
    int64_t microBatch = plan.getBatch() / count;
    int64_t held = layer.getSamples() * layer.getStrategy().getSampleShards();
    if (held == microBatch)
      return success();
    return layer.emitOpError()
           << "(R4) expected '" << layer.getStrategy().getNotation()
           << "' to share the " << microBatch
           << " samples of a micro-batch, found " << layer.getSamples()
           << " on each rank";
  }

  /// (R5) A tensor is what the strategy leaves of its view, and groups are as
  /// large as their tensors.
  LogicalResult verifyTensors(LayerOp layer) {
    Strategy strategy = layer.getStrategy().toStrategy();
    int64_t parts =
        strategy.degree(strategy.on(::galvatron::LayerAxis::Tensor));
    int64_t shards = strategy.degree(strategy.parameterSharding());
    for (auto group : layer.getGroups().getAsRange<FlatGroupAttr>())
      if (group.getElements() != shards * group.getShardElements())
        return layer.emitOpError()
               << "(R5) expected " << shards << " shards of "
               << group.getShardElements() << " elements in a group, found "
               << group.getElements() << " elements";
    int64_t ends[4] = {};
    for (auto tensor : layer.getTensors().getAsRange<FlatTensorAttr>()) {
      SmallVector<int64_t> expected(tensor.getView().asArrayRef());
      if (tensor.getTpDim() >= 0)
        expected[tensor.getTpDim()] =
            llvm::divideCeil(expected[tensor.getTpDim()], parts);
      if (ArrayRef<int64_t>(expected) != tensor.getLocalShape().asArrayRef())
        return layer.emitOpError()
               << "(R5) expected tensor " << tensor.getParameter()
               << " to have the part "
               << Builder(module.getContext()).getDenseI64ArrayAttr(expected)
               << " of its view, found " << tensor.getLocalShape();
      auto parameter = parameters.lookup(tensor.getParameter().getAttr()).op;
      if (parameter && training &&
          !mlir::galvatron::isStoredAs(
              parameter.getTensorType().getElementType(), training))
        return layer.emitOpError()
               << "(R5) expected parameter " << tensor.getParameter()
               << " to have the element type " << training.getDtype()
               << " of the training, found " << parameter.getTensorType();
      bool isFrozen = tensor.getGroup() >= mlir::galvatron::kTrainedGroups;
      if (parameter && parameter.getFrozen() != isFrozen)
        return layer.emitOpError()
               << "(R5) expected tensor " << tensor.getParameter()
               << ", which is" << (isFrozen ? " not" : "")
               << " frozen, in another group than " << tensor.getGroup();
      int64_t &end = ends[tensor.getGroup()];
      if (tensor.getOffset() < end)
        return layer.emitOpError()
               << "(R5) expected tensor " << tensor.getParameter()
               << " behind the " << end
               << " elements of its group in front, found it at "
               << tensor.getOffset();
      end = tensor.getOffset() + ShapedType::getNumElements(expected);
    }
    return success();
  }

  FuncOp lookup(FlatSymbolRefAttr symbol) {
    return symbol ? functions.lookup(symbol.getAttr()) : FuncOp();
  }

  /// (R6) Functions are those of one body, a layer that owns parameters updates
  /// them and adds to the norm, and functions keep as much as the layer says.
  LogicalResult verifyFunctions(LayerOp layer, const RoleChunk &chunk) {
    bool ofPack = chunk.forwardOnly;
    StringRef stem =
        (ofPack ? layer.getForward() : layer.getBackward()).rsplit('.').first;
    const std::pair<FlatSymbolRefAttr, StringRef> named[] = {
        {layer.getForwardAttr(), "forward"},
        {ofPack ? FlatSymbolRefAttr() : layer.getRecomputeAttr(), "recompute"},
        {ofPack ? FlatSymbolRefAttr() : layer.getBackwardAttr(), "backward"},
        {ofPack ? FlatSymbolRefAttr() : layer.getWeightAttr(), "weight"},
        {layer.getUpdateAttr(), "update"},
        {layer.getNormAttr(), "norm"}};
    for (auto [symbol, kind] : named) {
      if (!symbol)
        continue;
      auto [found, direction] = symbol.getValue().rsplit('.');
      if (found != stem || !direction.starts_with(kind))
        return layer.emitOpError()
               << "(R6) expected '" << kind << "' to name '" << stem << "."
               << kind << "', of one body with the other functions, found '"
               << symbol.getValue() << "'";
    }
    auto owned = cast<FlatGroupAttr>(layer.getGroups()[0]);
    bool updates = owned.getElements() > 0;
    for (auto [symbol, kind] : {named[4], named[5]})
      if (bool(symbol) != updates)
        return layer.emitOpError()
               << "(R6) expected " << (updates ? "" : "no ") << "'" << kind
               << "' on a layer that owns " << owned.getElements()
               << " elements of parameters, found "
               << (symbol ? symbol.getValue() : "none");
    if (failed(verifyDecay(layer)))
      return failure();
    return ofPack ? success() : verifyKept(layer);
  }

  /// (R10) An update decays the parameters that are declared to decay.
  LogicalResult verifyDecay(LayerOp layer) {
    FuncOp update = lookup(layer.getUpdateAttr());
    if (!update)
      return success();
    llvm::SmallDenseMap<int64_t, FlatTensorAttr, 32> trained; // by offset
    for (auto tensor : layer.getTensors().getAsRange<FlatTensorAttr>())
      if (tensor.getGroup() == 0)
        trained.try_emplace(tensor.getOffset(), tensor);
    for (KernelOp call : update.getBody().getOps<KernelOp>()) {
      ArrayRef<int64_t> segments = call.getInts();
      segments =
          segments.take_back(getSegments(call).size() * ::grt::segmentInts);
      for (; !segments.empty();
           segments = segments.drop_front(::grt::segmentInts)) {
        FlatTensorAttr tensor = trained.lookup(segments[0]);
        auto parameter =
            tensor ? parameters.lookup(tensor.getParameter().getAttr()).op
                   : ParameterOp();
        if (parameter && parameter.getDecay() != (segments[2] != 0))
          return (layer.emitOpError()
                  << "(R10) expected '" << update.getSymName() << "' "
                  << (parameter.getDecay() ? "" : "not ") << "to decay "
                  << tensor.getParameter() << ", found "
                  << (segments[2] ? "that it does" : "that it does not"))
                     .attachNote(parameter.getLoc())
                 << "declared here";
      }
    }
    return success();
  }

  LogicalResult verifyKept(LayerOp layer) {
    FuncOp forward = lookup(layer.getForwardAttr());
    FuncOp recompute = lookup(layer.getRecomputeAttr());
    FuncOp backward = lookup(layer.getBackwardAttr());
    FuncOp weight = lookup(layer.getWeightAttr());
    int64_t kept =
        recompute ? layer.getRecomputeStashBytes() : layer.getStashBytes();
    const std::tuple<FuncOp, int64_t, StringRef> expected[] = {
        {weight ? FuncOp() : forward, layer.getStashBytes(), "forward"},
        {recompute, kept, "recompute"},
        {backward, kept, "backward"},
        {weight, kept, "weight"}};
    for (auto [function, bytes, kind] : expected)
      if (function && function.getStashBytes().value_or(0) != bytes)
        return (layer.emitOpError()
                << "(R6) expected '" << kind << "' to keep the " << bytes
                << " bytes that the layer keeps, found "
                << function.getStashBytes().value_or(0))
                   .attachNote(function.getLoc())
               << "function stands here";
    return success();
  }

  /// (R7) Functions find in the region of data what the layer reads.
  LogicalResult verifyData(LayerOp layer, const RoleChunk &chunk) {
    // Layers of one body that read the same are looked at once.
    std::array<const void *, kAsked> asked;
    llvm::transform(
        std::array<Attribute, kAsked>{
            layer.getForwardAttr(), layer.getBackwardAttr(),
            layer.getWeightAttr(), layer.getRecomputeAttr(),
            layer.getDataAttr(), layer.getSamplesAttr(),
            layer.getStrategyAttr()},
        asked.begin(),
        [](Attribute attribute) { return attribute.getAsOpaquePointer(); });
    if (!seenData.insert({asked, chunk.forwardOnly}).second)
      return success();
    FailureOr<SmallVector<int64_t>> positions = getLayerData(layer, modelData);
    if (failed(positions))
      return failure();
    SmallVector<std::pair<int64_t, int64_t>> places;
    int64_t begin = 0;
    for (int64_t position : *positions) {
      int64_t bytes =
          layer.getSamples() * modelData[position].getBytesPerSample();
      places.push_back({begin, begin + bytes});
      begin += alignBytes(bytes);
    }
    SmallVector<bool> read(places.size());
    for (FlatSymbolRefAttr symbol :
         {layer.getForwardAttr(),
          chunk.forwardOnly ? FlatSymbolRefAttr() : layer.getBackwardAttr(),
          chunk.forwardOnly ? FlatSymbolRefAttr() : layer.getWeightAttr(),
          chunk.forwardOnly ? FlatSymbolRefAttr() : layer.getRecomputeAttr()}) {
      FuncOp func = lookup(symbol);
      if (!func)
        continue;
      for (auto buffer : func.getBody().getOps<BufferOp>()) {
        if (buffer.getRegion() != MemoryRegion::Data)
          continue;
        std::pair<int64_t, int64_t> place = {
            *buffer.getOffset(), *buffer.getOffset() + buffer.getByteSize()};
        auto *found = llvm::find(places, place);
        if (found == places.end())
          return (layer.emitOpError()
                  << "(R7) expected data at bytes " << place.first << " to "
                  << place.second << " of what '" << symbol.getValue()
                  << "' reads, found none among the layer's " << places.size())
                     .attachNote(buffer.getLoc())
                 << "buffer named here";
        read[found - places.begin()] = true;
      }
    }
    SmallVector<mlir::galvatron::DataAttr> named;
    for (int64_t position : *positions)
      named.push_back(modelData[position]);
    Strategy strategy = layer.getStrategy().toStrategy();
    if (failed(verifyDataBounds(
            layer, lookup(layer.getForwardAttr()), named,
            strategy.degree(strategy.on(::galvatron::LayerAxis::Tensor)))))
      return failure();
    for (auto [i, isRead] : llvm::enumerate(read))
      if (!isRead)
        return layer.emitOpError()
               << "(R7) expected a function that reads "
               << layer.getData().value()[i] << ", found none";
    return success();
  }

  /// (R8) An exchange moves what the strategies at its two ends ask for.
  LogicalResult verifyExchange(Operation *user, FlatSymbolRefAttr symbol,
                               const ::galvatron::ReshardPlan &plan,
                               StringRef name) {
    auto exchange = symbol ? exchanges.lookup(symbol.getAttr()) : ExchangeOp();
    SmallVector<std::array<int64_t, 5>> expected, found;
    for (const ::galvatron::ReshardTransfer &transfer : plan.transfers)
      expected.push_back({transfer.srcRank, transfer.dstRank, transfer.srcUnit,
                          transfer.dstUnit, transfer.units});
    ArrayRef<int64_t> numbers =
        exchange ? exchange.getTransfers() : ArrayRef<int64_t>();
    for (; !numbers.empty(); numbers = numbers.drop_front(5))
      found.push_back(
          {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]});
    llvm::sort(expected);
    llvm::sort(found);
    if (expected == found)
      return success();
    if (!exchange || expected.empty())
      return user->emitOpError()
             << "(R8) expected '" << name << "' to name "
             << (expected.empty() ? "no" : "an") << " exchange, found "
             << (symbol ? symbol.getValue() : "none");
    return (user->emitOpError()
            << "(R8) expected '" << name << "' to make the " << expected.size()
            << " transfers that the strategies at its ends need, found others")
               .attachNote(exchange.getLoc())
           << "exchange '" << exchange.getSymName() << "' stands here";
  }

  int64_t samplesOf(LayerOp layer) {
    return layer.getSamples() * layer.getStrategy().getSampleShards();
  }

  LogicalResult verifyReshards(const PlacedChunk &placed) {
    ArrayRef<int64_t> devices = read.roles[placed.role].getDevices();
    ArrayRef<LayerOp> layers = placed.chunk.layers;
    for (size_t i = 0; i + 1 < layers.size(); ++i) {
      LayerOp front = layers[i], behind = layers[i + 1];
      // One strategy needs no transfers.
      if (front.getStrategyAttr() == behind.getStrategyAttr() &&
          !front.getForwardReshardAttr() && !behind.getBackwardReshardAttr())
        continue;
      Strategy before = front.getStrategy().toStrategy();
      Strategy after = behind.getStrategy().toStrategy();
      int64_t samples = samplesOf(front);
      if (failed(verifyExchange(front, front.getForwardReshardAttr(),
                                ::galvatron::reshardPlan(before, after, devices,
                                                         devices, samples),
                                "forward_reshard")) ||
          failed(verifyExchange(behind, behind.getBackwardReshardAttr(),
                                ::galvatron::reshardPlan(after, before, devices,
                                                         devices, samples),
                                "backward_reshard")))
        return failure();
    }
    return success();
  }

  LogicalResult verifyCuts() {
    // Packs send along chains of their own: galvatron-verify-schedule knows.
    if (read.program.hasPacks)
      return success();
    for (size_t i = 0; i < chunks.size(); ++i) {
      const RoleChunk &chunk = chunks[i].chunk;
      bool isFirst = i == 0, isLast = i + 1 == chunks.size();
      for (auto [there, symbol, name] :
           {std::tuple(!isLast, chunk.sendActivation, "send_activation"),
            {!isLast, chunk.recvGradient, "recv_gradient"},
            {!isFirst, chunk.recvActivation, "recv_activation"},
            {!isFirst, chunk.sendGradient, "send_gradient"}})
        if (bool(symbol) != there)
          return chunk.op->emitOpError()
                 << "(R8) expected " << (there ? "an" : "no")
                 << " exchange as '" << name << "' of chunk " << i << " of "
                 << chunks.size() << ", found "
                 << (symbol ? symbol.getValue() : "none");
      if (isLast)
        break;
      const RoleChunk &next = chunks[i + 1].chunk;
      LayerOp made = chunk.layers.back(), user = next.layers.front();
      Strategy before = made.getStrategy().toStrategy();
      Strategy after = user.getStrategy().toStrategy();
      ArrayRef<int64_t> from = read.roles[chunks[i].role].getDevices();
      ArrayRef<int64_t> to = read.roles[chunks[i + 1].role].getDevices();
      int64_t samples = samplesOf(made);
      if (failed(verifyExchange(
              chunk.op, chunk.sendActivation,
              ::galvatron::chunkTransferPlan(before, after, from, to, samples),
              "send_activation")) ||
          failed(verifyExchange(
              next.op, next.sendGradient,
              ::galvatron::chunkTransferPlan(after, before, to, from, samples),
              "send_gradient")))
        return failure();
    }
    return success();
  }

  ReadProgram &read;
  ModuleOp module;
  mlir::galvatron::PlanAttr plan;
  struct Declared {
    ParameterOp op;
    bool isOwned = false; ///< by a layer
  };
  llvm::DenseMap<StringAttr, Declared> parameters;
  llvm::DenseMap<StringAttr, FuncOp> functions;
  llvm::DenseMap<StringAttr, ExchangeOp> exchanges;
  SmallVector<mlir::galvatron::DataAttr> modelData;
  mlir::galvatron::TrainingAttr training; ///< null: the module has none
  SmallVector<PlacedChunk> chunks;
  /// The data attributes of layers that were checked, and whether they are of
  /// packs that run forward only.
  static constexpr size_t kAsked = 7;
  std::set<std::pair<std::array<const void *, kAsked>, bool>> seenData;
};

} // namespace

LogicalResult
mlir::grt::verifyDataBounds(Operation *layer, FuncOp forward,
                            ArrayRef<mlir::galvatron::DataAttr> data,
                            int64_t parts) {
  if (!forward)
    return success();
  std::map<int64_t, SmallVector<BufferOp, 1>> buffers; // by place
  for (auto buffer : forward.getBody().getOps<BufferOp>())
    if (buffer.getRegion() == MemoryRegion::Data)
      buffers[buffer.getOffset().value_or(0)].push_back(buffer);
  if (buffers.size() != data.size())
    return success(); // what is not read has no buffer
  const auto *datum = data.begin();
  for (auto &[offset, list] : buffers) {
    mlir::galvatron::DataAttr read = *datum++;
    for (BufferOp buffer : list)
      for (OpOperand &use : buffer->getUses()) {
        Operation *user = use.getOwner();
        auto call = dyn_cast<KernelOp>(user);
        std::optional<int64_t> count =
            call ? ::grt::valuesToldApart(
                       uint32_t(call.getKernel()), call.getInts().data(),
                       call.getInts().size(), use.getOperandNumber(), parts)
                 : std::nullopt;
        if (call && mlir::galvatron::mayHaveNoRow(read.getKind()) &&
            !::grt::takesNoRow(uint32_t(call.getKernel()),
                               use.getOperandNumber()))
          return (layer->emitOpError()
                  << "(M1) expected '" << read.getName()
                  << "', which may be -1, to be read as the rows of a cache "
                     "alone, found another use in '"
                  << forward.getSymName() << "'")
                     .attachNote(user->getLoc())
                 << "by this call";
        if (count && read.getBelow() > *count)
          return (layer->emitOpError()
                  << "(M1) expected '" << read.getName() << "' below the "
                  << *count << " values that '" << forward.getSymName()
                  << "' tells apart, found below " << read.getBelow())
                     .attachNote(user->getLoc())
                 << "by this call";
      }
  }
  return success();
}

LogicalResult mlir::grt::verifyLayers(ReadProgram &read) {
  return LayersVerifier(read).run();
}
