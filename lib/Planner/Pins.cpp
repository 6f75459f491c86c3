//===- Pins.cpp - Layers whose strategy is given --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Planner/Pins.h"

#include "galvatron/Cost/LayerModel.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace llvm;

namespace galvatron {

Expected<std::vector<LayerPin>> parsePins(StringRef text) {
  std::vector<LayerPin> pins;
  SmallVector<StringRef> entries;
  text.split(entries, ';', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef entry : entries) {
    entry = entry.trim();
    auto [layers, notation] = entry.rsplit(':');
    if (layers.empty() || notation.empty())
      return makeError(
          "expected 'layer:strategy' or 'first-last:strategy', found '" +
          entry + "'");
    Expected<Strategy> strategy = Strategy::parse(notation.trim());
    if (!strategy)
      return strategy.takeError();
    pins.push_back({layers.trim().str(), *strategy});
  }
  if (pins.empty())
    return makeError("expected entries like 'h.1:tp2.ckpt;h.5-h.9:sdp2', found "
                     "'" +
                     text + "'");
  return pins;
}

Expected<std::pair<size_t, size_t>> selectLayers(ArrayRef<std::string> names,
                                                 StringRef selector) {
  if (selector == "*" && !names.empty())
    return std::make_pair(size_t(0), names.size() - 1);
  auto find = [&](StringRef name) -> size_t {
    return llvm::find(names, name) - names.begin();
  };
  size_t first = find(selector), last = first;
  // The other end is the nearest to a range whose one end is known.
  StringRef unknown = selector;
  for (size_t dash = selector.find('-');
       first == names.size() && dash != StringRef::npos;
       dash = selector.find('-', dash + 1)) {
    size_t begin = find(selector.take_front(dash));
    size_t end = find(selector.drop_front(dash + 1));
    if (begin < names.size() && end < names.size()) {
      first = begin;
      last = end;
    } else if (begin < names.size()) {
      unknown = selector.drop_front(dash + 1);
    } else if (end < names.size()) {
      unknown = selector.take_front(dash);
    }
  }
  if (first == names.size()) {
    std::string near = didYouMean(unknown, names);
    if (near.empty() && names.size() > 1)
      near = ("; the layers are '" + names.front() + "', '" + names[1] +
              "' to '" + names.back() + "'");
    return makeError(
        "expected the name of a layer or a range of layers, found '" +
        selector + "'" + near);
  }
  if (last < first)
    return makeError("expected a range in the order of the model, found '" +
                     selector + "'");
  return std::make_pair(first, last);
}

Expected<std::vector<std::optional<Strategy>>>
resolvePins(const LayerModel &model, ArrayRef<LayerPin> pins) {
  std::vector<std::optional<Strategy>> result(model.layerCount());
  if (pins.empty())
    return result;
  std::vector<std::string> names;
  for (size_t layer = 0; layer < model.layerCount(); ++layer)
    names.push_back(model.layerName(layer));
  std::optional<Strategy> others;
  auto conflict = [](StringRef layer, const Strategy &a, const Strategy &b) {
    return makeError("layer '" + layer + "' is given strategy '" + a.str() +
                     "' and strategy '" + b.str() + "'");
  };
  for (const LayerPin &pin : pins) {
    if (pin.layers == "*") {
      if (others && *others != pin.strategy)
        return conflict("*", *others, pin.strategy);
      others = pin.strategy;
      continue;
    }
    Expected<std::pair<size_t, size_t>> range = selectLayers(names, pin.layers);
    if (!range)
      return range.takeError();
    for (size_t layer = range->first; layer <= range->second; ++layer) {
      if (result[layer] && *result[layer] != pin.strategy)
        return conflict(names[layer], *result[layer], pin.strategy);
      result[layer] = pin.strategy;
    }
  }
  for (std::optional<Strategy> &strategy : result)
    if (!strategy)
      strategy = others;
  return result;
}

} // namespace galvatron
