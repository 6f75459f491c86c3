//===- StageMemoryTest.cpp - The memory formula by hand -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/StageMemory.h"
#include "galvatron/Support/Units.h"

#include "gtest/gtest.h"

#include <random>

using namespace galvatron;

namespace {

StageLayer layer(int64_t input, int64_t output, int64_t stash, int64_t forward,
                 int64_t backward) {
  StageLayer layer;
  layer.footprint.inputBytes = input;
  layer.footprint.outputBytes = output;
  layer.footprint.stashBytes = stash;
  layer.footprint.forwardTransient = forward;
  layer.footprint.backwardTransient = backward;
  layer.footprint.parameterBytes = 1024;
  layer.footprint.gradientBytes = 1024;
  layer.footprint.optimizerBytes = 2048;
  layer.samples = 2;
  return layer;
}

/// Embedding, block, head with loss.
std::vector<StageLayer> threeLayers() {
  std::vector<StageLayer> layers = {layer(0, 640, 0, 0, 128),
                                    layer(640, 640, 6400, 1280, 2560),
                                    layer(640, 0, 1280, 1920, 3200)};
  layers[0].footprint.dataBytesPerSample = {40};
  layers[2].footprint.dataBytesPerSample = {40};
  return layers;
}

TEST(StageMemory, one_micro_batch_in_flight) {
  StageLedger ledger = stageLedger(threeLayers(), {1, 3, true});
  EXPECT_EQ(ledger.parameters, 3 * 1024);
  EXPECT_EQ(ledger.gradients, 3 * 1024);
  EXPECT_EQ(ledger.optimizer, 3 * 2048);
  // 0 + (640 + 6400) + (640 + 1280).
  EXPECT_EQ(ledger.activations, 8960);
  // Only the last layer's temporaries find no dead stash: 3200.
  EXPECT_EQ(ledger.backward, 3200);
  EXPECT_EQ(ledger.communication, 2 * 640);
  // Data: 3 micro-batches of 2 samples x 40 bytes = 80 -> 128, twice. Losses:
  // 3 x 8 -> 64. Step block 256.
  EXPECT_EQ(ledger.runtime, 2 * 3 * 128 + 64 + 256);
  EXPECT_EQ(ledger.workspace, 4096);
  EXPECT_EQ(ledger.total(), 3 * 1024 * 4 + 8960 + 3200 + 1280 + 1088 + 4096);
}

TEST(StageMemory, temporaries_overlay_what_later_layers_keep) {
  std::vector<StageLayer> layers = threeLayers();
  // The block needs 5000 behind its own stash; 1920 of them lie in the head's.
  layers[1].footprint.backwardTransient = 5120;
  layers[2].footprint.backwardTransient = 64;
  layers[2].footprint.forwardTransient = 0;
  EXPECT_EQ(stageLedger(layers, {1, 1, true}).backward, 5120 - 1920);
}

TEST(StageMemory, several_micro_batches_in_flight) {
  StageLedger ledger = stageLedger(threeLayers(), {4, 8, false});
  EXPECT_EQ(ledger.activations, 4 * 8960);
  EXPECT_EQ(ledger.backward, 3200);
  EXPECT_EQ(ledger.runtime, 2 * 8 * 128 + 256);
  // The granules of four slots and of the window behind them.
  EXPECT_EQ(ledger.workspace, 4096 + 5 * 4096);
}

TEST(StageMemory, temporaries_overlay_with_several_micro_batches_too) {
  std::vector<StageLayer> layers = threeLayers();
  layers[1].footprint.backwardTransient = 5120;
  layers[2].footprint.backwardTransient = 64;
  layers[2].footprint.forwardTransient = 0;
  EXPECT_EQ(stageLedger(layers, {4, 8, false}).backward, 5120 - 1920);
}

TEST(StageMemory, forward_temporaries_spare_the_output) {
  std::vector<StageLayer> layers = threeLayers();
  layers[1].footprint.forwardTransient = 9600;
  // The output (640) is the head's input in the slot already. As much as the
  // block's input finds room between layers.
  EXPECT_EQ(stageLedger(layers, {1, 1, true}).backward,
            9600 + 640 - 640 - 1920);
  StageLayout layout = stageLayout(layers, {1, 1, true});
  EXPECT_EQ(layout.layers[1].forwardTransient,
            layout.layers[1].backwardTransient + 640);
  EXPECT_EQ(layout.layers[1].forwardTransient, layout.layers[2].stash + 640);
}

/// What a search sums layer by layer: states and all slots, and the largest
/// temporaries.
TEST(StageMemory, split_passes_overlay_nothing) {
  std::vector<StageLayer> layers = threeLayers();
  layers[1].footprint.forwardTransient = 9600;
  for (int64_t inFlight : {1, 4}) {
    StageShape shape{inFlight, 8, true};
    shape.splitsBackward = true;
    StageLedger ledger = stageLedger(layers, shape);
    EXPECT_EQ(ledger.activations, inFlight * 8960);
    EXPECT_EQ(ledger.backward, 9600);
    int64_t kept = 0, transient = 0;
    for (const StageLayer &layer : layers) {
      LayerMemory memory = layerMemory(layer.footprint, layer.samples, true);
      kept += memory.kept;
      transient = std::max(transient, shape.transientBytes(memory));
    }
    EXPECT_EQ(inFlight * kept + transient,
              ledger.activations + ledger.backward);
  }
}

TEST(StageMemory, unaligned_sizes_are_rounded_up) {
  std::vector<StageLayer> layers = {layer(1, 65, 1, 1, 1)};
  layers[0].front = 64;
  layers[0].behind = 128;
  layers[0].footprint.parameterBytes = 1;
  StageLedger ledger = stageLedger(layers, {1, 1, false});
  EXPECT_EQ(ledger.parameters, 64);
  EXPECT_EQ(ledger.activations, 128);
  // 64 + 128 in forward, of which 64 find room between layers.
  EXPECT_EQ(ledger.backward, 128);
  EXPECT_EQ(ledger.communication, 64 + 128);
}

TEST(StageMemory, an_output_waits_among_temporaries_if_that_takes_less) {
  // An embedding: only its backward has temporaries.
  std::vector<StageLayer> layers = {layer(0, 768, 0, 0, 512)};
  layers[0].behind = 768;
  StageShape shape{2, 4, false};
  StageLedger ledger = stageLedger(layers, shape);
  EXPECT_EQ(ledger.backward, 768);
  EXPECT_EQ(ledger.communication, 768);
  StageLayout layout = stageLayout(layers, shape);
  EXPECT_EQ(layout.bytes, ledger.total());
  EXPECT_EQ(layout.sent.offset, layout.transient.offset);
  EXPECT_EQ(layout.sent.bytes, 768);

  // Temporaries of forward have the output in front of them.
  layers[0].footprint.forwardTransient = 128;
  EXPECT_EQ(stageLedger(layers, shape).backward, 768 + 128);
  layout = stageLayout(layers, shape);
  EXPECT_GE(layout.layers[0].forwardTransient, layout.slotBytes + 768);
  EXPECT_EQ(layout.sent.offset, layout.transient.offset);

  // It stays between layers if a message takes its time, where passes have two
  // parts, where other tensors are sent with it, and if that takes no more.
  auto isBetween = [&] {
    StageLedger ledger = stageLedger(layers, shape);
    return ledger.communication == 2 * layers[0].behind &&
           stageLayout(layers, shape).sent.bytes == 0;
  };
  shape.backend.streams = true;
  EXPECT_TRUE(isBetween());
  shape.backend.streams = false;
  shape.splitsBackward = true;
  EXPECT_TRUE(isBetween());
  shape.splitsBackward = false;
  EXPECT_FALSE(isBetween());
  layers[0].behind += 64;
  EXPECT_TRUE(isBetween());
  layers[0].behind -= 64;
  layers[0].footprint.forwardTransient = 0;
  layers[0].footprint.backwardTransient = 0;
  EXPECT_TRUE(isBetween());
}

TEST(StageMemory, forward_goes_on_over_the_region_between_layers) {
  // A classifier head: forward has larger temporaries than backward, and
  // nothing waits between layers but the gradients of backward.
  std::vector<StageLayer> layers = {layer(640, 0, 1280, 3200, 128)};
  for (int64_t inFlight : {1, 3}) {
    StageShape shape{inFlight, 4, true};
    StageLedger ledger = stageLedger(layers, shape);
    EXPECT_EQ(ledger.backward, 3200 - 640);
    EXPECT_EQ(ledger.communication, 640);
    StageLayout layout = stageLayout(layers, shape);
    EXPECT_EQ(layout.bytes, ledger.total());
    // The region between layers is the end of the transient one, behind all
    // temporaries of backward.
    EXPECT_EQ(layout.transient.bytes, 3200);
    EXPECT_EQ(layout.boundary.offset, layout.transient.offset + 3200 - 640);
    EXPECT_EQ(layout.boundary.bytes, 640);
    EXPECT_EQ(layout.windowBytes, inFlight > 1 ? 4096 : 0);
    EXPECT_GE(layout.parameters.offset,
              layout.transient.offset +
                  std::max(layout.transient.bytes, layout.windowBytes));
  }

  // Where it needs less than that the regions stay apart.
  StageShape shape{1, 4, true};
  layers[0].footprint.backwardTransient = 3200;
  EXPECT_EQ(stageLedger(layers, shape).backward, 3200);
  StageLayout layout = stageLayout(layers, shape);
  EXPECT_EQ(layout.transient.bytes, 3200);
  EXPECT_GT(layout.boundary.offset, layout.transient.offset + 3200);

  // A message may take its time, passes have two parts.
  layers[0].footprint.backwardTransient = 128;
  shape.backend.streams = true;
  EXPECT_EQ(stageLedger(layers, shape).backward, 3200);
  shape.backend.streams = false;
  shape.splitsBackward = true;
  EXPECT_EQ(stageLedger(layers, shape).backward, 3200);
  shape.splitsBackward = false;
  shape.chunks = {{1, 1, true}};
  EXPECT_EQ(stageLedger(layers, shape).backward, 3200);
}

/// An output that waits for its reshard or its message lies at the end of the
/// region, so forward temporaries stay in front of it.
TEST(StageMemory, forward_temporaries_stay_in_front_of_an_output) {
  std::mt19937_64 random(5);
  auto pick = [&](int64_t most) {
    return 64 * std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  int wentOn = 0;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::vector<StageLayer> layers;
    int64_t count = 1 + repeat % 4, before = pick(9);
    for (int64_t l = 0; l < count; ++l) {
      int64_t output = pick(9);
      layers.push_back(layer(before, output, pick(5), pick(40), pick(20)));
      layers.back().front = before;
      layers.back().behind = output;
      layers.back().resharded = l > 0 && repeat % 3 == 0;
      before = output;
    }
    StageShape shape{1 + repeat % 2, 4, repeat % 5 == 0};
    StageLayout layout = stageLayout(layers, shape);
    StageLedger ledger = stageLedger(layers, shape);
    ASSERT_EQ(layout.bytes, ledger.total());
    int64_t slotEnd = layout.transient.offset;
    int64_t waitsFrom = layout.boundary.offset + layout.boundary.bytes;
    bool goesOn = layout.boundary.offset < slotEnd + layout.transient.bytes;
    wentOn += goesOn;
    for (int64_t l = 0; l < count; ++l) {
      const LayerFootprint &footprint = layers[l].footprint;
      int64_t begin =
          slotEnd - layout.slotBytes + layout.layers[l].forwardTransient;
      int64_t end = begin + footprint.forwardTransient;
      if (footprint.forwardTransient == 0)
        continue;
      EXPECT_LE(end, slotEnd + layout.transient.bytes);
      bool waits = l + 1 < count ? layers[l + 1].resharded : !shape.lastStage;
      if (waits && goesOn && !(l + 1 == count && layout.sent.bytes > 0))
        EXPECT_LE(end, waitsFrom - layers[l].behind);
      // Backward has gradients there.
      if (goesOn)
        EXPECT_LE(slotEnd - layout.slotBytes +
                      layout.layers[l].backwardTransient +
                      footprint.backwardTransient,
                  std::max(layout.boundary.offset, slotEnd));
    }
  }
  EXPECT_GT(wentOn, 500);
}

TEST(StageMemory, a_lone_layer_without_boundaries_has_no_boundary_buffers) {
  EXPECT_EQ(stageLedger({layer(0, 0, 64, 64, 64)}, {1, 1, true}).communication,
            0);
}

/// Communication of 3 local samples of 64 bytes each, or 12 of them.
std::vector<StageLayer> resharded(bool sampled) {
  std::vector<StageLayer> layers = {
      layer(0, 768, 0, 0, 0), layer(192, 192, 0, 0, 0), layer(192, 0, 0, 0, 0)};
  layers[0].behind = 768;
  layers[1].front = layers[1].behind = layers[2].front = 192;
  layers[1].resharded = sampled;
  return layers;
}

TEST(StageMemory, boundary_buffers_hold_two_neighbouring_sets) {
  // Gradients in both layouts of the first boundary.
  EXPECT_EQ(stageLedger(resharded(true), {1, 1, true}).communication,
            768 + 192);
  EXPECT_EQ(stageLedger(resharded(false), {1, 1, true}).communication, 768);
  // The last layer alone: what it sends and the gradient that comes back.
  std::vector<StageLayer> alone = {resharded(true)[0]};
  EXPECT_EQ(stageLedger(alone, {1, 1, false}).communication, 2 * 768);
  EXPECT_EQ(stageLedger(alone, {1, 1, true}).communication, 768);
}

TEST(StageMemory, passing_tensors_are_kept_by_the_first_of_a_layout) {
  std::vector<StageLayer> layers = resharded(true);
  int64_t before = stageLedger(layers, {2, 2, true}).activations;
  layers[1].entering = 640;
  layers[1].footprint.passingInBytes = layers[1].footprint.passingOutBytes =
      layers[2].footprint.passingInBytes = 640;
  layers[0].footprint.passingOutBytes = 2560;
  layers[0].behind += 2560;
  layers[1].front += 640;
  layers[1].behind += 640;
  layers[2].front += 640;
  StageLedger ledger = stageLedger(layers, {2, 2, true});
  EXPECT_EQ(ledger.activations, before + 2 * 640);
  EXPECT_EQ(ledger.communication, 768 + 2560 + 192 + 640);
  StageLayout layout = stageLayout(layers, {2, 2, true});
  EXPECT_EQ(layout.layers[2].stash, 192 + 640);
  EXPECT_EQ(layout.layers[1].backwardTransient, 192 + 640);
}

/// Regions do not overlap, have the ledger's sizes, and temporaries never reach
/// what is alive.
TEST(StageMemory, layout_is_sound_and_equals_the_ledger) {
  std::mt19937_64 random(1);
  auto bytes = [&](int64_t most) {
    return 64 * std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    int64_t count = 1 + trial % 5;
    std::vector<StageLayer> layers;
    int64_t boundary = bytes(4);
    for (int64_t l = 0; l < count; ++l) {
      // Equal boundaries: then the next layer's input is this one's output.
      layers.push_back(layer(l == 0 ? bytes(4) : boundary,
                             l + 1 == count ? 0 : boundary, bytes(10),
                             bytes(10), bytes(30)));
      if (trial % 3 == 0)
        layers.back().footprint.dataBytesPerSample = {36};
    }
    StageShape shape;
    shape.inFlight = 1 + trial % 3;
    shape.microBatches = shape.inFlight + trial % 2;
    shape.lastStage = trial % 2;
    shape.backend = backendTraits(trial % 4 < 2 ? "cpu" : "cuda");
    shape.splitsBackward = trial % 7 == 0;
    StageLedger ledger = stageLedger(layers, shape);
    StageLayout layout = stageLayout(layers, shape);
    ASSERT_EQ(layout.bytes, ledger.total());
    EXPECT_EQ(layout.slotBytes * layout.slotCount, ledger.activations);
    // Forward temporaries may need the region between layers: it is the end of
    // the transient one then.
    bool goesOn = layout.transient.bytes > ledger.backward;
    if (goesOn) {
      EXPECT_TRUE(shape.forwardFreesBoundary());
      EXPECT_EQ(layout.boundary.bytes, ledger.communication);
      EXPECT_EQ(layout.boundary.offset,
                layout.transient.offset + ledger.backward);
      EXPECT_EQ(layout.transient.bytes,
                ledger.backward + layout.boundary.bytes);
    }
    int64_t at = 0;
    if (layout.windowBytes > 0) {
      // Slot, window, slot, window, ...; all windows are the same bytes.
      EXPECT_GT(shape.inFlight, 1);
      EXPECT_EQ(layout.transient.offset,
                layout.slots.offset + layout.slotBytes);
      EXPECT_LE(layout.transient.bytes, layout.windowBytes);
      for (int64_t bytes :
           {layout.transient.offset, layout.windowBytes, layout.slotStride})
        EXPECT_EQ(bytes % shape.backend.mappingGranule, 0);
      EXPECT_GE(layout.slotStride, layout.slotBytes + layout.windowBytes);
      at = layout.slotCount * layout.slotStride;
    } else {
      EXPECT_EQ(layout.slotStride, layout.slotBytes);
      EXPECT_TRUE(shape.inFlight == 1 || layout.transient.bytes == 0);
      EXPECT_EQ(layout.slots.offset, 0);
      EXPECT_EQ(layout.slots.bytes, ledger.activations);
      EXPECT_EQ(layout.transient.offset, ledger.activations);
      EXPECT_TRUE(goesOn || layout.transient.bytes == ledger.backward);
      at = ledger.activations + layout.transient.bytes;
    }
    for (const ArenaRegion *region :
         {&layout.parameters, &layout.gradients, &layout.optimizer,
          &layout.boundary, &layout.data, &layout.loss, &layout.step,
          &layout.workspace}) {
      if (goesOn && region == &layout.boundary)
        continue;
      EXPECT_EQ(region->offset, at);
      EXPECT_EQ(region->offset % 64, 0);
      at += region->bytes;
    }
    EXPECT_EQ(at, layout.addressBytes());
    EXPECT_GE(layout.workspace.bytes, kRuntimeScratchBytes);
    EXPECT_EQ(layout.libraries.bytes, shape.backend.workspaceBytes);
    if (layout.libraries.bytes > 0) {
      EXPECT_EQ(layout.libraries.offset % kLibraryAlignment, 0);
      EXPECT_GE(layout.libraries.offset, layout.workspace.offset);
      EXPECT_LE(layout.libraries.offset + layout.libraries.bytes,
                layout.addressBytes());
    }
    int64_t end = layout.slotBytes + layout.transient.bytes;
    for (int64_t l = 0; l < count; ++l) {
      const auto &placement = layout.layers[l];
      const LayerFootprint &footprint = layers[l].footprint;
      EXPECT_LE(placement.backwardTransient + footprint.backwardTransient,
                layout.slotBytes + ledger.backward);
      if (footprint.forwardTransient > 0) {
        EXPECT_LE(placement.forwardTransient + footprint.forwardTransient, end);
      }
      int64_t alive =
          placement.stash + footprint.inputBytes + footprint.stashBytes;
      EXPECT_GE(placement.backwardTransient, alive);
      if (shape.splitsBackward) {
        EXPECT_EQ(placement.backwardTransient, layout.slotBytes);
        EXPECT_EQ(placement.forwardTransient, layout.slotBytes);
      } else {
        EXPECT_GE(placement.forwardTransient, alive + footprint.outputBytes);
      }
      if (l + 1 < count) {
        EXPECT_EQ(layout.layers[l + 1].stash, alive);
      }
    }
  }
}

/// Gathered parameters of layers that run one after the other.
TEST(StageMemory, gathers_ahead_take_turns) {
  auto gathering = [](int64_t bytes) {
    StageLayer made = layer(640, 640, 0, 1280 + bytes, 1920 + bytes);
    made.footprint.forwardGathered = made.footprint.backwardGathered = bytes;
    return made;
  };
  std::vector<StageLayer> layers(5, gathering(6400));
  StageShape shape{1, 1, false};
  // The last layer has nothing behind it: its temporaries, and its parameters.
  EXPECT_EQ(stageLedger(layers, shape).backward, 1920 + 6400);
  EXPECT_EQ(stageLayout(layers, shape).layers[4].backwardGathered,
            5 * 640 + 1920);
  for (StageLayer &each : layers)
    each.forwardAhead = each.backwardAhead = true;
  // Two buffers, whatever the number of layers.
  EXPECT_EQ(stageLedger(layers, shape).backward, 1920 + 2 * 6400);
  // No room: as before.
  int64_t needed = stageLedger(layers, shape).total();
  EXPECT_EQ(fitStage(layers, shape, needed).total(), needed);
  EXPECT_TRUE(layers[2].forwardAhead);
  EXPECT_EQ(fitStage(layers, shape, needed - 1).total(), needed - 6400);
  EXPECT_FALSE(layers[2].forwardAhead || layers[2].backwardAhead);

  // A large one in front of small ones lies where later layers keep theirs; one
  // at the end is not gathered ahead in backward.
  layers = std::vector<StageLayer>(5, gathering(64));
  layers[0] = gathering(1280);
  layers[4] = gathering(1280);
  for (StageLayer &each : layers)
    each.forwardAhead = each.backwardAhead = true;
  layers[0].forwardAhead = layers[4].backwardAhead = false;
  EXPECT_EQ(stageLedger(layers, shape).backward, 1920 + 1280 + 64);
}

/// What lives while a layer runs never overlaps, and ends where it is said to.
TEST(StageMemory, gathered_parameters_never_meet_what_is_alive) {
  std::mt19937_64 random(3);
  auto bytes = [&](int64_t most) {
    return 64 * std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  int64_t together = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    int count = 1 + trial % 6;
    std::vector<StageLayer> layers;
    std::vector<int64_t> kept = {0};
    for (int l = 0; l < count; ++l) {
      StageLayer made =
          layer(bytes(4), bytes(4), bytes(10), bytes(30), bytes(30));
      LayerFootprint &footprint = made.footprint;
      if (random() % 4) {
        footprint.forwardGathered = bytes(20);
        footprint.forwardTransient += footprint.forwardGathered;
        footprint.backwardGathered = bytes(20);
        footprint.backwardTransient += footprint.backwardGathered;
      }
      made.forwardAhead = l > 0 && random() % 3;
      made.backwardAhead = l + 1 < count && random() % 3;
      layers.push_back(made);
      kept.push_back(kept.back() + footprint.inputBytes + footprint.stashBytes);
    }
    std::vector<LayerTemporaries> placed = placeTemporaries(layers);
    int64_t end = 0;
    for (bool forward : {true, false})
      for (int l = 0; l < count; ++l) {
        auto gathered = [&](int number) {
          const LayerFootprint &footprint = layers[number].footprint;
          int64_t size =
              forward ? footprint.forwardGathered : footprint.backwardGathered;
          int64_t begin = forward ? placed[number].forwardGathered
                                  : placed[number].backwardGathered;
          return std::pair(begin, begin + size);
        };
        const LayerFootprint &own = layers[l].footprint;
        // What is kept, the output and the temporaries.
        int64_t top = kept[l + 1];
        if (!forward)
          top += own.backwardTransient - own.backwardGathered;
        else if (own.forwardTransient > 0)
          top += own.outputBytes + own.forwardTransient - own.forwardGathered;
        std::vector<std::pair<int64_t, int64_t>> alive = {{0, top},
                                                          gathered(l)};
        int next = forward ? l + 1 : l - 1;
        if (next >= 0 && next < count &&
            (forward ? layers[next].forwardAhead : layers[next].backwardAhead))
          alive.push_back(gathered(next));
        int64_t last = top;
        for (size_t a = 0; a < alive.size(); ++a) {
          if (alive[a].first == alive[a].second)
            continue;
          last = std::max(last, alive[a].second);
          for (size_t b = 0; b < a; ++b)
            EXPECT_TRUE(alive[a].first >= alive[b].second ||
                        alive[b].first >= alive[a].second ||
                        alive[b].first == alive[b].second)
                << "trial " << trial << " layer " << l;
        }
        together += alive.size() == 3;
        EXPECT_EQ(last, forward ? placed[l].forwardEnd : placed[l].backwardEnd);
        end = std::max(end, last);
      }
    StageShape shape{1 + trial % 2, 2, false, backendTraits("cuda")};
    EXPECT_EQ(stageLedger(layers, shape).backward,
              std::max<int64_t>(0, end - kept.back()));
  }
  EXPECT_GT(together, 1000);
}

/// A slot's end is a border between pieces of memory that no buffer of a
/// collective goes over, in any of the layers; and what else there is to say of
/// temporaries holds as without it.
TEST(StageMemory, buffers_of_collectives_are_in_one_piece) {
  std::mt19937_64 random(5);
  auto bytes = [&](int64_t most) {
    return 64 * std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  int64_t moved = 0, larger = 0, split = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<StageLayer> layers;
    for (int l = 0; l < 1 + trial % 6; ++l) {
      StageLayer made =
          layer(bytes(4), bytes(4), bytes(10), bytes(30), bytes(30));
      LayerFootprint &footprint = made.footprint;
      for (auto [buffers, end] :
           {std::pair(&footprint.forwardBuffers, footprint.forwardTransient),
            {&footprint.backwardBuffers, footprint.backwardTransient}})
        for (int64_t at = bytes(3); random() % 4 && at + 64 <= end;
             at = buffers->back().end + bytes(3))
          buffers->push_back({at, std::min(at + 64 + bytes(8), end)});
      if (random() % 2) {
        footprint.forwardGathered = bytes(20);
        footprint.forwardTransient += footprint.forwardGathered;
        footprint.backwardGathered = bytes(20);
        footprint.backwardTransient += footprint.backwardGathered;
      }
      made.forwardAhead = l > 0 && random() % 3;
      made.backwardAhead = random() % 3;
      layers.push_back(made);
    }
    layers.back().backwardAhead = false;
    StageShape shape{2 + trial % 2, 4, false, backendTraits("cuda")};
    int64_t before = stageLedger(layers, shape).total();
    StageLayout splits = stageLayout(layers, shape);
    constexpr int64_t unlimited = int64_t(1) << 60;
    StageLedger ledger = fitStage(layers, shape, unlimited);
    EXPECT_TRUE(shape.wholeBuffers);
    larger += ledger.total() > before;
    StageLayout layout = stageLayout(layers, shape);
    EXPECT_EQ(layout.bytes, ledger.total());
    int64_t border = layout.slotBytes;
    auto isWhole = [&](int64_t begin, int64_t end) {
      return end <= border || begin >= border;
    };
    for (auto [at, was, of] :
         llvm::zip_equal(layout.layers, splits.layers, layers)) {
      const LayerFootprint &footprint = of.footprint;
      for (const CollectiveBuffer &buffer : footprint.forwardBuffers) {
        EXPECT_TRUE(isWhole(at.forwardTransient + buffer.begin,
                            at.forwardTransient + buffer.end));
        split += !isWhole(was.forwardTransient + buffer.begin,
                          was.forwardTransient + buffer.end);
      }
      for (const CollectiveBuffer &buffer : footprint.backwardBuffers)
        EXPECT_TRUE(isWhole(at.backwardTransient + buffer.begin,
                            at.backwardTransient + buffer.end));
      EXPECT_TRUE(isWhole(at.forwardGathered,
                          at.forwardGathered + footprint.forwardGathered));
      EXPECT_TRUE(isWhole(at.backwardGathered,
                          at.backwardGathered + footprint.backwardGathered));
      EXPECT_GE(at.forwardTransient, was.forwardTransient);
      EXPECT_GE(at.backwardTransient, was.backwardTransient);
      moved += at.forwardTransient > was.forwardTransient;
      // Behind the temporaries, or beside them.
      EXPECT_LE(at.backwardTransient + footprint.backwardTransient -
                    footprint.backwardGathered,
                border + ledger.backward);
    }
    // What the budget does not hold is given up, and gathers ahead are not.
    // Gathered parameters that move may leave a better place to others.
    std::vector<StageLayer> same = layers;
    EXPECT_EQ(fitStage(same, shape, before).total(),
              std::min(before, ledger.total()));
    EXPECT_EQ(shape.wholeBuffers, ledger.total() <= before);
    EXPECT_EQ(same.back().forwardAhead, layers.back().forwardAhead);
  }
  EXPECT_GT(split, 200);
  EXPECT_GT(moved, 200);
  EXPECT_GT(larger, 100);
  EXPECT_LT(larger, 1800);
}

/// Layers like the last one have nowhere to go but behind the slot, where it is
/// anyway: nothing more is taken.
TEST(StageMemory, whole_buffers_of_equal_layers_take_nothing) {
  StageLayer block = layer(640, 640, 6400, 1920, 2560);
  block.footprint.forwardBuffers = {{0, 640}};
  block.footprint.backwardBuffers = {{0, 640}, {1280, 2560}};
  std::vector<StageLayer> layers(5, block);
  StageShape shape{3, 4, false, backendTraits("cuda")};
  int64_t before = stageLedger(layers, shape).total();
  EXPECT_EQ(fitStage(layers, shape, before).total(), before);
  EXPECT_TRUE(shape.wholeBuffers);
  // One slot has no window, CPUs register nothing.
  shape.inFlight = 1;
  StageLayout one = stageLayout(layers, shape);
  shape.wholeBuffers = false;
  EXPECT_EQ(stageLayout(layers, shape).layers[3].forwardTransient,
            one.layers[3].forwardTransient);
  StageShape cpu{3, 4, false, backendTraits("cpu")};
  fitStage(layers, cpu, int64_t(1) << 60);
  EXPECT_FALSE(cpu.wholeBuffers);
}

/// Four layers read a mask, under three ways to deal samples to eight ranks,
/// two of them the same way by different levels; one reads something else
/// besides.
TEST(StageMemory, layers_that_hold_the_same_samples_share_data) {
  std::vector<StageLayer> layers;
  auto add = [&](const char *strategy, std::vector<int64_t> data) {
    Strategy parsed = cantFail(Strategy::parse(strategy));
    LayerFootprint footprint;
    for (int64_t datum : data)
      footprint.dataBytesPerSample.push_back(datum == 0 ? 40 : 4);
    layers.push_back(makeStageLayer(footprint, 16 / parsed.sampleShards(),
                                    std::move(data), parsed));
  };
  add("dp8", {0});
  add("dp2.sdp4", {1, 0});
  add("dp4.tp2", {0});
  add("tp2.dp4", {0});
  StageData data = stageData(layers);
  // 2 samples of 40 bytes; 2 of 4; 4 of 40, twice.
  EXPECT_EQ(data.byLayer,
            (std::vector<std::vector<int64_t>>{{0}, {1, 0}, {2}, {3}}));
  ASSERT_EQ(data.copies.size(), 4u);
  EXPECT_EQ(data.copies[0].bytesPerMicroBatch, 128);
  EXPECT_EQ(data.copies[1].bytesPerMicroBatch, 64);
  EXPECT_EQ(data.copies[1].datum, 1);
  EXPECT_EQ(data.copies[2].bytesPerMicroBatch, 192);
  EXPECT_EQ(data.bytes(3), 3 * (128 + 64 + 2 * 192));

  StageShape shape;
  shape.microBatches = 3;
  StageLayout layout = stageLayout(layers, shape);
  EXPECT_EQ(layout.data.bytes, data.bytes(3));
  EXPECT_EQ(layout.bytes, stageLedger(layers, shape).total());
  int64_t end = layout.data.offset;
  for (const StageLayout::DataPlacement &copy : layout.copies) {
    EXPECT_EQ(copy.region.offset, end);
    end += copy.region.bytes;
  }
  EXPECT_EQ(end, layout.data.offset + layout.data.bytes);
  // What the search counts, layer by layer, is never less.
  int64_t apart = 0;
  for (const StageLayer &layer : layers)
    apart += 3 * dataBytesPerMicroBatch(layer.footprint, layer.samples);
  EXPECT_GT(apart, data.bytes(3));
}

/// Products that leave 64 bits are more than any device has, not less than
/// nothing.
TEST(StageMemory, sums_beyond_64_bits_fit_nowhere) {
  StageLayer layer;
  layer.samples = 1;
  layer.footprint.inputBytes = layer.footprint.outputBytes = kMostLayerBytes;
  layer.footprint.parameterBytes = kMostLayerBytes;
  layer.footprint.dataBytesPerSample = {kMostLayerBytes};
  std::vector<StageLayer> layers(20000, layer);
  StageShape shape;
  shape.inFlight = shape.microBatches = int64_t(1) << 30;
  StageLedger ledger = stageLedger(layers, shape);
  EXPECT_EQ(ledger.parameters, kBeyondMemory);
  EXPECT_EQ(ledger.activations, kBeyondMemory);
  EXPECT_GE(ledger.runtime, kBeyondMemory);
  EXPECT_GT(ledger.total(), 3 * kBeyondMemory);
  EXPECT_GE(shape.stateBytes(layerMemory(layer.footprint, 1)), kBeyondMemory);
}

} // namespace
