//===- Offload.h - What has its home on the host ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_OFFLOAD_H
#define GALVATRON_SCHEDULE_OFFLOAD_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace galvatron {

/// The parts whose home is the host's memory instead of the devices'.
struct Offload {
  enum class States : uint8_t {
    None,
    /// Optimizer states; parameters and gradients of all layers are on the
    /// devices for a step's passes.
    Optimizer,
    /// All states have their home on the host; of a stage's chunks the one that
    /// runs is on its devices.
    All,
    /// The states that each layer's strategy names (LayerHome).
    Layers
  };
  States states = States::None;
  /// A chunk is updated behind its last backward pass, not at the end of the
  /// step ("just-in-time scheduling", Harmony, VLDB 2022). Only where states
  /// have their home on the host.
  bool justInTime = false;
  /// The place of its update then: on the devices, to which its optimizer state
  /// comes behind the backward pass, so that gradients never leave them, or at
  /// home. Only of packs, and only just in time.
  bool updateOnDevice = false;
  /// Stashes go to the host between forward and backward, micro-batch by
  /// micro-batch; a device has those of one. Only where states have their home
  /// on the host. Of States::Layers: a layer's strategy may say so, too.
  bool activations = false;
  /// Two chunks of a stage are on its devices at once: while one runs, the
  /// parameters of the next one come. Only where all states have their home on
  /// the host; worth it where copies run beside computation.
  bool prefetch = false;

  static const Offload Off, Optimizer, All, Layers;
  bool operator==(const Offload &other) const = default;

  bool byLayer() const { return states == States::Layers; }
  /// Chunks of a stage that are on its devices at once; 0: everything is.
  int64_t residentChunks(int64_t chunks) const;
};
inline constexpr Offload Offload::Off{};
inline constexpr Offload Offload::Optimizer{Offload::States::Optimizer};
inline constexpr Offload Offload::All{Offload::States::All};
inline constexpr Offload Offload::Layers{Offload::States::Layers};

/// "off", "optimizer", "all", "layers,activations",
/// "all,activations,just-in-time,prefetch",
/// "all,just-in-time,update-on-device".
std::string offloadName(Offload offload);
/// Reads such a name, its words in any order; the error lists them.
llvm::Expected<Offload> parseOffload(llvm::StringRef text);

/// The offloads that are compared where any may be taken, by and by more on the
/// host. Parameters that come ahead are a matter of Offload::All, and a chunk
/// that is updated just in time changes what a run can do with its gradients,
/// so it has to be asked for.
std::vector<Offload> comparedOffloads();

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_OFFLOAD_H
