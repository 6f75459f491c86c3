//===- Strategy.cpp - How one layer is spread over a stage ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Strategy.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"

#include <cassert>
#include <tuple>

using namespace llvm;

namespace galvatron {

static constexpr StringLiteral kStatesHome = "opt-host",
                               kActivationsHome = "act-host";

Expected<Strategy> Strategy::get(ArrayRef<Level> levels, bool checkpoint) {
  int64_t product = 1;
  for (size_t i = 0; i < levels.size(); ++i) {
    StringRef name = levels[i].paradigm.name();
    if (levels[i].degree < 2)
      return makeError("level '" + name + Twine(levels[i].degree) +
                       "': expected a degree of at least 2");
    for (size_t j = 0; j < i; ++j) {
      if (levels[j].paradigm == levels[i].paradigm)
        return makeError("paradigm '" + name +
                         "' occurs twice, expected at most one level each");
      if (std::string why =
              whyNotBeside(levels[i].paradigm, levels[j].paradigm);
          !why.empty())
        return makeError(why);
    }
    if (levels[i].degree > (int64_t(1) << 31) / product)
      return makeError("the degrees multiply to more than 2^31 devices");
    product *= levels[i].degree;
  }
  Strategy strategy;
  strategy.levelList.assign(levels.begin(), levels.end());
  strategy.recomputation = checkpoint ? kAllRecomputed : 0;
  return strategy;
}

/// The number of 'ckpt2'; nothing of other words.
static std::optional<int64_t> parsePoint(StringRef word) {
  int64_t point = 0;
  if (!word.consume_front("ckpt") || word.size() != 1 ||
      word.getAsInteger(10, point) || point < 1 ||
      point > Strategy::kMostPoints)
    return std::nullopt;
  return point;
}

Expected<Strategy> Strategy::parse(StringRef text) {
  SmallVector<StringRef, 4> parts;
  text.split(parts, '.');
  auto invalid = [&](const Twine &why) {
    return makeError("invalid strategy '" + text + "': " + why);
  };
  StringRef lastWord;
  auto takeWord = [&](StringRef word) {
    bool isThere = !parts.empty() && parts.back() == word;
    if (isThere)
      lastWord = parts.pop_back_val();
    return isThere;
  };
  LayerHome home;
  home.activations = takeWord(kActivationsHome);
  home.states = takeWord(kStatesHome);
  bool checkpoint = takeWord("ckpt");
  std::optional<int64_t> point;
  if (!checkpoint && !parts.empty() && parts.back().starts_with("ckpt")) {
    point = parsePoint(parts.back());
    if (!point)
      return invalid("expected 'ckpt', or a point from 'ckpt1' to 'ckpt" +
                     Twine(kMostPoints) + "', found '" + parts.back() + "'");
    lastWord = parts.pop_back_val();
  }
  if (parts.empty())
    return invalid("expected levels or 'single' before '" + lastWord + "'");
  SmallVector<Level, 3> levels;
  if (!(parts.size() == 1 && parts.front() == "single")) {
    for (StringRef part : parts) {
      if (part == "ckpt" || parsePoint(part) || part == kStatesHome ||
          part == kActivationsHome)
        return invalid("'" + part +
                       "' comes behind the levels, in the order "
                       "'ckpt', '" +
                       kStatesHome + "', '" + kActivationsHome + "'");
      if (part == "single")
        return invalid("'single' stands alone");
      // A name's letters, then digits; what is neither is told with the digits.
      StringRef name = part.take_while(isAlpha);
      StringRef digits = part.drop_front(name.size());
      std::optional<Paradigm> paradigm = ParadigmRegistry::find(name);
      if (!paradigm)
        return invalid("expected a level like 'dp2', of " +
                       ParadigmRegistry::names() + " and a degree, found '" +
                       part + "'");
      int64_t degree = 0;
      if (digits.empty() || !all_of(digits, isDigit) || digits[0] == '0' ||
          digits.getAsInteger(10, degree))
        return invalid("expected a degree after '" + name + "', found '" +
                       digits + "'");
      levels.push_back({*paradigm, degree});
    }
  }
  Expected<Strategy> strategy = get(levels, checkpoint);
  if (!strategy)
    return invalid(toString(strategy.takeError()));
  if (point)
    strategy = strategy->withPoint(*point);
  return strategy->withHome(home);
}

std::string Strategy::str() const {
  std::string text;
  for (const Level &level : levelList) {
    if (!text.empty())
      text += '.';
    text += level.paradigm.name();
    text += std::to_string(level.degree);
  }
  if (text.empty())
    text = "single";
  if (recomputation > 0)
    text += ".ckpt";
  if (point() > 0)
    text += std::to_string(point());
  if (hostHome.states)
    text += "." + kStatesHome.str();
  if (hostHome.activations)
    text += "." + kActivationsHome.str();
  return text;
}

Strategy Strategy::withCheckpoint(bool checkpoint) const {
  Strategy copy = *this;
  copy.recomputation = checkpoint ? kAllRecomputed : 0;
  return copy;
}

Strategy Strategy::withPoint(int64_t point) const {
  assert(point >= 0 && point <= kMostPoints && "no such point");
  Strategy copy = *this;
  copy.recomputation = static_cast<uint8_t>(point);
  return copy;
}

Strategy Strategy::withHome(LayerHome home) const {
  Strategy copy = *this;
  copy.hostHome = home;
  return copy;
}

int64_t Strategy::devices() const {
  int64_t product = 1;
  for (const Level &level : levelList)
    product *= level.degree;
  return product;
}

int64_t Strategy::degree(Paradigm paradigm) const {
  for (const Level &level : levelList)
    if (level.paradigm == paradigm)
      return level.degree;
  return 1;
}

int64_t Strategy::degree(ParadigmSet among) const {
  int64_t product = 1;
  for (const Level &level : levelList)
    if (among.contains(level.paradigm))
      product *= level.degree;
  return product;
}

int64_t Strategy::stride(size_t level) const {
  int64_t product = 1;
  for (size_t i = level + 1; i < levelList.size(); ++i)
    product *= levelList[i].degree;
  return product;
}

int64_t Strategy::stride(Paradigm paradigm) const {
  for (size_t i = 0; i < levelList.size(); ++i)
    if (levelList[i].paradigm == paradigm)
      return stride(i);
  return 1;
}

int64_t Strategy::coordinate(int64_t localRank, Paradigm paradigm) const {
  return localRank / stride(paradigm) % degree(paradigm);
}

int64_t Strategy::coordinate(int64_t localRank, ParadigmSet among) const {
  int64_t number = 0;
  for (auto [index, level] : enumerate(levelList))
    if (among.contains(level.paradigm))
      number = number * level.degree + localRank / stride(index) % level.degree;
  return number;
}

SmallVector<int64_t, 8> Strategy::group(int64_t localRank,
                                        ParadigmSet among) const {
  SmallVector<int64_t, 8> members = {localRank};
  for (auto [index, level] : enumerate(levelList)) {
    if (!among.contains(level.paradigm))
      continue;
    int64_t step = stride(index);
    SmallVector<int64_t, 8> more;
    for (int64_t member : members) {
      int64_t first = member - member / step % level.degree * step;
      for (int64_t i = 0; i < level.degree; ++i)
        more.push_back(first + i * step);
    }
    members = std::move(more);
  }
  return members;
}

std::vector<SmallVector<int64_t, 8>> Strategy::groups(ParadigmSet among) const {
  std::vector<SmallVector<int64_t, 8>> all;
  if (!hasLevel(among))
    return all;
  for (int64_t rank = 0, count = devices(); rank < count; ++rank)
    if (none_of(levelList, [&](const Level &level) {
          return among.contains(level.paradigm) &&
                 coordinate(rank, level.paradigm) != 0;
        }))
      all.push_back(group(rank, among));
  return all;
}

bool Strategy::hasLevel(ParadigmSet among) const {
  return any_of(levelList, [&](const Level &level) {
    return among.contains(level.paradigm);
  });
}

SmallVector<Level, 2> Strategy::axes() const {
  SmallVector<Level, 2> found;
  for (const Level &level : levelList)
    if (level.paradigm->hasAxis())
      found.push_back(level);
  return found;
}

/// The paradigm of the first level for which `holds` does, or none.
static Paradigm firstOf(ArrayRef<Level> levels,
                        function_ref<bool(const ParadigmDescriptor &)> holds) {
  for (const Level &level : levels)
    if (holds(*level.paradigm))
      return level.paradigm;
  return Paradigm();
}

Paradigm Strategy::on(LayerAxis axis) const {
  assert(axis != LayerAxis::None && "other levels are on no axis");
  return firstOf(levelList, [&](const ParadigmDescriptor &descriptor) {
    return descriptor.axis == axis;
  });
}

/// The paradigms of the levels for which `holds` does.
static ParadigmSet allOf(ArrayRef<Level> levels,
                         function_ref<bool(const ParadigmDescriptor &)> holds) {
  ParadigmSet found;
  for (const Level &level : levels)
    if (holds(*level.paradigm))
      found.insert(level.paradigm);
  return found;
}

ParadigmSet Strategy::insideFunctions() const {
  return allOf(levelList, [](const ParadigmDescriptor &descriptor) {
    return !descriptor.groupInside().empty();
  });
}

ParadigmSet Strategy::parameterSharding() const {
  return allOf(levelList, [](const ParadigmDescriptor &descriptor) {
    return descriptor.shardsParameters;
  });
}

ParadigmSet Strategy::optimizerSharding() const {
  return allOf(levelList, [](const ParadigmDescriptor &descriptor) {
    return descriptor.shardsOptimizer;
  });
}

ParadigmSet Strategy::gradientSumLevels() const {
  return allOf(levelList, [](const ParadigmDescriptor &descriptor) {
    return descriptor.sum() == GradientSum::Once;
  });
}

int64_t Strategy::optimizerShards() const {
  int64_t product = 1;
  for (const Level &level : levelList)
    if (level.paradigm->gathersUpdates())
      product *= level.degree;
  return product;
}

LayerPartition Strategy::partition() const {
  return {axes(), degree(parameterSharding()), optimizerShards()};
}

int64_t Strategy::sampleShards() const {
  int64_t product = 1;
  for (const Level &level : levelList)
    if (level.paradigm->splitsBatch)
      product *= level.degree;
  return product;
}

SampleLayout Strategy::sampleLayout() const {
  SampleLayout layout(devices());
  for (auto [index, level] : enumerate(levelList))
    if (level.paradigm->splitsBatch)
      layout.split(level.degree, stride(index));
  return layout;
}

Expected<int64_t> Strategy::localSamples(int64_t microBatch) const {
  int64_t blocks = sampleShards();
  if (microBatch % blocks != 0)
    return makeError("strategy '" + str() + "' cuts a micro-batch into " +
                     Twine(blocks) + " blocks, which does not divide its " +
                     Twine(microBatch) + " samples");
  return microBatch / blocks;
}

bool Strategy::operator<(const Strategy &other) const {
  auto key = [](const Strategy &strategy) {
    return std::make_tuple(strategy.hostHome.activations,
                           strategy.hostHome.states, strategy.recomputation,
                           strategy.levelList.size());
  };
  if (key(*this) != key(other))
    return key(*this) < key(other);
  for (size_t i = 0; i < levelList.size(); ++i)
    if (levelList[i].paradigm != other.levelList[i].paradigm)
      return levelList[i].paradigm < other.levelList[i].paradigm;
  for (size_t i = 0; i < levelList.size(); ++i)
    if (levelList[i].degree != other.levelList[i].degree)
      return levelList[i].degree > other.levelList[i].degree;
  return false;
}

} // namespace galvatron
