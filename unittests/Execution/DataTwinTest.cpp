//===- DataTwinTest.cpp - Plans and what layers read ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models that read something else than tokens at the front and labels at the
// end: images, a mask for every layer, different kinds in different stages, and
// a kind that only this test knows. Under every plan their losses, gradients
// and parameters are those of one rank, and of the same mathematics as one
// layer.
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Strategy/DecisionTree.h"
#include "mlir/IR/Dialect.h"
#include "gtest/gtest.h"

using namespace galvatron;
using namespace galvatron::test;

namespace {

/// A dialect that brings a kind of data and nothing else.
class SoundDialect : public mlir::Dialect {
public:
  explicit SoundDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                mlir::TypeID::get<SoundDialect>()) {
    addInterfaces<Kinds>();
  }
  static constexpr llvm::StringLiteral getDialectNamespace() { return "sound"; }

private:
  struct Kinds : mlir::galvatron::DataKindInterface {
    using DataKindInterface::DataKindInterface;
    llvm::ArrayRef<mlir::galvatron::DataKind> getDataKinds() const override {
      static constexpr mlir::galvatron::DataKind kinds[] = {
          {"spectrum", /*integers=*/false, /*reals=*/true, /*counted=*/false,
           /*sequence=*/false}};
      return kinds;
    }
  };
};

/// An argument of a model.
struct Argument {
  std::string name, shape, element, kind;
  /// `tensor<?x4xi32>`
  std::string type() const { return "tensor<?" + shape + "x" + element + ">"; }
};

/// Writes a chain of layers of width 16: something that reads the first
/// argument, six residual feed-forward blocks, and a head whose loss is a mean
/// over the last argument. Or all that as one layer.
class ModelWriter {
public:
  ModelWriter(std::string dtype, std::string positions, bool fused)
      : dtype(std::move(dtype)), positions(std::move(positions)), fused(fused) {
  }
  void argument(const std::string &name, const std::string &shape,
                bool integers, const std::string &kind) {
    arguments.push_back({name, shape, integers ? "i32" : dtype, kind});
  }
  std::string run();

  /// Which arguments a layer reads besides the activation, by layer.
  std::vector<std::vector<int>> reads;

private:
  struct Parameter {
    std::string name, type, factors;
  };
  std::string activation() const {
    return "tensor<?" + positions + "x16x" + dtype + ">";
  }
  std::string parameter(size_t layer, const std::string &name,
                        const std::string &shape, const std::string &factors);
  std::string value(const std::string &text);
  std::string add(const std::string &a, const std::string &b);
  /// What an argument adds to an activation: rows of a table, or a product.
  std::string contribution(size_t layer, int argument);
  std::string write(size_t layer, std::string x);

  std::string dtype, positions;
  bool fused;
  std::vector<Argument> arguments;
  std::vector<Parameter> declared; ///< of the layer that is being written
  std::string body, globals;
  int values = 0;
};

std::string ModelWriter::parameter(size_t layer, const std::string &name,
                                   const std::string &shape,
                                   const std::string &factors) {
  std::string full = "l" + std::to_string(layer) + "." + name;
  std::string type = "tensor<" + shape + "x" + dtype + ">";
  globals += "galvatron.parameter @\"" + full + "\" : " + type +
             (shape.find('x') == std::string::npos
                  ? " {init = \"zeros\"}\n"
                  : " {decay, init = \"normal\", std = 2.0e-1 : f64}\n");
  declared.push_back({full, type, factors});
  return "%p" + std::to_string(declared.size() - 1);
}

std::string ModelWriter::value(const std::string &text) {
  std::string name = "%v" + std::to_string(values++);
  body += "  " + name + " = " + text + "\n";
  return name;
}

std::string ModelWriter::add(const std::string &a, const std::string &b) {
  return value("nn.add " + a + ", " + b + " : (" + activation() + ", " +
               activation() + ") -> " + activation());
}

std::string ModelWriter::contribution(size_t layer, int number) {
  const Argument &argument = arguments[size_t(number)];
  std::string name = "%" + argument.name;
  if (argument.element == "i32") {
    std::string table = parameter(layer, argument.name, "7x16", "");
    return value("nn.embedding " + name + ", " + table + " : (" +
                 argument.type() + ", tensor<7x16x" + dtype + ">) -> " +
                 activation());
  }
  std::string weight = parameter(layer, argument.name, "12x16", "");
  return value("nn.linear " + name + ", " + weight + " : (" + argument.type() +
               ", tensor<12x16x" + dtype + ">) -> " + activation());
}

std::string ModelWriter::write(size_t layer, std::string x) {
  for (int argument : reads[layer]) {
    std::string y = contribution(layer, argument);
    x = x.empty() ? y : add(x, y);
  }
  if (layer + 1 == reads.size()) {
    std::string weight = parameter(layer, "head", "16x5", "");
    std::string logits = "tensor<?" + positions + "x5x" + dtype + ">";
    std::string y =
        value("nn.linear " + x + ", " + weight + " : (" + activation() +
              ", tensor<16x5x" + dtype + ">) -> " + logits);
    const Argument &labels = arguments.back();
    body += "  %loss, %dlogits = nn.cross_entropy " + y + ", %" + labels.name +
            " {classes = 5 : i64} : (" + logits + ", " + labels.type() +
            ") -> (tensor<1xf64>, " + logits + ")\n";
    return "%loss";
  }
  std::string wide = "tensor<?" + positions + "x32x" + dtype + ">";
  std::string up =
      parameter(layer, "up", "16x32", R"({nn.factors = ["", "ffn"]})");
  std::string bias =
      parameter(layer, "bias", "32", R"({nn.factors = ["ffn"]})");
  std::string down =
      parameter(layer, "down", "32x16", R"({nn.factors = ["ffn", ""]})");
  std::string h = value("nn.linear " + x + ", " + up + " : (" + activation() +
                        ", tensor<16x32x" + dtype + ">) -> " + wide);
  h = value("nn.bias_add " + h + ", " + bias + " : (" + wide + ", tensor<32x" +
            dtype + ">) -> " + wide);
  h = value("nn.gelu " + h + " {approximate} : (" + wide + ") -> " + wide);
  h = value("nn.linear " + h + ", " + down + " : (" + wide + ", tensor<32x16x" +
            dtype + ">) -> " + activation());
  return add(x, h);
}

std::string ModelWriter::run() {
  std::string functions, calls, before;
  auto close = [&](const std::string &name, const std::string &input,
                   std::vector<int> data, const std::string &result,
                   const std::string &type) {
    std::string signature, operands, types, parameters;
    auto append = [](std::string &list, const std::string &entry) {
      list += (list.empty() ? "" : ", ") + entry;
    };
    if (!input.empty()) {
      append(signature, "%x: " + activation());
      append(operands, input);
      append(types, activation());
    }
    for (int number : data) {
      const Argument &argument = arguments[size_t(number)];
      append(signature, "%" + argument.name + ": " + argument.type());
      append(operands, "%" + argument.name);
      append(types, argument.type());
    }
    for (size_t i = 0; i < declared.size(); ++i) {
      append(signature, "%p" + std::to_string(i) + ": " + declared[i].type +
                            " " + declared[i].factors);
      append(parameters, "@\"" + declared[i].name + "\"");
    }
    functions += "func.func private @" + name + "(" + signature + ") -> " +
                 type + " attributes {nn.factor_units = {ffn = 32 : i64}} {\n" +
                 body + "  return " + result + " : " + type + "\n}\n";
    std::string output = "%" + name;
    calls += "  " + output + " = galvatron.layer \"" + name + "\" @" + name +
             "(" + operands + ") params [" + parameters + "] : (" + types +
             ") -> " + type + "\n";
    before = output;
    body.clear();
    declared.clear();
  };
  std::string x;
  for (size_t layer = 0; layer < reads.size(); ++layer) {
    bool last = layer + 1 == reads.size();
    std::vector<int> data = reads[layer];
    if (last)
      data.push_back(int(arguments.size()) - 1);
    if (fused) {
      x = write(layer, x);
      continue;
    }
    x = write(layer, layer ? "%x" : "");
    close("layer" + std::to_string(layer), before, data, x,
          last ? "tensor<1xf64>" : activation());
  }
  if (fused) {
    std::vector<int> all;
    for (size_t i = 0; i < arguments.size(); ++i)
      all.push_back(int(i));
    close("whole", "", all, x, "tensor<1xf64>");
  }
  std::string list;
  for (const Argument &argument : arguments)
    list += (list.empty() ? "%" : ", %") + argument.name + ": " +
            argument.type() + " is <" + argument.kind + ">";
  return globals + functions + "galvatron.model @toy(" + list + ") {\n" +
         calls + "  galvatron.output " + before + " : tensor<1xf64>\n}\n";
}

using Describe = std::function<void(ModelWriter &)>;

struct Toy {
  const char *name;
  std::string positions; ///< "x4", or "" for one row a sample
  Describe describe;
};

/// Eight layers, so that eight stages have one each.
const std::vector<Toy> &toys() {
  using Reads = std::vector<std::vector<int>>;
  static const std::vector<Toy> all = {
      {"DenseImages", "x4",
       [](ModelWriter &w) {
         w.argument("images", "x4x12", false, "images");
         w.argument("classes", "x4", true, "classes, below = 5");
         w.reads = Reads{{0}, {}, {}, {}, {}, {}, {}, {}};
       }},
      {"OneClassAnImage", "",
       [](ModelWriter &w) {
         w.argument("images", "x12", false, "images");
         w.argument("classes", "", true, "classes, below = 5");
         w.reads = Reads{{0}, {}, {}, {}, {}, {}, {}, {}};
       }},
      {"AMaskForEveryLayer", "x4",
       [](ModelWriter &w) {
         w.argument("tokens", "x4", true, "tokens, below = 7");
         w.argument("mask", "x4", true, "mask, below = 2");
         w.argument("labels", "x4", true, "labels, below = 5");
         w.reads = Reads{{0, 1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}};
       }},
      {"OtherDataInOtherStages", "x3", [](ModelWriter &w) {
         w.argument("segments", "x3", true,
                    "token_types, name = \"segments\", below = 7");
         w.argument("audio", "x3x12", false, "spectrum, name = \"audio\"");
         w.argument("tokens", "x3", true, "tokens, below = 7");
         w.argument("labels", "x3", true, "labels, below = 5");
         w.reads = Reads{{2}, {}, {0}, {1, 0}, {}, {1}, {}, {2, 1}};
       }}};
  return all;
}

TwinModel modelOf(const Toy &toy, bool fused = false) {
  TwinModel model;
  model.layers = 6;
  ModelWriter writer("ELT", toy.positions, fused);
  toy.describe(writer);
  model.text = writer.run();
  return model;
}

class DataTwinTest : public ::testing::TestWithParam<size_t> {
protected:
  DataTwinTest() : toy(toys()[GetParam()]), model(modelOf(toy)) {
    loadTwinDialects(context);
    context.loadDialect<SoundDialect>();
  }

  static TwinOptions optionsOf(const std::string &dtype) {
    TwinOptions options;
    options.dtype = dtype;
    options.steps = 3;
    options.eps = dtype == "f64" ? 1e-8 : 1e-6;
    return options;
  }

  const TwinRun &reference(const std::string &dtype) {
    auto [entry, inserted] = references.try_emplace(dtype);
    if (inserted)
      entry->second =
          runTwin(context, model, singleRank(model, kBatch), optionsOf(dtype));
    return entry->second;
  }

  void expectTwin(const TwinPlan &plan, const std::string &dtype,
                  const std::string &backend = "cpu") {
    SCOPED_TRACE(plan.str() + " " + dtype + " " + backend);
    const TwinRun &expected = reference(dtype);
    ASSERT_EQ(expected.error, "");
    TwinOptions options = optionsOf(dtype);
    options.backend = backend;
    TwinRun run = runTwin(context, model, plan, options);
    ASSERT_EQ(run.error, "");
    if (backend == "cpu")
      EXPECT_EQ(checkMemory(run), "");
    EXPECT_EQ(compareRuns(run, expected, getBounds(dtype, "adamw")), "");
  }

  static constexpr int64_t kBatch = 16;
  const Toy &toy;
  TwinModel model;
  mlir::MLIRContext context;
  std::map<std::string, TwinRun> references;
};

TEST_P(DataTwinTest, EqualsTheSameMathematicsAsOneLayer) {
  TwinModel whole = modelOf(toy, /*fused=*/true);
  whole.layers = -1; // with what counts as its ends: one layer
  TwinRun run =
      runTwin(context, whole, singleRank(whole, kBatch), optionsOf("f64"));
  ASSERT_EQ(run.error, "");
  const TwinRun &expected = reference("f64");
  ASSERT_EQ(expected.error, "");
  ASSERT_GT(expected.losses.front(), 0);
  EXPECT_EQ(compareRuns(run, expected, getBounds("f64", "adamw")), "");
}

TEST_P(DataTwinTest, EveryStrategyOfEightRanks) {
  for (int64_t stages : {8, 4, 2, 1})
    for (const Strategy &strategy : enumerateStrategies(8 / stages, {})) {
      int64_t microBatches = stages == 1 ? 2 : 4;
      while (kBatch / microBatches % strategy.sampleShards() != 0)
        microBatches /= 2;
      expectTwin(uniformPlan(model, stages, strategy, kBatch, microBatches,
                             stages == 4 ? "gpipe" : "1f1b"),
                 "f64");
    }
}

TEST_P(DataTwinTest, RandomMixedPlans) {
  std::mt19937 generator(uint32_t(31 + GetParam()));
  int64_t count = std::getenv("GALVATRON_LONG") ? 60 : 6;
  for (int64_t i = 0; i < count && !HasFatalFailure(); ++i)
    expectTwin(randomPlan(model, generator), i % 3 == 2 ? "f32" : "f64");
}

/// The recording backend checks order and lifetime of every access.
TEST_P(DataTwinTest, ProgramsForDevicesWithStreams) {
  for (const char *text : {"tp4", "sdp2.tp2.ckpt", "dp4"})
    expectTwin(uniformPlan(model, 2, llvm::cantFail(Strategy::parse(text)),
                           kBatch, 2, "1f1b"),
               "f32", "cuda");
}

INSTANTIATE_TEST_SUITE_P(Toys, DataTwinTest, ::testing::Range<size_t>(0, 4),
                         [](const auto &info) {
                           return std::string(toys()[info.param].name);
                         });

} // namespace
