//===- Configuration.h - A plan as training software is told it -*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_CONFIGURATION_H
#define GALVATRON_SOFTWARE_CONFIGURATION_H

#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Software/ModelShape.h"
#include "galvatron/Strategy/Strategy.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <string>
#include <vector>

namespace galvatron {

/// The states that data parallelism shards among its ranks.
enum class Sharding : uint8_t {
  None, ///< nothing; gradients are all-reduced
  /// ZeRO-1: optimizer states. With groups every group has copies of its own,
  /// and sums its parts of the gradients with the others.
  Optimizer,
  /// ZeRO-2: gradients and optimizer states; parameters are whole while a
  /// micro-batch runs.
  Gradients,
  Parameters, ///< ZeRO-3: parameters, gradients and optimizer states
};

enum class Recompute : uint8_t {
  None,
  /// Attention's scores alone (Korthikanti et al. 2022, Sec. 5); nothing where
  /// a fused kernel keeps none.
  Attention,
  /// Everything but what attention, every second product and reduce-scatters
  /// give (torchtitan's SelectiveAC).
  Operations,
  Full, ///< every block from its input
  /// Modules of every block by themselves, Configuration::modules, others than
  /// attention's scores alone (Megatron-LM's --recompute-modules).
  Modules,
};

/// The modules of recomputeModules() that a block is priced with.
struct RecomputedModules {
  bool scores = false; ///< core_attn
  bool norms = false;  ///< layernorm: both results
  bool mlp = false;    ///< mlp: all behind its input

  /// "core_attn layernorm", in the order of recomputeModules().
  std::string str() const;
  /// Sets the module of that name; false if no block has it.
  bool set(llvm::StringRef name);
  bool operator==(const RecomputedModules &other) const = default;
};

/// A strategy for all blocks, tensor parallelism innermost, as all software
/// places it that takes degrees.
struct Configuration {
  int64_t batch = 1;      ///< samples of a step over all devices
  int64_t microBatch = 1; ///< samples of a micro-batch on one replica
  int64_t tensor = 1, pipeline = 1, data = 1; ///< degrees
  /// Context parallelism: positions of a sample are cut among so many ranks,
  /// around tensor parallelism, balanced under a causal mask. States are shared
  /// among them as among replicas.
  int64_t context = 1;
  Sharding sharding = Sharding::None;
  /// So many replicas, each of `context` ranks, share a copy of what is
  /// sharded, the others have copies of their own (HSDP, or Megatron-LM's
  /// instances of the distributed optimizer); 0: all of them.
  int64_t shardGroup = 0;
  /// Between products that TP cuts, rows of the activations are cut too
  /// (Korthikanti et al. 2022, Sec. 4.2.2).
  bool sequenceParallel = false;
  Recompute recompute = Recompute::None;
  RecomputedModules modules; ///< under Recompute::Modules, one besides scores
  /// Under Recompute::Full so many blocks of each chunk are recomputed, its
  /// first ones; 0: all of them, unless `recomputedEvery` says otherwise.
  int64_t recomputedBlocks = 0;
  /// Under Recompute::Full the last one of so many blocks in turn is
  /// recomputed; 0: all of them.
  int64_t recomputedEvery = 0;
  const Schedule *schedule = &defaultSchedule();
  int64_t chunks = 1; ///< of a stage
  /// Blocks of each stage, or of each chunk in the order of the model.
  std::vector<int64_t> blocks;

  int64_t devices() const { return tensor * pipeline * sharing(); }
  /// Ranks of a stage that have the same parameters, or parts of them.
  int64_t sharing() const { return data * context; }
  int64_t microBatches() const { return batch / (microBatch * data); }
  /// Ranks that have a part each of the gradients; 1 where they are not cut.
  int64_t shards() const;
  /// Ranks that have a part each of the optimizer states; 1 where they are not
  /// cut.
  int64_t stateShards() const;
  /// Whether optimizer states alone are cut, among some of the replicas.
  bool groupsStates() const {
    return sharding == Sharding::Optimizer && stateShards() < sharing();
  }
  /// Whether backward passes compute attention's scores again by themselves.
  bool dropsScores() const {
    return recompute == Recompute::Attention ||
           (recompute == Recompute::Modules && modules.scores);
  }
  /// The number of a chunk's blocks that are recomputed.
  int64_t recomputedOf(int64_t blocksOfChunk) const;
  /// Equally many blocks in every chunk; empty if they do not divide.
  static std::vector<int64_t> evenBlocks(int64_t blocks, int64_t chunks);
  /// Equally many blocks in every chunk, where embedding, loss or both count as
  /// a block each, and are in the first and the last chunk; empty if they do
  /// not divide, or leave a chunk without a block.
  static std::vector<int64_t> blocksCounting(int64_t blocks, int64_t chunks,
                                             bool embedding, bool loss);
  /// Calls `visit` with every such division of the blocks into its chunks; only
  /// the even one where there is one stage.
  void
  visitDivisions(const ModelShape &shape,
                 llvm::function_ref<void(const Configuration &)> visit) const;
  /// Whether embedding and loss count, of blocks that this gave.
  std::pair<bool, bool> countedEnds() const;
  /// Blocks of each stage where a stage ends with the block that reaches its
  /// share of the products' work; the head is work, the embedding none.
  static std::vector<int64_t> blocksByWork(const ModelShape &shape,
                                           int64_t stages);
  /// Strategy of blocks, or of embedding and head, which nobody recomputes.
  /// Ranks of context parallelism count as replicas. Groups of optimizer states
  /// are `dp.sdp`, of which the model is told that states alone are cut.
  Strategy strategyOfBlocks() const {
    return strategy(true, sharing(), stateShards());
  }
  Strategy strategyOfEnds() const {
    return strategy(false, sharing(), stateShards());
  }
  /// The same for readers: groups of optimizer states are one `zdp`.
  Strategy shownStrategy(bool ofBlocks) const {
    return strategy(ofBlocks, sharing(),
                    groupsStates() ? sharing() : stateShards());
  }
  /// "pp2 m16 zdp4.tp8.ckpt, 2 a micro-batch, positions cut in 2": of the four
  /// ranks that share parameters two have parts of the same samples.
  std::string str() const;
  /// Error: a batch, blocks, heads or tokens that the degrees do not divide.
  llvm::Error check(const ModelShape &shape) const;
  /// Makes one from a strategy of degrees: at most one `tp` or `tsp`, which
  /// cuts rows, innermost, and `dp`, `zdp`, `sdp` or `dp.sdp` around it; `sdp`
  /// is ZeRO-3. Errors name the level that is another.
  static llvm::Expected<Configuration> fromStrategy(const Strategy &strategy);

  bool operator==(const Configuration &other) const = default;

private:
  /// `data`, `shards`: the ranks that the levels name.
  Strategy strategy(bool ofBlocks, int64_t data, int64_t shards) const;
};

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_CONFIGURATION_H
