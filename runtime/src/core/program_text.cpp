//===- program_text.cpp - Calls and tasks of a program as text ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/program_text.h"
#include "base/error.h"
#include "core/manifest.h"
#include "grt/axes.h"
#include "grt/kernels.h"

#include <cstdio>

namespace grt {
namespace {

std::string extentText(const grt_buffer &buffer) {
  return std::string(regionName(buffer.region)) + "[" + str(buffer.offset) +
         ", " + str(buffer.offset + buffer.bytes) + ") " +
         dtypeName(buffer.dtype);
}

/// " 'h.mlp'", or nothing for a name that says no more than the kind.
std::string quotedName(const char *name) {
  return *name ? std::string(" '") + name + "'" : "";
}

std::string kernelText(const grt_kernel_op &op) {
  const KernelBuffers buffers = buffersOf(op);
  const KernelInts ints = kernelInts(op.kernel);
  std::string text = kernelName(op.kernel) + quotedName(op.name);
  auto add = [&](size_t i, const char *first, const char *name,
                 const std::string &value) {
    text += (i ? ", " : first) + (*name ? name + std::string(" ") : "") + value;
  };
  for (size_t i = 0; i < op.buffer_count; ++i)
    add(i, ": ", i < buffers.size() ? buffers[i].name : "",
        extentText(op.buffers[i]));
  for (size_t i = 0; i < op.int_count; ++i)
    add(i, "; ", i < ints.size() ? ints[i].name : "", str(op.ints[i]));
  for (size_t i = 0; i < op.real_count; ++i) {
    char value[32];
    std::snprintf(value, sizeof(value), "%.9g", op.reals[i]);
    add(i, "; reals ", "", value);
  }
  return text;
}

std::string collectiveText(const grt_collective_op &op) {
  static const char *const kinds[GRT_COLLECTIVE_COUNT] = {
      "all-reduce",
      "all-gather",
      "reduce-scatter",
      "all-to-all",
      "all-to-all with counts",
      "shift",
      "all-reduce of max"};
  std::string text = kinds[op.collective] + quotedName(op.name) + " over " +
                     axisForms[op.axis].name + " on " + streamName(op.stream) +
                     ": " + extentText(op.in);
  if (op.collective != GRT_ALL_REDUCE && op.collective != GRT_ALL_REDUCE_MAX)
    text += " to " + extentText(op.out);
  if (op.collective == GRT_SHIFT)
    text += "; distance " + str(op.distance);
  if (op.collective == GRT_ALL_TO_ALL_COUNTS)
    text += "; units of " + str(op.unit_bytes) + " bytes, counts " +
            extentText(op.counts);
  return text + (op.acc ? "; acc " + str(op.acc) : "");
}

std::string partText(const grt_transfer_part &part) {
  static const char *const values[] = {"activation", "gradient", "stash"};
  const bool sends = part.direction == GRT_SEND;
  return std::string(sends ? "send " : "receive ") + values[part.value] +
         " of micro-batch " + str(part.micro_batch) +
         (sends ? ", chunk " : " for chunk ") + str(part.chunk) +
         (sends ? " to " : " from ") + str(part.peer_chunk) +
         (sends || part.value == GRT_GRADIENT ? ""
                                              : ", slot " + str(part.slot)) +
         (part.generation ? ", batch +" + str(part.generation) : "");
}

std::string swapText(uint8_t taskTiers, uint8_t taskClasses) {
  static const std::pair<unsigned, const char *> classes[] = {
      {GRT_SWAP_PARAMETERS, " parameters"},
      {GRT_SWAP_GRADIENTS, " gradients"},
      {GRT_SWAP_ACTIVATIONS, " activations"},
      {GRT_SWAP_OPTIMIZER, " optimizer"}};
  std::string text = taskTiers == GRT_TO_HOST ? " out" : " in";
  for (const auto &[bit, name] : classes)
    text += taskClasses & bit ? name : "";
  return text + " of";
}

constexpr const char *taskNames[] = {
    "forward", "backward", "transfer:",     "sync-gradients", "tie-reduce",
    "norm",    "update",   "tie-broadcast", "backward-input", "backward-weight",
    "swap"};

/// " [64, 128) + 4096 slot", of a place that moves with the slot; "" of none.
std::string placeText(uint32_t number, std::span<const gvx::Place> places) {
  if (number == 0)
    return "";
  const gvx::Place &place = places[number - 1];
  std::string text =
      " [" + str(place.offset) + ", " + str(place.offset + place.bytes) + ")";
  auto add = [&](int64_t step, const char *what) {
    if (step)
      text += (step < 0 ? " - " : " + ") +
              str(step < 0 ? 0 - uint64_t(step) : uint64_t(step)) + " " + what;
  };
  add(place.perSlot, "slot");
  add(place.perPlace, "place");
  add(place.perPart, "part");
  return text;
}

const char *phaseName(LayerPhase phase) {
  static const char *const names[layerPhaseCount] = {
      "forward", "recompute", "backward", "weight", "update", "norm"};
  return names[size_t(phase)];
}

/// The text of a command, without its places.
std::string commandText(const gvx::Command &command) {
  using enum gvx::CommandKind;
  const std::string layer = " layer " + str(command.layer);
  const std::string number = " " + str(command.number);
  switch (command.kind) {
  case Call:
    return "call" + layer + ", " + phaseName(command.phase);
  case Gather:
    return "gather" + layer + " for " + phaseName(command.phase) +
           (command.number ? " behind sums" : "");
  case Collect:
    return "collect" + layer;
  case Sum:
    return "sum" + layer;
  case AwaitSum:
    return std::string("await sums on ") + streamName(command.stream);
  case AwaitHome:
    return "await home";
  case Order:
    return std::string("order ") + streamName(command.stream) + " behind " +
           streamName(uint32_t(command.number));
  case Begin:
    return "begin";
  case End:
    return "end";
  case Copy:
    return "copy";
  case Add:
    return "add";
  case Reshard:
    return "exchange" + number;
  case UseSlot:
    return "use slot";
  case UseBuffer:
    return "use buffer" + number;
  case Used:
    return "used";
  case Mark:
    return "mark";
  case Rewind:
    return "rewind";
  case TakeTurn:
    return "take turn of chunk" + number;
  case Return:
    return "return";
  case TellLoss:
    return "tell the loss";
  case Decide:
    return command.number ? "decide of the update" : "decide how to clip";
  case DecideLate:
    return "decide how to clip by the batch before";
  case TellAll:
    return "tell all";
  case Meet:
    return "meet";
  case SumTied:
    return "sum tie" + number;
  case GiveTied:
    return "give tie" + number;
  case KeepTied:
    return "keep tied gradients of" + layer;
  case LeaveTied:
    return "leave tie" + number;
  case TakeTied:
    return "take tie" + number;
  case ExpectTied:
    return "expect tie" + number;
  case AwaitTied:
    return "await tie" + number;
  case SwapIn:
  case SwapOut:
  case SwapSlot:
    return std::string(command.kind == SwapIn    ? "swap in class"
                       : command.kind == SwapOut ? "swap out class"
                                                 : "swap slot, tiers") +
           number + (command.kind == SwapSlot ? "" : " of" + layer) + " on " +
           streamName(command.stream) + ":";
  }
  return "";
}

} // namespace

const char *regionName(uint32_t region) {
  static const char *const names[GRT_REGION_COUNT] = {
      "parameter", "gradient", "optimizer", "stash", "transient", "input",
      "output",    "grad-in",  "grad-out",  "data",  "loss",      "gathered"};
  return region < GRT_REGION_COUNT ? names[region] : "unknown";
}

const char *kernelName(uint32_t kernel) {
  return kernel < GRT_KERNEL_COUNT ? kernelForms[kernel].name
                                   : "unknown kernel";
}

const char *streamName(uint32_t stream) {
  return stream < GRT_STREAM_COUNT ? streamForms[stream].name : "unknown";
}

const char *partName(int part) {
  static const char *const names[GRT_PART_COUNT] = {
      "prologue", "steady", "step end", "drain", "evaluate"};
  return names[part];
}

std::string textOf(const ProgramFile &file, const gvx::Call &call) {
  const char *when =
      call.when == gvx::CallWhen::TextsBegin ? ", where a text begins" : "";
  switch (call.kind) {
  case gvx::CallKind::Launch:
    return kernelText(file.kernel(call.index)) + when;
  case gvx::CallKind::Communicate:
    return collectiveText(file.collective(call.index)) + when;
  case gvx::CallKind::Order: {
    const grt_event_op &op = file.event(call.index);
    return (op.wait ? "wait for " : "record ") + str(op.event) + " on " +
           streamName(op.stream);
  }
  case gvx::CallKind::BeginLife:
    return "begin " + extentText(file.buffer(call.index));
  case gvx::CallKind::EndLife:
    return "end " + extentText(file.buffer(call.index));
  }
  return "";
}

std::string textOf(const grt_task &task, const grt_schedule &schedule) {
  std::string text = taskNames[task.kind];
  const bool computes = task.kind <= GRT_TASK_BACKWARD ||
                        task.kind == GRT_TASK_BACKWARD_INPUT ||
                        task.kind == GRT_TASK_BACKWARD_WEIGHT;
  const bool swaps = task.kind == GRT_TASK_SWAP;
  for (uint32_t i = 0; i < task.count; ++i)
    text += (i ? "; " : " ") + partText(schedule.transfers[task.first + i]);
  if (swaps)
    text += swapText(task.tiers, task.classes);
  if (computes || swaps || task.kind == GRT_TASK_SYNC_GRADIENTS ||
      task.kind == GRT_TASK_UPDATE)
    text += " chunk " + str(task.chunk);
  if (computes || (swaps && task.classes & GRT_SWAP_ACTIVATIONS))
    text +=
        ", micro-batch " + str(task.micro_batch) + ", slot " + str(task.slot);
  if (task.generation)
    text += ", batch +" + str(task.generation);
  if (task.flags & GRT_SYNC_BEHIND)
    text += ", sums gradients behind it";
  if (task.stream)
    text += std::string(" on ") + streamName(task.stream);
  for (uint8_t event : task.waits)
    text += event ? ", waits for " + str(event) : "";
  return text + (task.records ? ", records " + str(task.records) : "");
}

std::string procedureName(const gvx::Procedure &procedure) {
  if (procedure.task == GRT_TASK_NORM)
    return "norm";
  if (procedure.task == gvx::ofVersions)
    return "older versions";
  if (procedure.task == gvx::ofTaken)
    return "values of ties";
  if (procedure.task == gvx::ofStepEnd)
    return "end of a step";
  if (procedure.task == gvx::ofEvaluation)
    return "end of an evaluation";
  if (gvx::isOfTies(procedure.task))
    return taskNames[procedure.task];
  const bool swaps = procedure.task == GRT_TASK_SWAP;
  return taskNames[procedure.task] +
         (swaps ? swapText(procedure.tiers, procedure.classes)
                : std::string(" of")) +
         " chunk " + str(procedure.chunk) +
         (procedure.stream ? std::string(" on ") + streamName(procedure.stream)
                           : "");
}

std::string textOf(const gvx::Command &command,
                   std::span<const gvx::Place> places) {
  static const char *const when[gvx::whenCount] = {
      "",
      "in the first pass of a step, ",
      "if sums run behind, ",
      "once a group, ",
      "on a device, ",
      "on the host, ",
      "if the update is left out, ",
      "if ranks go ahead, ",
      "behind the last loss if ranks go ahead, "};
  const bool moves = command.from != 0;
  return when[size_t(command.when)] + commandText(command) +
         placeText(moves ? command.from : command.to, places) +
         (moves ? " to" + placeText(command.to, places) : "");
}

std::string textOf(const gvx::Message &message,
                   std::span<const gvx::Place> places) {
  static const char *const values[] = {"activation", "gradient", "stash"};
  static const char *const homes[] = {"", " at home", ", to home"};
  const bool sends = message.direction == GRT_SEND;
  return std::string(sends ? "send " : "receive ") + values[message.value] +
         (sends ? " of chunk " : " for chunk ") + str(message.chunk) +
         (sends ? " to " : " from ") + str(message.peer) + ": exchange " +
         str(message.exchange) + "," + placeText(message.place, places) +
         homes[message.home] +
         (message.shared == gvx::Shared::WithSlot ? ", shared with its slot"
          : message.shared == gvx::Shared::WithBuffer
              ? ", shared with buffer " + str(message.buffer)
              : ", shared with all");
}

} // namespace grt
