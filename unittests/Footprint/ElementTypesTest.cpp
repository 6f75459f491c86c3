//===- ElementTypesTest.cpp - Element types that programs do not have -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What passes verifyExecutable() has none of them; who asks earlier, or for a
// function of some other origin, gets a refusal that names the type.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Conversion/NNToGRT/NNToGRT.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/Transforms/PlanAttributes.h"
#include "galvatron/Dialect/NN/IR/NN.h"
#include "galvatron/Footprint/IRLayerModel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;

namespace {

class ElementTypesTest : public testing::Test {
protected:
  ElementTypesTest()
      : handler(&context, [this](Diagnostic &diagnostic) {
          message += diagnostic.str();
          return success();
        }) {
    DialectRegistry registry;
    ::galvatron::registerFootprints(registry);
    context.appendDialectRegistry(registry);
    context.loadDialect<mlir::galvatron::GalvatronDialect, nn::NNDialect,
                        func::FuncDialect>();
    context.allowUnregisteredDialects();
  }

  OwningOpRef<ModuleOp> parse(StringRef text) {
    auto module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << message;
    return module;
  }

  std::string message;
  MLIRContext context;
  ScopedDiagnosticHandler handler;
};

/// A model whose only parameter has this element type.
std::string modelOf(StringRef element) {
  std::string type = ("tensor<4x" + element + ">").str();
  return "galvatron.parameter @w : " + type + R"( {init = "zeros"}
    func.func private @body(%x: tensor<?x4xf32>, %w: )" +
         type + R"() -> tensor<?x4xf32> {
      %y = nn.gelu %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
      return %y : tensor<?x4xf32>
    }
    galvatron.model @m(%x: tensor<?x4xf32> is <images>) {
      %0 = galvatron.layer "a" @body(%x) params [@w]
          : (tensor<?x4xf32>) -> tensor<?x4xf32>
      galvatron.output %0 : tensor<?x4xf32>
    })";
}

TEST_F(ElementTypesTest, FootprintsNameTheLayerAndTheType) {
  for (const char *element : {"f8E4M3FN", "i1", "f16"}) {
    auto module = parse(modelOf(element));
    ASSERT_TRUE(module);
    auto model = ::galvatron::createIRLayerModel(*module, "adamw", {"cpu", 1});
    ASSERT_FALSE(bool(model)) << element;
    EXPECT_EQ(llvm::toString(model.takeError()),
              "expected the body of layer 'a' to take elements of f32, f64, "
              "bf16 or i32, found tensor<4x" +
                  std::string(element) + ">");
  }
}

/// Where nobody has chosen a type it is that of the parameters, whatever it is.
TEST_F(ElementTypesTest, TheTypeOfTheTrainingIsThatOfTheParameters) {
  for (const char *element : {"f8E4M3FN", "i1", "f16", "bf16", "f64"}) {
    auto module = parse(modelOf(element));
    ASSERT_TRUE(module);
    EXPECT_EQ(mlir::galvatron::getTrainingOptions(*module).dtype, element);
  }
}

TEST_F(ElementTypesTest, LayoutsNameTheParameter) {
  auto layoutOf = [&](const std::string &first, const std::string &second) {
    message.clear();
    auto module = parse("func.func private @f(%a: tensor<4x" + first +
                        "> {nn.role = \"parameter\"}, %b: tensor<4x" + second +
                        "> {nn.role = \"parameter\"}) { return }");
    func::FuncOp function = *module->getOps<func::FuncOp>().begin();
    FailureOr<grt::FlatLayout> layout = grt::getFlatLayout(function);
    EXPECT_EQ(failed(layout), !message.empty());
    return message;
  };
  EXPECT_EQ(layoutOf("f64", "f64"), "");
  for (std::string element : {"f8E4M3FN", "i1", "f16"})
    EXPECT_EQ(layoutOf(element, "f32"),
              "'func.func' op expected parameters of f32, f64 or bf16, found "
              "'tensor<4x" +
                  element + ">' as argument 0");
  EXPECT_EQ(layoutOf("f32", "bf16"),
            "'func.func' op expected parameters of one element type, 'f32', "
            "found 'tensor<4xbf16>' as argument 1");
}

TEST_F(ElementTypesTest, FunctionsWithOtherValuesAreNotConverted) {
  auto module = parse(R"(
    func.func private @argument(%a: tensor<4xf8E4M3FN>) { return }
    func.func private @value(%a: tensor<4xf32>) {
      %b = "test.mask"(%a) : (tensor<4xf32>) -> tensor<4xi1>
      return
    }
  )");
  ASSERT_TRUE(module);
  auto expectRefused = [&](StringRef name, StringRef text) {
    auto function = module->lookupSymbol<func::FuncOp>(name);
    for (bool converts : {false, true}) {
      message.clear();
      EXPECT_TRUE(converts ? failed(grt::convertFunction(function, {}))
                           : failed(grt::placeKeptValues(function, function)));
      EXPECT_EQ(message, text);
    }
  };
  expectRefused("argument",
                "'func.func' op argument 0: expected elements of f32, f64, "
                "bf16, i32 or i8, found 'tensor<4xf8E4M3FN>'");
  expectRefused("value",
                "'test.mask' op expected elements of f32, f64, bf16, i32 or "
                "i8, found 'tensor<4xi1>'");
}

} // namespace
