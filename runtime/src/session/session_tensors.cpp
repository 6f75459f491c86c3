//===- session_tensors.cpp - Whole tensors of a session -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/signal_stack.h"
#include "checkpoint/safetensors.h"
#include "core/adapters.h"
#include "core/init.h"
#include "session/session_implementation.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

namespace grt {

void Session::Implementation::load(CheckpointReader reader) {
  runAll(
      [&](Rank &rank) {
        reader.read(rank);
        rank.changedWeights(reader.hasOlderWeights());
        rank.setNormOfLastStep(reader.state().normBefore);
      },
      /*mayStand=*/true);
  set.begun = false;
  reader.check();
}

std::vector<char> Session::Implementation::gatherTensor(int parameter,
                                                        Held kind) {
  const Manifest &manifest = program->manifest();
  uint64_t width = dtypeBytes(heldType(manifest, kind));
  std::vector<char> whole;
  if (leads())
    whole.resize(uint64_t(manifest.parameters[parameter].elements()) * width);
  std::vector<GatherPart> parts;
  for (const std::unique_ptr<Rank> &rank : local->ranks)
    parts.push_back(gatherPart(manifest, rank->globalRank(), parameter));
  runAll([&](Rank &rank) {
    const GatherPart &part =
        parts[size_t(rank.globalRank() - world.firstLocal())];
    std::vector<char> copy;
    ExchangeCall call;
    call.table = &part.table;
    if (part.layer)
      call.source = heldOnHost(manifest, rank, part, kind, copy);
    call.destination = whole.data();
    call.bytesPerUnit = width;
    rank.peers().exchange({&call, 1});
  });
  return whole;
}

void Session::Implementation::collect(Held kind, const std::string &suffix,
                                      TensorMap &result) {
  const Manifest &manifest = program->manifest();
  for (const StoredParameter &stored : storedParameters(manifest, kind)) {
    Tensor tensor;
    collectOne(stored.index, kind == Held::Parameter ? valueKind(stored) : kind,
               tensor);
    if (leads())
      result[manifest.parameters[size_t(stored.index)].name + suffix] =
          std::move(tensor);
  }
}

void Session::Implementation::collectOne(int index, Held kind, Tensor &tensor) {
  const Manifest &manifest = program->manifest();
  const Parameter &parameter = manifest.parameters[index];
  std::vector<char> bytes = gatherTensor(index, kind);
  if (!leads())
    return;
  tensor.shape = parameter.shape;
  tensor.values.resize(size_t(parameter.elements()));
  loadValues(bytes.data(), parameter.elements(), heldType(manifest, kind),
             tensor.values.data());
}

std::vector<char>
Session::Implementation::gatherStored(std::span<const int> parameters,
                                      Held kind, uint64_t bytes) {
  const Manifest &manifest = program->manifest();
  if (!manifest.parameters[parameters.front()].part)
    return gatherTensor(parameters.front(), kind);
  const uint64_t width = dtypeBytes(heldType(manifest, kind));
  std::vector<char> whole(leads() ? bytes : 0);
  for (int index : parameters) {
    const Parameter &parameter = manifest.parameters[index];
    std::vector<char> part = gatherTensor(index, kind);
    if (leads())
      parameter.eachStored(0, parameter.elements(),
                           [&](int64_t first, int64_t at, int64_t count) {
                             std::memcpy(whole.data() + uint64_t(at) * width,
                                         part.data() + uint64_t(first) * width,
                                         uint64_t(count) * width);
                           });
  }
  return whole;
}

void Session::Implementation::writeTensors(const std::string &path, Held kind,
                                           Written what) {
  const Manifest &manifest = program->manifest();
  // Parameters that are parts of a tensor go to it together.
  struct Whole {
    Held kind;
    std::vector<int> parts;
  };
  std::map<std::string, Whole> wholes;
  for (const StoredParameter &each : storedParameters(manifest, kind)) {
    if (what != Written::All && each.isFrozen != (what == Written::Merged))
      continue;
    const Parameter &parameter = manifest.parameters[size_t(each.index)];
    Whole &whole = wholes[parameter.part ? parameter.part->of : parameter.name];
    whole.kind = kind == Held::Parameter ? valueKind(each) : kind;
    whole.parts.push_back(each.index);
  }
  std::vector<TensorEntry> entries;
  std::vector<const Whole *> stored;
  for (const auto &[name, whole] : wholes) {
    entries.push_back(
        {name, heldType(manifest, whole.kind),
         manifest.parameters[size_t(whole.parts.front())].storedShape()});
    stored.push_back(&whole);
  }
  // The others gather on if the file cannot be written.
  size_t gathered = 0;
  auto gather = [&](size_t i) {
    gathered = i + 1;
    std::vector<char> bytes =
        gatherStored(stored[i]->parts, stored[i]->kind, entries[i].bytes());
    if (what == Written::Merged)
      mergeAdapter(entries[i].name, bytes);
    return bytes;
  };
  Status written;
  if (leads())
    written = guarded([&] { writeSafetensors(path, entries, gather); });
  if (!written && !threads->usable())
    fail(ExitCode(written.exitCode()), written.message());
  while (gathered < stored.size())
    gather(gathered);
  together([&] {
    if (!written)
      fail(ExitCode(written.exitCode()), written.message());
  });
}

void Session::Implementation::mergeAdapter(const std::string &name,
                                           std::vector<char> &weight) {
  const Manifest &manifest = program->manifest();
  const std::vector<std::string> &modules = manifest.adapters.modules;
  const auto module =
      std::find_if(modules.begin(), modules.end(), [&](const auto &one) {
        return Adapters::weightOf(one) == name;
      });
  if (module == modules.end())
    return;
  auto valuesOf = [&](const std::string &tensor) {
    const std::vector<int> parts = manifest.parametersOf(tensor);
    int64_t elements = 1;
    for (int64_t dim : manifest.parameters[size_t(parts.front())].storedShape())
      elements *= dim;
    const grt_dtype dtype = heldType(manifest, Held::Parameter);
    const std::vector<char> bytes = gatherStored(
        parts, Held::Parameter, uint64_t(elements) * dtypeBytes(dtype));
    std::vector<double> values(leads() ? size_t(elements) : 0);
    loadValues(bytes.data(), int64_t(values.size()), dtype, values.data());
    return values;
  };
  const std::vector<double> first = valuesOf(Adapters::firstOf(*module));
  const std::vector<double> second = valuesOf(Adapters::secondOf(*module));
  if (!leads())
    return;
  const grt_dtype dtype = heldType(manifest, Held::Frozen);
  std::vector<double> values(weight.size() / dtypeBytes(dtype));
  loadValues(weight.data(), int64_t(values.size()), dtype, values.data());
  mergeLowRank(manifest.adapters, size_t(module - modules.begin()), first,
               second, values);
  storeValues(values.data(), int64_t(values.size()), dtype, weight.data());
}

Status Session::parameters(TensorMap &result) {
  return guarded([&] { impl->collect(Held::Parameter, "", result); });
}

void Session::Implementation::checkGradients() const {
  if (!gradientsKnown)
    invalid("no step was done, so there are no gradients");
  if (program->updatesOnDevice())
    invalid("gradients of packs that are updated on the device never leave it: "
            "expected a program without 'update-on-device'");
}

Status Session::gradients(TensorMap &result) {
  return guarded([&] {
    impl->checkGradients();
    impl->collect(Held::Gradient, "", result);
  });
}

Status Session::optimizerState(TensorMap &result) {
  return guarded([&] {
    const Manifest &manifest = impl->program->manifest();
    for (Held kind : stateKinds(manifest))
      impl->collect(kind, stateSuffix(manifest, kind), result);
  });
}

Status Session::tensor(const std::string &name, TensorKind kind,
                       Tensor &result) {
  return guarded([&] {
    const Manifest &manifest = impl->program->manifest();
    const std::vector<StoredParameter> stored = storedParameters(manifest);
    auto found = std::find_if(
        stored.begin(), stored.end(), [&](const StoredParameter &each) {
          return manifest.parameters[size_t(each.index)].name == name;
        });
    if (found == stored.end())
      invalid("the program has no parameter '" + name + "'");
    if (found->isFrozen && kind != TensorKind::Parameter)
      invalid("parameter '" + name + "' is not trained: it has a value alone");
    if (kind == TensorKind::Gradient)
      impl->checkGradients();
    const std::vector<Held> states = stateKinds(manifest);
    const size_t state = kind == TensorKind::SecondState ? 1 : 0;
    const bool isState = kind >= TensorKind::FirstState;
    if (isState && state >= states.size())
      invalid("optimizer '" + program().optimizer() + "' has " +
              str(states.size()) + " states of a parameter, expected " +
              str(state + 1));
    const Held held = kind == TensorKind::Parameter  ? valueKind(*found)
                      : kind == TensorKind::Gradient ? Held::Gradient
                                                     : states[state];
    impl->collectOne(found->index, held, result);
  });
}

Status Session::setParameter(const std::string &name,
                             std::span<const double> values) {
  return guarded([&] {
    const Manifest &manifest = impl->program->manifest();
    for (size_t i = 0; i < manifest.parameters.size(); ++i) {
      const Parameter &parameter = manifest.parameters[i];
      if (parameter.name != name)
        continue;
      if (int64_t(values.size()) != parameter.elements())
        invalid("parameter '" + name + "': expected " +
                std::to_string(parameter.elements()) + " values, found " +
                std::to_string(values.size()));
      impl->set.begun = false;
      return impl->runAll([&](Rank &rank) {
        scatterTensor(manifest, rank, int(i), values);
        rank.changedWeights(/*olderToo=*/false);
      });
    }
    invalid("the program has no parameter '" + name + "'");
  });
}

void Session::Implementation::writeText(const std::string &directory,
                                        const char *name,
                                        const std::string &text) {
  together([&] {
    if (!leads())
      return;
    makeDirectory(directory);
    AtomicFile file(directory + "/" + name);
    file.write(text + "\n");
    file.commit();
  });
}

Status Session::save(const std::string &directory, bool merge) {
  return guarded([&] {
    using Written = Implementation::Written;
    const Manifest &manifest = impl->program->manifest();
    if (merge && !manifest.adapters.rank)
      invalid("expected adapters that can be merged into the model, found a "
              "program without");
    if (manifest.adapters.rank && !merge) {
      impl->writeText(directory, adapterConfigName,
                      adapterConfigText(manifest.adapters));
      return impl->writeTensors(directory + "/" + adapterFileName,
                                Held::Parameter, Written::Adapters);
    }
    impl->writeText(directory, "config.json", manifest.modelConfig);
    impl->writeTensors(directory + "/model.safetensors", Held::Parameter,
                       merge ? Written::Merged : Written::All);
  });
}

Status Session::saveGradients(const std::string &path) {
  return guarded([&] {
    impl->checkGradients();
    impl->writeTensors(path, Held::Gradient);
  });
}

void Session::Implementation::checkCopies(
    std::vector<RankNeed> needs, const std::optional<MemoryBound> &machine,
    const std::optional<MemoryBound> &group) {
  const Manifest &manifest = program->manifest();
  std::vector<TensorPlace> places = tensorPlaces(manifest, /*states=*/true);
  const RankMessages<uint64_t> bytes =
      gather<uint64_t>(MessageKind::CheckpointCopies, [&](Rank &rank) {
        return PieceCopies::bytes(manifest, rank, places);
      });
  for (size_t rank = 0; rank < needs.size(); ++rank)
    needs[rank].bytes += bytes[rank];
  const bool fits(guarded([&] { checkHostMemory(needs, machine, group); }));
  // Machines differ; all do the same.
  const std::vector<uint8_t> all =
      gather<uint8_t>(MessageKind::CheckpointFits, [&](Rank &) {
        return uint8_t(fits);
      }).values();
  behind.fits = std::count(all.begin(), all.end(), 0) == 0;
}

std::unique_ptr<CheckpointWriter>
Session::Implementation::openCheckpoint(const CheckpointFolder &folder,
                                        const TrainingState &training) {
  if (training.step != set.step)
    invalid("checkpoint: expected the state of step " +
            std::to_string(set.step) + ", found step " +
            std::to_string(training.step));
  if (behind.wasBegun())
    invalid("checkpoint: another one is being written, expected its end");
  TrainingState whole = training;
  if (program->manifest().delay > 0 && program->manifest().clip) {
    // Behind the last command all ranks know it.
    runAll([](Rank &) {});
    whole.normBefore = local->ranks.front()->normOfLastStep();
  }
  auto writer = std::make_unique<CheckpointWriter>(program->manifest(),
                                                   local->ranks, folder, whole);
  together([&] {
    if (leads())
      writer->prepare();
  });
  together([&] { writer->open(); });
  return writer;
}

std::string Session::Implementation::commit(CheckpointWriter &writer) {
  std::string problem;
  together([&] {
    if (leads())
      problem = writer.commit();
  });
  return problem;
}

Status Session::writeCheckpoint(const CheckpointFolder &folder,
                                const TrainingState &state,
                                std::string *warning) {
  return guarded([&] {
    std::unique_ptr<CheckpointWriter> writer =
        impl->openCheckpoint(folder, state);
    impl->runAll(
        [&](Rank &rank) {
          rank.completeWeights();
          writer->write(rank);
        },
        /*mayStand=*/true);
    impl->together([&] { writer->flush(); });
    std::string problem = impl->commit(*writer);
    if (warning)
      *warning = problem;
  });
}

bool Session::writesBehind() const { return impl->behind.fits; }

Status Session::beginCheckpoint(const CheckpointFolder &folder,
                                const TrainingState &state) {
  return guarded([&] {
    std::unique_ptr<CheckpointWriter> writer =
        impl->openCheckpoint(folder, state);
    const Manifest &manifest = impl->program->manifest();
    impl->behind.copies.resize(impl->local->ranks.size());
    impl->together([&] {
      for (size_t i = 0; i < impl->local->ranks.size(); ++i)
        impl->behind.copies[i].prepare(manifest, *impl->local->ranks[i],
                                       writer->tensors());
    });
    impl->runAll(
        [&](Rank &rank) {
          int local = rank.globalRank() - impl->world.firstLocal();
          rank.completeWeights();
          impl->behind.copies[size_t(local)].take(manifest, rank,
                                                  writer->tensors());
        },
        /*mayStand=*/true);
    impl->behind.begin(std::move(writer));
  });
}

void WrittenBehind::begin(std::unique_ptr<CheckpointWriter> of) {
  writer = std::move(of);
  written = std::async(std::launch::async, [this] {
    SignalStack stack;
    auto begin = std::chrono::steady_clock::now();
    writer->write(copies);
    writer->flush();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         begin)
        .count();
  });
}

bool WrittenBehind::isWriting() const {
  return written.valid() &&
         written.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

std::unique_ptr<CheckpointWriter> WrittenBehind::end(double &seconds) {
  // The thread uses the writer until it is through, whatever comes of it.
  written.wait();
  std::unique_ptr<CheckpointWriter> done = std::move(writer);
  seconds = written.get();
  return done;
}

bool Session::isWriting() const { return impl->behind.isWriting(); }

Status Session::endCheckpoint(CheckpointEnd &end) {
  return guarded([&] {
    if (!impl->behind.wasBegun())
      invalid("checkpoint: none was begun");
    std::unique_ptr<CheckpointWriter> writer;
    impl->together([&] { writer = impl->behind.end(end.seconds); });
    impl->runAll([&](Rank &rank) { writer->addSums(rank); });
    end.warning = impl->commit(*writer);
  });
}

Status Session::resume(const std::string &checkpoint, std::string *note) {
  return guarded([&] {
    std::optional<CheckpointReader> reader;
    impl->together([&] {
      reader.emplace(CheckpointReader::checkpoint(
          impl->program->manifest(), impl->local->ranks, checkpoint));
    });
    uint64_t step = reader->state().step;
    if (note)
      *note = reader->note();
    impl->load(std::move(*reader));
    impl->set.step = step;
  });
}

Status Session::loadWeights(const std::string &path) {
  return guarded([&] {
    std::optional<CheckpointReader> reader;
    impl->together([&] {
      reader.emplace(CheckpointReader::weights(impl->program->manifest(),
                                               impl->local->ranks, path));
    });
    impl->load(std::move(*reader));
  });
}

Status Session::loadAdapters(const std::string &path) {
  return guarded([&] {
    const Manifest &manifest = impl->program->manifest();
    std::optional<CheckpointReader> reader;
    impl->together([&] {
      if (!manifest.adapters.rank)
        invalid("expected a program with adapters to load '" + path +
                "' into, found one without");
      const std::string config = path + "/" + adapterConfigName;
      checkAdapterConfig(readWholeFile(config, 1 << 24), config,
                         manifest.adapters);
      reader.emplace(
          CheckpointReader::adapters(manifest, impl->local->ranks, path));
    });
    impl->load(std::move(*reader));
  });
}

} // namespace grt
