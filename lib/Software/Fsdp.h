//===- Fsdp.h - FSDP by accelerate and the Trainer --------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_LIB_SOFTWARE_FSDP_H
#define GALVATRON_LIB_SOFTWARE_FSDP_H

#include "Settings.h"

#include "galvatron/Software/Target.h"

namespace galvatron {

/// A strategy of FSDP1.
struct FsdpStrategy {
  llvm::StringLiteral name;
  Sharding sharding;
  bool hybrid; ///< shards within a node, replicas across
};
inline constexpr FsdpStrategy kFsdpStrategies[] = {
    {"FULL_SHARD", Sharding::Parameters, false},
    {"SHARD_GRAD_OP", Sharding::Gradients, false},
    {"NO_SHARD", Sharding::None, false},
    {"HYBRID_SHARD", Sharding::Parameters, true},
    {"HYBRID_SHARD_ZERO2", Sharding::Gradients, true},
};

/// FSDP by accelerate's YAML or the Trainer's arguments; Fsdp.cpp writes both,
/// FsdpReading.cpp reads them.
class Fsdp final : public Target {
public:
  llvm::StringRef name() const override { return "fsdp"; }
  std::string description() const override {
    return "FSDP by accelerate or transformers' Trainer, summer of 2026";
  }
  bool filesNameModel() const override { return false; }
  llvm::Error setOption(llvm::StringRef option, llvm::StringRef value) override;
  Execution execution() const override;
  ModelShape asTrained(const ModelShape &shape,
                       const Configuration &) const override {
    return shape;
  }
  llvm::Error
  visit(const ModelShape &shape, const Cluster &cluster, int64_t batch,
        llvm::function_ref<void(const Configuration &)> visit) const override;
  std::vector<LaunchFile> write(const ModelShape &shape,
                                const Configuration &configuration,
                                const Cluster &cluster) const override;
  llvm::Expected<SoftwareReading> read(llvm::StringRef text,
                                       llvm::StringRef fileName) const override;

  std::vector<PlanKey> planKeys() const override;

private:
  void visitStates(const Configuration &base, int64_t ofNode,
                   llvm::function_ref<void(const Configuration &)> visit) const;
  LaunchFile accelerateFile(const Configuration &configuration,
                            const Cluster &cluster) const;
  LaunchFile trainerFile(const Configuration &configuration,
                         const Cluster &cluster) const;
  LaunchFile script(const Configuration &configuration,
                    const Cluster &cluster) const;
  int64_t readAccelerate(Settings &settings, SoftwareReading &reading) const;
  int64_t readTrainer(Settings &settings, SoftwareReading &reading) const;
  void readSharding(Settings &settings, SoftwareReading &reading,
                    const FsdpStrategy *legacy, int64_t ofNode) const;
  void readConfig(Settings &settings, SoftwareReading &reading) const;

  bool trainer = false, compile = false, syncEachBatch = false;
  std::optional<int64_t> version;
  /// Values of `--from` alone: what files do not say.
  int64_t microBatch = 0, accumulation = 0, devices = 0, nodes = 0;

  int64_t versionOr(int64_t absent) const { return version.value_or(absent); }
};

} // namespace galvatron

#endif // GALVATRON_LIB_SOFTWARE_FSDP_H
