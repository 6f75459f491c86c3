//===- HarmonyTest.cpp - Steps whose states live on the host --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Simulate/Harmony.h"

#include "../HarmonyInstances.h"

#include <gtest/gtest.h>

#include <map>

using namespace galvatron;

namespace {

constexpr Picoseconds ms = 1'000'000'000;

std::vector<int64_t> randomPacks(std::mt19937_64 &random, int64_t layers) {
  std::vector<int64_t> packs = {0};
  for (int64_t l = 1; l < layers; ++l)
    if (pick(random, 0, 1))
      packs.push_back(l);
  return packs;
}

/// Rates that make times easy: 1 MB is 1 ms over the host link of one device.
HarmonyMachine machine(int64_t devices) {
  HarmonyMachine machine;
  machine.devices = devices;
  machine.swapRate = 1e9 * static_cast<double>(devices);
  machine.peerRate = 0.5e9;
  machine.messageRate = 2e9 * static_cast<double>(devices);
  machine.taskOverhead = 40 * ms;
  return machine;
}

/// Two layers with boundaries of 3 and 2 MB a sample, weights of 10 and 20 MB
/// (10 and 20 ms to swap and to update), forward 4 and 5 ms a sample.
HarmonyProfile twoLayers() {
  LinearProfile profile;
  profile.seconds = {0.004, 0.005};
  profile.inputBytes = {3e6, 2e6};
  profile.weightBytes = {10'000'000, 20'000'000};
  return profile.get();
}

HarmonyTimeline run(const HarmonyProfile &profile,
                    const HarmonyMachine &machine, int64_t minibatch,
                    const HarmonyRules &rules, const HarmonyConfig &config,
                    std::vector<HarmonyEvent> *trace = nullptr) {
  HarmonySimulator simulator(profile, machine, minibatch, rules);
  if (llvm::Error error = simulator.check(config))
    ADD_FAILURE() << llvm::toString(std::move(error));
  std::optional<HarmonyTimeline> timeline = simulator.run(config, trace);
  EXPECT_TRUE(timeline);
  EXPECT_LE(simulator.lowerBound(config), timeline->end);
  return *timeline;
}

TEST(HarmonySimulator, onePackOnOneDevice) {
  // Weights 30; then per sample its input (3) after the last one's backward
  // (9 forward, 18 more backward); gradients 30; the end's 40 beside 30 of
  // update.
  HarmonyTimeline step = run(twoLayers(), machine(1), 2, {}, {1, 1, {}, {0}});
  EXPECT_EQ(step.end, (30 + 2 * (3 + 27) + 30 + 40) * ms);
  EXPECT_EQ(step.busiest, 54 * ms);
}

TEST(HarmonySimulator, twoPacksOnOneDevice) {
  HarmonyTimeline step =
      run(twoLayers(), machine(1), 1, {}, {1, 1, {0}, {0, 1}});
  // Forward of the first layer: weights, input, its stash out, 4, output out,
  // end.
  Picoseconds forward = 10 + 3 + 3 + 4 + 2 + 40;
  // The last layer joined: weights, input, 5 + 10, dX out, gradients, end.
  Picoseconds joined = 20 + 2 + 15 + 2 + 20 + 40;
  // The first layer's backward: weights, stash, 4, dY, 8, gradients, end.
  Picoseconds backward = 10 + 3 + 4 + 2 + 8 + 10 + 40;
  EXPECT_EQ(step.end, (forward + joined + backward) * ms);
}

TEST(HarmonySimulator, twoPacksOnTwoDevices) {
  HarmonyTimeline step =
      run(twoLayers(), machine(2), 1, {}, {1, 1, {0}, {0, 1}});
  // Device 0: weights 10, input 3, stash 3, forward 4, then 4 over the peer
  // link, for which device 1 has its weights since 20. It computes 15, sends 4.
  // Device 0 has had its end (60) and weights (70) and the stash (73, told at
  // once: it stays in the process) and has recomputed by 77.
  Picoseconds joined = 10 + 3 + 3 + 4 + 4 + 15;
  Picoseconds recomputed = 10 + 3 + 3 + 4 + 40 + 10 + 3 + 4;
  ASSERT_GT(recomputed, joined);
  Picoseconds first = recomputed + 4 + 8 + 10 + 40;
  EXPECT_EQ(step.end, first * ms);
}

TEST(HarmonySimulator, aStashForAnotherProcessIsCopiedThere) {
  // Three packs on two devices: forward 0 and 1 on devices 0 and 1, backward 2,
  // 1, 0 on devices 0, 1, 0: no stash moves to another process. With three
  // devices backward is on 2, 0, 1: both do.
  LinearProfile alike = LinearProfile::alike(3);
  for (int64_t devices : {2, 3}) {
    std::vector<HarmonyEvent> trace;
    run(alike.get(), machine(devices), 1, {}, {1, 1, {0, 1}, {0, 1, 2}},
        &trace);
    int copied = 0;
    for (const HarmonyEvent &event : trace)
      copied += event.what == "message" && event.duration > 0;
    EXPECT_EQ(copied, devices == 2 ? 0 : 2);
  }
}

//===----------------------------------------------------------------------===//
// Volumes: Harmony's columns of the paper's table, to the byte
//===----------------------------------------------------------------------===//

constexpr int64_t kLayers = 6, kSamples = 5, kDevices = 4;
constexpr int64_t kWeights = 1'000'000 * kLayers, kInput = 1000;

/// Every layer a pack, one sample a micro-batch.
HarmonyConfig singly(bool joined) {
  HarmonyConfig config;
  for (int64_t l = 0; l < kLayers; ++l) {
    config.backwardPacks.push_back(l);
    if (!joined || l + 1 < kLayers)
      config.forwardPacks.push_back(l);
  }
  return config;
}

HarmonyVolumes volumes(const HarmonyRules &rules, int64_t minibatch) {
  return run(LinearProfile::alike(kLayers).get(), machine(kDevices), minibatch,
             rules, singly(rules.joinLastPack))
      .volumes;
}

const HarmonyVolume &of(const HarmonyVolumes &volumes, HarmonyTensor tensor) {
  return volumes[static_cast<size_t>(tensor)];
}

TEST(HarmonyVolumes, pipelineAsInTheTable) {
  HarmonyRules rules;
  rules.joinLastPack = false;
  rules.updateOnDevice = true;
  HarmonyVolumes moved = volumes(rules, kSamples);
  // W 3: into forward, into backward, out of the update. K 2. dW 0.
  EXPECT_EQ(of(moved, HarmonyTensor::Weights),
            (HarmonyVolume{2 * kWeights, kWeights, 0}));
  EXPECT_EQ(of(moved, HarmonyTensor::Optimizer),
            (HarmonyVolume{2 * kWeights, 2 * kWeights, 0}));
  EXPECT_EQ(of(moved, HarmonyTensor::Gradients), HarmonyVolume{});
  // X, Y, dX, dY 0 through the host, but for the samples; between devices one
  // input and one gradient per boundary and micro-batch.
  EXPECT_EQ(of(moved, HarmonyTensor::Boundary),
            (HarmonyVolume{kSamples * kInput, 0,
                           2 * kSamples * (kLayers - 1) * kInput}));
  // sX 2m.
  EXPECT_EQ(of(moved, HarmonyTensor::Stash),
            (HarmonyVolume{kSamples * kLayers * kInput,
                           kSamples * kLayers * kInput, 0}));
}

TEST(HarmonyVolumes, dataParallelAsInTheTable) {
  HarmonyRules rules;
  rules.mode = HarmonyMode::DataParallel;
  rules.joinLastPack = false;
  rules.updateOnDevice = true;
  HarmonyVolumes moved = volumes(rules, kDevices * kSamples);
  EXPECT_EQ(of(moved, HarmonyTensor::Weights),
            (HarmonyVolume{2 * kDevices * kWeights, kDevices * kWeights, 0}));
  EXPECT_EQ(
      of(moved, HarmonyTensor::Optimizer),
      (HarmonyVolume{2 * kDevices * kWeights, 2 * kDevices * kWeights, 0}));
  EXPECT_EQ(of(moved, HarmonyTensor::Gradients), HarmonyVolume{});
  // mN of all X, Y, dX and dY, less what the model's ends do not have: the
  // first layer's dX, the last one's Y and dY.
  int64_t samples = kDevices * kSamples;
  EXPECT_EQ(of(moved, HarmonyTensor::Boundary),
            (HarmonyVolume{samples * (2 * kLayers - 1) * kInput,
                           samples * 2 * (kLayers - 1) * kInput, 0}));
  EXPECT_EQ(of(moved, HarmonyTensor::Stash),
            (HarmonyVolume{samples * kLayers * kInput,
                           samples * kLayers * kInput, 0}));
}

/// The other columns of the table: devices that swap by themselves, of which m
/// micro-batches pass through each.
TEST(HarmonyVolumes, devicesThatSwapByThemselvesAsInTheTable) {
  for (HarmonyMode mode : {HarmonyMode::Pipeline, HarmonyMode::DataParallel})
    for (int64_t m : {int64_t(1), kSamples}) {
      int64_t n = mode == HarmonyMode::Pipeline ? 1 : kDevices;
      HarmonyVolumes moved =
          volumes(HarmonyRules::swappingByDevice(mode), n * m);
      // W (4m + 2)N: in and out of every pass, and of the update; dW (2m + 2)N;
      // K 2N.
      EXPECT_EQ(of(moved, HarmonyTensor::Weights),
                (HarmonyVolume{(2 * m + 1) * n * kWeights,
                               (2 * m + 1) * n * kWeights, 0}));
      EXPECT_EQ(
          of(moved, HarmonyTensor::Gradients),
          (HarmonyVolume{(m + 1) * n * kWeights, (m + 1) * n * kWeights, 0}));
      EXPECT_EQ(of(moved, HarmonyTensor::Optimizer),
                (HarmonyVolume{n * 2 * kWeights, n * 2 * kWeights, 0}));
      // X, Y, dX, dY 0 but for the samples; between stages from device to
      // device.
      int64_t cuts = mode == HarmonyMode::Pipeline ? kDevices - 1 : 0;
      EXPECT_EQ(of(moved, HarmonyTensor::Boundary),
                (HarmonyVolume{m * n * kInput, 0, 2 * m * cuts * kInput}));
      // sX 2mN.
      EXPECT_EQ(of(moved, HarmonyTensor::Stash),
                (HarmonyVolume{m * n * kLayers * kInput,
                               m * n * kLayers * kInput, 0}));
    }
}

/// Two layers and one sample: everything one behind the other, and the same on
/// two devices that have a layer each.
TEST(HarmonySimulator, aDeviceThatSwapsByItself) {
  HarmonyMachine alone = machine(1);
  alone.memoryRate = 7e9;
  HarmonyRules rules = HarmonyRules::swappingByDevice(HarmonyMode::Pipeline);
  // Weights of 10 and 20 in and out; the sample 3, stashes 3 and 2 out and in;
  // forward 4 and 5, backward 8 and 10 behind the recomputation; gradients in
  // and out; updates of weights, gradients and twice as much state move 7
  // times the weights through a memory that is 7 times as fast.
  Picoseconds forward = 2 * (10 + 20) + 3 + 3 + 2 + 4 + 5;
  Picoseconds backward = 4 * (10 + 20) + 3 + 2 + 4 + 5 + 8 + 10;
  Picoseconds update = 8 * (10 + 20) + 10 + 20;
  EXPECT_EQ(run(twoLayers(), alone, 1, rules, {1, 1, {0, 1}, {0, 1}}).end,
            (forward + backward + update) * ms);
  // On two devices the second one's weights come beside the first one's pass;
  // the boundary of 2 MB takes 4 either way. The second one updates while the
  // first one waits for its gradient, which takes longer.
  HarmonyMachine two = machine(2);
  two.memoryRate = 7e9;
  Picoseconds first = 10 + 3 + 4; // has made the boundary
  Picoseconds second = std::max<Picoseconds>(first + 4, 20) + 5 + 2 + 20;
  second += 20 + 20 + 2 + 5 + 10; // has made the gradient
  Picoseconds updated = second + 20 + 20 + 8 * 20 + 20;
  EXPECT_EQ(run(twoLayers(), two, 1, rules, {1, 1, {0, 1}, {0, 1}}).end,
            updated * ms);
}

TEST(HarmonySimulator, devicesThatSwapByThemselvesDoNotWaitInACircle) {
  std::mt19937_64 random(11);
  for (int i = 0; i < instances(100); ++i) {
    int64_t layers = pick(random, 1, 9);
    HarmonyProfile profile =
        LinearProfile::random(random, static_cast<size_t>(layers)).get();
    HarmonyRules rules = HarmonyRules::swappingByDevice(
        pick(random, 0, 2) ? HarmonyMode::Pipeline : HarmonyMode::DataParallel);
    HarmonyMachine server = machine(pick(random, 1, 5));
    HarmonyConfig config;
    config.forwardPacks = config.backwardPacks = randomPacks(random, layers);
    config.forwardSize = config.backwardSize = pick(random, 1, 3);
    HarmonyTimeline step =
        run(profile, server, 3 * server.devices * pick(random, 1, 4), rules,
            config);
    // All that came goes, but for samples and what is recomputed from.
    for (HarmonyTensor tensor :
         {HarmonyTensor::Weights, HarmonyTensor::Stash,
          HarmonyTensor::Gradients, HarmonyTensor::Optimizer})
      EXPECT_EQ(of(step.volumes, tensor).in, of(step.volumes, tensor).out);
    EXPECT_LE(step.busiest, step.end);
  }
}

TEST(HarmonyVolumes, joinedPackAndUpdateOnTheHost) {
  for (HarmonyMode mode : {HarmonyMode::Pipeline, HarmonyMode::DataParallel}) {
    HarmonyRules rules;
    rules.mode = mode;
    int64_t copies = mode == HarmonyMode::Pipeline ? 1 : kDevices;
    HarmonyVolumes moved = volumes(rules, copies * kSamples);
    // W 2 less the last pack's second, dW 1 out, K 0; no stash of the last.
    EXPECT_EQ(
        of(moved, HarmonyTensor::Weights),
        (HarmonyVolume{copies * (2 * kWeights - kWeights / kLayers), 0, 0}));
    EXPECT_EQ(of(moved, HarmonyTensor::Gradients),
              (HarmonyVolume{0, copies * kWeights, 0}));
    EXPECT_EQ(of(moved, HarmonyTensor::Optimizer), HarmonyVolume{});
    int64_t stash = copies * kSamples * (kLayers - 1) * kInput;
    EXPECT_EQ(of(moved, HarmonyTensor::Stash),
              (HarmonyVolume{stash, stash, 0}));
  }
}

TEST(HarmonyVolumes, devicesWithOneSampleLessAreCounted) {
  HarmonyRules rules;
  rules.mode = HarmonyMode::DataParallel;
  HarmonyVolumes moved = volumes(rules, 10); // 3, 3, 2 and 2
  EXPECT_EQ(of(moved, HarmonyTensor::Stash).in, 10 * (kLayers - 1) * kInput);
  EXPECT_EQ(of(moved, HarmonyTensor::Gradients).out, kDevices * kWeights);
}

//===----------------------------------------------------------------------===//
// Ablations
//===----------------------------------------------------------------------===//

/// Packs come for every micro-batch, and sums of gradients go and come.
TEST(HarmonyAblation, withoutGroupingWeightsComeForEveryMicroBatch) {
  for (HarmonyMode mode : {HarmonyMode::Pipeline, HarmonyMode::DataParallel}) {
    HarmonyRules rules;
    rules.mode = mode;
    rules.grouping = false;
    int64_t copies = mode == HarmonyMode::Pipeline ? 1 : kDevices;
    HarmonyVolumes moved = volumes(rules, copies * kSamples);
    EXPECT_EQ(
        of(moved, HarmonyTensor::Weights),
        (HarmonyVolume{copies * kSamples * (2 * kWeights - kWeights / kLayers),
                       0, 0}));
    EXPECT_EQ(of(moved, HarmonyTensor::Gradients),
              (HarmonyVolume{copies * (kSamples - 1) * kWeights,
                             copies * kSamples * kWeights, 0}));
    // What belongs to micro-batches moves as before.
    HarmonyRules grouped = rules;
    grouped.grouping = true;
    HarmonyVolumes before = volumes(grouped, copies * kSamples);
    for (HarmonyTensor tensor : {HarmonyTensor::Boundary, HarmonyTensor::Stash})
      EXPECT_EQ(of(moved, tensor), of(before, tensor));
  }
}

TEST(HarmonyAblation, updatesAtTheEnd) {
  HarmonyRules rules;
  rules.joinLastPack = false;
  rules.justInTime = false;
  rules.updateOnDevice = true;
  HarmonyVolumes moved = volumes(rules, kSamples);
  // Weights and gradients once more in, gradients out.
  EXPECT_EQ(of(moved, HarmonyTensor::Weights),
            (HarmonyVolume{3 * kWeights, kWeights, 0}));
  EXPECT_EQ(of(moved, HarmonyTensor::Gradients),
            (HarmonyVolume{kWeights, kWeights, 0}));
  EXPECT_EQ(of(moved, HarmonyTensor::Optimizer),
            (HarmonyVolume{2 * kWeights, 2 * kWeights, 0}));
  // On the host they move as before, and take as long as all updates do behind
  // the last gradient, where the end of the task is the only other thing.
  rules = {};
  rules.justInTime = false;
  EXPECT_EQ(run(twoLayers(), machine(1), 2, rules, {1, 1, {}, {0}}).end,
            (30 + 2 * (3 + 27) + 30 + 40) * ms);
  // Two packs: the last one's update, 20, does not run beside the first one's
  // backward, so 10 + 20 stand beside the end's 40.
  HarmonyTimeline late =
      run(twoLayers(), machine(1), 1, rules, {1, 1, {0}, {0, 1}});
  HarmonyMachine quick = machine(1);
  quick.taskOverhead = 0;
  Picoseconds early = run(twoLayers(), quick, 1, {}, {1, 1, {0}, {0, 1}}).end;
  EXPECT_EQ(run(twoLayers(), quick, 1, rules, {1, 1, {0}, {0, 1}}).end,
            early + 20 * ms);
  EXPECT_EQ(late.end,
            run(twoLayers(), machine(1), 1, {}, {1, 1, {0}, {0, 1}}).end);
}

TEST(HarmonyAblation, boundariesThroughTheHost) {
  HarmonyRules rules;
  rules.peerToPeer = false;
  HarmonyVolumes moved = volumes(rules, kSamples);
  // One input and one gradient per boundary and micro-batch out and in again,
  // and the samples in.
  int64_t between = 2 * kSamples * (kLayers - 1) * kInput;
  EXPECT_EQ(of(moved, HarmonyTensor::Boundary),
            (HarmonyVolume{between + kSamples * kInput, between, 0}));
  // Two packs on two devices by hand, as above: the output leaves in 4 / 2 = 2,
  // the message takes 2 * 2 / 2 = 2, the input 2, the gradient the same three.
  HarmonyTimeline step =
      run(twoLayers(), machine(2), 1, rules, {1, 1, {0}, {0, 1}});
  Picoseconds joined = 10 + 3 + 3 + 4 + 2 + 2 + 2 + 15;
  Picoseconds dX = joined + 2 + 2;
  // Device 0: the task ends behind the output.
  Picoseconds recomputed = 10 + 3 + 3 + 4 + 2 + 40 + 10 + 3 + 4;
  EXPECT_EQ(step.end, (std::max(dX, recomputed) + 2 + 8 + 10 + 40) * ms);
  // Nothing changes where they meet in the host at any rate.
  HarmonyRules alone;
  alone.mode = HarmonyMode::DataParallel;
  HarmonyVolumes before = volumes(alone, kDevices * kSamples);
  alone.peerToPeer = false;
  EXPECT_EQ(volumes(alone, kDevices * kSamples), before);
}

TEST(HarmonyAblation, whatIsRefused) {
  HarmonyProfile profile = LinearProfile::alike(4).get();
  HarmonyRules rules;
  rules.grouping = false;
  auto message = [&](const HarmonyConfig &config) {
    HarmonySimulator simulator(profile, machine(2), 8, rules);
    return llvm::toString(simulator.check(config));
  };
  EXPECT_EQ(message({2, 2, {0}, {0, 3}}), "");
  EXPECT_EQ(message({2, 1, {0}, {0, 3}}),
            "without grouping forward and backward have one micro-batch size, "
            "found 2 and 1");
  rules.prefetch = true;
  EXPECT_EQ(message({2, 2, {0}, {0, 3}}),
            "copies run ahead along the micro-batches of a pack, which are one "
            "without grouping: expected no prefetch");
}

//===----------------------------------------------------------------------===//
// Random steps
//===----------------------------------------------------------------------===//

TEST(HarmonySimulator, streamsRunInOrderAndEveryStashComesBack) {
  std::mt19937_64 random(5);
  for (int i = 0; i < instances(300); ++i) {
    int64_t layers = pick(random, 1, 9);
    HarmonyProfile profile =
        LinearProfile::random(random, static_cast<size_t>(layers)).get();
    HarmonyRules rules;
    rules.mode =
        pick(random, 0, 1) ? HarmonyMode::Pipeline : HarmonyMode::DataParallel;
    rules.prefetch = pick(random, 0, 1);
    rules.joinLastPack = pick(random, 0, 2) > 0;
    rules.updateOnDevice = pick(random, 0, 2) == 0;
    rules.justInTime = pick(random, 0, 2) > 0;
    rules.peerToPeer = pick(random, 0, 2) > 0;
    rules.grouping = rules.prefetch || pick(random, 0, 2) > 0;
    HarmonyMachine server = machine(pick(random, 1, 5));
    HarmonyConfig config;
    config.backwardPacks = randomPacks(random, layers);
    int64_t forwardEnd =
        rules.joinLastPack ? config.backwardPacks.back() : layers;
    if (forwardEnd > 0)
      config.forwardPacks = randomPacks(random, forwardEnd);
    int64_t minibatch = server.devices * pick(random, 1, 12);
    int64_t share = rules.mode == HarmonyMode::Pipeline
                        ? minibatch
                        : minibatch / server.devices;
    config.forwardSize = pick(random, 1, share);
    config.backwardSize =
        rules.grouping ? pick(random, 1, share) : config.forwardSize;
    std::vector<HarmonyEvent> trace;
    HarmonyTimeline step =
        run(profile, server, minibatch, rules, config, &trace);

    std::map<std::pair<int32_t, HarmonyStream>, Picoseconds> free;
    Picoseconds last = 0;
    auto occupy = [&](int32_t device, HarmonyStream stream,
                      const HarmonyEvent &event) {
      Picoseconds &until = free[{device, stream}];
      // Peer transfers are in the order of their receiver only on its stream.
      if (stream != HarmonyStream::PeerIn) {
        EXPECT_GE(event.start, until);
      }
      until = std::max(until, event.start + event.duration);
    };
    // Weights may be queued behind an event that was created after them, so
    // the streams with copies are compared by time.
    for (const HarmonyEvent &event : trace) {
      last = std::max(last, event.start + event.duration);
      if (event.stream == HarmonyStream::Compute ||
          event.stream == HarmonyStream::Host ||
          event.stream == HarmonyStream::PeerOut)
        occupy(event.device, event.stream, event);
      if (event.peer >= 0)
        EXPECT_NE(event.peer, event.device);
    }
    EXPECT_EQ(step.end, last);
    // Updates that are not just in time wait for the gradients of all packs to
    // be in the host, with all that comes to a device for them; the trace has
    // that moment in front of what waits for it.
    Picoseconds home = 0;
    bool allHome = false;
    // A device updates one pack behind the other.
    std::map<int32_t, Picoseconds> updated;
    for (const HarmonyEvent &event : trace) {
      if (event.what == "gradients" && event.stream == HarmonyStream::SwapOut)
        home = std::max(home, event.start + event.duration);
      allHome |=
          event.what == "gradients" && event.stream == HarmonyStream::Host;
      if (!allHome)
        continue;
      EXPECT_GE(event.start, home) << event.what.str();
      Picoseconds &until = updated[event.device];
      if (event.what == "weights" && event.stream == HarmonyStream::SwapIn)
        EXPECT_GE(event.start, until);
      until = std::max(until, event.start + event.duration);
    }
    EXPECT_EQ(allHome, !rules.justInTime);
    EXPECT_LE(step.busiest, step.end);
    EXPECT_EQ(of(step.volumes, HarmonyTensor::Stash).in,
              of(step.volumes, HarmonyTensor::Stash).out);
    bool oneGroup = rules.grouping || config.backwardSize == share;
    EXPECT_EQ(of(step.volumes, HarmonyTensor::Gradients).out == 0,
              (rules.updateOnDevice && rules.justInTime && oneGroup) ||
                  profile.weightSums().back() == 0);
    if (!rules.peerToPeer)
      EXPECT_EQ(of(step.volumes, HarmonyTensor::Boundary).peer, 0);
  }
}

TEST(HarmonySimulator, copiesAheadAreNotSlower) {
  // Not a theorem (a copy ahead can delay another on its stream), but so on
  // models of layers alike.
  for (HarmonyMode mode : {HarmonyMode::Pipeline, HarmonyMode::DataParallel}) {
    HarmonyRules rules;
    rules.mode = mode;
    HarmonyProfile profile = LinearProfile::alike(8).get();
    HarmonyConfig config{2, 2, {0, 2, 4}, {0, 2, 4, 6}};
    Picoseconds without = run(profile, machine(4), 16, rules, config).end;
    rules.prefetch = true;
    EXPECT_LT(run(profile, machine(4), 16, rules, config).end, without);
  }
}

TEST(HarmonySimulator, refusesConfigurationsThatAreNone) {
  HarmonyProfile profile = LinearProfile::alike(4).get();
  HarmonySimulator simulator(profile, machine(2), 8, {});
  auto message = [&](HarmonyConfig config) {
    return llvm::toString(simulator.check(config));
  };
  EXPECT_EQ(
      message({1, 1, {0}, {0, 4}}),
      "backward packs: expected first layers ascending from 0 to below 4");
  EXPECT_EQ(message({1, 1, {0, 3}, {0, 3}}),
            "forward packs: expected first layers ascending from 0 to below 3");
  EXPECT_EQ(message({9, 1, {0}, {0, 3}}),
            "micro-batch size 9: expected 1 to 8");
  EXPECT_EQ(message({1, 1, {0}, {0, 3}}), "");
}

} // namespace
