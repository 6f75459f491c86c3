//===- GalvatronOps.cpp - Operations of the dialect -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::galvatron;

/// The body of a strategy attribute, `<[sdp = 4, tp = 2], ckpt>`. The full
/// attribute would take the colon after it as the start of its type.
static ParseResult parseStrategy(OpAsmParser &parser, StrategyAttr &strategy) {
  strategy = llvm::cast_or_null<StrategyAttr>(StrategyAttr::parse(parser, {}));
  return success(static_cast<bool>(strategy));
}

static void printStrategy(OpAsmPrinter &printer, Operation *,
                          StrategyAttr strategy) {
  strategy.print(printer);
}

#define GET_OP_CLASSES
#include "galvatron/Dialect/Galvatron/IR/GalvatronOps.cpp.inc"

//===----------------------------------------------------------------------===//
// ModelOp
//===----------------------------------------------------------------------===//

void ModelOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                    int64_t seqLen, int64_t vocab, StringRef config,
                    TypeRange arguments) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.seq_len = builder.getI64IntegerAttr(seqLen);
  properties.vocab = builder.getI64IntegerAttr(vocab);
  if (!config.empty())
    properties.config = builder.getStringAttr(config);
  Region *body = state.addRegion();
  Block &block = body->emplaceBlock();
  for (Type type : arguments)
    block.addArgument(type, state.location);
}

// model ::= `galvatron.model` symbol `(` arguments `)` attr-dict region
ParseResult ModelOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(),
                             result.attributes) ||
      parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren,
                               /*allowType=*/true) ||
      parser.parseOptionalAttrDict(result.attributes))
    return failure();
  return parser.parseRegion(*result.addRegion(), arguments);
}

void ModelOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << '(';
  llvm::interleaveComma(
      getBlock().getArguments(), printer,
      [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ')';
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {SymbolTable::getSymbolAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

void ModelOp::getAsmBlockArgumentNames(Region &region,
                                       OpAsmSetValueNameFn setName) {
  static constexpr StringLiteral names[] = {"tokens", "labels"};
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

SmallVector<LayerOp, 8> ModelOp::getLayers() {
  SmallVector<LayerOp, 8> layers;
  getBody().walk([&](LayerOp layer) { layers.push_back(layer); });
  return layers;
}

SmallVector<StageOp, 8> ModelOp::getStages() {
  return llvm::to_vector<8>(getBlock().getOps<StageOp>());
}

OutputOp ModelOp::getOutput() {
  return cast<OutputOp>(getBlock().getTerminator());
}

//===----------------------------------------------------------------------===//
// LayerOp
//===----------------------------------------------------------------------===//

void LayerOp::build(OpBuilder &builder, OperationState &state,
                    TypeRange outputs, StringRef name, StringRef callee,
                    ValueRange inputs, ArrayRef<StringRef> params) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.layer_name = builder.getStringAttr(name);
  properties.callee = FlatSymbolRefAttr::get(builder.getContext(), callee);
  if (!params.empty()) {
    SmallVector<Attribute> symbols;
    for (StringRef param : params)
      symbols.push_back(FlatSymbolRefAttr::get(builder.getContext(), param));
    properties.params = builder.getArrayAttr(symbols);
  }
  state.addOperands(inputs);
  state.addTypes(outputs);
}

SmallVector<FlatSymbolRefAttr> LayerOp::getParamSymbols() {
  if (!getParamsAttr())
    return {};
  return llvm::to_vector(getParamsAttr().getAsRange<FlatSymbolRefAttr>());
}

//===----------------------------------------------------------------------===//
// StageOp
//===----------------------------------------------------------------------===//

SmallVector<LayerOp, 8> StageOp::getLayers() {
  return llvm::to_vector<8>(getBlock().getOps<LayerOp>());
}
