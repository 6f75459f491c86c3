//===- GalvatronOps.cpp - Operations of the dialect -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Dialect/Galvatron/IR/LiveSets.h"

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
                    ArrayRef<DataAttr> data, StringRef config) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.data =
      builder.getArrayAttr(SmallVector<Attribute>(data.begin(), data.end()));
  if (!config.empty())
    properties.config = builder.getStringAttr(config);
  Region *body = state.addRegion();
  Block &block = body->emplaceBlock();
  for (DataAttr datum : data)
    block.addArgument(datum.getType(), state.location);
}

// model ::= `galvatron.model` symbol `(` (argument (`,` argument)*)? `)`
//           (`attributes` attr-dict)? region
// argument ::= ssa-id `:` type (`is` data)?
ParseResult ModelOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(),
                             result.attributes))
    return failure();
  llvm::SMLoc place = parser.getCurrentLocation();
  SmallVector<Attribute> data;
  auto parseArgument = [&]() -> ParseResult {
    if (parser.parseArgument(arguments.emplace_back(), /*allowType=*/true))
      return failure();
    if (failed(parser.parseOptionalKeyword("is")))
      return success();
    data.push_back(DataAttr::parse(parser, arguments.back().type));
    return success(static_cast<bool>(data.back()));
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     parseArgument))
    return failure();
  if (!data.empty() && data.size() != arguments.size())
    return parser.emitError(place)
           << "expected all arguments to say what they are, or none; found "
           << data.size() << " of " << arguments.size();
  if (!data.empty())
    result.addAttribute(getDataAttrName(result.name),
                        parser.getBuilder().getArrayAttr(data));
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  return parser.parseRegion(*result.addRegion(), arguments);
}

void ModelOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << '(';
  llvm::interleaveComma(
      getBlock().getArguments(), printer, [&](BlockArgument argument) {
        printer.printRegionArgument(argument);
        if (!getDataAttr())
          return;
        printer << " is ";
        cast<DataAttr>(getDataAttr()[argument.getArgNumber()]).print(printer);
      });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {SymbolTable::getSymbolAttrName(), getDataAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

void ModelOp::getAsmBlockArgumentNames(Region &region,
                                       OpAsmSetValueNameFn setName) {
  for (auto [argument, datum] :
       llvm::zip(region.getArguments(), getDeclaredData()))
    setName(argument, datum.getName());
}

SmallVector<LayerOp, 8> ModelOp::getLayers() {
  SmallVector<LayerOp, 8> layers;
  getBody().walk([&](LayerOp layer) { layers.push_back(layer); });
  return layers;
}

SmallVector<StageOp, 8> ModelOp::getStages() {
  return llvm::to_vector<8>(getBlock().getOps<StageOp>());
}

SmallVector<DataAttr> ModelOp::getDeclaredData() {
  if (!getDataAttr())
    return {};
  return llvm::to_vector(getDataAttr().getAsRange<DataAttr>());
}

int64_t ModelOp::getSequenceLength() {
  for (DataAttr datum : getDeclaredData())
    if (datum.isSequence())
      return datum.getElementsPerSample();
  return 0;
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

BlockArgument LayerOp::getDataArgument(unsigned input) {
  return dyn_cast<BlockArgument>(getOrigin(getInputs()[input]));
}

SmallVector<bool> LayerOp::getDataInputs() {
  SmallVector<bool> data;
  for (unsigned i = 0; i < getInputs().size(); ++i)
    data.push_back(static_cast<bool>(getDataArgument(i)));
  return data;
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
