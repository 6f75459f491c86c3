//===- checkpoint.cpp - Writing and reading checkpoints -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/checkpoint.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "core/adapters.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

namespace grt {
namespace {

std::string fiveDigits(size_t number) {
  std::string digits = std::to_string(number);
  return digits.size() < 5 ? std::string(5 - digits.size(), '0') + digits
                           : digits;
}

/// Room for the sums of the ranks of this process, so that their threads need
/// not allocate.
std::vector<HalfSums> emptySums(const Manifest &manifest,
                                std::span<const std::unique_ptr<Rank>> ranks,
                                size_t places) {
  std::vector<HalfSums> sums(size_t(manifest.world));
  for (const std::unique_ptr<Rank> &rank : ranks)
    sums[size_t(rank->globalRank())].resize(2 * places);
  return sums;
}

void writeFlushed(const std::string &path, const std::string &text) {
  File file = File::create(path);
  file.write(text);
  file.flush();
}

/// The sums of any rank of this process: all have the same.
const HalfSums &anySums(const std::vector<HalfSums> &sums) {
  return *std::find_if(sums.begin(), sums.end(),
                       [](const HalfSums &s) { return !s.empty(); });
}

/// True for tensors that Hugging Face models store beside the parameters of a
/// program: buffers of older ones, and heads that other classes of a family
/// have.
bool isPassedOver(const std::string &name) {
  constexpr std::string_view ends[] = {
      ".attn.bias", ".attn.masked_bias", ".attention.bias",
      ".attention.masked_bias", "rotary_emb.inv_freq", "position_ids",
      "relative_position_index",
      // PEFT's copy of what an adapter stands beside, which is the model's.
      ".base_layer.weight", ".base_layer.bias",
      // T5 stores a relative bias for cross attention, which uses none.
      "EncDecAttention.relative_attention_bias"
      ".weight"};
  // Models for images and text have these beside the language model, which is
  // trained alone.
  constexpr std::string_view begins[] = {"bert.pooler.",
                                         "cls.seq_relationship.",
                                         "albert.pooler.",
                                         "sop_classifier.",
                                         "roberta.pooler.",
                                         "pooler.",
                                         "vit.pooler.",
                                         "vision_tower.",
                                         "vision_model.",
                                         "visual.",
                                         "connector.",
                                         "image_newline",
                                         "multi_modal_projector.",
                                         "model.vision_tower.",
                                         "model.vision_model.",
                                         "model.visual.",
                                         "model.connector.",
                                         "model.image_newline",
                                         "model.multi_modal_projector."};
  return std::any_of(std::begin(ends), std::end(ends),
                     [&](auto end) { return name.ends_with(end); }) ||
         std::any_of(std::begin(begins), std::end(begins),
                     [&](auto begin) { return name.starts_with(begin); });
}

/// The names under which Hugging Face models store a tensor: models saved
/// without a head lack the prefix of the whole ("wte.weight"), older ones spell
/// norms as TensorFlow does ("LayerNorm.gamma"), and models for images and text
/// put their language model under a prefix.
std::vector<std::string> storedNames(const std::string &name) {
  std::string tail = name.substr(name.find('.') + 1);
  std::vector<std::string> names = {name, tail, "language_model." + name};
  if (name.starts_with("model."))
    for (const char *prefix : {"model.language_model.", "model.text_model."})
      names.push_back(prefix + tail);
  constexpr std::pair<std::string_view, std::string_view> spellings[] = {
      {"LayerNorm.weight", "LayerNorm.gamma"},
      {"LayerNorm.bias", "LayerNorm.beta"}};
  for (auto [now, before] : spellings)
    if (name.ends_with(now))
      for (size_t i = 0; i < 2; ++i)
        names.push_back(names[i].substr(0, names[i].size() - now.size()) +
                        std::string(before));
  return names;
}

/// Stored tensors by name: the number of the file and the entry there.
using Found = std::map<std::string, std::pair<size_t, const StoredTensor *>>;

/// The tensor of a name, or of another spelling of it; `end()` if there is
/// none.
Found::const_iterator findSpelled(const Found &found, const std::string &name) {
  for (const std::string &spelling : storedNames(name))
    if (auto it = found.find(spelling); it != found.end())
      return it;
  return found.end();
}

/// Returns whether two tensors of the same shape hold the same values. Reads
/// both.
bool sameValues(const File &oneFile, const StoredTensor &one,
                const File &otherFile, const StoredTensor &other) {
  constexpr uint64_t block = 1 << 18;
  uint64_t oneWidth = safetensorsTypeBytes(one.dtype);
  uint64_t otherWidth = safetensorsTypeBytes(other.dtype);
  std::vector<char> ones(block * oneWidth), others(block * otherWidth);
  std::vector<double> oneValues(block), otherValues(block);
  for (uint64_t at = 0, count = one.bytes / oneWidth; at < count; at += block) {
    uint64_t n = std::min(block, count - at);
    oneFile.readAt(one.offset + at * oneWidth, ones.data(), n * oneWidth);
    otherFile.readAt(other.offset + at * otherWidth, others.data(),
                     n * otherWidth);
    if (one.dtype == other.dtype &&
        std::memcmp(ones.data(), others.data(), n * oneWidth) == 0)
      continue;
    convertStored(one.dtype, ones.data(), int64_t(n), GRT_F64,
                  oneValues.data());
    convertStored(other.dtype, others.data(), int64_t(n), GRT_F64,
                  otherValues.data());
    // Zeros of either sign are one value.
    if (!std::equal(oneValues.begin(), oneValues.begin() + int64_t(n),
                    otherValues.begin()))
      return false;
  }
  return true;
}

/// Whether all values of a tensor are zeros. Reads it.
bool isZero(const File &file, const StoredTensor &tensor) {
  constexpr uint64_t block = 1 << 18;
  uint64_t width = safetensorsTypeBytes(tensor.dtype);
  std::vector<char> bytes(block * width);
  std::vector<double> values(block);
  for (uint64_t at = 0, count = tensor.bytes / width; at < count; at += block) {
    uint64_t n = std::min(block, count - at);
    file.readAt(tensor.offset + at * width, bytes.data(), n * width);
    convertStored(tensor.dtype, bytes.data(), int64_t(n), GRT_F64,
                  values.data());
    if (std::any_of(values.begin(), values.begin() + int64_t(n),
                    [](double value) { return value != 0; }))
      return false;
  }
  return true;
}

/// Whether a tensor is the numbers that BART's classes add to logits and never
/// train; refuses those that add something.
bool isZeroBias(const std::string &path, const std::string &name,
                const File &file, const StoredTensor &stored) {
  if (name != "final_logits_bias")
    return false;
  if (!widensTo(stored.dtype, GRT_F64) || !isZero(file, stored))
    invalid("'" + path + "' has tensor '" + name +
            "' with other values than 0, and the program adds nothing to "
            "logits: expected zeros");
  return true;
}

/// The files of a Hugging Face model.
std::vector<std::string> modelFiles(const std::string &path) {
  if (!std::filesystem::is_directory(path))
    return {path};
  std::string single = path + "/model.safetensors";
  if (std::filesystem::exists(single))
    return {single};
  std::string indexPath = path + "/model.safetensors.index.json";
  if (!std::filesystem::exists(indexPath)) {
    bool pickled =
        std::filesystem::exists(path + "/pytorch_model.bin") ||
        std::filesystem::exists(path + "/pytorch_model.bin.index.json");
    std::vector<uint64_t> steps = checkpointSteps(path);
    if (!steps.empty())
      invalid("'" + path +
              "' is a folder of checkpoints: expected one of them, the newest "
              "is '" +
              checkpointPath(path, steps.back()) + "'");
    invalid("'" + path +
            "': expected model.safetensors or "
            "model.safetensors.index.json in this folder" +
            (pickled ? ", found pytorch_model.bin; transformers converts it: "
                       "AutoModel.from_pretrained(..).save_pretrained(..)"
                     : ""));
  }
  return indexedFiles(readWholeFile(indexPath, 1 << 28), indexPath, path);
}

} // namespace

std::vector<std::string> indexedFiles(std::string_view text,
                                      const std::string &name,
                                      const std::string &folder) {
  nlohmann::json index =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object())
    invalid("'" + name + "': expected a JSON object with 'weight_map'");
  std::set<std::string> files;
  for (const auto &[tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() ||
        file.get<std::string>().find('/') != std::string::npos)
      invalid("'" + name + "': tensor '" + tensor +
              "': expected the name of a file in the same folder");
    files.insert(folder + "/" + file.get<std::string>());
  }
  return {files.begin(), files.end()};
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

CheckpointWriter::CheckpointWriter(const Manifest &manifest,
                                   std::span<const std::unique_ptr<Rank>> ranks,
                                   const CheckpointFolder &folder,
                                   const TrainingState &state)
    : manifest(manifest), folder(folder), state(state),
      target(folder.stepFolder(state.step)), temporary(target + ".partial"),
      places(tensorPlaces(manifest, /*states=*/true)) {
  while (weights < places.size() && places[weights].isValue())
    ++weights;
  layOut("model", 0, weights);
  layOut("optimizer", weights, places.size());
  sums = emptySums(manifest, ranks, places.size());
}

void CheckpointWriter::layOut(const std::string &prefix, size_t begin,
                              size_t end) {
  std::vector<size_t> cuts{begin};
  uint64_t bytes = 0;
  for (size_t i = begin; i < end; ++i) {
    uint64_t more = places[i].entry.bytes();
    if (bytes && bytes + more > folder.options().shardBytes) {
      cuts.push_back(i);
      bytes = 0;
    }
    bytes += more;
  }
  cuts.push_back(end);
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    std::vector<TensorEntry> entries;
    for (size_t i = cuts[c]; i < cuts[c + 1]; ++i)
      entries.push_back(places[i].entry);
    std::vector<uint64_t> offsets;
    Part part;
    part.name = prefix + "-" + fiveDigits(c + 1) + "-of-" +
                fiveDigits(cuts.size() - 1) + ".safetensors";
    part.header = safetensorsHeader(entries, offsets);
    part.bytes = offsets.back();
    for (size_t i = cuts[c]; i < cuts[c + 1]; ++i) {
      places[i].file = parts.size();
      places[i].offset = offsets[i - cuts[c]];
    }
    parts.push_back(std::move(part));
  }
}

CheckpointWriter::~CheckpointWriter() {
  // Files that cannot be removed now go when the folder is opened next.
  if (prepared)
    static_cast<void>(guarded([&] {
      folder.checkHeld();
      removePath(temporary);
    }));
}

void CheckpointWriter::prepare() {
  folder.checkHeld();
  removePath(temporary);
  prepared = true;
  makeDirectory(temporary);
  for (const Part &part : parts) {
    File file = File::create(temporary + "/" + part.name);
    file.reserve(part.bytes);
    file.write(part.header);
  }
}

void CheckpointWriter::open() {
  for (const Part &part : parts)
    files.push_back(File::openToWrite(temporary + "/" + part.name));
}

void CheckpointWriter::write(Rank &rank) {
  HalfSums &mine = sums[size_t(rank.globalRank())];
  writePieces(manifest, rank, places, files, mine);
  rank.addOverRanks(mine);
}

void CheckpointWriter::write(std::span<const PieceCopies> copies) {
  for (const PieceCopies &rank : copies)
    rank.write(places, files, sums[size_t(rank.globalRank())]);
}

void CheckpointWriter::addSums(Rank &rank) {
  rank.addOverRanks(sums[size_t(rank.globalRank())]);
}

void CheckpointWriter::flush() {
  for (File &file : files) {
    file.flush();
    file.close();
  }
}

std::string CheckpointWriter::index(size_t begin, size_t end) const {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  uint64_t total = 0;
  for (size_t i = begin; i < end; ++i) {
    map[places[i].entry.name] = parts[places[i].file].name;
    total += places[i].entry.bytes();
  }
  nlohmann::ordered_json document = {{"metadata", {{"total_size", total}}},
                                     {"weight_map", map}};
  return document.dump(2) + "\n";
}

std::string CheckpointWriter::commit() {
  CheckpointManifest description;
  description.training = state;
  description.dtype = dtypeName(manifest.dtype);
  description.optimizer = manifest.optimizer;
  if (manifest.adapters.rank)
    description.adapters = adapterConfigText(manifest.adapters);
  for (const Part &part : parts)
    description.files.push_back({part.name, part.bytes, hashText(part.header)});
  const HalfSums &all = anySums(sums);
  for (size_t i = 0; i < places.size(); ++i)
    description.sums[places[i].entry.name] = wholeSum(all, i);

  std::map<std::string, std::string> texts = {
      {"config.json", manifest.modelConfig + "\n"},
      {"model.safetensors.index.json", index(0, weights)},
      {"optimizer.safetensors.index.json", index(weights, places.size())},
      {stateFileName, writeCheckpointManifest(description)}};
  for (const auto &[name, text] : texts)
    writeFlushed(temporary + "/" + name, text);
  writeFlushed(temporary + "/" + sumsFileName, writeSums(texts));
  flushDirectory(temporary);
  folder.checkHeld();
  renamePath(temporary, target);
  prepared = false;
  flushDirectory(folder.path());

  // A folder that is being removed must not look complete.
  std::vector<uint64_t> steps = folder.steps();
  std::string problem;
  for (size_t i = 0; i + folder.options().keep < steps.size(); ++i)
    try {
      std::string old = folder.stepFolder(steps[i]);
      renamePath(old, old + ".partial");
      removePath(old + ".partial");
    } catch (const Error &error) {
      if (problem.empty())
        problem = std::string("an old checkpoint stays: ") + error.what();
    }
  return problem;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

CheckpointReader::CheckpointReader(const Manifest &manifest,
                                   std::span<const std::unique_ptr<Rank>> ranks,
                                   const std::string &path, bool states)
    : manifest(manifest), path(path), places(tensorPlaces(manifest, states)),
      sums(emptySums(manifest, ranks, places.size())) {}

CheckpointReader
CheckpointReader::checkpoint(const Manifest &manifest,
                             std::span<const std::unique_ptr<Rank>> ranks,
                             const std::string &path) {
  CheckpointReader reader(manifest, ranks, path, /*states=*/true);
  CheckpointManifest description = readCheckpointManifest(path);
  auto same = [&](const char *what, const std::string &found,
                  const std::string &expected) {
    if (found != expected)
      invalid("checkpoint '" + path + "' has " + what + " '" + found +
              "', the program has '" + expected + "'");
  };
  same("dtype", description.dtype, dtypeName(manifest.dtype));
  same("optimizer", description.optimizer, manifest.optimizer);
  std::vector<SafetensorsFile> opened;
  for (const TensorFile &file : description.files) {
    opened.emplace_back(path + "/" + file.name);
    const SafetensorsFile &found = opened.back();
    if (found.file().bytes() != file.bytes)
      invalid("'" + found.file().path() + "' has " + str(found.file().bytes()) +
              " bytes, expected " + str(file.bytes));
    if (hashText(found.header()) != file.headerHash)
      invalid("'" + found.file().path() +
              "' is damaged: the SHA-256 of its header differs from the one "
              "in " +
              stateFileName);
  }
  bool there = std::any_of(
      description.sums.begin(), description.sums.end(), [](const auto &sum) {
        return std::string_view(sum.first).ends_with(olderSuffix);
      });
  bool wanted = manifest.weightVersions > 1;
  reader.readsOlder = there && wanted;
  if (wanted && !there) {
    std::erase_if(reader.places, [](const TensorPlace &place) {
      return place.kind == Held::Older;
    });
    reader.sums = emptySums(manifest, ranks, reader.places.size());
    reader.versionsNote = "checkpoint '" + path +
                          "' has one version of the weights: the first step "
                          "uses it for both that schedule '" +
                          manifest.schedule + "' has";
  } else if (there && !wanted) {
    reader.versionsNote = "checkpoint '" + path +
                          "' has an older version of the weights, whose "
                          "gradients would have come "
                          "next: schedule '" +
                          manifest.schedule + "' goes on from the newest alone";
  }
  reader.locate(std::move(opened), /*exact=*/true);
  for (const TensorPlace &place : reader.places)
    if (!description.sums.count(place.entry.name))
      invalid("'" + path + "/" + stateFileName + "' has no sum of tensor '" +
              place.entry.name + "'");
  reader.training = description.training;
  reader.expected = std::move(description.sums);
  return reader;
}

CheckpointReader
CheckpointReader::weights(const Manifest &manifest,
                          std::span<const std::unique_ptr<Rank>> ranks,
                          const std::string &path) {
  CheckpointReader reader(manifest, ranks, path, /*states=*/false);
  std::vector<SafetensorsFile> opened;
  for (const std::string &file : modelFiles(path))
    opened.emplace_back(file);
  // The model alone, whose adapters begin as the program says.
  const Adapters &adapters = manifest.adapters;
  if (adapters.rank &&
      std::none_of(opened.begin(), opened.end(),
                   [&](const SafetensorsFile &file) {
                     return file.tensors().count(
                         Adapters::firstOf(adapters.modules.front()));
                   }))
    reader.leaveOut(/*trained=*/true);
  reader.locate(std::move(opened), /*exact=*/false);
  return reader;
}

CheckpointReader
CheckpointReader::adapters(const Manifest &manifest,
                           std::span<const std::unique_ptr<Rank>> ranks,
                           const std::string &path) {
  CheckpointReader reader(manifest, ranks, path, /*states=*/false);
  reader.leaveOut(/*trained=*/false);
  std::vector<SafetensorsFile> opened;
  opened.emplace_back(path + "/" + adapterFileName);
  reader.locate(std::move(opened), /*exact=*/false);
  return reader;
}

void CheckpointReader::leaveOut(bool trained) {
  leaveOut([&](const TensorPlace &place) {
    return (place.kind != Held::Frozen) == trained;
  });
}

void CheckpointReader::leaveOut(
    const std::function<bool(const TensorPlace &)> &isLeftOut) {
  std::erase_if(places, isLeftOut);
  for (HalfSums &each : sums)
    if (!each.empty())
      each.resize(2 * places.size());
}

void CheckpointReader::locate(std::vector<SafetensorsFile> opened, bool exact) {
  Found found;
  for (size_t i = 0; i < opened.size(); ++i)
    for (const auto &[name, tensor] : opened[i].tensors())
      if (!found.emplace(name, std::pair(i, &tensor)).second)
        invalid("'" + opened[i].file().path() + "': tensor '" + name +
                "' stands in two files");

  const bool generates = manifest.datumOf("cache_rows") != nullptr;
  std::set<std::string> used;
  // Tables that say themselves what they hold.
  auto isMadeAlone = [&](const TensorPlace &place) {
    return manifest.parameters[size_t(place.parameter)].init ==
           InitKind::Sinusoids;
  };
  if (!exact)
    leaveOut([&](const TensorPlace &place) {
      return isMadeAlone(place) &&
             findSpelled(found, place.entry.name) == found.end();
    });
  for (TensorPlace &place : places) {
    const Parameter &parameter = manifest.parameters[size_t(place.parameter)];
    auto it = exact ? found.find(place.entry.name)
                    : findSpelled(found, place.entry.name);
    // A file may have a copy in place of the tensor.
    if (!exact)
      for (const std::string &copy : parameter.copies)
        if (it == found.end())
          it = findSpelled(found, copy);
    // Several parameters may stand in one tensor.
    if (!exact && it == found.end() && parameter.part) {
      it = findSpelled(found, parameter.part->of);
      place.isPart = it != found.end();
    }
    if (it == found.end())
      invalid(
          "'" + path + "' has no tensor '" +
          (parameter.part && !exact ? parameter.part->of : place.entry.name) +
          "'");
    const auto &[name, where] = *it;
    const StoredTensor &stored = *where.second;
    const std::vector<int64_t> shape =
        place.isPart ? parameter.storedShape() : place.entry.shape;
    if (stored.shape != shape)
      invalid("'" + path + "': tensor '" + name + "' has shape " +
              shapeText(stored.shape) + ", expected " + shapeText(shape));
    const char *type = safetensorsType(place.entry.dtype);
    // A program that generates may round the weights, as training does not go
    // on from them, nor from tables that say themselves what they hold.
    const grt_dtype widest =
        generates || isMadeAlone(place) ? GRT_F64 : place.entry.dtype;
    if (exact ? stored.dtype != type : !widensTo(stored.dtype, widest))
      invalid("'" + path + "': tensor '" + name + "' has dtype " +
              stored.dtype + ", expected " + type);
    place.file = where.first;
    place.offset = stored.offset;
    place.storedType = stored.dtype;
    used.insert(name);
    if (!exact)
      for (const std::string &copy : parameter.copies) {
        auto other = findSpelled(found, copy);
        if (other == found.end() || !used.insert(other->first).second)
          continue;
        const StoredTensor &second = *other->second.second;
        if (second.shape != stored.shape || !widensTo(second.dtype, GRT_F64) ||
            !sameValues(opened[place.file].file(), stored,
                        opened[other->second.first].file(), second))
          invalid(
              "'" + path + "' has tensor '" + other->first +
              "' with other values than '" + name +
              "', and the program has one tensor for both: expected a copy, "
              "or a model whose configuration does not tie them "
              "(\"tie_word_embeddings\": false)");
      }
  }
  for (const auto &[name, where] : found) {
    if (used.count(name) ||
        (exact && !readsOlder && name.ends_with(olderSuffix)) ||
        (!exact &&
         (isPassedOver(name) ||
          isZeroBias(path, name, opened[where.first].file(), *where.second))))
      continue;
    invalid("'" + path + "' has tensor '" + name +
            "', which the program does not know");
  }
  for (SafetensorsFile &file : opened)
    files.push_back(file.take());
}

void CheckpointReader::read(Rank &rank) {
  HalfSums &mine = sums[size_t(rank.globalRank())];
  readPieces(manifest, rank, places, files, mine);
  rank.addOverRanks(mine);
}

void CheckpointReader::check() const {
  if (expected.empty())
    return;
  const HalfSums &all = anySums(sums);
  for (size_t i = 0; i < places.size(); ++i)
    if (wholeSum(all, i) != expected.at(places[i].entry.name))
      invalid("checkpoint '" + path + "' is damaged: the values of tensor '" +
              places[i].entry.name + "' do not add up to their checksum");
}

} // namespace grt
