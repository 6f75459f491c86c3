//===- ConvertFunction.cpp - One body to one function on buffers ----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// Three steps: decide which values share a buffer (in place where an operation
// allows it), emit kernels, and put lifetime marks around what lives in the
// transient region.
//
//===----------------------------------------------------------------------===//

#include "RowKernels.h"

#include "galvatron/Cluster/Backend.h"
#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/Partition.h"
#include "galvatron/Dialect/Galvatron/Transforms/SplitBackward.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Dialect/NN/Transforms/Bodies.h"

using namespace mlir;
using namespace mlir::grt;
using mlir::galvatron::PartLifetime;
using mlir::galvatron::PartValueAttr;
using nn::ValueRole;

namespace {

int64_t alignedBytes(Type type) {
  return alignBytes(getByteSize(cast<RankedTensorType>(type)));
}

/// The values of a forward function that are made of what an encoder reads of a
/// text (`nn.made_of`), and what makes them, or is made for them alone.
class SourceValues {
public:
  explicit SourceValues(func::FuncOp function) {
    Block &block = function.getBody().front();
    for (BlockArgument argument : block.getArguments()) {
      const unsigned number = argument.getArgNumber();
      auto madeOf =
          function.getArgAttrOfType<StringAttr>(number, nn::kMadeOfAttr);
      isSource[argument] = madeOf && madeOf.getValue() == nn::kSource;
      isOther[argument] =
          !madeOf && nn::getArgRole(function, number) != ValueRole::Parameter;
      any |= isSource[argument];
    }
    // Nothing that generates is run backward.
    any &= mlir::galvatron::PartitionAttr::of(function).getDirection() ==
           mlir::galvatron::Direction::Forward;
    if (!any)
      return;
    for (Operation &op : block.without_terminator())
      for (Value operand : op.getOperands())
        for (Value result : op.getResults()) {
          isSource[result] |= isSource.lookup(operand);
          isOther[result] |= isOther.lookup(operand);
        }
    for (Operation &op : llvm::reverse(block.without_terminator()))
      if (makesSource(&op) || servesSource(&op))
        makers.insert(&op);
  }

  bool has(Value value) const {
    return any && isSource.lookup(value) && !isOther.lookup(value);
  }
  bool makes(Operation *op) const { return makers.contains(op); }

private:
  bool makesSource(Operation *op) const {
    return any && op->getNumResults() &&
           llvm::all_of(op->getResults(), [&](Value v) { return has(v); });
  }
  /// Of parameters, and read by nothing that computes positions.
  bool servesSource(Operation *op) const {
    return !op->use_empty() && llvm::none_of(op->getOperands(), [&](Value v) {
      return isOther.lookup(v);
    }) && llvm::all_of(op->getUsers(), [&](Operation *user) {
      return makes(user);
    });
  }

  bool any = false;
  DenseMap<Value, bool> isSource, isOther;
  DenseSet<Operation *> makers;
};

class FunctionConverter : public nn::KernelEmitter {
public:
  FunctionConverter(func::FuncOp source, const KernelTarget &kernelTarget,
                    FlatLayout flat)
      : source(source), kernelTarget(kernelTarget),
        builder(source.getContext()), layout(std::move(flat)),
        gathersOutside(
            ::galvatron::backendTraits(kernelTarget.backend).streams),
        gathered(layout.buckets.size()), fullGradients(layout.buckets.size()) {}

  FailureOr<FuncOp> run(FunctionRegions *regions);

  // nn::KernelEmitter
  void kernel(StringRef name, ArrayRef<Value> buffers, ArrayRef<int64_t> ints,
              ArrayRef<double> reals) override {
    std::optional<Kernel> kernel = symbolizeKernel(name);
    assert(kernel && "nn operation names an unknown kernel");
    StringRef label = current->getName().stripDialect();
    KernelOp::create(builder, current->getLoc(), *kernel, buffers, ints, reals,
                     label);
  }
  Value temporary(RankedTensorType type) override {
    return newTransient(bufferType(type));
  }
  Value scratch(StringRef name, ArrayRef<int64_t> ints, Type element,
                Type result) override {
    std::optional<Kernel> kernel = symbolizeKernel(name);
    assert(kernel &&
           (kernel == Kernel::Gemm || getAttentionScratchPlace(*kernel)) &&
           "kernel takes no scratch");
    int64_t bytes =
        kernel == Kernel::Gemm
            ? getGemmScratchBytes(kernelTarget, ints, getElementBytes(element),
                                  getElementBytes(result))
            : getAttentionScratchBytes(kernelTarget, *kernel, ints,
                                       getElementBytes(element));
    if (bytes == 0)
      return nullptr;
    return newTransient(MemRefType::get(bytes, builder.getI8Type()));
  }
  Value view(Value buffer, int64_t byteOffset, RankedTensorType type) override {
    // The view keeps the rest of the buffer: kernels stride over it.
    auto whole = cast<MemRefType>(buffer.getType());
    int64_t elementBytes = getElementBytes(type.getElementType());
    int64_t elements = whole.getNumElements() - byteOffset / elementBytes;
    return ViewOp::create(builder, current->getLoc(),
                          MemRefType::get(elements, whole.getElementType()),
                          buffer, byteOffset);
  }
  int64_t accumulateMode(unsigned index) const override {
    return accumulators.lookup(current->getResult(index));
  }

private:
  /// Values that share one buffer.
  struct BufferClass {
    Value buffer; ///< null until a transient one is made
    MemRefType type;
  };

  /// Or the weight part of one.
  bool isBackward() const { return partition.isBackward(); }
  MemRefType bufferType(Type type) {
    auto [it, fresh] = bufferTypes.try_emplace(type);
    if (fresh) {
      auto tensor = cast<RankedTensorType>(type);
      it->second = MemRefType::get(tensor.getShape(), tensor.getElementType());
    }
    return it->second;
  }
  /// Gradients are accumulated in f32 whatever the compute type, f64 for f64.
  MemRefType accumulatorType(Type type) {
    auto tensor = cast<RankedTensorType>(type);
    if (tensor.getElementType().isF64())
      return bufferType(type);
    return bufferType(tensor.clone(Float32Type::get(type.getContext())));
  }
  /// All buffers come first, in the order in which they were made.
  Value newBuffer(MemRefType type, MemoryRegion region,
                  std::optional<int64_t> offset) {
    OpBuilder::InsertionGuard guard(builder);
    if (lastBuffer)
      builder.setInsertionPointAfter(lastBuffer);
    else
      builder.setInsertionPointToStart(&target.getBody().front());
    lastBuffer =
        BufferOp::create(builder, source.getLoc(), type, region, offset);
    return lastBuffer.getResult();
  }
  Value newTransient(MemRefType type) {
    Value buffer = newBuffer(type, MemoryRegion::Transient, std::nullopt);
    transients.push_back(buffer);
    return buffer;
  }

  /// Where a stash value lies: where its attributes say, or behind the others.
  int64_t takeStash(Type type, DictionaryAttr attrs) {
    PartValueAttr is = PartValueAttr::in(attrs);
    bool isPlaced = is && is.getOffset() >= 0;
    int64_t offset = isPlaced ? is.getOffset() : sizes.stashBytes;
    sizes.stashBytes =
        std::max(sizes.stashBytes,
                 offset + getStashBytes(type, PartValueAttr::isWide(attrs)));
    return offset;
  }

  void bindArguments();
  void bindParameters();
  void bindResults();
  void joinSums();
  void shareBuffers();
  LogicalResult emit(Operation *op);
  void emitCopy(Value from, Value to);
  void markSource(Operation *before);
  bool emitRows(Operation *op);
  void emitAccumulation(Value from, Value to);
  Value getBuffer(Value value);
  void eraseUnusedGathers();
  void placeLifetimes();

  func::FuncOp source;
  KernelTarget kernelTarget;
  FuncOp target;
  OpBuilder builder;
  FlatLayout layout;
  /// With streams the executor gathers parameters, a layer ahead if it may;
  /// else the function does.
  bool gathersOutside;
  mlir::galvatron::PartitionAttr partition;
  Operation *current = nullptr;

  DenseMap<Type, MemRefType> bufferTypes; ///< by tensor type
  BufferOp lastBuffer;
  DenseMap<Value, Value> argumentBuffers;
  /// Sums that are made with others: the buffer of all if it is the last of
  /// them, null for others.
  DenseMap<Operation *, Value> joined;
  DenseMap<Value, unsigned> classOf;
  SmallVector<BufferClass> classes;
  /// Accumulate mode of results that are parameter gradients.
  DenseMap<Value, int64_t> accumulators;
  /// Results that need a copy at the end: value, destination, accumulate.
  struct FinalCopy {
    Value value, destination;
    bool accumulate;
  };
  SmallVector<FinalCopy> finalCopies;
  SmallVector<Value> transients;
  /// Stash buffers whose life begins, or ends, in this function.
  SmallVector<Value> begunStash, endedStash;
  /// Flat parameters (full tensors) and flat gradients under SDP, by bucket;
  /// null where there are none.
  SmallVector<Value, 2> gathered, fullGradients;
  FunctionRegions sizes;
};

void FunctionConverter::bindArguments() {
  int64_t input = 0, gradient = 0, data = 0;
  for (BlockArgument argument : source.getArguments()) {
    MemoryRegion region;
    int64_t offset = 0;
    switch (nn::getArgRole(source, argument.getArgNumber())) {
    case ValueRole::Input:
      region = MemoryRegion::Input;
      offset = input;
      input += alignedBytes(argument.getType());
      break;
    case ValueRole::Data:
      region = MemoryRegion::Data;
      offset = data;
      data += alignedBytes(argument.getType());
      break;
    case ValueRole::Stash:
      region = MemoryRegion::Stash;
      offset = takeStash(argument.getType(),
                         source.getArgAttrDict(argument.getArgNumber()));
      break;
    case ValueRole::Gradient:
      region = MemoryRegion::GradIn;
      offset = gradient;
      gradient += alignedBytes(argument.getType());
      break;
    default:
      continue; // parameters
    }
    unsigned number = argument.getArgNumber();
    DictionaryAttr attrs = source.getArgAttrDict(number);
    Value buffer = newBuffer(PartValueAttr::isWide(attrs)
                                 ? accumulatorType(argument.getType())
                                 : bufferType(argument.getType()),
                             region, offset);
    argumentBuffers[argument] = buffer;
    if (region == MemoryRegion::Stash &&
        PartValueAttr::lifetimeOf(attrs) == PartLifetime::Own)
      endedStash.push_back(buffer);
  }
  sizes.inputBytes = input;
}

void FunctionConverter::bindParameters() {
  SmallVector<BlockArgument> parameters;
  for (BlockArgument argument : source.getArguments())
    if (nn::getArgRole(source, argument.getArgNumber()) == ValueRole::Parameter)
      parameters.push_back(argument);
  if (parameters.empty())
    return;
  Type element =
      cast<RankedTensorType>(parameters.front().getType()).getElementType();

  if (layout.shards > 1 && gathersOutside) {
    int64_t offset = 0;
    for (auto [bucket, full] : llvm::zip_equal(layout.buckets, gathered)) {
      if (bucket.elements == 0)
        continue;
      auto fullType = MemRefType::get(bucket.elements, element);
      full = newBuffer(fullType, MemoryRegion::Gathered, offset);
      offset += alignBytes(getByteSize(fullType));
    }
    target.setGatheredBytes(layout.gatheredBytes());
  } else if (layout.shards > 1) {
    // Between recompute and backward the gathered tensors are kept like a
    // stash; else they are temporaries of this function.
    bool keep =
        partition.getDirection() == mlir::galvatron::Direction::Recompute ||
        partition.getGathered();
    builder.setInsertionPoint(target.getBody().front().getTerminator());
    int64_t shardOffset = 0;
    for (auto [bucket, full] : llvm::zip_equal(layout.buckets, gathered)) {
      if (bucket.elements == 0)
        continue;
      auto fullType = MemRefType::get(bucket.elements, element);
      if (keep) {
        full = newBuffer(fullType, MemoryRegion::Stash, sizes.stashBytes);
        sizes.stashBytes += alignBytes(getByteSize(fullType));
        (isBackward() ? endedStash : begunStash).push_back(full);
      } else {
        full = newTransient(fullType);
      }
      if (!partition.getGathered()) {
        auto shardType = MemRefType::get(bucket.shardElements, element);
        Value shard =
            newBuffer(shardType, MemoryRegion::Parameter, shardOffset);
        AllGatherOp::create(builder, source.getLoc(), shard, full, Axis::SDP,
                            builder.getStringAttr("gather"));
      }
      shardOffset += bucket.shardElements * layout.elementBytes;
    }
  }
  for (auto [argument, tensor] : llvm::zip_equal(parameters, layout.tensors)) {
    int64_t offset = tensor.offset * layout.elementBytes;
    if (Value full = gathered[tensor.bucket]) {
      builder.setInsertionPoint(target.getBody().front().getTerminator());
      argumentBuffers[argument] =
          ViewOp::create(builder, source.getLoc(),
                         bufferType(argument.getType()), full, offset);
      continue;
    }
    offset += layout.elementsBefore(tensor.bucket) * layout.elementBytes;
    argumentBuffers[argument] = newBuffer(bufferType(argument.getType()),
                                          MemoryRegion::Parameter, offset);
  }
}

/// Gives every result its place in the region of its role. The defining
/// operation writes there directly where it can.
void FunctionConverter::bindResults() {
  Operation *terminator = source.getBody().front().getTerminator();
  int64_t output = 0, inputGradient = 0;
  SmallVector<unsigned> trained = nn::getTrainedParameters(source);
  ArrayRef<unsigned> nextTrained = trained;
  DenseSet<Value> bound;
  for (auto [index, value] : llvm::enumerate(terminator->getOperands())) {
    ValueRole role = nn::getResultRole(source, index);
    Value buffer;
    bool accumulate = false;
    int64_t mode = 0;
    switch (role) {
    case ValueRole::Output:
      buffer =
          newBuffer(bufferType(value.getType()), MemoryRegion::Output, output);
      output += alignedBytes(value.getType());
      break;
    case ValueRole::Loss:
      buffer = newBuffer(bufferType(value.getType()), MemoryRegion::Loss, 0);
      break;
    case ValueRole::Stash: {
      bool wide = PartValueAttr::isWide(source.getResultAttrDict(index));
      buffer = newBuffer(
          wide ? accumulatorType(value.getType()) : bufferType(value.getType()),
          MemoryRegion::Stash,
          takeStash(value.getType(), source.getResultAttrDict(index)));
      begunStash.push_back(buffer);
      break;
    }
    case ValueRole::InputGradient:
      buffer = newBuffer(bufferType(value.getType()), MemoryRegion::GradOut,
                         inputGradient);
      inputGradient += alignedBytes(value.getType());
      break;
    case ValueRole::ParameterGradient: {
      // Parts of a backward function have some of them.
      auto whose = PartValueAttr::in(source.getResultAttrDict(index));
      const FlatTensor &tensor =
          layout.tensors[whose ? size_t(whose.getParameter())
                               : nextTrained.consume_front()];
      MemRefType type = accumulatorType(value.getType());
      int64_t offset = tensor.offset * layout.accumulatorBytes;
      if (layout.shards > 1) {
        Value &full = fullGradients[tensor.bucket];
        if (!full)
          full = newTransient(MemRefType::get(
              layout.buckets[tensor.bucket].elements, type.getElementType()));
        builder.setInsertionPoint(target.getBody().front().getTerminator());
        buffer = ViewOp::create(builder, source.getLoc(), type, full, offset);
      } else {
        offset +=
            layout.elementsBefore(tensor.bucket) * layout.accumulatorBytes;
        buffer = newBuffer(type, MemoryRegion::Gradient, offset);
        mode = 2;
      }
      accumulate = true;
      break;
    }
    default:
      llvm_unreachable("not a role of a result");
    }
    auto kernelOp = value.getDefiningOp<nn::KernelOpInterface>();
    bool direct = value.getDefiningOp() && bound.insert(value).second;
    // Who else reads the value must not see what was accumulated before it.
    if (accumulate)
      direct = direct && value.hasOneUse() && kernelOp &&
               kernelOp.supportsAccumulation(
                   cast<OpResult>(value).getResultNumber());
    if (!direct) {
      finalCopies.push_back({value, buffer, accumulate});
      continue;
    }
    classOf[value] = classes.size();
    classes.push_back({buffer, cast<MemRefType>(buffer.getType())});
    if (accumulate)
      accumulators[value] = mode;
  }
  sizes.outputBytes = output;
}

/// Gives sums that are one call places side by side.
void FunctionConverter::joinSums() {
  for (Operation &op : source.getBody().front().without_terminator()) {
    JoinedSums run = JoinedSums::from(&op);
    if (run.empty())
      continue;
    Type element = run.sums.front().getOutput().getType().getElementType();
    int64_t width = getElementBytes(element);
    Value all = newTransient(MemRefType::get(run.bytes() / width, element));
    int64_t offset = 0;
    for (mlir::galvatron::AllReduceOp sum : run.sums) {
      MemRefType type = bufferType(sum.getOutput().getType());
      builder.setInsertionPoint(target.getBody().front().getTerminator());
      classOf[sum.getOutput()] = classes.size();
      classes.push_back(
          {ViewOp::create(builder, sum.getLoc(), type, all, offset), type});
      offset += alignBytes(getByteSize(type));
      joined[sum] = nullptr;
    }
    joined[run.sums.back()] = all;
  }
}

/// Walks backward so that a result's buffer, bound or not, is known when its
/// operand asks to share it.
void FunctionConverter::shareBuffers() {
  Block &block = source.getBody().front();
  DenseMap<Operation *, unsigned> order;
  for (auto [index, op] : llvm::enumerate(block))
    order[&op] = index;
  auto diesAt = [&](Value value, Operation *op) {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      return order.lookup(user) <= order.lookup(op);
    });
  };
  for (Operation &op : llvm::reverse(block.without_terminator())) {
    for (OpResult result : op.getResults()) {
      if (!classOf.count(result)) {
        classOf[result] = classes.size();
        classes.push_back({Value(), bufferType(result.getType())});
      }
      int reusable = -1;
      if (auto kernelOp = dyn_cast<nn::KernelOpInterface>(&op))
        reusable = kernelOp.getReusableOperand(result.getResultNumber());
      else if (isa<mlir::galvatron::AllReduceOp>(&op))
        reusable = 0;
      if (reusable < 0 || accumulators.count(result))
        continue;
      Value operand = op.getOperand(reusable);
      if (!operand.getDefiningOp() || classOf.count(operand) ||
          !diesAt(operand, &op) ||
          llvm::count(op.getOperands(), operand) != 1 ||
          classes[classOf[result]].type != bufferType(operand.getType()))
        continue;
      classOf[operand] = classOf[result];
    }
  }
}

Value FunctionConverter::getBuffer(Value value) {
  if (isa<BlockArgument>(value))
    return argumentBuffers.lookup(value);
  BufferClass &shared = classes[classOf.lookup(value)];
  if (!shared.buffer)
    shared.buffer = newTransient(shared.type);
  return shared.buffer;
}

void FunctionConverter::emitCopy(Value from, Value to) {
  int64_t bytes = getByteSize(cast<MemRefType>(to.getType()));
  KernelOp::create(builder, source.getLoc(), Kernel::Copy, ValueRange{from, to},
                   {1, bytes, bytes, bytes}, {}, "copy");
}

/// Says of what was emitted behind `before` that it runs where texts begin.
void FunctionConverter::markSource(Operation *before) {
  Block &block = target.getBody().front();
  Operation *op = before ? before->getNextNode() : &block.front();
  for (; op != block.getTerminator(); op = op->getNextNode())
    if (mayWaitForTexts(op))
      op->setAttr(kTextsBeginAttr, builder.getUnitAttr());
}

/// A sum over one row: adds `from` to what `to` accumulates.
void FunctionConverter::emitAccumulation(Value from, Value to) {
  int64_t n = cast<MemRefType>(to.getType()).getNumElements();
  KernelOp::create(builder, source.getLoc(), Kernel::BiasGrad,
                   ValueRange{from, to}, {1, n, layout.shards > 1 ? 0 : 2}, {},
                   "accumulate");
}

/// Emits an operation on blocks of rows; false if it is none.
bool FunctionConverter::emitRows(Operation *op) {
  auto bufferLike = [&](Value value) -> Value {
    return newTransient(bufferType(value.getType()));
  };
  if (auto gather = dyn_cast<mlir::galvatron::GatherRowsOp>(op)) {
    nn::RowsAttr rows = nn::RowsAttr::of(gather.getInput().getType());
    Value whole = getBuffer(gather.getOutput());
    Value blocks = rows.getBalanced() ? bufferLike(gather.getOutput()) : whole;
    AllGatherOp::create(builder, op->getLoc(), getBuffer(gather.getInput()),
                        blocks, static_cast<Axis>(gather.getAxis()),
                        builder.getStringAttr("gather_rows"));
    if (rows.getBalanced())
      dealRows(builder, op->getLoc(), blocks, whole, rows.getSharers(),
               /*back=*/true);
  } else if (auto scatter =
                 dyn_cast<mlir::galvatron::ReduceScatterRowsOp>(op)) {
    nn::RowsAttr rows = nn::RowsAttr::of(scatter.getOutput().getType());
    Value terms = getBuffer(scatter.getInput());
    if (rows.getBalanced()) {
      Value dealt = bufferLike(scatter.getInput());
      dealRows(builder, op->getLoc(), terms, dealt, rows.getSharers(),
               /*back=*/false);
      terms = dealt;
    }
    ReduceScatterOp::create(
        builder, op->getLoc(), terms, getBuffer(scatter.getOutput()),
        static_cast<Axis>(scatter.getAxis()),
        /*acc=*/0, builder.getStringAttr("reduce_scatter_rows"));
  } else if (auto exchange = dyn_cast<mlir::galvatron::AllToAllOp>(op)) {
    exchangeRows(builder, exchange, getBuffer(exchange.getInput()),
                 newTransient(bufferType(exchange.getPartType())),
                 getBuffer(exchange.getOutput()));
  } else if (auto shift = dyn_cast<mlir::galvatron::ShiftOp>(op)) {
    ShiftOp::create(builder, op->getLoc(), getBuffer(shift.getInput()),
                    getBuffer(shift.getOutput()), /*distance=*/1,
                    static_cast<Axis>(shift.getAxis()),
                    builder.getStringAttr("shift"));
  } else if (auto slice = dyn_cast<mlir::galvatron::SliceRowsOp>(op)) {
    sliceRows(builder, slice, getBuffer(slice.getInput()),
              getBuffer(slice.getOutput()));
  } else if (auto term = dyn_cast<mlir::galvatron::FirstTermOp>(op)) {
    kernel("bias_grad",
           {getBuffer(term.getInput()), getBuffer(term.getOutput())},
           {/*rows=*/1, term.getOutput().getType().getNumElements(), /*acc=*/0,
            /*ofFirstBlock=*/1},
           {});
  } else {
    return false;
  }
  return true;
}

LogicalResult FunctionConverter::emit(Operation *op) {
  current = op;
  builder.setInsertionPoint(target.getBody().front().getTerminator());
  if (auto kernelOp = dyn_cast<nn::KernelOpInterface>(op)) {
    SmallVector<Value> operands, results;
    for (Value operand : op->getOperands())
      operands.push_back(getBuffer(operand));
    for (Value result : op->getResults())
      results.push_back(getBuffer(result));
    kernelOp.emitKernels(*this, operands, results);
    return success();
  }
  static_assert(int(Axis::DP) == int(mlir::galvatron::Axis::DP) &&
                    int(Axis::SDP) == int(mlir::galvatron::Axis::SDP) &&
                    int(Axis::TP) == int(mlir::galvatron::Axis::TP) &&
                    int(Axis::CP) == int(mlir::galvatron::Axis::CP),
                "both dialects number axes alike");
  if (auto reduce = dyn_cast<mlir::galvatron::AllReduceOp>(op)) {
    Value from = getBuffer(reduce.getInput()),
          to = getBuffer(reduce.getOutput());
    if (from != to)
      emitCopy(from, to);
    if (auto run = joined.find(op); run != joined.end())
      to = run->second;
    if (!to)
      return success();
    AllReduceOp::create(builder, op->getLoc(), to,
                        static_cast<Axis>(reduce.getAxis()),
                        builder.getStringAttr("all_reduce"));
    return success();
  }
  if (auto gather = dyn_cast<mlir::galvatron::AllGatherOp>(op)) {
    AllGatherOp::create(builder, op->getLoc(), getBuffer(gather.getInput()),
                        getBuffer(gather.getOutput()),
                        static_cast<Axis>(gather.getAxis()),
                        builder.getStringAttr("all_gather"));
    return success();
  }
  if (emitRows(op))
    return success();
  // Their work is done around the body: see bindParameters() and run().
  if (isa<mlir::galvatron::GatherParametersOp,
          mlir::galvatron::ReduceScatterGradientsOp>(op))
    return success();
  return op->emitError()
         << "expected an operation that becomes kernels, found '"
         << op->getName() << "'";
}

/// First and last operation that touch a buffer, through views.
std::pair<Operation *, Operation *> getUseRange(Value buffer) {
  Operation *first = nullptr, *last = nullptr;
  SmallVector<Value> work = {buffer};
  while (!work.empty()) {
    Value value = work.pop_back_val();
    for (Operation *user : value.getUsers()) {
      if (auto view = dyn_cast<ViewOp>(user)) {
        work.push_back(view.getResult());
        continue;
      }
      if (!first || user->isBeforeInBlock(first))
        first = user;
      if (!last || last->isBeforeInBlock(user))
        last = user;
    }
  }
  return {first, last};
}

void eraseWithViews(Value buffer) {
  for (Operation *user : llvm::make_early_inc_range(buffer.getUsers()))
    user->erase();
  buffer.getDefiningOp()->erase();
}

/// A function that reads no parameters has none gathered for it.
void FunctionConverter::eraseUnusedGathers() {
  bool used = false;
  for (Value &buffer : gathered) {
    if (!buffer)
      continue;
    if (!buffer.use_empty()) {
      used = true;
      continue;
    }
    buffer.getDefiningOp()->erase();
    buffer = Value();
  }
  if (!used)
    target.removeGatheredBytesAttr();
}

void FunctionConverter::placeLifetimes() {
  // Views of parameters that no kernel reads, and gathers for nobody.
  SmallVector<ViewOp> unused;
  target.walk([&](ViewOp view) {
    if (view.getResult().use_empty())
      unused.push_back(view);
  });
  for (ViewOp view : unused)
    view.erase();
  if (gathersOutside)
    eraseUnusedGathers();
  for (Value buffer : transients) {
    if (llvm::is_contained(gathered, buffer) && buffer.hasOneUse()) {
      eraseWithViews(buffer);
      continue;
    }
    auto [first, last] = getUseRange(buffer);
    if (!first) {
      buffer.getDefiningOp()->erase();
      continue;
    }
    builder.setInsertionPoint(first);
    BeginOp::create(builder, source.getLoc(), buffer);
    builder.setInsertionPointAfter(last);
    EndOp::create(builder, source.getLoc(), buffer);
  }
  for (Value buffer : endedStash) {
    // Where something begins in this function it may lie in its place.
    if (Operation *last = getUseRange(buffer).second;
        last && isBackward() && !begunStash.empty())
      builder.setInsertionPointAfter(last);
    else
      builder.setInsertionPoint(target.getBody().front().getTerminator());
    EndOp::create(builder, source.getLoc(), buffer);
  }
  for (Value buffer : begunStash) {
    builder.setInsertionPoint(getUseRange(buffer).first);
    BeginOp::create(builder, source.getLoc(), buffer);
  }
}

FailureOr<FuncOp> FunctionConverter::run(FunctionRegions *regions) {
  partition = mlir::galvatron::PartitionAttr::of(source);
  builder.setInsertionPointAfter(source);
  target = FuncOp::create(builder, source.getLoc(), source.getName());

  bindArguments();
  if (!isBackward())
    bindResults();
  // In backward the stash's size is known from the arguments; in recompute from
  // the results: kept parameters follow it in both.
  bindParameters();
  if (isBackward())
    bindResults();
  joinSums();
  shareBuffers();
  Block &block = source.getBody().front();
  const SourceValues ofSource(source);
  for (Operation &op : block.without_terminator()) {
    Operation *before = target.getBody().front().getTerminator()->getPrevNode();
    if (failed(emit(&op)))
      return failure();
    // Sums that are one call run together.
    const bool isJoined = joined.contains(&op);
    if (ofSource.makes(&op) &&
        (!isJoined || llvm::all_of(joined, [&](auto sum) {
          return ofSource.makes(sum.first);
        })))
      markSource(before);
  }

  builder.setInsertionPoint(target.getBody().front().getTerminator());
  for (const FinalCopy &copy : finalCopies) {
    Operation *before = target.getBody().front().getTerminator()->getPrevNode();
    Value from = getBuffer(copy.value);
    // A stash in the accumulator's type is a partial sum already: copy, do not
    // add.
    bool isSum = copy.accumulate && isa<BlockArgument>(copy.value) &&
                 layout.shards > 1 &&
                 from.getType() == copy.destination.getType();
    if (copy.accumulate && !isSum)
      emitAccumulation(from, copy.destination);
    else
      emitCopy(from, copy.destination);
    if (ofSource.has(copy.value))
      markSource(before);
  }
  int64_t shardOffset = 0;
  for (auto [bucket, full] : llvm::zip_equal(layout.buckets, fullGradients)) {
    if (full) {
      Type element = cast<MemRefType>(full.getType()).getElementType();
      Value shard = newBuffer(MemRefType::get(bucket.shardElements, element),
                              MemoryRegion::Gradient, shardOffset);
      ReduceScatterOp::create(builder, source.getLoc(), full, shard, Axis::SDP,
                              2, builder.getStringAttr("scatter"));
    }
    shardOffset += bucket.shardElements * layout.accumulatorBytes;
  }
  placeLifetimes();

  target.setInputBytes(sizes.inputBytes);
  target.setOutputBytes(sizes.outputBytes);
  target.setStashBytes(sizes.stashBytes);
  if (regions)
    *regions = sizes;
  source.erase();
  return target;
}

} // namespace

FailureOr<FuncOp> grt::convertFunction(func::FuncOp function,
                                       const KernelTarget &target,
                                       FunctionRegions *regions) {
  if (failed(verifyElementTypes(function)))
    return failure();
  FailureOr<FlatLayout> layout = getFlatLayout(function);
  if (failed(layout))
    return failure();
  return FunctionConverter(function, target, std::move(*layout)).run(regions);
}
