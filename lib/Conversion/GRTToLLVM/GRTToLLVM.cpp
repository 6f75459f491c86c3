//===- GRTToLLVM.cpp - From the grt dialect to LLVM -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything but calls and branches is constant data. A structure without
// pointers (buffers, integers, tasks) is emitted as one dense array with the
// memory layout of the C structure on a little-endian machine; a structure with
// pointers as a global with an initializer.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Conversion/GRTToLLVM/GRTToLLVM.h"
#include "galvatron/Dialect/GRT/IR/KernelCalls.h"
#include "galvatron/Dialect/GRT/Transforms/Roles.h"
#include "grt/abi.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringMap.h"

#include <cstddef>

namespace mlir {
#define GEN_PASS_DEF_CONVERTGRTTOLLVM
#include "galvatron/Conversion/GRTToLLVM/Passes.h.inc"
} // namespace mlir

using namespace mlir;
using namespace mlir::grt;

// The layouts that the dense arrays and structures below assume.
static_assert(sizeof(grt_buffer) == 24 && offsetof(grt_buffer, dtype) == 4 &&
              offsetof(grt_buffer, offset) == 8 &&
              offsetof(grt_buffer, bytes) == 16);
static_assert(
    sizeof(grt_task) == 24 && offsetof(grt_task, flags) == 1 &&
    offsetof(grt_task, chunk) == 2 && offsetof(grt_task, slot) == 4 &&
    offsetof(grt_task, generation) == 6 && offsetof(grt_task, classes) == 7 &&
    offsetof(grt_task, tiers) == 19 && offsetof(grt_task, micro_batch) == 8 &&
    offsetof(grt_task, first) == 12 && offsetof(grt_task, count) == 16 &&
    offsetof(grt_task, stream) == 18 && offsetof(grt_task, records) == 20 &&
    offsetof(grt_task, waits) == 21);
static_assert(int(::galvatron::TransferDirection::Receive) == GRT_RECEIVE &&
              int(::galvatron::TransferValue::Gradient) == GRT_GRADIENT &&
              int(::galvatron::TransferValue::Stash) == GRT_STASH &&
              int(::galvatron::TaskKind::TieBroadcast) ==
                  GRT_TASK_TIE_BROADCAST &&
              int(::galvatron::TaskKind::Swap) == GRT_TASK_SWAP &&
              int(::galvatron::SwapParameters) == GRT_SWAP_PARAMETERS &&
              int(::galvatron::SwapGradients) == GRT_SWAP_GRADIENTS &&
              int(::galvatron::SwapActivations) == GRT_SWAP_ACTIVATIONS &&
              int(::galvatron::SwapOptimizer) == GRT_SWAP_OPTIMIZER &&
              int(::galvatron::SyncBehind) == GRT_SYNC_BEHIND);
static_assert(sizeof(grt_transfer_part) == 16 &&
              offsetof(grt_transfer_part, value) == 1 &&
              offsetof(grt_transfer_part, chunk) == 2 &&
              offsetof(grt_transfer_part, peer_chunk) == 4 &&
              offsetof(grt_transfer_part, slot) == 6 &&
              offsetof(grt_transfer_part, micro_batch) == 8 &&
              offsetof(grt_transfer_part, generation) == 12);
static_assert(sizeof(grt_kernel_op) == 48 &&
              offsetof(grt_kernel_op, buffers) == 16);
static_assert(sizeof(grt_collective_op) == 72 &&
              offsetof(grt_collective_op, in) == 16 &&
              offsetof(grt_collective_op, name) == 64);
static_assert(sizeof(grt_event_op) == 24 && offsetof(grt_event_op, name) == 16);
static_assert(sizeof(grt_task_list) == 16 &&
              sizeof(grt_schedule) == 16 * (GRT_PART_COUNT + 1) &&
              offsetof(grt_schedule, transfers) == 16 * GRT_PART_COUNT);
static_assert(sizeof(grt_program) == 48 &&
              offsetof(grt_program, functions) == 16);

namespace {

/// A buffer as three 64-bit words: region and element type, offset, bytes.
using BufferWords = std::array<int64_t, 3>;

class ProgramBuilder {
public:
  ProgramBuilder(ModuleOp source, ModuleOp target)
      : source(source), builder(OpBuilder::atBlockEnd(target.getBody())),
        loc(source.getLoc()), context(source.getContext()),
        ptr(LLVM::LLVMPointerType::get(context)), i32(builder.getI32Type()),
        i64(builder.getI64Type()), words(LLVM::LLVMArrayType::get(i64, 3)),
        kernelType(LLVM::LLVMStructType::getLiteral(
            context, {i32, i32, i32, i32, ptr, ptr, ptr, ptr})),
        collectiveType(LLVM::LLVMStructType::getLiteral(
            context, {i32, i32, i32, i32, words, words, ptr})),
        eventType(LLVM::LLVMStructType::getLiteral(context,
                                                   {i32, i32, i32, i32, ptr})) {
  }

  LogicalResult run(StringRef manifest) {
    FailureOr<SmallVector<RoleOp>> roles = getRoles(source);
    if (failed(roles) || failed(checkLeftovers()))
      return failure();
    SmallVector<StringRef> entries = {"grt_launch", "grt_communicate",
                                      "grt_begin", "grt_end"};
    if (usesEvents())
      entries.push_back("grt_order");
    for (StringRef name : entries)
      LLVM::LLVMFuncOp::create(builder, loc, name,
                               LLVM::LLVMFunctionType::get(i32, {ptr, ptr}));
    SmallVector<StringRef> functions;
    for (auto func : source.getOps<FuncOp>()) {
      if (failed(buildFunction(func)))
        return failure();
      functions.push_back(func.getSymName());
    }
    if (failed(buildSchedules(*roles)))
      return failure();
    buildFunctionTable(functions);
    buildNames();
    buildProgram(functions.size(), roles->size(), manifest);
    return success();
  }

private:
  bool usesEvents() {
    for (auto func : source.getOps<FuncOp>())
      for (Operation &op : func.getBody().front())
        if (isa<RecordOp, WaitOp>(op))
          return true;
    return false;
  }

  /// Nothing may be left out of the program silently.
  LogicalResult checkLeftovers() {
    for (Operation &op : *source.getBody()) {
      if (isa<FuncOp, RoleOp, ScheduleOp, ExchangeOp,
              mlir::galvatron::ParameterOp>(op))
        continue;
      // Bodies that other passes copied from are not part of the program.
      auto symbol = dyn_cast<SymbolOpInterface>(op);
      if (symbol && symbol.isPrivate() &&
          symbol.symbolKnownUseEmpty(source.getOperation()))
        continue;
      return op.emitOpError("expected to have been converted before "
                            "'convert-grt-to-llvm'");
    }
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Constant data
  //===--------------------------------------------------------------------===//

  LLVM::GlobalOp buildGlobal(Type type, const Twine &name, Attribute value) {
    return LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/true,
                                  LLVM::Linkage::Private, name.str(), value);
  }

  /// A global whose value `fill` makes from an undefined value of its type.
  LLVM::GlobalOp
  buildStructure(Type type, const Twine &name,
                 llvm::function_ref<Value(OpBuilder &, Value)> fill) {
    LLVM::GlobalOp global = buildGlobal(type, name, Attribute());
    OpBuilder init =
        OpBuilder::atBlockBegin(&global.getInitializerRegion().emplaceBlock());
    Value value = LLVM::UndefOp::create(init, loc, type);
    value = fill(init, value);
    LLVM::ReturnOp::create(init, loc, value);
    return global;
  }

  Value constant(OpBuilder &init, int64_t value, Type type) {
    return LLVM::ConstantOp::create(init, loc, type,
                                    init.getIntegerAttr(type, value));
  }
  Value constant(OpBuilder &init, const BufferWords &value) {
    return LLVM::ConstantOp::create(
        init, loc, words,
        DenseElementsAttr::get(RankedTensorType::get({3}, i64),
                               ArrayRef<int64_t>(value)));
  }
  Value insert(OpBuilder &init, Value aggregate, Value field,
               ArrayRef<int64_t> position) {
    return LLVM::InsertValueOp::create(init, loc, aggregate, field, position);
  }
  Value addressOf(OpBuilder &init, StringRef name) {
    return LLVM::AddressOfOp::create(init, loc, ptr, name);
  }
  Value null(OpBuilder &init) { return LLVM::ZeroOp::create(init, loc, ptr); }
  /// `bytes` behind the start of the global `name`.
  Value addressAt(OpBuilder &init, StringRef name, int64_t bytes) {
    Value base = addressOf(init, name);
    if (bytes == 0)
      return base;
    return LLVM::GEPOp::create(init, loc, ptr, init.getI8Type(), base,
                               ArrayRef<LLVM::GEPArg>(int32_t(bytes)));
  }

  /// All names in one global, each once.
  int64_t getName(StringRef name) {
    auto [it, inserted] = nameOffsets.try_emplace(name, names.size());
    if (inserted) {
      names.append(name.begin(), name.end());
      names.push_back('\0');
    }
    return it->second;
  }

  void buildNames() {
    if (names.empty())
      return;
    buildGlobal(LLVM::LLVMArrayType::get(builder.getI8Type(), names.size()),
                kNames, builder.getStringAttr(StringRef(names)));
  }

  //===--------------------------------------------------------------------===//
  // Layer functions
  //===--------------------------------------------------------------------===//

  /// The words of a value, of at least `needed` bytes.
  FailureOr<BufferWords> getWords(Operation *user, Value value,
                                  int64_t needed = 0) {
    BufferRef ref = resolveBuffer(value);
    std::optional<int64_t> offset = ref.buffer.getOffset();
    if (!offset)
      return user->emitOpError("expected buffers with offsets: run "
                               "'galvatron-allocate-arena' first");
    auto type = cast<MemRefType>(value.getType());
    int64_t region = static_cast<int64_t>(ref.buffer.getRegion());
    int64_t dtype = getAbiDType(type.getElementType());
    return BufferWords{region | dtype << 32, *offset + ref.offset,
                       std::max(getByteSize(type), needed)};
  }

  /// The data of one function, and what its calls pass.
  struct FunctionData {
    std::string name;
    SmallVector<int64_t> buffers, ints;
    SmallVector<double> reals;
    int64_t calls = 0;

    std::string buffersName() const { return name + ".buffers"; }
    std::string intsName() const { return name + ".ints"; }
    std::string realsName() const { return name + ".reals"; }
  };

  /// A call: the runtime's function, and its descriptor as a place in a global.
  struct Call {
    StringRef callee;
    std::string descriptor;
    int64_t offset = 0;
  };

  FailureOr<Call> buildKernel(KernelOp op, FunctionData &data) {
    ::grt::KernelBuffers buffers = getKernelBuffers(op);
    int64_t firstBuffer = data.buffers.size() / 3;
    for (auto [i, value] : llvm::enumerate(op.getBuffers())) {
      // Rows reach past their view; the runtime is told how far.
      int64_t needed = 0;
      if (buffers[i].hasRows)
        needed = getReachBytes(buffers[i], cast<MemRefType>(value.getType()));
      FailureOr<BufferWords> buffer = getWords(op, value, needed);
      if (failed(buffer))
        return failure();
      llvm::append_range(data.buffers, *buffer);
    }
    int64_t firstInt = data.ints.size(), firstReal = data.reals.size();
    llvm::append_range(data.ints, op.getInts());
    llvm::append_range(data.reals, op.getReals());
    int64_t label =
        getName(op.getLabel().value_or(stringifyKernel(op.getKernel())));
    std::string descriptor = data.name + ".call" + std::to_string(data.calls++);
    buildStructure(kernelType, descriptor, [&](OpBuilder &init, Value value) {
      int64_t counts[] = {
          static_cast<int64_t>(op.getKernel()), int64_t(op.getBuffers().size()),
          int64_t(op.getInts().size()), int64_t(op.getReals().size())};
      for (auto [i, count] : llvm::enumerate(counts))
        value = insert(init, value, constant(init, count, i32), int64_t(i));
      value = insert(init, value,
                     addressAt(init, data.buffersName(), firstBuffer * 24), 4);
      value = insert(init, value,
                     counts[2] ? addressAt(init, data.intsName(), firstInt * 8)
                               : null(init),
                     5);
      value =
          insert(init, value,
                 counts[3] ? addressAt(init, data.realsName(), firstReal * 8)
                           : null(init),
                 6);
      return insert(init, value, addressAt(init, kNames, label), 7);
    });
    return Call{"grt_launch", descriptor};
  }

  FailureOr<Call> buildCollective(Operation *op, grt_collective collective,
                                  Value in, Value out, Axis axis, int64_t acc,
                                  Stream stream, std::optional<StringRef> label,
                                  FunctionData &data) {
    FailureOr<BufferWords> inWords = getWords(op, in);
    FailureOr<BufferWords> outWords = getWords(op, out);
    if (failed(inWords) || failed(outWords))
      return failure();
    int64_t name = getName(label.value_or(op->getName().stripDialect()));
    std::string descriptor = data.name + ".call" + std::to_string(data.calls++);
    buildStructure(
        collectiveType, descriptor, [&](OpBuilder &init, Value value) {
          int64_t numbers[] = {collective, static_cast<int64_t>(axis), acc,
                               static_cast<int64_t>(stream)};
          for (auto [i, number] : llvm::enumerate(numbers))
            value =
                insert(init, value, constant(init, number, i32), int64_t(i));
          value = insert(init, value, constant(init, *inWords), 4);
          value = insert(init, value, constant(init, *outWords), 5);
          return insert(init, value, addressAt(init, kNames, name), 6);
        });
    return Call{"grt_communicate", descriptor};
  }

  Call buildEvent(int64_t event, Stream stream, int64_t wait, StringRef label,
                  FunctionData &data) {
    int64_t name = getName(label);
    std::string descriptor = data.name + ".call" + std::to_string(data.calls++);
    buildStructure(eventType, descriptor, [&](OpBuilder &init, Value value) {
      int64_t numbers[] = {event, static_cast<int64_t>(stream), wait, 0};
      for (auto [i, number] : llvm::enumerate(numbers))
        value = insert(init, value, constant(init, number, i32), int64_t(i));
      return insert(init, value, addressAt(init, kNames, name), 4);
    });
    return {"grt_order", descriptor};
  }

  FailureOr<Call> buildLifetime(Operation *op, FunctionData &data) {
    FailureOr<BufferWords> buffer = getWords(op, op->getOperand(0));
    if (failed(buffer))
      return failure();
    int64_t offset = data.buffers.size() * 8;
    llvm::append_range(data.buffers, *buffer);
    return Call{isa<BeginOp>(op) ? "grt_begin" : "grt_end", data.buffersName(),
                offset};
  }

  FailureOr<std::optional<Call>> buildCall(Operation *op, FunctionData &data) {
    FailureOr<Call> call = failure();
    if (isa<BufferOp, ViewOp, ReturnOp>(op))
      return std::optional<Call>();
    if (auto kernel = dyn_cast<KernelOp>(op))
      call = buildKernel(kernel, data);
    else if (isa<BeginOp, EndOp>(op))
      call = buildLifetime(op, data);
    else if (auto reduce = dyn_cast<AllReduceOp>(op))
      call = buildCollective(op, GRT_ALL_REDUCE, reduce.getBuffer(),
                             reduce.getBuffer(), reduce.getAxis(), 0,
                             reduce.getStream(), reduce.getLabel(), data);
    else if (auto gather = dyn_cast<AllGatherOp>(op))
      call = buildCollective(op, GRT_ALL_GATHER, gather.getSource(),
                             gather.getDestination(), gather.getAxis(), 0,
                             gather.getStream(), gather.getLabel(), data);
    else if (auto scatter = dyn_cast<ReduceScatterOp>(op))
      call = buildCollective(op, GRT_REDUCE_SCATTER, scatter.getSource(),
                             scatter.getDestination(), scatter.getAxis(),
                             scatter.getAcc(), scatter.getStream(),
                             scatter.getLabel(), data);
    else if (auto record = dyn_cast<RecordOp>(op))
      call =
          buildEvent(record.getEvent(), record.getStream(), 0, "record", data);
    else if (auto wait = dyn_cast<WaitOp>(op))
      call = buildEvent(wait.getEvent(), wait.getStream(), 1, "wait", data);
    else
      return op->emitOpError("expected an operation that has a call in the C "
                             "ABI");
    if (failed(call))
      return failure();
    return std::optional<Call>(*call);
  }

  LogicalResult buildFunction(FuncOp func) {
    FunctionData data;
    data.name = func.getSymName().str();
    SmallVector<Call> calls;
    for (Operation &op : func.getBody().front()) {
      FailureOr<std::optional<Call>> call = buildCall(&op, data);
      if (failed(call))
        return failure();
      if (*call)
        calls.push_back(**call);
    }
    auto dense = [&](auto values, ArrayRef<int64_t> shape, Type element) {
      return DenseElementsAttr::get(RankedTensorType::get(shape, element),
                                    ArrayRef(values));
    };
    if (!data.buffers.empty()) {
      int64_t count = data.buffers.size() / 3;
      buildGlobal(LLVM::LLVMArrayType::get(words, count), data.buffersName(),
                  dense(data.buffers, {count, 3}, i64));
    }
    if (!data.ints.empty())
      buildGlobal(LLVM::LLVMArrayType::get(i64, data.ints.size()),
                  data.intsName(),
                  dense(data.ints, {int64_t(data.ints.size())}, i64));
    if (!data.reals.empty())
      buildGlobal(
          LLVM::LLVMArrayType::get(builder.getF64Type(), data.reals.size()),
          data.realsName(),
          dense(data.reals, {int64_t(data.reals.size())},
                builder.getF64Type()));

    auto result = LLVM::LLVMFuncOp::create(
        builder, loc, data.name, LLVM::LLVMFunctionType::get(i32, {ptr}),
        LLVM::Linkage::Internal);
    OpBuilder::InsertionGuard guard(builder);
    Block *entry = result.addEntryBlock(builder);
    Block *exit = builder.createBlock(&result.getBody(), {}, {i32}, {loc});
    LLVM::ReturnOp::create(builder, loc, exit->getArgument(0));
    builder.setInsertionPointToEnd(entry);
    Value zero = constant(builder, 0, i32);
    for (const Call &call : calls) {
      Value descriptor = addressAt(builder, call.descriptor, call.offset);
      Value status =
          LLVM::CallOp::create(builder, loc, TypeRange{i32}, call.callee,
                               ValueRange{entry->getArgument(0), descriptor})
              .getResult();
      Value failed = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::ne,
                                          status, zero);
      Block *next = new Block();
      result.getBody().getBlocks().insert(exit->getIterator(), next);
      LLVM::CondBrOp::create(builder, loc, failed, exit, ValueRange{status},
                             next, ValueRange{});
      builder.setInsertionPointToEnd(next);
    }
    LLVM::BrOp::create(builder, loc, ValueRange{zero}, exit);
    return success();
  }

  void buildFunctionTable(ArrayRef<StringRef> functions) {
    if (functions.empty())
      return;
    buildStructure(LLVM::LLVMArrayType::get(ptr, functions.size()), kFunctions,
                   [&](OpBuilder &init, Value value) {
                     for (auto [i, name] : llvm::enumerate(functions))
                       value = insert(init, value, addressOf(init, name),
                                      int64_t(i));
                     return value;
                   });
  }

  //===--------------------------------------------------------------------===//
  // Schedules
  //===--------------------------------------------------------------------===//

  /// Rows of tables as 32-bit words, the first byte of a row lowest.
  using Words = SmallVector<int32_t>;
  static constexpr int64_t kTaskWords = sizeof(grt_task) / 4;
  static constexpr int64_t kPartWords = sizeof(grt_transfer_part) / 4;

  static uint32_t tiersOf(const ::galvatron::Task &task) {
    if (task.kind != ::galvatron::TaskKind::Swap)
      return 0;
    return task.out ? GRT_TO_HOST : GRT_TO_DEVICE;
  }

  /// Appends a task; parts of transfers to their own table.
  static void appendTask(const ::galvatron::Task &task, Words &table,
                         Words &transfers) {
    uint32_t first = transfers.size() / kPartWords;
    for (const ::galvatron::TransferPart &part : task.parts)
      transfers.append(
          {int32_t(uint32_t(part.direction) | uint32_t(part.value) << 8 |
                   uint32_t(part.chunk) << 16),
           int32_t(part.peerChunk | uint32_t(part.slot) << 16),
           int32_t(part.microBatch), int32_t(part.generation)});
    uint32_t count = task.parts.size();
    table.append(
        {int32_t(uint32_t(task.kind) | uint32_t(task.flags) << 8 |
                 uint32_t(task.chunk) << 16),
         int32_t(task.slot | uint32_t(task.generation) << 16 |
                 uint32_t(task.classes) << 24),
         int32_t(task.microBatch), int32_t(count ? first : 0),
         int32_t(count | uint32_t(task.stream) << 16 | tiersOf(task) << 24),
         int32_t(task.records | uint32_t(task.waits[0]) << 8 |
                 uint32_t(task.waits[1]) << 16 |
                 uint32_t(task.waits[2]) << 24)});
  }

  /// A constant table of rows of 32-bit words; returns how many rows.
  int64_t buildTable(const std::string &name, const Words &words,
                     int64_t rowWords) {
    int64_t count = words.size() / rowWords;
    if (count)
      buildGlobal(
          LLVM::LLVMArrayType::get(LLVM::LLVMArrayType::get(i32, rowWords),
                                   count),
          name,
          DenseElementsAttr::get(RankedTensorType::get({count, rowWords}, i32),
                                 ArrayRef<int32_t>(words)));
    return count;
  }

  LogicalResult buildSchedules(ArrayRef<RoleOp> roles) {
    llvm::StringMap<ScheduleOp> schedules;
    for (auto schedule : source.getOps<ScheduleOp>())
      if (!schedules.try_emplace(schedule.getRole(), schedule).second)
        return schedule.emitOpError()
               << "expected one schedule of role '" << schedule.getRole()
               << "', found a second";
    if (roles.empty())
      return success();

    /// Global and number of rows: the tasks of every part of every role, and
    /// behind them the parts of its transfers.
    struct Table {
      std::string name;
      int64_t count = 0;
    };
    std::vector<std::array<Table, GRT_PART_COUNT + 1>> tables(roles.size());
    for (auto [number, role] : llvm::enumerate(roles)) {
      RoleOp roleOp = role;
      auto it = schedules.find(roleOp.getSymName());
      if (it == schedules.end())
        return roleOp.emitOpError()
               << "expected a schedule of role '" << roleOp.getSymName()
               << "': run 'galvatron-schedule-tasks' first";
      Words transfers;
      for (auto part : it->second.getParts().getOps<PartOp>()) {
        Words words;
        for (auto task : part.getTasks().getOps<TaskOp>())
          appendTask(readTask(task, /*only=*/number), words, transfers);
        Table &table = tables[number][static_cast<size_t>(part.getPart())];
        table.name =
            (it->second.getSymName() + "." + stringifyPart(part.getPart()))
                .str();
        table.count = buildTable(table.name, words, kTaskWords);
      }
      Table &parts = tables[number].back();
      parts.name = (it->second.getSymName() + ".transfers").str();
      parts.count = buildTable(parts.name, transfers, kPartWords);
    }
    Type list = LLVM::LLVMStructType::getLiteral(context, {ptr, i64});
    Type schedule = LLVM::LLVMArrayType::get(list, GRT_PART_COUNT + 1);
    buildStructure(
        LLVM::LLVMArrayType::get(schedule, roles.size()), kSchedules,
        [&](OpBuilder &init, Value value) {
          for (auto [r, parts] : llvm::enumerate(tables))
            for (auto [p, table] : llvm::enumerate(parts)) {
              int64_t role = r, part = p;
              value =
                  insert(init, value,
                         table.count ? addressOf(init, table.name) : null(init),
                         {role, part, 0});
              value = insert(init, value, constant(init, table.count, i64),
                             {role, part, 1});
            }
          return value;
        });
    return success();
  }

  //===--------------------------------------------------------------------===//
  // grt_program
  //===--------------------------------------------------------------------===//

  void buildProgram(int64_t functions, int64_t roles, StringRef manifest) {
    if (!manifest.empty()) {
      LLVM::GlobalOp text = buildGlobal(
          LLVM::LLVMArrayType::get(builder.getI8Type(), manifest.size()),
          kManifest, builder.getStringAttr(manifest));
      text.setSection(".grt.manifest");
    }
    Type type = LLVM::LLVMStructType::getLiteral(
        context, {i32, i32, i32, i32, ptr, ptr, ptr, i64});
    // Two fields of 16 bits.
    int64_t rowBytes = sizeof(grt_task) | sizeof(grt_transfer_part) << 16;
    LLVM::GlobalOp program =
        buildStructure(type, "grt_program", [&](OpBuilder &init, Value value) {
          int64_t numbers[] = {GRT_ABI_VERSION, functions, roles, rowBytes};
          for (auto [i, number] : llvm::enumerate(numbers))
            value =
                insert(init, value, constant(init, number, i32), int64_t(i));
          auto table = [&](int64_t count, StringRef name) {
            return count ? addressOf(init, name) : null(init);
          };
          value = insert(init, value, table(functions, kFunctions), 4);
          value = insert(init, value, table(roles, kSchedules), 5);
          value = insert(init, value, table(manifest.size(), kManifest), 6);
          return insert(init, value, constant(init, manifest.size(), i64), 7);
        });
    program.setLinkage(LLVM::Linkage::External);
  }

  // Names that no layer function or role can have: '$' does not occur in them.
  static constexpr StringLiteral kNames = "grt$names";
  static constexpr StringLiteral kFunctions = "grt$functions";
  static constexpr StringLiteral kSchedules = "grt$schedules";
  static constexpr StringLiteral kManifest = "grt$manifest";

  ModuleOp source;
  OpBuilder builder;
  Location loc;
  MLIRContext *context;
  Type ptr, i32, i64, words, kernelType, collectiveType, eventType;
  llvm::StringMap<int64_t> nameOffsets;
  SmallString<1024> names;
};

class ConvertGRTToLLVMPass
    : public mlir::impl::ConvertGRTToLLVMBase<ConvertGRTToLLVMPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto manifest = module->getAttrOfType<StringAttr>(kManifestAttr);
    FailureOr<OwningOpRef<ModuleOp>> lowered =
        convertGRTToLLVM(module, manifest ? manifest.getValue() : StringRef());
    if (failed(lowered))
      return signalPassFailure();
    module->removeAttr(kManifestAttr);
    module.getBody()->clear();
    module.getBody()->getOperations().splice(
        module.getBody()->end(), (*lowered)->getBody()->getOperations());
  }
};

} // namespace

FailureOr<OwningOpRef<ModuleOp>>
mlir::grt::convertGRTToLLVM(ModuleOp module, StringRef manifest) {
  module.getContext()->getOrLoadDialect<LLVM::LLVMDialect>();
  OwningOpRef<ModuleOp> target = ModuleOp::create(module.getLoc());
  if (failed(ProgramBuilder(module, *target).run(manifest)))
    return failure();
  return target;
}
