//===- BufferValues.cpp - What functions on buffers compute ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/GRT/Transforms/BufferValues.h"

#include "galvatron/Dialect/Galvatron/Transforms/FunctionValues.h"
#include "galvatron/Support/ValueNumber.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <map>

using namespace mlir;
using namespace mlir::grt;
using ::galvatron::ValueNumber;
using mlir::galvatron::NumberedValues;

namespace {

/// A range of bytes of a region, or of a transient buffer, with the number of
/// what was written there. `from` is where the value begins, of which the range
/// may have a part only.
struct Range {
  int64_t end, from;
  uint64_t number;
};

/// Memory that does not share bytes with other memory: a region, or a transient
/// buffer.
struct Space {
  std::map<int64_t, Range> ranges; ///< by begin
};

/// Follows a function from its first operation to its last.
class BufferValues {
public:
  explicit BufferValues(FuncOp func) : func(func) {}

  FailureOr<NumberedValues> run() {
    for (Operation &op : func.getBody().front())
      if (failed(follow(op)))
        return failure();
    return result();
  }

private:
  /// Bytes that an operand covers.
  struct Place {
    BufferOp buffer;
    int64_t begin, end;
  };

  static Place placeOf(Value value) {
    BufferRef ref = resolveBuffer(value);
    int64_t begin = ref.offset;
    if (ref.buffer.getRegion() != MemoryRegion::Transient)
      begin += ref.buffer.getOffset().value_or(0);
    return {ref.buffer, begin,
            begin + grt::getByteSize(cast<MemRefType>(value.getType()))};
  }

  Space &spaceOf(BufferOp buffer) {
    return buffer.getRegion() == MemoryRegion::Transient
               ? transients[buffer]
               : regions[buffer.getRegion()];
  }

  /// Splits the range that has byte `at` in its middle.
  static void splitAt(Space &space, int64_t at) {
    auto it = space.ranges.lower_bound(at);
    if (it == space.ranges.begin())
      return;
    --it;
    if (it->second.end <= at)
      return;
    space.ranges[at] = it->second;
    it->second.end = at;
  }

  /// The number of what lies in a place. What nothing has written is what came
  /// in by the region; fails where that is none of the regions that bring
  /// something.
  FailureOr<uint64_t> read(Operation &op, const Place &place) {
    BufferOp buffer = place.buffer;
    MemoryRegion region = buffer.getRegion();
    Space &space = spaceOf(buffer);
    ValueNumber number("read");
    bool written = false;
    for (auto it = space.ranges.begin(); it != space.ranges.end(); ++it) {
      int64_t begin = std::max(it->first, place.begin);
      int64_t end = std::min(it->second.end, place.end);
      if (begin >= end)
        continue;
      written = true;
      number.add(uint64_t(begin - place.begin)).add(uint64_t(end - begin));
      number.add(uint64_t(begin - it->second.from)).add(it->second.number);
    }
    if (written)
      return number.get();
    if (region == MemoryRegion::Transient ||
        (region == MemoryRegion::Stash && begun.contains(buffer)))
      return op.emitOpError()
                 .append("(V1) reads a ", stringifyMemoryRegion(region),
                         " buffer, expected it to have been written, found no "
                         "write")
                 .attachNote(buffer.getLoc())
             << "buffer named here";
    return ValueNumber("in")
        .add(stringifyMemoryRegion(region))
        .add(uint64_t(place.begin))
        .add(uint64_t(place.end))
        .get();
  }

  void write(const Place &place, uint64_t number) {
    Space &space = spaceOf(place.buffer);
    splitAt(space, place.begin);
    splitAt(space, place.end);
    // Rows of a packed buffer are written apart: what was there stays part of
    // what is there.
    ValueNumber made("write");
    made.add(number);
    for (auto it = space.ranges.lower_bound(place.begin);
         it != space.ranges.end() && it->first < place.end;
         it = space.ranges.erase(it))
      made.add(uint64_t(it->first - place.begin)).add(it->second.number);
    space.ranges[place.begin] = {place.end, place.begin, made.get()};
  }

  /// A number of an operation's name and attributes, without its operands.
  static ValueNumber describe(Operation &op) {
    ValueNumber number(op.getName().getStringRef());
    if (auto kernel = dyn_cast<KernelOp>(op)) {
      number.add(stringifyKernel(kernel.getKernel()));
      for (int64_t integer : kernel.getInts())
        number.add(uint64_t(integer));
      for (double real : kernel.getReals())
        number.add(llvm::bit_cast<uint64_t>(real));
    } else if (auto reduce = dyn_cast<AllReduceOp>(op)) {
      number.add(stringifyAxis(reduce.getAxis()));
    } else if (auto largest = dyn_cast<AllReduceMaxOp>(op)) {
      number.add(stringifyAxis(largest.getAxis()));
    } else if (auto counted = dyn_cast<AllToAllCountsOp>(op)) {
      number.add(stringifyAxis(counted.getAxis()));
      number.add(uint64_t(counted.getUnit()));
    } else if (auto gather = dyn_cast<AllGatherOp>(op)) {
      number.add(stringifyAxis(gather.getAxis()));
    } else if (auto exchange = dyn_cast<AllToAllOp>(op)) {
      number.add(stringifyAxis(exchange.getAxis()));
    } else if (auto shift = dyn_cast<ShiftOp>(op)) {
      number.add(stringifyAxis(shift.getAxis()));
      number.add(uint64_t(shift.getDistance()));
    } else if (auto scatter = dyn_cast<ReduceScatterOp>(op)) {
      number.add(stringifyAxis(scatter.getAxis()));
      number.add(uint64_t(scatter.getAcc()));
    }
    return number;
  }

  LogicalResult follow(Operation &op) {
    if (isa<BufferOp, ViewOp, RecordOp, WaitOp, ReturnOp>(op))
      return success();
    if (isa<BeginOp, EndOp>(op))
      return mark(op);
    SmallVector<MemoryEffects::EffectInstance> effects;
    cast<MemoryEffectOpInterface>(op).getEffects(effects);
    SmallVector<bool> reads(op.getNumOperands()), writes(op.getNumOperands());
    for (const MemoryEffects::EffectInstance &effect : effects)
      if (auto *operand = effect.getEffectValue<OpOperand *>())
        (isa<MemoryEffects::Read>(effect.getEffect())
             ? reads
             : writes)[operand->getOperandNumber()] = true;
    ValueNumber number = describe(op);
    for (unsigned i = 0; i < op.getNumOperands(); ++i) {
      Place place = placeOf(op.getOperand(i));
      number.add(uint64_t(place.end - place.begin));
      if (!reads[i])
        continue;
      FailureOr<uint64_t> value = read(op, place);
      if (failed(value))
        return failure();
      number.add(uint64_t(i)).add(*value);
    }
    values.add(number.get(), &op);
    bool writesAny = false;
    for (unsigned i = 0; i < op.getNumOperands(); ++i)
      if (writes[i]) {
        writesAny = true;
        write(placeOf(op.getOperand(i)),
              ValueNumber("result").add(number.get()).add(uint64_t(i)).get());
      }
    if (!writesAny)
      unnamed.push_back(number.get());
    return success();
  }

  /// Begins and ends of what forward keeps.
  LogicalResult mark(Operation &op) {
    Place place = placeOf(op.getOperand(0));
    if (isa<BeginOp>(op))
      begun.insert(place.buffer);
    if (place.buffer.getRegion() == MemoryRegion::Stash) {
      marks.push_back(ValueNumber(op.getName().getStringRef())
                          .add(uint64_t(place.begin))
                          .add(uint64_t(place.end))
                          .get());
      values.add(marks.back(), &op);
    }
    return success();
  }

  NumberedValues result() {
    ValueNumber number("function");
    for (auto &[region, space] : regions) {
      number.add(stringifyMemoryRegion(region));
      for (auto &[begin, range] : space.ranges)
        number.add(uint64_t(begin)).add(uint64_t(range.end)).add(range.number);
    }
    for (std::vector<uint64_t> *list : {&marks, &unnamed}) {
      llvm::sort(*list);
      number.add(uint64_t(list->size()));
      for (uint64_t entry : *list)
        number.add(entry);
    }
    for (auto [bytes, name] : {std::pair(func.getStashBytes(), "stash_bytes"),
                               {func.getInputBytes(), "input_bytes"},
                               {func.getOutputBytes(), "output_bytes"},
                               {func.getGatheredBytes(), "gathered_bytes"}}) {
      number.add(uint64_t(bytes.value_or(-1)));
      values.add(ValueNumber(name).add(uint64_t(bytes.value_or(-1))).get(),
                 "the attribute '" + Twine(name) + "'");
    }
    values.whole = number.get();
    return std::move(values);
  }

  FuncOp func;
  NumberedValues values;
  std::map<MemoryRegion, Space> regions;
  llvm::DenseMap<Operation *, Space> transients;
  llvm::DenseSet<Operation *> begun;
  std::vector<uint64_t> marks;   ///< of what forward keeps
  std::vector<uint64_t> unnamed; ///< operations whose effect no buffer has
};

} // namespace

FailureOr<NumberedValues> mlir::grt::numberValues(FuncOp func) {
  return BufferValues(func).run();
}

NumberedValues mlir::grt::numberRole(RoleOp role, SymbolTable &symbols) {
  // Allocation adds the former, and may take the latter back.
  static constexpr StringLiteral added[] = {
      "arena",     "arena_bytes",   "ledger",        "slot_bytes",
      "placement", "forward_ahead", "backward_ahead"};
  auto textOf = [](Attribute attribute) {
    std::string text;
    llvm::raw_string_ostream(text) << attribute;
    return text;
  };
  ValueNumber whole("role");
  NumberedValues values;
  auto addOperation = [&](Operation *op) {
    ValueNumber number(op->getName().getStringRef());
    for (NamedAttribute attribute : op->getAttrDictionary()) {
      StringRef name = attribute.getName();
      if (llvm::is_contained(added, name) ||
          name == mlir::galvatron::kValuesAttr)
        continue;
      number.add(name).add(textOf(attribute.getValue()));
      auto symbol = dyn_cast<FlatSymbolRefAttr>(attribute.getValue());
      auto exchange =
          symbol ? symbols.lookup<ExchangeOp>(symbol.getValue()) : ExchangeOp();
      if (exchange)
        number.add(textOf(exchange->getAttrDictionary()));
    }
    whole.add(number.get());
    values.add(number.get(), op);
  };
  auto module = role->getParentOfType<ModuleOp>();
  SmallVector<StringRef> settled(mlir::galvatron::settledModuleAttrs());
  settled.push_back(kModelAttr);
  for (StringRef name : settled)
    if (Attribute attribute = module->getAttr(name)) {
      ValueNumber number(textOf(attribute));
      whole.add(number.get());
      values.add(number.get(), "the module's '" + name + "'");
    }
  addOperation(role);
  for (Operation &op : role.getLayers().front())
    addOperation(&op);
  values.whole = whole.get();
  return values;
}
