//===- Bert.cpp - The BERT family -----------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// BERT (Devlin et al., arXiv 1810.04805) with its head for masked words, in the
// layout of its Hugging Face checkpoints. Norms stand behind what they
// normalise; padding is a mask that every block reads. RoBERTa (Liu et al.,
// arXiv 1907.11692), XLM-RoBERTa and CamemBERT are the same with other names
// and defaults, and with rows of positions that begin behind the padding
// token's. ELECTRA's generator (Clark et al., arXiv 2003.10555) has words, and
// the head, of another width than blocks. DistilBERT (Sanh et al., arXiv
// 1910.01108) has no token types. ALBERT (Lan et al., arXiv 1909.11942) has
// words of another width, and blocks that share their parameters: a parameter
// of all of them is tied, as the table of words is.
//
//===----------------------------------------------------------------------===//

#include "Encoder.h"
#include "Family.h"
#include "FieldTable.h"

#include "llvm/ADT/StringSet.h"

using namespace galvatron;
using llvm::SmallVector;
using llvm::StringRef;
using llvm::Twine;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

/// Beginnings of names of a block's parameters in BERT's checkpoints, and in
/// another family's.
struct BlockName {
  StringRef bert, own;
};
constexpr BlockName kDistilBlock[] = {
    {"attention.self.query", "attention.q_lin"},
    {"attention.self.key", "attention.k_lin"},
    {"attention.self.value", "attention.v_lin"},
    {"attention.output.dense", "attention.out_lin"},
    {"attention.output.LayerNorm", "sa_layer_norm"},
    {"intermediate.dense", "ffn.lin1"},
    {"output.dense", "ffn.lin2"},
    {"output.LayerNorm", "output_layer_norm"}};
constexpr BlockName kAlbertBlock[] = {
    {"attention.self.query", "attention.query"},
    {"attention.self.key", "attention.key"},
    {"attention.self.value", "attention.value"},
    {"attention.output.dense", "attention.dense"},
    {"attention.output.LayerNorm", "attention.LayerNorm"},
    {"intermediate.dense", "ffn"},
    {"output.dense", "ffn_output"},
    {"output.LayerNorm", "full_layer_layer_norm"}};
/// Names of parameters in checkpoints.
struct BertNames {
  StringRef stem, headDense, headNorm, headBias, decoder;
  StringRef blocks = "encoder.layer.";
  StringRef project = "embeddings_project"; ///< from the width of words
  llvm::ArrayRef<BlockName> block = {};     ///< what BERT calls otherwise
};
constexpr BertNames kBertNames = {"bert.", "cls.predictions.transform.dense",
                                  "cls.predictions.transform.LayerNorm",
                                  "cls.predictions.bias",
                                  "cls.predictions.decoder"};
constexpr BertNames kRobertaNames = {"roberta.", "lm_head.dense",
                                     "lm_head.layer_norm", "lm_head.bias",
                                     "lm_head.decoder"};

constexpr BertNames kElectraNames = {"electra.", "generator_predictions.dense",
                                     "generator_predictions.LayerNorm",
                                     "generator_lm_head.bias",
                                     "generator_lm_head"};

constexpr BertNames kDistilNames = {"distilbert.",
                                    "vocab_transform",
                                    "vocab_layer_norm",
                                    "vocab_projector.bias",
                                    "vocab_projector",
                                    "transformer.layer.",
                                    "",
                                    kDistilBlock};
constexpr BertNames kAlbertNames = {"albert.",
                                    "predictions.dense",
                                    "predictions.LayerNorm",
                                    "predictions.bias",
                                    "predictions.decoder",
                                    "encoder.albert_layer_groups.",
                                    "encoder.embedding_hidden_mapping_in",
                                    kAlbertBlock};
class Bert : public FamilyModel {
public:
  enum class Kind { Bert, Roberta, Electra, Distil, Albert };
  Bert(ConfigReader &reader, Kind kind);

  int64_t positions() const override { return maxPositions - firstPosition; }
  StringRef positionsField() const override {
    return "max_position_embeddings";
  }
  void build(ModelBuilder &builder) const override;

private:
  BodyParameters embedParameters() const;
  BodyParameters blockParameters() const;
  BodyParameters headParameters() const;
  void readFields(ConfigReader &reader);
  void readDistil(ConfigReader &reader);
  void readGroups(ConfigReader &reader);
  /// The text in front of the names of a layer's parameters; layers that
  /// share them have the same.
  std::string prefixOf(int64_t layer) const;
  /// A norm of rows as wide as those of the table of words.
  void addWordNorm(BodyParameters &list, const Twine &name) const;

  Kind kind;
  EncoderConfig config;
  std::string modelType;
  const BertNames &names;
  /// Rows of the table of positions, of which the first position has row
  /// `firstPosition`.
  int64_t maxPositions, firstPosition = 0;
  int64_t vocabSize, tokenTypes = 0; ///< no token types: 0
  /// Whether a product stands between the tables and the blocks.
  bool hasProject() const {
    return kind == Kind::Albert || wordWidth != config.width;
  }
  /// The width of the tables and of the head; a product stands between them and
  /// blocks of another width.
  int64_t wordWidth;
  std::optional<int64_t> padding;
  bool headTanhGelu;
  /// The groups of ALBERT's layers that share parameters, and the layers with
  /// parameters of their own in a group; `config.layers` counts all that run.
  int64_t groups = 0, layersOfGroup = 1;
};

static const BertNames &namesOf(Bert::Kind kind) {
  switch (kind) {
  case Bert::Kind::Bert:
    return kBertNames;
  case Bert::Kind::Roberta:
    return kRobertaNames;
  case Bert::Kind::Electra:
    return kElectraNames;
  case Bert::Kind::Distil:
    return kDistilNames;
  case Bert::Kind::Albert:
    return kAlbertNames;
  }
  llvm_unreachable("a kind of BERT");
}

/// The fields that all but DistilBERT call alike.
static EncoderConfig readConfig(ConfigReader &reader, Bert::Kind kind) {
  if (kind == Bert::Kind::Distil)
    return {};
  if (kind == Bert::Kind::Electra)
    return EncoderConfig::read(reader, /*dropout=*/0.1, {256, 12, 4, 1024});
  if (kind == Bert::Kind::Albert)
    return EncoderConfig::read(reader, /*dropout=*/0,
                               {4096, 12, 64, 16384, "gelu_new"});
  return EncoderConfig::read(reader, /*dropout=*/0.1);
}

Bert::Bert(ConfigReader &reader, Kind kind)
    : kind(kind), config(readConfig(reader, kind)),
      modelType(reader.getModelType()), names(namesOf(kind)) {
  switch (kind) {
  case Kind::Bert:
    reader.expectArchitecture(
        {"BertForMaskedLM", "BertForPreTraining", "BertModel"});
    break;
  case Kind::Roberta:
    reader.expectArchitecture({"RobertaForMaskedLM", "RobertaModel",
                               "XLMRobertaForMaskedLM", "XLMRobertaModel",
                               "CamembertForMaskedLM", "CamembertModel"});
    break;
  case Kind::Electra:
    // The discriminator has a head of its own, which is not there.
    reader.expectArchitecture({"ElectraForMaskedLM", "ElectraModel"});
    break;
  case Kind::Distil:
    reader.expectArchitecture({"DistilBertForMaskedLM", "DistilBertModel"});
    readDistil(reader);
    break;
  case Kind::Albert:
    reader.expectArchitecture(
        {"AlbertForMaskedLM", "AlbertForPreTraining", "AlbertModel"});
    readGroups(reader);
    break;
  }
  wordWidth = config.width;
  if (kind == Kind::Electra || kind == Kind::Albert)
    wordWidth = reader.positiveOr("embedding_size", 128);
  headTanhGelu =
      kind != Kind::Roberta && kind != Kind::Electra && config.tanhGelu;
  readFields(reader);
}

/// Sizes and probabilities under DistilBERT's names. Of what attention adds
/// nothing is dropped, and norms have one epsilon.
void Bert::readDistil(ConfigReader &reader) {
  config.width = reader.positiveOr("dim", 768);
  config.layers = reader.positiveOr("n_layers", 6);
  config.heads = reader.positiveOr("n_heads", 12);
  config.inner = reader.positiveOr("hidden_dim", 4 * 768);
  if (config.width % config.heads)
    reader.fail("dim",
                "expected a multiple of 'n_heads' = " + Twine(config.heads) +
                    reader.found("dim", config.width));
  config.normEps = 1e-12;
  config.hiddenDropout = reader.probabilityOr("dropout", 0.1);
  config.attentionDropout = reader.probabilityOr("attention_dropout", 0.1);
  config.initializerRange = reader.positiveNumberOr("initializer_range", 0.02);
  config.readActivation(reader, "activation", "gelu");
  reader.expectPlain("sinusoidal_pos_embds", false,
                     "a table of positions that is not trained is not "
                     "supported");
  reader.have("num_key_value_heads", config.heads);
  reader.have("head_dim", config.width / config.heads);
  // Fields of the classes for sentences and answers.
  reader.passOver({"qa_dropout", "seq_classif_dropout"});
  reader.expectPlain("tie_weights_", true);
}

void Bert::readGroups(ConfigReader &reader) {
  groups = reader.positiveOr("num_hidden_groups", 1);
  layersOfGroup = reader.positiveOr("inner_group_num", 1);
  if (groups > config.layers)
    reader.fail(
        "num_hidden_groups",
        "expected at most 'num_hidden_layers' = " + Twine(config.layers) +
            reader.found("num_hidden_groups", groups));
  config.layers = config.layers * layersOfGroup;
  if (config.layers > kMostLayers) {
    reader.fail("inner_group_num",
                "expected a product with 'num_hidden_layers' of at most " +
                    Twine(kMostLayers) + ", found " + Twine(config.layers));
    config.layers = layersOfGroup = groups = 1;
  }
  reader.passOver("classifier_dropout_prob"); // of the class for sentences
  // Published files have these of the first program, and the library does not
  // read them.
  reader.expectPlain("down_scale_factor", 1);
  for (StringRef field :
       {"gap_size", "net_structure_type", "num_memory_blocks"})
    reader.expectPlain(field, 0);
}

std::string Bert::prefixOf(int64_t layer) const {
  std::string front = (names.stem + names.blocks).str();
  if (kind != Kind::Albert)
    return (front + Twine(layer) + ".").str();
  // Groups of unequal numbers of layers are the library's.
  int64_t runs = config.layers / layersOfGroup;
  int64_t group = layer / layersOfGroup * groups / runs;
  return (front + Twine(group) + ".albert_layers." +
          Twine(layer % layersOfGroup) + ".")
      .str();
}

/// Fields of words and positions.
void Bert::readFields(ConfigReader &reader) {
  const bool isRoberta = kind == Kind::Roberta;
  vocabSize = reader.positiveOr("vocab_size",
                                isRoberta && modelType == "roberta" ? 50265
                                : kind == Kind::Albert              ? 30000
                                                                    : 30522);
  maxPositions = reader.positiveOr("max_position_embeddings", 512);
  if (kind != Kind::Distil)
    tokenTypes = reader.positiveOr("type_vocab_size", 2);
  padding = reader.paddingToken(/*fallback=*/isRoberta ? 1 : 0, vocabSize);
  // Positions count from the padding token's number on; those of padding
  // matter to nobody.
  if (isRoberta && !padding)
    reader.fail("pad_token_id", "expected a token, behind whose row those of "
                                "positions begin, found null");
  if (isRoberta)
    firstPosition = padding.value_or(0) + 1;
  if (firstPosition >= maxPositions)
    reader.fail(
        "max_position_embeddings",
        "expected more than 'pad_token_id' and 1 = " + Twine(firstPosition) +
            reader.found("max_position_embeddings", maxPositions));
  if (kind != Kind::Distil)
    reader.expectPlain("position_embedding_type", "absolute");
  // The library then trains a second bias that nothing uses.
  reader.expectPlain("tie_word_embeddings", true);
  // Fields of the class for sentences.
  reader.passOver({"classifier_dropout", "problem_type"});
}

void Bert::addWordNorm(BodyParameters &list, const Twine &name) const {
  list.push_back({(name + ".weight").str(), {wordWidth}, Initial::ones()});
  list.push_back({(name + ".bias").str(), {wordWidth}, Initial::zeros()});
}

BodyParameters Bert::embedParameters() const {
  Initial normal = config.normal();
  BodyParameters list = {{"embeddings.word_embeddings.weight",
                          {vocabSize, wordWidth},
                          normal,
                          {},
                          {"vocab", ""},
                          /*borrowed=*/false,
                          {(names.decoder + ".weight").str()}},
                         {"embeddings.position_embeddings.weight",
                          {maxPositions, wordWidth},
                          normal}};
  if (tokenTypes)
    list.push_back({"embeddings.token_type_embeddings.weight",
                    {tokenTypes, wordWidth},
                    normal});
  addWordNorm(list, "embeddings.LayerNorm");
  if (hasProject())
    config.addDense(list, names.project, config.width, wordWidth);
  return list;
}

BodyParameters Bert::blockParameters() const {
  BodyParameters list;
  config.addAttention(list, "attention.self.");
  config.addNorm(list, "attention.output.LayerNorm");
  config.addFeedForward(list);
  config.addNorm(list, "output.LayerNorm");
  for (BodyParameter &parameter : list)
    for (const BlockName &name : names.block)
      if (StringRef(parameter.name).starts_with(name.bert)) {
        parameter.name =
            (name.own + parameter.name.substr(name.bert.size())).str();
        break;
      }
  return list;
}

BodyParameters Bert::headParameters() const {
  BodyParameters list;
  config.addDense(list, names.headDense, wordWidth, config.width);
  addWordNorm(list, names.headNorm);
  list.push_back({(names.stem + "embeddings.word_embeddings.weight").str(),
                  {vocabSize, wordWidth},
                  config.normal(),
                  {},
                  {"vocab", ""},
                  /*borrowed=*/true});
  // The copies are names for the same bias, where there is another.
  std::string decoderBias = (names.decoder + ".bias").str();
  SmallVector<std::string> copies;
  if (decoderBias != names.headBias)
    copies.push_back(decoderBias);
  list.push_back({names.headBias.str(),
                  {vocabSize},
                  Initial::zeros(),
                  {},
                  {"vocab"},
                  /*borrowed=*/false,
                  copies});
  return list;
}

void Bert::build(ModelBuilder &b) const {
  BodyParameters embed = embedParameters(), block = blockParameters(),
                 head = headParameters();
  // Parameters that blocks share are declared once.
  std::vector<std::string> prefixes;
  llvm::StringSet<> known;
  for (int64_t index = 0; index < config.layers; ++index)
    if (std::string prefix = prefixOf(index); known.insert(prefix).second)
      prefixes.push_back(std::move(prefix));
  const std::string &type = modelType;
  b.declareBlocks(
      names.stem, embed, [&](int64_t index) { return prefixes[size_t(index)]; },
      int64_t(prefixes.size()), block, head);

  RankedTensorType stream = b.activation({config.width});
  BodyFactor words = {"vocab", vocabSize, /*uneven=*/true};
  SmallVector<mlir::Type> embedInputs(tokenTypes ? 2 : 1, b.tokens());
  b.body(type + ".embed", embedInputs, embed, stream, {words},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = b.embedding(inputs[0], p.next(), padding);
           x = b.positionAdd(x, p.next(), firstPosition);
           if (tokenTypes)
             x = b.add(x, b.embedding(inputs[1], p.next()));
           x = b.dropout(config.norm(b, x, p), config.hiddenDropout, 0);
           return hasProject() ? config.dense(b, x, config.width, p) : x;
         });
  b.body(type + ".block", {stream, b.tokens()}, block, stream,
         {{"heads", config.heads}, {"ffn", config.inner}},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = inputs[0];
           Value part = config.attention(b, x, /*mask=*/inputs[1], p);
           // DistilBERT drops nothing of what attention adds.
           x = b.add(x, kind == Kind::Distil
                            ? part
                            : b.dropout(part, config.hiddenDropout, 1));
           x = config.norm(b, x, p);
           part = config.feedForward(b, x, p);
           // ALBERT has no dropout behind the feed-forward network.
           x = b.add(x, kind == Kind::Albert
                            ? part
                            : b.dropout(part, config.hiddenDropout, 2));
           return config.norm(b, x, p);
         });
  b.body(type + ".head", {stream, b.tokens()}, head, b.loss(), {words},
         [&](ValueRange inputs, ValueRange parameters) {
           ParameterCursor p(parameters);
           Value x = config.dense(b, inputs[0], wordWidth, p);
           x = config.norm(b, b.gelu(x, headTanhGelu), p);
           Value logits = config.dense(b, x, vocabSize, p);
           return b.crossEntropy(logits, inputs[1], vocabSize);
         });
  std::vector<ModelDatum> data = {{"tokens", b.tokens(), vocabSize},
                                  {"mask", b.tokens(), /*below=*/2}};
  if (tokenTypes)
    data.push_back({"token_types", b.tokens(), tokenTypes});
  data.push_back({"labels", b.tokens(), vocabSize});
  b.model(type, data, [&](ValueRange data) {
    SmallVector<Value> read = {data[0]};
    if (tokenTypes)
      read.push_back(data[2]);
    Value x =
        b.layer("embeddings", type + ".embed", read, stream, names.stem, embed);
    for (int64_t index = 0; index < config.layers; ++index)
      x = b.layer("layer." + Twine(index), type + ".block", {x, data[1]},
                  stream, prefixOf(index), block);
    return b.layer("head", type + ".head", {x, data.back()}, b.loss(), "",
                   head);
  });
}

} // namespace

std::unique_ptr<FamilyModel> galvatron::readBert(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Bert);
}

std::unique_ptr<FamilyModel> galvatron::readRoberta(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Roberta);
}

std::unique_ptr<FamilyModel> galvatron::readElectra(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Electra);
}

std::unique_ptr<FamilyModel> galvatron::readDistilBert(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Distil);
}

std::unique_ptr<FamilyModel> galvatron::readAlbert(ConfigReader &reader) {
  return std::make_unique<Bert>(reader, Bert::Kind::Albert);
}
