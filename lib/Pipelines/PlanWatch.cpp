//===- PlanWatch.cpp - Ends and shows a search ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/PlanWatch.h"
#include "galvatron/Support/Rate.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>

using namespace galvatron;

namespace {

volatile std::sig_atomic_t interruptSeen = 0;

extern "C" void noteInterrupt(int) {
  interruptSeen = 1;
  // Whoever asks twice does not want to wait for the plan.
  std::signal(SIGINT, SIG_DFL);
}

} // namespace

std::string galvatron::progressLine(const PlannerProgress &progress) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "batch " << progress.batch << ": " << progress.solved
     << (progress.solved == 1 ? " shape" : " shapes") << " done, "
     << progress.open << " open";
  if (progress.samplesPerSecond > 0)
    os << ", best " << rateText(progress.samplesPerSecond) << " samples/s";
  if (progress.gapPercent)
    os << llvm::format(", within %.3g%%", *progress.gapPercent);
  return text;
}

void PlanWatch::begin(PlannerOptions &options,
                      std::optional<double> limitSeconds) {
  if (limitSeconds)
    cancellation.setSeconds(*limitSeconds);
  cancellation.setFlag(&interruptSeen);
  std::signal(SIGINT, noteInterrupt);
  begun = true;
  options.cancellation = &cancellation;
  if (llvm::errs().is_displayed())
    options.progress = [this](const PlannerProgress &progress) {
      show(progress);
    };
}

void PlanWatch::show(const PlannerProgress &progress) {
  constexpr std::chrono::milliseconds pause(100);
  auto now = std::chrono::steady_clock::now();
  if (now - lastShown < pause)
    return;
  lastShown = now;
  shown = true;
  // Back to the first column; the rest of a longer line before is erased.
  llvm::errs() << '\r' << progressLine(progress) << "\x1b[K";
}

void PlanWatch::end() {
  if (shown)
    llvm::errs() << "\r\x1b[K";
  shown = false;
  if (begun)
    std::signal(SIGINT, SIG_DFL);
  begun = false;
}
