//===- Execution.h - How training software executes a plan ------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The planner prices its own runtime. What other software reaches, and
// allocates, differs by facts of that software; lib/Software/Executions.yaml
// has them, with the source of each.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_EXECUTION_H
#define GALVATRON_SOFTWARE_EXECUTION_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace galvatron {

/// Gradients of 16 bits beside those of the step in f32.
enum class GradientCopies : uint8_t {
  None,
  Pass, ///< written by a backward pass, added at its end
  Stay  ///< the same, and there until the next one begins
};

/// The ways in which attention gets keys of positions that other ranks have.
enum class ContextWay : uint8_t {
  Ring,   ///< keys and values go round beside attention
  Gather, ///< keys and values are gathered in front of it
  /// Ranks exchange positions for heads and back (Ulysses): each then has all
  /// positions of its heads.
  Exchange
};

/// The memory that a software's figure measures.
enum class MemoryFigure : uint8_t {
  Allocated, ///< the allocator's peak
  Reserved,  ///< what the allocator holds, unused parts of blocks among it
  Card       ///< what the card shows
};

struct Execution {
  std::string name;
  std::string software, source; ///< in words

  // Facts of the software.
  bool keepsScores = false; ///< of attention, before fused attention was usual
  bool flash2 = false;      ///< fused attention is FlashAttention 2 (2023)
  /// Norms and rotary embeddings are kernels of their own; false: every
  /// operation of them is one, in f32.
  bool fusesNorms = true;
  bool fusesQueries = false; ///< queries, keys and values are one product
  bool launches = false;     ///< kernels one by one, running ahead of the card
  bool waits = false;        ///< the host waits for every kernel
  /// Gradients are summed, and parameters gathered, beside computation; false:
  /// one after the other.
  bool overlaps = true;
  bool stagesMeet = true; ///< behind a step, for the norm of all gradients
  /// Gradients of a micro-batch are written, and added by another kernel.
  bool addsGradients = true;
  /// Gradients of parameters are stored and summed in 16 bits.
  bool halfGradients = false;
  GradientCopies gradientCopies = GradientCopies::None;
  /// Replicas without ZeRO are torch's DistributedDataParallel, whose buckets
  /// are 16-bit copies of all gradients that stay.
  bool replicaBuckets = false;
  int64_t logitBytes = 4;    ///< kept of a logit at the loss
  bool keepsOutputs = false; ///< of a stage until the micro-batch's backward
  bool sendsParts = false;   ///< ranks of TP send a part each, and gather it
  /// TP's communication runs beside the products that it is for, in pieces.
  bool overlapsTensor = false;
  /// ZeRO-1 sums gradients on all ranks, not only where they are needed.
  bool sumsEverywhere = false;
  bool gathersAhead = false;    ///< ZeRO-3, while the layer before computes
  bool gathersMatrices = false; ///< ZeRO-3, every matrix by itself
  bool gathersAll = false;      ///< gathered parameters of all layers stay
  /// Sharded gradients are summed behind every micro-batch; false: behind the
  /// last, and whole 16-bit ones stay until then.
  bool sumsEveryPass = true;
  /// Under ZeRO-2 parameters are gathered for every micro-batch; false: once a
  /// step.
  bool gathersEveryPass = true;
  /// Elements of the buckets in which gradients are summed, and parameters
  /// gathered ahead by ZeRO-3; 0: none beside the gradients.
  int64_t bucketElements = 0, prefetchElements = 0;
  /// Elements of ZeRO-3 that stay gathered at most, to be used again.
  int64_t liveElements = 0;
  ContextWay contextWay = ContextWay::Ring; ///< where positions are cut
  /// Every rank of TP has all logits, gathered.
  bool gathersLogits = false;
  /// Bytes a parameter and a card that updates it, while it is updated.
  int64_t updateBytes = 0;
  /// Layers are cut where the products' work reaches a stage's share.
  bool cutsByWork = false;
  MemoryFigure figure = MemoryFigure::Allocated;
  double unit = 1e9; ///< bytes of the unit that it prints

  // Constants, fitted or measured; tables are by the name of a device type.
  std::map<std::string, double> attention, flash, products, contextGb;
  double kernelsFused = 0, kernelsUnfused = 0; ///< of a layer's forward pass
  double unalignedProducts = 1, unalignedAttention = 1;
  double launchUs = 0, waitUs = 0, gatheredRankUs = 0;
  double allocatorReserve = 1;
  double tensorOverlap = 0; ///< part that `overlapsTensor` hides

  /// Part of TP's communication that nothing waits for.
  double hiddenTensor() const { return overlapsTensor ? tensorOverlap : 0; }
  /// The part of the rate of large products that fused attention reaches there.
  double attentionOn(llvm::StringRef deviceType) const;
  /// The part of the type's rate that large products reach.
  double productsOn(llvm::StringRef deviceType) const;
  /// Bytes that a card shows beside what the allocator holds; 0: not known.
  double contextOn(llvm::StringRef deviceType) const;

  /// The names of Executions.yaml, in its order.
  static std::vector<std::string> names();
  /// Returns the execution of a name. The error lists all.
  static llvm::Expected<Execution> named(llvm::StringRef name);
  /// Sets facts and constants by their names in the file: "overlaps=off",
  /// "logit-bytes=8", "wait-us=50", of tables all entries ("attention=0.3").
  /// Errors name the fact, what it takes and what was found.
  llvm::Error set(llvm::ArrayRef<std::pair<std::string, std::string>> facts);
};

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_EXECUTION_H
