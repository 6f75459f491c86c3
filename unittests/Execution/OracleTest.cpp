//===- OracleTest.cpp - Comparison with PyTorch ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles the models of test/Execution/oracle, runs five steps and compares
// losses, gradient norms, the gradients of step 1 and the updated parameters
// with what PyTorch computed in f64. Weights and tokens come from the integer
// hash that generate.py describes.
//
//===----------------------------------------------------------------------===//

#include "../TestSchedule.h"
#include "galvatron/Pipelines/Compile.h"
#include "grt/session.h"

#include "llvm/Support/Base64.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

#include <cmath>

namespace {

using llvm::StringRef;
using Object = llvm::json::Object;

llvm::ExitOnError exitOnError("oracle: ");

//===----------------------------------------------------------------------===//
// The hash of generate.py
//===----------------------------------------------------------------------===//

uint64_t hashOf(StringRef name, uint64_t index) {
  uint64_t key = 0xcbf29ce484222325ull;
  for (char c : name)
    key = (key ^ uint8_t(c)) * 0x100000001b3ull;
  uint64_t z = key + index + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::vector<double> initialValues(StringRef name,
                                  const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    double u = double(hashOf(name, i) >> 40) / double(1 << 23) - 1;
    bool gain = shape.size() == 1 && name.ends_with(".weight");
    values[i] = shape.size() > 1 ? u / 4 : gain ? 1 + u / 4 : u / 8;
  }
  return values;
}

void makeBatch(int64_t vocabulary, int64_t seqLen, int64_t batch, int step,
               std::vector<int32_t> &tokens, std::vector<int32_t> &labels) {
  std::string draw = "tokens." + std::to_string(step);
  std::string skip = "skip." + std::to_string(step);
  tokens.clear();
  labels.clear();
  for (int64_t s = 0; s < batch; ++s)
    for (int64_t t = 0; t < seqLen; ++t) {
      uint64_t at = s * (seqLen + 1) + t;
      tokens.push_back(int32_t(hashOf(draw, at) % vocabulary));
      bool counts = step == 1 || hashOf(skip, s * seqLen + t) % 5 != 0;
      labels.push_back(counts ? int32_t(hashOf(draw, at + 1) % vocabulary)
                              : -1);
    }
}

/// Draws numbers below `below` as encoders.py and encoder_decoders.py do.
int64_t draw(StringRef name, int step, int64_t index, int64_t below) {
  std::string key = name.str() + "." + std::to_string(step);
  return int64_t(hashOf(key, uint64_t(index)) % uint64_t(below));
}

/// One value of a datum of a model with an encoder: number `at` of `sample`, of
/// `length`.
double encoderValue(const llvm::json::Object &config, StringRef name,
                    int64_t sample, int64_t at, int64_t length, int step) {
  int64_t index = sample * length + at;
  auto field = [&](StringRef key) { return *config.getInteger(key); };
  if (name == "images") {
    std::string key = "images." + std::to_string(step);
    return double(hashOf(key, uint64_t(index)) >> 40) / double(1 << 23) - 1;
  }
  if (name == "classes")
    return step > 1 && draw("skip", step, sample, 5) == 0
               ? -1
               : double(draw("classes", step, sample, field("num_labels")));
  if (name == "token_types")
    return at >= draw("second", step, sample, length)
               ? double(field("type_vocab_size") - 1)
               : 0;
  if (name == "decoder_tokens")
    return double(at == 0
                      ? field("decoder_start_token_id")
                      : draw("labels", step, index - 1, field("vocab_size")));
  StringRef family = *config.getString("model_type");
  if (name == "labels" && (family.ends_with("t5") || family.ends_with("bart") ||
                           family == "pegasus"))
    return step > 1 && draw("skip", step, index, 5) == 0
               ? -1
               : double(draw("labels", step, index, field("vocab_size")));
  bool there = sample == 0 || at < draw("length", step, sample, length) + 1;
  if (name == "mask")
    return there;
  if (name == "tokens")
    return double(there ? draw("tokens", step, index, field("vocab_size"))
                        : field("pad_token_id"));
  bool counts = there && draw("masked", step, index, 3) == 0;
  return counts ? double(draw("labels", step, index, field("vocab_size"))) : -1;
}

/// What a program of a model with an encoder reads, in the types that it takes.
grt::DataBatch makeEncoderBatch(const grt::Program &program,
                                const llvm::json::Object &config,
                                int64_t samples, int step) {
  grt::DataBatch batch;
  for (const grt::Datum &datum : program.data()) {
    int64_t length = datum.elements();
    std::vector<char> &bytes = batch.emplace_back();
    auto append = [&](auto value) {
      const char *from = reinterpret_cast<const char *>(&value);
      bytes.insert(bytes.end(), from, from + sizeof(value));
    };
    for (int64_t i = 0; i < samples * length; ++i) {
      double value = encoderValue(config, datum.name, i / length, i % length,
                                  length, step);
      if (datum.type == GRT_I32)
        append(int32_t(value));
      else if (datum.type == GRT_F32)
        append(float(value));
      else
        append(value);
    }
  }
  return batch;
}

//===----------------------------------------------------------------------===//
// Golden files
//===----------------------------------------------------------------------===//

const Object &golden(const std::string &model) {
  static std::map<std::string, llvm::json::Value> files;
  auto it = files.find(model);
  if (it == files.end()) {
    std::string path = std::string(ORACLE_FOLDER "/") + model + ".json";
    auto buffer =
        exitOnError(llvm::errorOrToExpected(llvm::MemoryBuffer::getFile(path)));
    it =
        files
            .emplace(model, exitOnError(llvm::json::parse(buffer->getBuffer())))
            .first;
  }
  return *it->second.getAsObject();
}

double number(const Object &object, StringRef key, double fallback) {
  return object.getNumber(key).value_or(fallback);
}

std::vector<double> numbers(const Object &object, StringRef key) {
  std::vector<double> result;
  for (const llvm::json::Value &value : *object.getArray(key))
    result.push_back(*value.getAsNumber());
  return result;
}

std::vector<double> decode(StringRef text) {
  std::vector<char> bytes;
  exitOnError(llvm::decodeBase64(text, bytes));
  std::vector<double> values(bytes.size() / sizeof(double));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = llvm::bit_cast<double>(
        llvm::support::endian::read64le(bytes.data() + i * sizeof(double)));
  return values;
}

//===----------------------------------------------------------------------===//
// The comparison
//===----------------------------------------------------------------------===//

/// A plan to run a golden run under.
struct Case {
  std::string model;
  std::string optimizer;
  std::string dtype;
  std::string cluster;
  std::string strategy;
  int64_t pipelineDegree;
  int64_t microBatches;
  const char *schedule;
};

std::string nameOf(const Case &c) {
  std::string name = c.model + "_" + c.optimizer + "_" + c.dtype + "_pp" +
                     std::to_string(c.pipelineDegree) + "_" + c.strategy +
                     "_m" + std::to_string(c.microBatches) + "_" + c.schedule;
  for (char &letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter)))
      letter = '_';
  return name;
}

void PrintTo(const Case &c, std::ostream *os) { *os << nameOf(c); }

const Object &goldenRun(const Case &c) {
  for (const llvm::json::Value &run : *golden(c.model).getArray("runs"))
    if (run.getAsObject()->getString("optimizer") == c.optimizer)
      return *run.getAsObject();
  ADD_FAILURE() << "no run of " << c.optimizer << " in " << c.model;
  std::abort();
}

std::shared_ptr<const grt::Program> compileCase(const Case &c) {
  const Object &file = golden(c.model);
  std::string config;
  llvm::raw_string_ostream(config) << *file.get("config");
  std::unique_ptr<mlir::MLIRContext> context =
      galvatron::createCompilerContext();
  galvatron::ImportOptions import;
  import.seqLen = *file.getInteger("seq-len");
  import.decoderSeqLen = file.getInteger("decoder-seq-len").value_or(0);
  auto module = exitOnError(
      galvatron::loadModel(config, "config.json", import, *context));

  galvatron::TrainingOptions training;
  training.optimizer = c.optimizer;
  training.dtype = c.dtype;
  training.clip = goldenRun(c).getNumber("clip-norm").has_value();
  training.labelSmoothing = number(goldenRun(c), "label-smoothing", 0);
  training.zLoss = number(goldenRun(c), "z-loss", 0);
  galvatron::PlanRequest request;
  request.planner.batch = *file.getInteger("batch");
  request.planner.pipelineDegree = c.pipelineDegree;
  request.planner.microBatches = c.microBatches;
  request.planner.schedule = &scheduleNamed(c.schedule);
  request.planner.strategy =
      exitOnError(galvatron::Strategy::parse(c.strategy));

  llvm::SmallString<128> path;
  exitOnError(llvm::errorCodeToError(
      llvm::sys::fs::createTemporaryFile("oracle", "gvx", path)));
  llvm::FileRemover remover(path);
  galvatron::PlannerResult result = exitOnError(galvatron::compileModel(
      *module, exitOnError(galvatron::Cluster::load(c.cluster)), training,
      request, path));
  EXPECT_TRUE(result.feasible());
  std::shared_ptr<const grt::Program> program;
  grt::Status status = grt::Program::loadFile(path.str().str(), program);
  EXPECT_TRUE(status.ok()) << status.message();
  return program;
}

double norm(const std::vector<double> &values) {
  double sum = 0;
  for (double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

/// Softmax does not see the biases of keys that are not rotated: their gradient
/// is what rounding leaves.
bool isKeyBias(StringRef family, StringRef name) {
  return name.ends_with(".k_lin.bias") ||
         (name.ends_with(".key.bias") && family != "gpt_neox" &&
          family != "falcon") ||
         (name.ends_with(".k_proj.bias") &&
          (name.starts_with("model.decoder.") ||
           name.starts_with("model.encoder.")));
}

/// The digest of generate.py: norm, entries and signed sums, without the biases
/// of attention keys.
void compareDigest(StringRef family, const std::string &name,
                   const Object &expected, std::vector<double> found,
                   double tolerance) {
  if (isKeyBias(family, name))
    std::fill(found.begin(), found.end(), 0.0);
  if (StringRef(name).ends_with("attn.c_attn.bias"))
    std::fill(found.begin() + found.size() / 3,
              found.begin() + 2 * found.size() / 3, 0.0);
  double scale = *expected.getNumber("norm");
  double bound = tolerance * scale;
  EXPECT_NEAR(norm(found), scale, bound) << name;
  for (const llvm::json::Value &entry : *expected.getArray("entries")) {
    const llvm::json::Array &pair = *entry.getAsArray();
    int64_t at = *pair[0].getAsInteger();
    EXPECT_NEAR(found[at], *pair[1].getAsNumber(), bound)
        << name << "[" << at << "]";
  }
  std::vector<double> sums = numbers(expected, "sums");
  for (size_t i = 0; i < sums.size(); ++i) {
    std::string key = name + ".signs." + std::to_string(i);
    double sum = 0;
    for (size_t j = 0; j < found.size(); ++j)
      sum += hashOf(key, j) % 2 == 1 ? found[j] : -found[j];
    // An error of relative norm `tolerance` moves a signed sum by about as
    // much.
    EXPECT_NEAR(sum, sums[i], 4 * bound) << name << " sum " << i;
  }
}

class Oracle : public testing::TestWithParam<Case> {};

TEST_P(Oracle, agrees) {
  const Case &c = GetParam();
  const Object &file = golden(c.model);
  const Object &run = goldenRun(c);
  const double tolerance = c.dtype == "f64" ? 1e-10 : 1e-4;

  std::shared_ptr<const grt::Program> program = compileCase(c);
  ASSERT_TRUE(program);
  grt::SessionOptions options;
  options.backendFolder = BACKEND_FOLDER;
  options.poison = true;
  std::unique_ptr<grt::Session> session;
  grt::Status status = grt::Session::create(program, options, session);
  ASSERT_TRUE(status.ok()) << status.message();

  grt::TensorMap parameters;
  status = session->parameters(parameters);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(parameters.size(), run.getObject("parameters")->size());
  for (const auto &[name, tensor] : parameters) {
    status = session->setParameter(name, initialValues(name, tensor.shape));
    ASSERT_TRUE(status.ok()) << status.message();
  }

  grt::Hyperparameters &hyper = session->hyperparameters();
  if (const llvm::json::Array *betas = run.getArray("betas")) {
    hyper.beta1 = *(*betas)[0].getAsNumber();
    hyper.beta2 = *(*betas)[1].getAsNumber();
  }
  hyper.eps = number(run, "eps", hyper.eps);
  hyper.momentum = number(run, "momentum", hyper.momentum);
  hyper.weightDecay = number(run, "weight-decay", 0);
  hyper.clipNorm = number(run, "clip-norm", hyper.clipNorm);
  std::vector<double> rates = numbers(run, "lr");
  std::vector<double> losses = numbers(run, "losses");
  std::vector<double> norms = numbers(run, "gradient-norms");
  std::vector<double> zLosses(losses.size(), 0.0);
  if (run.getArray("z-losses"))
    zLosses = numbers(run, "z-losses");

  const Object &config = *file.getObject("config");
  const StringRef family = *config.getString("model_type");
  std::vector<int32_t> tokens, labels;
  for (int step = 1; step <= int(rates.size()); ++step) {
    hyper.learningRate = rates[step - 1];
    int64_t samples = *file.getInteger("batch");
    if (program->data().size() > 2 || family == "swin" || family == "vit" ||
        family == "deit" || family == "dinov2") {
      status =
          session->setBatch(makeEncoderBatch(*program, config, samples, step));
    } else {
      makeBatch(*config.getInteger("vocab_size"), *file.getInteger("seq-len"),
                samples, step, tokens, labels);
      status = session->setBatch(tokens, labels);
    }
    ASSERT_TRUE(status.ok()) << status.message();
    grt::StepResult result;
    status = session->step(result);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_NEAR(result.loss, losses[step - 1], tolerance * losses[step - 1])
        << "step " << step;
    EXPECT_NEAR(result.zLoss, zLosses[step - 1], tolerance * zLosses[step - 1])
        << "step " << step;
    EXPECT_NEAR(result.gradientNorm, norms[step - 1],
                tolerance * norms[step - 1])
        << "step " << step;
    if (step > 1)
      continue;
    grt::TensorMap gradients;
    status = session->gradients(gradients);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const auto &entry : *file.getObject("gradients")) {
      std::vector<double> expected = decode(*entry.second.getAsString());
      auto it = gradients.find(entry.first.str());
      ASSERT_NE(it, gradients.end()) << entry.first.str();
      std::vector<double> error = it->second.values;
      ASSERT_EQ(error.size(), expected.size());
      for (size_t i = 0; i < error.size(); ++i)
        error[i] -= expected[i];
      double scale =
          isKeyBias(family, entry.first.str()) ? norms[0] : norm(expected);
      EXPECT_LE(norm(error), tolerance * scale) << entry.first.str();
    }
  }

  status = session->parameters(parameters);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const auto &entry : *run.getObject("parameters")) {
    std::string name = entry.first.str();
    compareDigest(family, name, *entry.second.getAsObject(),
                  parameters[name].values, tolerance);
  }
}

constexpr const char *gpipe = "gpipe";
constexpr const char *oneFOneB = "1f1b";

INSTANTIATE_TEST_SUITE_P(
    Models, Oracle,
    testing::Values(
        // One device: every optimizer, both types.
        Case{"gpt2-tied", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-tied", "adam", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-tied", "sgd", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-tied", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-tied", "adam", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-tied", "sgd", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-untied", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-untied", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        // Label smoothing and z-loss, over 37 words whole and in shards.
        Case{"gpt2-terms", "sgd", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-terms", "sgd", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"gpt2-terms", "sgd", "f64", "4xcpu", "tp2.sdp2", 1, 2, oneFOneB},
        Case{"gpt2-terms", "sgd", "f64", "4xcpu", "tp2", 2, 4, gpipe},
        // Plans; 61 and 37 words divide by nothing.
        Case{"gpt2-tied", "adamw", "f64", "4xcpu", "tp4", 1, 1, gpipe},
        Case{"gpt2-tied", "adamw", "f64", "4xcpu", "dp2.tp2", 1, 2, gpipe},
        Case{"gpt2-tied", "adamw", "f64", "4xcpu", "sdp4.ckpt", 1, 2, oneFOneB},
        Case{"gpt2-tied", "sgd", "f64", "4xcpu", "tp2.ckpt", 2, 4, oneFOneB},
        Case{"gpt2-tied", "sgd", "f64", "4xcpu", "single", 4, 4, gpipe},
        Case{"gpt2-tied", "adamw", "f32", "4xcpu", "tp2.sdp2", 1, 2, oneFOneB},
        Case{"gpt2-untied", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"gpt2-untied", "adamw", "f64", "4xcpu", "sdp2.tp2.ckpt", 1, 1,
             gpipe},
        // Decoders of the LLaMA kind: grouped heads, windows, biases, norms of
        // heads, every scaling of rotary embeddings; and plans that split them.
        Case{"llama-grouped", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"llama-grouped", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"llama-biases", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"llama-biases", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"mistral-window", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"mistral-window", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"qwen2-yarn", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"qwen2-yarn", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"qwen3-tied", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"qwen3-tied", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"llama-grouped", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2,
             oneFOneB},
        Case{"llama-biases", "adamw", "f64", "4xcpu", "tp4.ckpt", 1, 1, gpipe},
        Case{"mistral-window", "adamw", "f64", "4xcpu", "sdp2", 2, 2, gpipe},
        Case{"qwen2-yarn", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"qwen3-tied", "adamw", "f64", "4xcpu", "dp2.tp2", 1, 2, gpipe},
        // Other decoders: norms behind and before both halves, layer norms,
        // heads rotated in part and in some layers, factors, norms over all
        // heads.
        Case{"gemma-wide", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gemma-wide", "adamw", "f32", "4xcpu", "tp2.sdp2", 1, 2, gpipe},
        Case{"gemma3-windows", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gemma3-windows", "adamw", "f64", "4xcpu", "tp2.ckpt", 2, 2,
             oneFOneB},
        Case{"olmo3-windows", "adamw", "f64", "4xcpu", "sdp2", 2, 2, oneFOneB},
        Case{"granite-scales", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"granite-scales", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2,
             oneFOneB},
        Case{"olmo2-grouped", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"olmo2-grouped", "adamw", "f32", "4xcpu", "sdp2.ckpt", 2, 2,
             oneFOneB},
        Case{"phi-part", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"phi-part", "adamw", "f64", "4xcpu", "tp4", 1, 2, gpipe},
        Case{"smollm3-window", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"smollm3-listed", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"stablelm-parallel", "adamw", "f64", "1xcpu", "single", 1, 1,
             gpipe},
        Case{"stablelm-plain", "adamw", "f64", "4xcpu", "dp2.tp2.ckpt", 1, 2,
             gpipe},
        Case{"starcoder2-window", "adamw", "f64", "1xcpu", "single", 1, 1,
             gpipe},
        Case{"starcoder2-no-biases", "adamw", "f64", "4xcpu", "tp2", 2, 2,
             oneFOneB},
        // Rows that files have in one tensor, norms side by side, one key head,
        // long sequences rotated otherwise.
        Case{"gptj-part", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2, oneFOneB},
        Case{"glm-biases", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"glm4-around", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        // Caps of scores and logits, norms without a shift, slopes of heads.
        Case{"gemma2-caps", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"gemma2-caps", "adamw", "f64", "4xcpu", "tp2.ckpt", 2, 2,
             oneFOneB},
        Case{"cohere-grouped", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2,
             oneFOneB},
        Case{"cohere-norms", "adamw", "f64", "4xcpu", "tp4", 1, 2, oneFOneB},
        Case{"cohere2-windows", "adamw", "f64", "4xcpu", "sdp2.ckpt", 2, 2,
             oneFOneB},
        Case{"bloom-six-heads", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"bloom-six-heads", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"mpt-three-heads", "adamw", "f64", "4xcpu", "dp2", 2, 2, oneFOneB},
        Case{"phi3-window", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"phi3-long", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"gpt-neox-parallel", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2,
             oneFOneB},
        Case{"gpt-neox-behind", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"falcon-one-key-head", "adamw", "f64", "4xcpu", "tp4.ckpt", 1, 1,
             gpipe},
        Case{"falcon-new", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"falcon-following", "adamw", "f64", "4xcpu", "sdp2", 2, 2,
             oneFOneB},
        // Learnt positions whose table has rows in front.
        Case{"opt-tied", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"opt-no-biases", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"roberta", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2, oneFOneB},
        Case{"electra", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2, oneFOneB},
        // Layers that share their parameters, in one stage and in several.
        Case{"albert", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"albert", "adamw", "f64", "4xcpu", "sdp2", 2, 2, oneFOneB},
        Case{"albert-groups", "adamw", "f64", "4xcpu", "tp2.ckpt", 2, 2,
             oneFOneB},
        // No token types.
        Case{"distilbert", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"roberta-tanh", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        // Encoders: padding, token types, a padding token; images.
        Case{"bert", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"bert", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"bert-tanh", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"bert-tanh", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"vit", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"vit", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"vit-oblong", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"vit-oblong", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"bert", "adamw", "f64", "4xcpu", "tp4.ckpt", 1, 2, oneFOneB},
        Case{"bert-tanh", "adamw", "f64", "4xcpu", "dp2.tp2", 1, 2, gpipe},
        Case{"bert", "adamw", "f64", "4xcpu", "sdp2", 2, 2, oneFOneB},
        Case{"vit", "adamw", "f64", "4xcpu", "tp2", 2, 4, oneFOneB},
        Case{"vit-oblong", "adamw", "f64", "4xcpu", "sdp2.tp2.ckpt", 1, 1,
             gpipe},
        // Windows, with padding and without; stages of different widths.
        Case{"swin", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"swin", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"swin-odd", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"swin-odd", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"swin-wide", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"swin-wide", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"swin", "adamw", "f64", "4xcpu", "tp2", 2, 4, oneFOneB},
        Case{"swin", "adamw", "f64", "4xcpu", "sdp2.tp2.ckpt", 1, 1, gpipe},
        Case{"swin-odd", "adamw", "f64", "4xcpu", "sdp2", 2, 2, oneFOneB},
        Case{"swin-wide", "adamw", "f64", "4xcpu", "dp2.ckpt", 2, 2, gpipe},
        // Encoders with a decoder: biases of relative positions, a second
        // length, the three feed-forwards, both kinds of heads.
        Case{"t5", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"t5", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"t5-gated", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"t5-gated", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"t5-silu", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"t5-silu", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"t5", "adamw", "f64", "4xcpu", "tp4.ckpt", 1, 2, oneFOneB},
        Case{"t5", "adamw", "f64", "4xcpu", "sdp2", 2, 2, oneFOneB},
        Case{"t5-gated", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2, gpipe},
        Case{"t5-gated", "adamw", "f64", "4xcpu", "tp2", 2, 4, oneFOneB},
        Case{"mt5", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"umt5", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"bart", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"bart", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"bart-tanh", "adamw", "f64", "4xcpu", "tp2.sdp2", 1, 2, gpipe},
        Case{"mbart", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"mbart", "adamw", "f64", "4xcpu", "sdp2", 2, 4, oneFOneB},
        Case{"dinov2", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"dinov2", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"dinov2-gated", "adamw", "f64", "4xcpu", "sdp2.tp2", 1, 2, gpipe},
        Case{"modernbert", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"modernbert", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"modernbert-biases", "adamw", "f64", "4xcpu", "sdp2.tp2.ckpt", 1,
             2, gpipe},
        Case{"olmo-clipped", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"olmo-clipped", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"olmo-clipped", "adamw", "f32", "1xcpu", "single", 1, 1, gpipe},
        Case{"olmo-biases", "adamw", "f64", "4xcpu", "sdp2.tp2", 1, 2, gpipe},
        Case{"pegasus", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"pegasus", "adamw", "f64", "4xcpu", "sdp2.tp2", 1, 2, gpipe},
        Case{"pegasus", "adamw", "f32", "4xcpu", "zdp2", 2, 2, oneFOneB},
        Case{"deit", "adamw", "f64", "1xcpu", "single", 1, 1, gpipe},
        Case{"deit", "adamw", "f64", "4xcpu", "tp2", 2, 2, oneFOneB},
        Case{"t5-silu", "adamw", "f64", "4xcpu", "dp2", 2, 2, gpipe}),
    [](const auto &info) { return nameOf(info.param); });

} // namespace
