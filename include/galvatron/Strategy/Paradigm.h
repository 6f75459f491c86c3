//===- Paradigm.h - Ways to use several devices for a layer -----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A paradigm is a way to use the devices of one level of a strategy. Its
// descriptor says what the devices have parts of; which collectives there are,
// when, and what memory holds follows from that. Everything that reads
// strategies asks the descriptor, so a new paradigm is a descriptor in the
// registry, as long as the executor has the collectives that it needs.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_PARADIGM_H
#define GALVATRON_STRATEGY_PARADIGM_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>

namespace galvatron {

/// The time at which gradients of a layer's parameters are summed over the
/// ranks of a level.
enum class GradientSum : uint8_t {
  None,           ///< ranks have the same, or parts of it
  Once,           ///< at the end of a step
  EachMicroBatch, ///< every rank keeps a part of the sum
};

/// An axis of a layer's functions: what the ranks of a level divide among them
/// inside the functions, working on the same samples.
enum class LayerAxis : uint8_t {
  None,    ///< nothing
  Tensor,  ///< named factors of the parameters (`nn.factors`)
  Context, ///< positions of a sequence: rows of activations, no parameters
};

/// The state that values between the products of a layer rest in on an axis: a
/// sum over the axis goes into it where an operation takes either.
enum class RestingState : uint8_t {
  Whole, ///< the same on all ranks
  Rows,  ///< every rank has a block of rows, which are samples times positions
};

/// Where the ranks that divide positions bring them together again, for
/// operations that mix them (attention).
enum class PositionsMeet : uint8_t {
  Gathered, ///< every rank gathers keys and values and has its own queries
  ByHeads, ///< all-to-alls give every rank all positions of a part of the heads
  InRing,  ///< keys and values are passed round, and met step by step
};

/// Which of the executor's groups the ranks of a level are. A rank has at most
/// one group of each for a layer, which may be a product: of a level that cuts
/// samples and one that cuts positions.
enum class GroupKind : uint8_t {
  Replicas, ///< hold the same, of different samples or positions (`dp`, `cp`)
  Shards,   ///< hold parts of parameters or states (`sdp`, `zdp`, `scp`, `zcp`)
  Model,    ///< work on the same samples and positions (`tp`)
};

/// Search spaces that include a paradigm by default.
enum class SearchedIn : uint8_t {
  Paper,    ///< all, those of arXiv 2307.02031 too
  Executed, ///< those where the time that is executed is minimised
  Long,     ///< these, where samples are so long that cutting them may pay
  Request,  ///< none
};

/// A paradigm: what it does with the ranks of its level. Constraints, which
/// `ParadigmRegistry::add` checks:
/// - (C1) the name has lower-case letters only, and is new; it is no word of
///   the notation of strategies (`single`, `ckpt`);
/// - (C2) an axis of the functions is for ranks that work on the same samples;
/// - (C3) what shards parameters shards the optimizer, and its ranks have terms
///   of gradients, whose sums are what is left of the parts;
/// - (C4) what shards the optimizer alone stands alone: sums once a step are
///   those of one group;
/// - (C5) rows are divided among ranks that have an axis;
/// - (C6) positions meet by heads or in a ring where they are divided.
struct ParadigmDescriptor {
  llvm::StringLiteral name;
  /// Purpose of its collectives, for refusals and reports.
  llvm::StringLiteral purpose;
  /// Noun phrase that completes the refusal "'<name>' is ..., expected ...".
  llvm::StringLiteral definition;
  bool splitsBatch;      ///< every rank has samples of its own
  bool shardsParameters; ///< parameters and gradients are sharded (ZeRO-3)
  bool shardsOptimizer;  ///< optimizer states are sharded, and so is the update
  LayerAxis axis = LayerAxis::None;
  /// No other level beside it may have terms of gradients, but one that shards
  /// the same of positions or samples.
  bool alone = false;
  SearchedIn searched = SearchedIn::Paper;
  RestingState resting = RestingState::Whole;
  PositionsMeet meet = PositionsMeet::Gathered;

  /// True if the ranks divide positions: blocks of rows, and no parameters.
  bool dividesPositions() const {
    return axis == LayerAxis::Context && resting == RestingState::Rows;
  }
  /// True if the ranks divide heads, where operations mix positions.
  bool exchangesHeads() const { return meet == PositionsMeet::ByHeads; }
  /// True if the ranks pass keys and values round, where operations mix
  /// positions.
  bool passesKeys() const { return meet == PositionsMeet::InRing; }
  /// True if every rank has a term of each gradient, of its samples or
  /// positions.
  bool hasTerms() const { return splitsBatch || dividesPositions(); }
  GradientSum sum() const {
    if (!hasTerms())
      return GradientSum::None;
    return shardsParameters ? GradientSum::EachMicroBatch : GradientSum::Once;
  }
  /// True if the ranks work inside the layer's functions.
  bool hasAxis() const { return axis != LayerAxis::None; }
  /// True if every rank updates a part of what it holds, and gets the others'
  /// parts.
  bool gathersUpdates() const { return shardsOptimizer && !shardsParameters; }
  /// True if ranks communicate within forward and backward passes.
  bool hasLayerCollectives() const { return shardsParameters || hasAxis(); }
  /// True if a layer's functions, or its places in memory, depend on the
  /// degree.
  bool changesLocalFunction() const {
    return shardsParameters || shardsOptimizer || hasAxis();
  }
  GroupKind group() const {
    if (!hasTerms())
      return GroupKind::Model;
    return shardsOptimizer ? GroupKind::Shards : GroupKind::Replicas;
  }
  /// The name that programs have for a level of this kind: `dp`, `sdp`, `tp`
  /// (whose ranks communicate inside the functions), `zdp`, `cp`, `scp`, `zcp`
  /// or `replica`.
  llvm::StringRef executedAs() const;
  /// The name that programs have for its group inside the functions: `tp`, `cp`
  /// or none.
  llvm::StringRef groupInside() const;
};

/// A registered paradigm, by its number. Paradigms compare by it: the order of
/// their registration is that of the decision trees.
class Paradigm {
public:
  /// The null paradigm, of which no strategy has a level.
  constexpr Paradigm() = default;

  const ParadigmDescriptor &operator*() const;
  const ParadigmDescriptor *operator->() const { return &**this; }
  llvm::StringRef name() const { return (*this)->name; }

  constexpr explicit operator bool() const { return number != kNone; }
  constexpr bool operator==(Paradigm other) const {
    return number == other.number;
  }
  constexpr bool operator!=(Paradigm other) const {
    return number != other.number;
  }
  constexpr bool operator<(Paradigm other) const {
    return number < other.number;
  }
  friend llvm::hash_code hash_value(Paradigm paradigm) {
    return llvm::hash_value(paradigm.number);
  }

  /// The paradigms that are always there, for what is defined by them:
  /// published algorithms and the spaces named after paradigms; others are
  /// found by name
  /// (`tsp`, tensor and sequence parallelism; `cp`, context parallelism; `scp`
  /// and `zcp`, the same with sharded parameters and optimizer states; `up`,
  /// Ulysses, and `sup`; `ring`, ring attention, and `sring`). Data parallel;
  /// sharded data parallel (ZeRO-3); tensor parallel; data parallel with a
  /// sharded optimizer (ZeRO-1).
  static const Paradigm DP, SDP, TP, ZDP;

private:
  friend class ParadigmRegistry;
  friend class ParadigmSet;
  static constexpr uint8_t kNone = 0xff;
  constexpr explicit Paradigm(uint8_t number) : number(number) {}

  uint8_t number = kNone;
};

inline constexpr Paradigm Paradigm::DP{uint8_t(0)};
inline constexpr Paradigm Paradigm::SDP{uint8_t(1)};
inline constexpr Paradigm Paradigm::TP{uint8_t(2)};
inline constexpr Paradigm Paradigm::ZDP{uint8_t(3)};

/// The registry of all paradigms of the process. Adding is not safe beside
/// other threads that read: it is done before strategies are made.
class ParadigmRegistry {
public:
  /// Most paradigms that there may be.
  static constexpr size_t kMost = 24;

  /// Adds one behind the others; refuses what breaks a constraint, or one more
  /// than `kMost`.
  static llvm::Expected<Paradigm> add(const ParadigmDescriptor &descriptor);
  /// Returns all paradigms, by number.
  static llvm::ArrayRef<Paradigm> all();
  /// Returns the paradigm of a name; nothing if there is none.
  static std::optional<Paradigm> find(llvm::StringRef name);
  /// "'dp', 'sdp', 'tp', 'zdp' or 'tsp'", for messages.
  static std::string names();
};

/// Why no strategy has levels of both; empty if one may. Of two that cut the
/// samples Takeaway 3 may still drop strategies (DecisionTree.h).
std::string whyNotBeside(Paradigm one, Paradigm other);

/// True if levels of both, beside each other, cut rows twice: the ranks that
/// divide positions have blocks of all rows, the others blocks of these.
bool cutsBlocks(Paradigm one, Paradigm other);

/// A set of paradigms. A group of ranks that several levels make together is
/// named by their paradigms.
class ParadigmSet {
public:
  ParadigmSet() = default;
  /// The set of one paradigm; empty for the null paradigm.
  ParadigmSet(Paradigm paradigm) {
    if (paradigm)
      insert(paradigm);
  }
  ParadigmSet(llvm::ArrayRef<Paradigm> paradigms) {
    for (Paradigm paradigm : paradigms)
      insert(paradigm);
  }
  /// The paradigms that are searched in spaces of the paper, or with `executed`
  /// also those searched where executed time is minimised.
  static ParadigmSet searched(bool executed);

  bool contains(Paradigm paradigm) const {
    return members >> paradigm.number & 1;
  }
  void insert(Paradigm paradigm) { members |= 1u << paradigm.number; }
  void erase(Paradigm paradigm) { members &= ~(1u << paradigm.number); }
  bool empty() const { return members == 0; }
  bool operator==(const ParadigmSet &other) const = default;
  /// Some total order.
  bool operator<(const ParadigmSet &other) const {
    return members < other.members;
  }

private:
  uint32_t members = 0;
};

} // namespace galvatron

#endif // GALVATRON_STRATEGY_PARADIGM_H
