//===- MegatronLayout.cpp - Layers of Megatron-LM's stages ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The grammar of layouts is that of Megatron-Core
// (core/transformer/pipeline_parallel_layer_layout.py): `E` embedding, `t`
// layer, `m` multi-token prediction, `L` loss; `|` ends a chunk; commas are
// left out; `(..)*N`, which does not nest, and then `X*N`, of one character,
// repeat.
//
//===----------------------------------------------------------------------===//

#include "MegatronLayout.h"

#include "galvatron/Software/Configuration.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace galvatron {
namespace {

/// Characters that a layout may have when all is repeated.
constexpr size_t kMostCharacters = size_t(1) << 16;

/// Appends `what` as often as "*N" in front of `rest` says, once without one.
Error appendRepeated(std::string &to, StringRef what, StringRef &rest) {
  uint64_t times = 1;
  if (rest.consume_front("*") && rest.consumeInteger(10, times))
    return makeError("expected a number behind '*', found '" + rest + "'");
  if (times > kMostCharacters ||
      to.size() + times * what.size() > kMostCharacters)
    return makeError("expected a layout of at most " + Twine(kMostCharacters) +
                     " characters");
  for (uint64_t i = 0; i < times; ++i)
    to += what;
  return Error::success();
}

/// The layout with its groups written out.
Expected<std::string> withoutGroups(StringRef text) {
  std::string written;
  while (!text.empty()) {
    auto [before, behind] = text.split('(');
    written += before;
    if (before.size() == text.size())
      break;
    auto [group, rest] = behind.split(')');
    if (group.size() == behind.size() || group.contains('('))
      return makeError("expected a ')' in front of another '(', as groups do "
                       "not nest");
    if (Error error = appendRepeated(written, group, rest))
      return std::move(error);
    text = rest;
  }
  return written;
}

} // namespace

Expected<std::vector<int64_t>> blocksOfLayout(StringRef layout) {
  std::string plain;
  for (char c : layout)
    if (c != ',' && !isSpace(c))
      plain += c;
  Expected<std::string> groups = withoutGroups(plain);
  if (!groups)
    return groups.takeError();
  std::string written;
  for (StringRef rest = *groups; !rest.empty();) {
    StringRef one = rest.take_front();
    rest = rest.drop_front();
    if (Error error = appendRepeated(written, one, rest))
      return std::move(error);
  }
  StringRef body = written;
  if (body.contains('m'))
    return makeError("multi-token prediction ('m') is not priced");
  if (!body.consume_front("E") || !body.consume_back("L"))
    return makeError("expected 'E' in front and 'L' at the end, found '" +
                     written + "'");
  std::vector<int64_t> blocks;
  SmallVector<StringRef, 16> chunks;
  body.split(chunks, '|');
  for (StringRef chunk : chunks) {
    if (chunk.find_first_not_of('t') != StringRef::npos)
      return makeError("expected 't' and '|' between 'E' and 'L', found '" +
                       chunk + "'");
    blocks.push_back(int64_t(chunk.size()));
  }
  for (size_t chunk = 1; chunk + 1 < blocks.size(); ++chunk)
    if (blocks[chunk] == 0)
      return makeError("a chunk without a layer is not priced");
  return blocks;
}

std::string layoutOf(ArrayRef<int64_t> blocks) {
  std::string layout = "E";
  for (auto [chunk, count] : enumerate(blocks)) {
    if (chunk > 0)
      layout += "|";
    if (count > 0)
      layout += count == 1 ? "t" : "t*" + std::to_string(count);
  }
  return layout + "L";
}

Expected<std::vector<int64_t>> blocksOfEnds(int64_t layers, int64_t stages,
                                            int64_t chunks, int64_t first,
                                            int64_t last) {
  const int64_t others = stages - (first > 0) - (last > 0);
  const int64_t rest = layers - first - last;
  if (stages < 2 || rest < 0 || (others == 0 ? rest != 0 : rest % others != 0))
    return makeError("expected layers besides those of the first and last "
                     "stage that divide by the other " +
                     Twine(std::max<int64_t>(others, 0)) + " stages, found " +
                     Twine(rest));
  std::vector<int64_t> ofStages(size_t(stages), others > 0 ? rest / others : 0);
  if (first > 0)
    ofStages.front() = first;
  if (last > 0)
    ofStages.back() = last;
  std::vector<int64_t> blocks;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t count : ofStages) {
      if (count % chunks)
        return makeError("expected layers of a stage that divide by " +
                         Twine(chunks) + " chunks, found " + Twine(count));
      blocks.push_back(count / chunks);
    }
  return blocks;
}

Expected<std::vector<int64_t>> blocksOfFlags(Arguments &flags, int64_t layers,
                                             int64_t stages, int64_t chunks) {
  const bool embedding = flags.has("account-for-embedding-in-pipeline-split"),
             loss = flags.has("account-for-loss-in-pipeline-split");
  const bool virtualStages =
      flags.has("num-virtual-stages-per-pipeline-rank") ||
      flags.has("num-layers-per-virtual-pipeline-stage");
  constexpr StringLiteral layoutFlag = "pipeline-model-parallel-layout";
  const StringRef firstFlag = kEndFlags[0], lastFlag = kEndFlags[1];
  const bool ends = flags.has(firstFlag) || flags.has(lastFlag);
  auto fail = [](StringRef flag, const Twine &message) {
    return makeError("flag --" + flag + ": " + message);
  };
  if (flags.has(layoutFlag)) {
    if (virtualStages || ends || embedding || loss)
      return fail(layoutFlag, "expected no other flag of stages beside it");
    Expected<std::vector<int64_t>> blocks =
        blocksOfLayout(flags.text(layoutFlag));
    if (!blocks)
      return fail(layoutFlag, toString(blocks.takeError()));
    if (int64_t(blocks->size()) % stages)
      return fail(layoutFlag, "expected a multiple of " + Twine(stages) +
                                  " chunks, found " + Twine(blocks->size()));
    return blocks;
  }
  if (ends) {
    if (embedding || loss || flags.has("num-layers-per-virtual-pipeline-stage"))
      return fail(flags.has(firstFlag) ? firstFlag : lastFlag,
                  "expected none of --account-for-embedding-in-pipeline-split, "
                  "--account-for-loss-in-pipeline-split and "
                  "--num-layers-per-virtual-pipeline-stage beside it");
    Expected<std::vector<int64_t>> blocks =
        blocksOfEnds(layers, stages, chunks, flags.count(firstFlag, 0),
                     flags.count(lastFlag, 0));
    if (!blocks)
      return fail(flags.has(firstFlag) ? firstFlag : lastFlag,
                  toString(blocks.takeError()));
    return blocks;
  }
  std::vector<int64_t> blocks =
      Configuration::blocksCounting(layers, stages * chunks, embedding, loss);
  if (blocks.empty())
    return makeError("expected blocks that divide by " +
                     Twine(stages * chunks) +
                     " chunks, embedding and loss counted as the flags say, "
                     "found " +
                     Twine(layers));
  return blocks;
}

} // namespace galvatron
