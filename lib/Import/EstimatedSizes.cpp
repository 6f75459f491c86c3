//===- EstimatedSizes.cpp - Sizes of a model that is only planned ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EstimatedSizes.h"

#include "EstimatedFamilies.h"
#include "FieldTable.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
namespace json = llvm::json;

namespace {

/// Meanings that change no size and no product: scales, rotations, dropout,
/// where norms stand. Norms that come or go are vectors of a block's width.
constexpr llvm::StringLiteral kUncounted[] = {"norm_eps",
                                              "pre_norm",
                                              "use_post_norm",
                                              "final_norm",
                                              "norm_type",
                                              "norm_weights",
                                              "embedding_norm",
                                              "qk_norm",
                                              "clip_qkv",
                                              "rope_theta",
                                              "rope_scaling",
                                              "partial_rotary_factor",
                                              "rotary_dim",
                                              "rope_interleaved",
                                              "no_rope_layers",
                                              "rope_local_base_freq",
                                              "alibi",
                                              "position_embedding_type",
                                              "rotary",
                                              "attention_multiplier",
                                              "query_pre_attn_scalar",
                                              "attn_logit_softcapping",
                                              "scale_attn_weights",
                                              "scale_attn_by_inverse_layer_idx",
                                              "embedding_multiplier",
                                              "scale_embedding",
                                              "residual_multiplier",
                                              "logits_scaling",
                                              "logit_scale",
                                              "scale_depth",
                                              "parallel_residual",
                                              "attention_dropout",
                                              "hidden_dropout",
                                              "embedding_dropout",
                                              "activation_dropout",
                                              "layerdrop",
                                              "initializer_range",
                                              "initializer_factor",
                                              "is_decoder"};

/// Reads what families spell in different ways.
class SizeReader {
public:
  explicit SizeReader(ConfigReader &reader)
      : reader(reader), object(reader.getObject()) {}

  /// The fields of a meaning that are given and not null, all marked as read.
  std::vector<StringRef> given(StringRef meaning) {
    std::vector<StringRef> fields;
    for (StringRef field : spellingsOf(meaning)) {
      reader.passOver(field);
      if (const json::Value *value = object.get(field);
          value && !value->getAsNull())
        fields.push_back(field);
    }
    return fields;
  }

  /// A size; fields that give it twice must agree.
  std::optional<int64_t> size(StringRef meaning) {
    std::optional<int64_t> found;
    StringRef first;
    for (StringRef field : given(meaning)) {
      int64_t value = reader.positive(field);
      if (found && value != *found)
        reader.fail(field, "expected '" + first + "' = " + Twine(*found) +
                               ", found " + Twine(value));
      found = value;
      first = field;
    }
    return found;
  }
  int64_t required(StringRef meaning) {
    if (std::optional<int64_t> found = size(meaning))
      return *found;
    reader.fail(meaning, "missing");
    return 1;
  }

  std::optional<bool> flag(StringRef meaning) {
    std::optional<bool> found;
    for (StringRef field : given(meaning))
      found = reader.booleanOr(field, false);
    // Fields that say the opposite.
    for (const auto &entry : object) {
      auto said = meaningOf(entry.first);
      if (!said || said->name != meaning || !said->negated ||
          entry.second.getAsNull())
        continue;
      found = !reader.booleanOr(entry.first, false);
    }
    return found;
  }

  bool choose(const FamilyChoice &choice) {
    if (choice.field.empty())
      return choice.usual;
    const json::Value *value = object.get(choice.field);
    reader.passOver(choice.field);
    if (!value || value->getAsNull())
      return choice.usual;
    return reader.booleanOr(choice.field, choice.usual);
  }

  ConfigReader &reader;
  const json::Object &object;
};

/// Fields that no size depends on.
void passUncounted(SizeReader &fields) {
  for (const auto &entry : fields.object)
    if (auto meaning = meaningOf(entry.first);
        meaning && llvm::is_contained(kUncounted, meaning->name))
      fields.reader.passOver(StringRef(entry.first));
}

/// Words of layers that are blocks of attention; 2 for those with a window.
int kindOfLayer(StringRef word) {
  if (word == "full_attention" || word == "global")
    return 1;
  return word == "sliding_attention" || word == "local" ? 2 : 0;
}

/// Appends the kinds of a list of words, of lists of words and numbers of
/// repetitions ([["global", "local"], 12]); false if there is anything else.
bool flattenTypes(const json::Value &value, std::vector<int> &kinds) {
  if (auto word = value.getAsString()) {
    kinds.push_back(kindOfLayer(*word));
    return kinds.back() != 0;
  }
  const json::Array *list = value.getAsArray();
  if (!list)
    return false;
  if (list->size() == 2 && (*list)[0].getAsArray())
    if (auto times = (*list)[1].getAsInteger();
        times && *times > 0 && *times < (1 << 20)) {
      for (int64_t i = 0; i < *times; ++i)
        if (!flattenTypes((*list)[0], kinds))
          return false;
      return true;
    }
  return llvm::all_of(*list, [&](const json::Value &entry) {
    return flattenTypes(entry, kinds);
  });
}

void readWindows(SizeReader &fields, const EstimatedFamily &family,
                 EstimatedSizes &sizes) {
  ConfigReader &reader = fields.reader;
  sizes.windows.assign(size_t(std::min<int64_t>(sizes.layers, 1 << 20)), 0);
  std::vector<int> kinds;
  for (StringRef field : fields.given("layer_types")) {
    std::vector<int> list;
    if (!flattenTypes(*fields.object.get(field), list))
      reader.fail(field, "expected blocks of attention, 'full_attention' or "
                         "'sliding_attention', found others");
    else if (int64_t(list.size()) == sizes.layers)
      kinds = std::move(list);
  }
  std::optional<int64_t> window, from, pattern;
  for (StringRef field : fields.given("sliding_window"))
    if (auto number = fields.object.get(field)->getAsInteger();
        number && *number > 0)
      window = *number;
  for (StringRef field : fields.given("max_window_layers"))
    from = fields.object.get(field)->getAsInteger();
  for (StringRef field : fields.given("sliding_window_pattern"))
    pattern = fields.object.get(field)->getAsInteger();
  reader.passOver(StringRef("_sliding_window_pattern"));
  bool on = fields.flag("use_sliding_window").value_or(true);
  int64_t every = pattern && *pattern > 0 ? *pattern : family.windowPattern;
  for (auto [layer, slot] : llvm::enumerate(sizes.windows)) {
    bool slides = on && window;
    if (!kinds.empty())
      slides &= kinds[layer] == 2;
    else
      slides &= int64_t(layer) >= from.value_or(0) &&
                (every == 1 || (int64_t(layer) + 1) % every != 0);
    slot = slides ? *window : 0;
  }
}

/// Queries, keys and values.
void readHeads(SizeReader &fields, const EstimatedFamily &family,
               EstimatedSizes &sizes) {
  ConfigReader &reader = fields.reader;
  std::optional<int64_t> headSize = fields.size("head_dim");
  if (!headSize && family.headSize)
    headSize = family.headSize;
  if (!headSize && sizes.hidden % sizes.heads)
    reader.fail("num_attention_heads",
                "expected a divisor of the width " + Twine(sizes.hidden) +
                    " where no size of heads is given, found " +
                    Twine(sizes.heads));
  int64_t width = headSize.value_or(
      std::max<int64_t>(sizes.hidden / std::max<int64_t>(sizes.heads, 1), 1));
  reader.have("head_dim", width);

  std::optional<int64_t> keyHeads = fields.size("num_key_value_heads");
  // Absent is what the family has, null as many as heads.
  bool absent =
      llvm::none_of(spellingsOf("num_key_value_heads"),
                    [&](StringRef field) { return reader.has(field); });
  if (absent && family.keyHeads)
    keyHeads = family.keyHeads;
  if (!family.sharedKeys.field.empty()) {
    bool renewed = fields.flag("new_decoder_architecture").value_or(false);
    if (fields.choose(family.sharedKeys) && !renewed)
      keyHeads = 1;
    // Another name of the new architecture alone.
    if (reader.has("n_head_kv") && !renewed)
      reader.fail("n_head_kv", "expected 'new_decoder_architecture' to be true "
                               "beside it");
  } else if (!sizes.knownFamily && fields.flag("multi_query").value_or(false)) {
    if (keyHeads && *keyHeads != 1)
      reader.fail("multi_query", "expected false beside " + Twine(*keyHeads) +
                                     " key heads, found true");
    keyHeads = 1;
  }
  if (keyHeads && *keyHeads > sizes.heads)
    reader.fail("num_key_value_heads", "expected at most as many as heads, " +
                                           Twine(sizes.heads) + ", found " +
                                           Twine(*keyHeads));
  reader.have("num_key_value_heads", keyHeads.value_or(sizes.heads));
  sizes.queries = sizes.heads * width;
  sizes.keys = keyHeads.value_or(sizes.heads) * width;
}

/// The family that the fields of a type in no table let one conclude.
EstimatedFamily unknownFamily(SizeReader &fields, EstimatedSizes &sizes,
                              bool hasWeights) {
  ConfigReader &reader = fields.reader;
  EstimatedFamily family;
  bool rms = reader.has("rms_norm_eps");
  family.normVectors = rms ? 1 : 2;
  family.tied = true; // the library's usual value
  bool biases = fields.flag("all_biases").value_or(!rms);
  bool attention = fields.flag("attention_bias").value_or(biases);
  family.queryBias.usual = fields.flag("qkv_bias").value_or(attention);
  family.outputBias.usual = fields.flag("o_bias").value_or(attention);
  family.innerBias.usual = fields.flag("mlp_bias").value_or(biases);
  family.causal = fields.flag("causal").value_or(true);
  // Without rotation, positions are learned where the words for it are.
  bool turns = llvm::any_of(fields.object, [](const auto &entry) {
    auto meaning = meaningOf(entry.first);
    return meaning &&
           (meaning->name == "rope_theta" || meaning->name == "rope_scaling" ||
            meaning->name == "partial_rotary_factor" ||
            meaning->name == "rotary_dim" || meaning->name == "alibi");
  });
  if (reader.has("n_positions") && !turns)
    family.positionRows = 0;
  // A gate: only SiLU has one everywhere, and only the older words for a
  // function never have one.
  std::optional<bool> gated = fields.flag("gated");
  std::vector<StringRef> functions = fields.given("hidden_act");
  std::string name;
  if (!functions.empty())
    name = reader.stringOr(functions.front(), "");
  bool silu = sameValue(name, "silu") || name.find("glu") != std::string::npos;
  if (!gated && silu)
    gated = true;
  if (!gated && llvm::is_contained(functions, "activation_function"))
    gated = false;
  if (!gated && !hasWeights)
    reader.fail(functions.empty() ? "hidden_act" : functions.front(),
                functions.empty()
                    ? Twine("missing: nothing says whether the feed-forward of "
                            "the unknown family '") +
                          reader.getModelType() + "' has a gate"
                    : "expected 'silu' of the unknown family '" +
                          reader.getModelType() + "', found '" + name +
                          "', which does not say whether the feed-forward has "
                          "a gate");
  family.gated = gated.value_or(false);
  if (!family.gated)
    family.innerMultiple = 4;
  return family;
}

void countParameters(SizeReader &fields, const EstimatedFamily &family,
                     EstimatedSizes &sizes) {
  double h = double(sizes.hidden), q = double(sizes.queries),
         k = double(sizes.keys), f = double(sizes.inner),
         v = double(sizes.vocabulary), e = double(sizes.table);
  double into = sizes.gated ? 2 : 1;
  sizes.blockProducts = h * (q + 2 * k) + q * h + (into + 1) * h * f;
  sizes.blockVectors = double(family.blockNorms * family.normVectors) * h;
  if (fields.choose(family.queryBias))
    sizes.blockVectors += q + 2 * k;
  if (fields.choose(family.outputBias))
    sizes.blockVectors += h;
  sizes.innerBias = fields.choose(family.innerBias);
  if (sizes.innerBias)
    sizes.blockVectors += into * f + h;
  if (fields.choose(family.queryNorm))
    sizes.blockVectors +=
        double(family.normVectors) *
        (family.wholeWidthNorm ? q + k : 2 * q / double(sizes.heads));

  // Norms, attention, the activation, rotation of queries and keys, and the
  // products: queries, keys and values are one where positions are learned.
  bool learned = family.positionRows >= 0;
  sizes.learnedPositions = learned;
  sizes.rmsNorm = family.normVectors == 1;
  sizes.blockKernels = family.blockNorms + 2 + (learned ? 0 : 2) +
                       (learned ? 2 : 4) + (sizes.gated ? 3 : 2);
  if (fields.choose(family.queryNorm))
    sizes.blockKernels += 2;

  sizes.tableElements = v * e;
  sizes.embedding = v * e;
  if (family.positionRows >= 0) {
    if (!sizes.positions)
      fields.reader.fail("max_position_embeddings", "missing");
    sizes.embedding += double(sizes.positions + family.positionRows) * e;
  }
  std::optional<int64_t> types = fields.size("type_vocab_size");
  if (family.tokenTypes || (types && !sizes.knownFamily))
    sizes.embedding += double(types.value_or(family.tokenTypes)) * e;
  if (family.embeddingNorm)
    sizes.embedding += double(family.normVectors) * e;
  bool narrow = sizes.table != sizes.hidden;
  if (narrow && family.projectsIn) {
    sizes.embedding += e * h;
    sizes.embeddingProducts = e * h;
  }

  sizes.headProducts = v * e;
  if (family.finalNorm)
    sizes.head += double(family.normVectors) * h;
  if (family.maskedHead || (narrow && family.projectsOut)) {
    sizes.head += h * e;
    sizes.headProducts += h * e;
  }
  if (family.maskedHead)
    sizes.head += e + double(family.normVectors) * e;
  if (family.headBias)
    sizes.head += v;
  if (!sizes.tied)
    sizes.head += v * e;
}

} // namespace

double EstimatedSizes::attendedPairs(int64_t tokens) const {
  double s = double(tokens), pairs = 0;
  for (int64_t window : windows) {
    double w = window && window < tokens ? double(window) : s;
    pairs += causal ? w * (w + 1) / 2 + (s - w) * w : s * std::min(s, 2 * w);
  }
  return pairs;
}

EstimatedSizes galvatron::readEstimatedSizes(ConfigReader &reader,
                                             bool hasWeights) {
  SizeReader fields(reader);
  EstimatedSizes sizes;
  std::optional<EstimatedFamily> row = estimatedFamily(reader.getModelType());
  sizes.knownFamily = row.has_value();
  passUncounted(fields);
  sizes.hidden = fields.required("hidden_size");
  sizes.layers = fields.required("num_hidden_layers");
  sizes.heads = fields.required("num_attention_heads");
  sizes.vocabulary = fields.required("vocab_size");
  for (StringRef field : fields.given("max_position_embeddings"))
    if (int64_t positions = reader.positive(field); !sizes.positions)
      sizes.positions = positions;
  EstimatedFamily family =
      row ? *row : unknownFamily(fields, sizes, hasWeights);
  if (row)
    fields.given("hidden_act");
  for (StringRef field : family.others)
    reader.passOver(field);
  if (!family.nested.empty())
    if (const json::Object *object = reader.nested(family.nested)) {
      ConfigReader inner = reader.nestedReader(family.nested, *object);
      inner.expectPlain("attn_type", "multihead_attention");
      for (const auto &entry : *object)
        inner.passOver(StringRef(entry.first));
      reader.finishNested(inner);
    }
  for (auto [field, value] : family.fixed)
    reader.expectPlain(field, llvm::cantFail(json::parse(value)),
                       "'" + reader.getModelType() + "' acts on one value");
  sizes.gated = family.gated;
  reader.have("gated", sizes.gated);
  sizes.causal = family.causal;
  reader.have("causal", sizes.causal);
  sizes.tied = fields.flag("tie_word_embeddings").value_or(family.tied);
  readHeads(fields, family, sizes);
  std::optional<int64_t> inner = fields.size("intermediate_size");
  if (!inner && family.innerMultiple) {
    int64_t multiple = family.innerMultiple;
    if (!family.multiplier.empty())
      multiple = reader.positiveOr(family.multiplier, multiple);
    inner = multiple * sizes.hidden;
  }
  if (!inner)
    reader.fail("intermediate_size", "missing");
  sizes.inner = inner.value_or(1);
  sizes.table = sizes.hidden;
  if (family.projectsIn)
    sizes.table = fields.size("embedding_size").value_or(sizes.hidden);
  reader.have("embedding_size", sizes.hidden);
  readWindows(fields, family, sizes);
  countParameters(fields, family, sizes);
  return sizes;
}

llvm::Error galvatron::takeWeights(EstimatedSizes &sizes,
                                   const WeightShapes &weights,
                                   const ConfigReader &reader) {
  if (!weights.tables)
    return makeError(weights.fileName + ": expected a table of " +
                     Twine(sizes.vocabulary) + " words, found none");
  bool says = llvm::any_of(spellingsOf("tie_word_embeddings"),
                           [&](StringRef field) { return reader.has(field); });
  // A family that is not known has its own head where there are two tables.
  if (!says && !sizes.knownFamily)
    sizes.tied = weights.tables < 2;
  if (!sizes.tied && weights.tables < 2)
    return makeError(weights.fileName + ": expected a head of its own beside "
                                        "the table of words, as the "
                                        "configuration says, found one table");
  double attention =
      double(sizes.hidden) * double(2 * sizes.queries + 2 * sizes.keys);
  double rest = (weights.blockProducts - attention) /
                (double(sizes.hidden) * double(sizes.inner));
  if (rest < 1.5 || rest > 3.5)
    return makeError(weights.fileName + ": expected a feed-forward of two or "
                                        "three matrices beside attention's "
                                        "sizes, found other matrices");
  sizes.gated = rest > 2.5;
  sizes.blockProducts = weights.blockProducts;
  sizes.blockVectors = weights.blockElements - weights.blockProducts;
  double copies = sizes.tied ? double(weights.tables - 1) : 0;
  sizes.tableElements = weights.tableElements;
  sizes.head = sizes.tied ? 0 : weights.tableElements;
  sizes.embedding =
      weights.outside - copies * weights.tableElements - sizes.head;
  sizes.fromWeights = true;
  return llvm::Error::success();
}
