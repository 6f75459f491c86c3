//===- tokenizer_json.cpp - Reads a tokenizer.json ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "base/sha256.h"
#include "text/json_node.h"
#include "text/pipeline.h"

#include <algorithm>
#include <set>

namespace grt::text {
namespace {

/// No vocabulary has more tokens: ids are indices of tables.
constexpr uint64_t mostTokens = uint64_t(1) << 24;

/// `{"String": ".."}` or `{"Regex": ".."}`.
struct Pattern {
  std::string text;
  bool isRegex;
};
Pattern readPattern(const JsonNode &node) {
  node.expectKeys({"String", "Regex"});
  if (std::optional<JsonNode> text = node.find("String"))
    return {text->string(), false};
  return {node.at("Regex").string(), true};
}

void readNormalizer(const JsonNode &node, std::vector<Normalizer> &list) {
  std::string type = node.at("type").string();
  if (type == "Sequence") {
    node.expectKeys({"type", "normalizers"});
    for (const JsonNode &each : node.at("normalizers").array())
      readNormalizer(each, list);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" ||
             type == "NFKD") {
    node.expectKeys({"type"});
    bool isCompatible = type.size() > 3, composes = type.back() == 'C';
    list.push_back(makeNormalForm(
        isCompatible ? (composes ? NormalForm::KC : NormalForm::KD)
                     : (composes ? NormalForm::C : NormalForm::D)));
  } else if (type == "Lowercase") {
    node.expectKeys({"type"});
    list.push_back(makeLowercase());
  } else if (type == "StripAccents") {
    node.expectKeys({"type"});
    list.push_back(makeStripAccents());
  } else if (type == "Strip") {
    node.expectKeys({"type", "strip_left", "strip_right"});
    list.push_back(makeStrip(node.at("strip_left").boolean(),
                             node.at("strip_right").boolean()));
  } else if (type == "Prepend") {
    node.expectKeys({"type", "prepend"});
    list.push_back(makePrepend(node.at("prepend").string()));
  } else if (type == "Replace") {
    node.expectKeys({"type", "pattern", "content"});
    Pattern pattern = readPattern(node.at("pattern"));
    std::string content = node.at("content").string();
    list.push_back(node.at("pattern").checked([&] {
      return pattern.isRegex ? makeRegexReplace(pattern.text, content)
                             : makeReplace(pattern.text, content);
    }));
  } else if (type == "Nmt") {
    node.expectKeys({"type"});
    list.push_back(makeNmt());
  } else if (type == "ByteLevel") {
    node.expectKeys({"type"});
    list.push_back(makeByteCharacters());
  } else if (type == "BertNormalizer") {
    node.expectKeys({"type", "clean_text", "handle_chinese_chars",
                     "strip_accents", "lowercase"});
    BertNormalizerOptions options;
    options.cleanText = node.boolean("clean_text", true);
    options.spaceIdeographs = node.boolean("handle_chinese_chars", true);
    options.lowercase = node.boolean("lowercase", true);
    options.stripAccents = node.boolean("strip_accents", options.lowercase);
    list.push_back(makeBertNormalizer(options));
  } else if (type == "Precompiled") {
    node.expectKeys({"type", "precompiled_charsmap"});
    JsonNode table = node.at("precompiled_charsmap");
    list.push_back(
        table.checked([&] { return makePrecompiled(table.base64()); }));
  } else {
    node.at("type").unknown("normalizer", type);
  }
}

using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

Separator readSeparator(const JsonNode &node) {
  std::string name = node.string();
  if (std::optional<Separator> separator = separatorOf(name))
    return *separator;
  node.error("expected Removed, Isolated, MergedWithPrevious, MergedWithNext "
             "or Contiguous, found '" +
             name + "'");
}

Prepend readPrepend(const JsonNode &node) {
  std::string scheme = "always";
  if (std::optional<JsonNode> given = node.find("prepend_scheme"))
    scheme = given->string();
  // Files of older versions say it in two ways.
  if (!node.boolean("add_prefix_space", true))
    scheme = "never";
  if (scheme == "always")
    return Prepend::Always;
  if (scheme == "first")
    return Prepend::First;
  if (scheme != "never")
    node.at("prepend_scheme")
        .error("expected always, first or never, found '" + scheme + "'");
  return Prepend::Never;
}

/// `isLast`: nothing follows that would see characters instead of bytes.
void readPreTokenizer(const JsonNode &node, bool bytesWanted, bool isLast,
                      PreTokenizers &list, bool &bytes) {
  std::string type = node.at("type").string();
  if (type == "Sequence") {
    node.expectKeys({"type", "pretokenizers"});
    std::vector<JsonNode> parts = node.at("pretokenizers").array();
    for (size_t i = 0; i < parts.size(); ++i)
      readPreTokenizer(parts[i], bytesWanted, isLast && i + 1 == parts.size(),
                       list, bytes);
  } else if (type == "ByteLevel") {
    node.expectKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    bytes = bytesWanted && isLast;
    list.push_back(makeByteLevel(node.boolean("add_prefix_space", true),
                                 node.boolean("use_regex", true),
                                 /*toCharacters=*/!bytes));
  } else if (type == "Split") {
    node.expectKeys({"type", "pattern", "behavior", "invert"});
    Pattern pattern = readPattern(node.at("pattern"));
    Separator separator = readSeparator(node.at("behavior"));
    bool invert = node.boolean("invert", false);
    list.push_back(node.at("pattern").checked([&] {
      return pattern.isRegex
                 ? makeRegexSplit(pattern.text, separator, invert)
                 : makeLiteralSplit(pattern.text, separator, invert);
    }));
  } else if (type == "Metaspace") {
    node.expectKeys({"type", "replacement", "prepend_scheme", "split",
                     "add_prefix_space", "str_rep"});
    list.push_back(makeMetaspace(node.at("replacement").character(),
                                 readPrepend(node),
                                 node.boolean("split", true)));
  } else if (type == "Whitespace") {
    node.expectKeys({"type"});
    list.push_back(makeWords());
  } else if (type == "WhitespaceSplit") {
    node.expectKeys({"type"});
    list.push_back(makeCharacterSplit(isWhitespace, Separator::Removed));
  } else if (type == "BertPreTokenizer") {
    node.expectKeys({"type"});
    list.push_back(makeCharacterSplit(isWhitespace, Separator::Removed));
    list.push_back(makeCharacterSplit(isPunctuation, Separator::Isolated));
  } else if (type == "Punctuation") {
    node.expectKeys({"type", "behavior"});
    Separator separator = Separator::Isolated;
    if (std::optional<JsonNode> behavior = node.find("behavior"))
      separator = readSeparator(*behavior);
    list.push_back(makeCharacterSplit(isPunctuation, separator));
  } else if (type == "Digits") {
    node.expectKeys({"type", "individual_digits"});
    list.push_back(
        makeCharacterSplit(isNumber, node.boolean("individual_digits", false)
                                         ? Separator::Isolated
                                         : Separator::Contiguous));
  } else if (type == "CharDelimiterSplit") {
    node.expectKeys({"type", "delimiter"});
    list.push_back(makeLiteralSplit(node.at("delimiter").character(),
                                    Separator::Removed, false));
  } else {
    node.at("type").unknown("pre-tokenizer", type);
  }
}

uint32_t readId(const JsonNode &node) {
  return uint32_t(node.integer(mostTokens - 1));
}

Vocabulary readVocabulary(const JsonNode &node) {
  Vocabulary result;
  for (const auto &[token, id] : node.members())
    result.add(token, readId(id));
  return result;
}

BpeOptions readBpe(const JsonNode &node) {
  node.expectKeys({"type", "dropout", "unk_token", "continuing_subword_prefix",
                   "end_of_word_suffix", "fuse_unk", "byte_fallback",
                   "ignore_merges", "vocab", "merges"});
  BpeOptions options;
  if (std::optional<JsonNode> dropout = node.find("dropout"))
    dropout->error("merges left out at random are not implemented, expected "
                   "null");
  options.unknown = node.string("unk_token", "");
  options.prefix = node.string("continuing_subword_prefix", "");
  options.suffix = node.string("end_of_word_suffix", "");
  options.fuseUnknown = node.boolean("fuse_unk", false);
  options.byteFallback = node.boolean("byte_fallback", false);
  options.ignoreMerges = node.boolean("ignore_merges", false);
  for (const JsonNode &merge : node.at("merges").array()) {
    if (merge.isArray()) {
      std::vector<JsonNode> pair = merge.array();
      if (pair.size() != 2)
        merge.error("expected two tokens, found " + str(pair.size()));
      options.merges.emplace_back(pair[0].string(), pair[1].string());
      continue;
    }
    std::string text = merge.string();
    size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != text.npos)
      merge.error("expected two tokens and a space between them, found '" +
                  text + "'");
    options.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return options;
}

UnigramOptions readUnigram(const JsonNode &node) {
  node.expectKeys({"type", "unk_id", "vocab", "byte_fallback"});
  UnigramOptions options;
  for (const JsonNode &entry : node.at("vocab").array()) {
    std::vector<JsonNode> pair = entry.array();
    if (pair.size() != 2)
      entry.error("expected a token and its score, found " + str(pair.size()) +
                  " elements");
    options.tokens.emplace_back(pair[0].string(), pair[1].number());
  }
  if (std::optional<JsonNode> unknown = node.find("unk_id"))
    options.unknown = readId(*unknown);
  options.byteFallback = node.boolean("byte_fallback", false);
  return options;
}

/// Files of versions before 0.9 name no type.
std::string typeOfModel(const JsonNode &node) {
  if (std::optional<JsonNode> type = node.find("type"))
    return type->string();
  if (node.find("merges"))
    return "BPE";
  if (node.find("unk_id"))
    return "Unigram";
  return "WordPiece";
}

void readModel(const JsonNode &node, bool bytes, Pipeline &result) {
  const std::string &type = result.kind;
  if (type == "BPE") {
    BpeOptions options = readBpe(node);
    options.bytes = bytes;
    Vocabulary vocabulary = readVocabulary(node.at("vocab"));
    result.model = node.checked(
        [&] { return makeBpe(std::move(vocabulary), std::move(options)); });
  } else if (type == "WordPiece") {
    node.expectKeys({"type", "unk_token", "continuing_subword_prefix",
                     "max_input_chars_per_word", "vocab"});
    WordPieceOptions options;
    options.unknown = node.string("unk_token", "[UNK]");
    options.prefix = node.string("continuing_subword_prefix", "##");
    if (std::optional<JsonNode> most = node.find("max_input_chars_per_word"))
      options.mostCharacters = most->integer(mostTokens);
    Vocabulary vocabulary = readVocabulary(node.at("vocab"));
    result.model = node.checked([&] {
      return makeWordPiece(std::move(vocabulary), std::move(options));
    });
  } else if (type == "Unigram") {
    UnigramOptions options = readUnigram(node);
    result.model =
        node.checked([&] { return makeUnigram(std::move(options)); });
  } else if (type == "WordLevel") {
    node.expectKeys({"type", "unk_token", "vocab"});
    result.model = makeWordLevel(readVocabulary(node.at("vocab")),
                                 node.string("unk_token", "<unk>"));
  } else {
    node.at("type").unknown("model", type);
  }
}

void readAddedTokens(const JsonNode &root, Pipeline &result) {
  std::optional<JsonNode> list = root.find("added_tokens");
  if (!list)
    return;
  for (const JsonNode &node : list->array()) {
    node.expectKeys({"id", "content", "single_word", "lstrip", "rstrip",
                     "normalized", "special"});
    AddedToken token;
    token.id = readId(node.at("id"));
    token.content = node.at("content").string();
    token.singleWord = node.boolean("single_word", false);
    token.stripLeft = node.boolean("lstrip", false);
    token.stripRight = node.boolean("rstrip", false);
    bool isSpecial = node.boolean("special", false);
    result.added.add(token.content, token.id);
    if (result.texts.size() <= token.id) {
      result.texts.resize(token.id + 1);
      result.special.resize(token.id + 1);
    }
    result.texts[token.id] = token.content;
    result.special[token.id] = isSpecial;
    if (!node.boolean("normalized", !isSpecial)) {
      result.rawTokens.add(std::move(token));
      continue;
    }
    token.content = result.normalized(token.content);
    result.normalizedTokens.add(std::move(token));
  }
}

/// `["[SEP]", 102]`.
uint32_t readPair(const JsonNode &node) {
  std::vector<JsonNode> pair = node.array();
  if (pair.size() != 2)
    node.error("expected a token and its number");
  return readId(pair[1]);
}

/// Reads the tokens that a template puts before and behind one text.
void readTemplate(const JsonNode &node, std::vector<uint32_t> &before,
                  std::vector<uint32_t> &behind) {
  bool isBehind = false;
  for (const JsonNode &piece : node.at("single").array()) {
    if (std::optional<JsonNode> sequence = piece.find("Sequence")) {
      if (isBehind || sequence->at("id").string() != "A")
        sequence->error("expected the text A once");
      isBehind = true;
      continue;
    }
    std::string name = piece.at("SpecialToken").at("id").string();
    for (const JsonNode &id :
         node.at("special_tokens").at(name).at("ids").array())
      (isBehind ? behind : before).push_back(readId(id));
  }
  if (!isBehind)
    node.at("single").error("expected the text A once");
}

void readPostProcessor(const JsonNode &node, Pipeline &result) {
  std::string type = node.at("type").string();
  std::vector<uint32_t> before, behind;
  if (type == "Sequence") {
    for (const JsonNode &each : node.at("processors").array())
      readPostProcessor(each, result);
    return;
  }
  if (type == "TemplateProcessing") {
    readTemplate(node, before, behind);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    before = {readPair(node.at("cls"))};
    behind = {readPair(node.at("sep"))};
  } else if (type != "ByteLevel") { // which moves offsets only
    node.at("type").unknown("post-processor", type);
  }
  result.before.insert(result.before.begin(), before.begin(), before.end());
  result.behind.insert(result.behind.end(), behind.begin(), behind.end());
}

void readDecoder(const JsonNode &node, std::vector<Decoder> &list) {
  std::string type = node.at("type").string();
  if (type == "Sequence") {
    for (const JsonNode &each : node.at("decoders").array())
      readDecoder(each, list);
  } else if (type == "ByteLevel") {
    list.push_back(makeByteLevelDecoder());
  } else if (type == "ByteFallback") {
    list.push_back(makeByteFallbackDecoder());
  } else if (type == "Fuse") {
    list.push_back(makeFuse());
  } else if (type == "Replace") {
    Pattern pattern = readPattern(node.at("pattern"));
    std::string content = node.at("content").string();
    list.push_back(makeReplaceDecoder(node.at("pattern").checked([&] {
      return pattern.isRegex ? makeRegexReplace(pattern.text, content)
                             : makeReplace(pattern.text, content);
    })));
  } else if (type == "Strip") {
    list.push_back(makeStripDecoder(node.at("content").character(),
                                    node.at("start").integer(mostTokens),
                                    node.at("stop").integer(mostTokens)));
  } else if (type == "Metaspace") {
    list.push_back(makeMetaspaceDecoder(node.at("replacement").character(),
                                        readPrepend(node) != Prepend::Never));
  } else if (type == "WordPiece") {
    list.push_back(makeWordPieceDecoder(node.string("prefix", "##"),
                                        node.boolean("cleanup", true)));
  } else if (type == "BPEDecoder") {
    list.push_back(makeBpeDecoder(node.string("suffix", "</w>")));
  } else {
    node.at("type").unknown("decoder", type);
  }
}

void readAll(const JsonNode &root, Pipeline &result) {
  root.expectKeys({"version", "truncation", "padding", "added_tokens",
                   "normalizer", "pre_tokenizer", "post_processor", "decoder",
                   "model"});
  JsonNode model = root.at("model");
  result.kind = typeOfModel(model);
  if (std::optional<JsonNode> node = root.find("normalizer"))
    readNormalizer(*node, result.normalizers);
  // A model of characters with marks at the ends of words sees characters.
  bool bytesWanted = result.kind == "BPE" &&
                     model.string("continuing_subword_prefix", "").empty() &&
                     model.string("end_of_word_suffix", "").empty() &&
                     !model.boolean("byte_fallback", false);
  bool bytes = false;
  if (std::optional<JsonNode> node = root.find("pre_tokenizer"))
    readPreTokenizer(*node, bytesWanted, true, result.preTokenizers, bytes);
  readModel(model, bytes, result);
  for (const auto &[token, id] : result.model->vocabulary()) {
    if (result.texts.size() <= id)
      result.texts.resize(id + 1);
    result.texts[id] = token;
  }
  result.special.resize(result.texts.size());
  readAddedTokens(root, result);
  if (std::optional<JsonNode> node = root.find("post_processor"))
    readPostProcessor(*node, result);
  if (std::optional<JsonNode> node = root.find("decoder"))
    readDecoder(*node, result.decoders);
  for (uint32_t id : result.before)
    if (id >= result.texts.size())
      root.at("post_processor").error("token " + str(id) + " does not exist");
  for (uint32_t id : result.behind)
    if (id >= result.texts.size())
      root.at("post_processor").error("token " + str(id) + " does not exist");
}

} // namespace

std::unique_ptr<Pipeline> readPipeline(std::string_view json,
                                       const std::string &name) {
  auto result = std::make_unique<Pipeline>();
  result->hash = hashText(json);
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(json);
  } catch (const nlohmann::json::parse_error &error) {
    invalid("tokenizer '" + name + "', byte " +
            str(error.byte ? error.byte - 1 : 0) +
            ": expected JSON: " + error.what());
  } catch (const nlohmann::json::exception &error) {
    // Numbers that are too large have no position.
    invalid("tokenizer '" + name + "': expected JSON: " + error.what());
  }
  readAll(JsonNode(value, "tokenizer '" + name + "'"), *result);
  return result;
}

} // namespace grt::text
