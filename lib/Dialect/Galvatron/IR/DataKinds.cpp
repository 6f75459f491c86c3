//===- DataKinds.cpp - What arguments of a model can be -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/IR/DataKinds.h"
#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Support/Units.h"

using namespace mlir;
using namespace mlir::galvatron;

namespace {

class BuiltinDataKinds : public DataKindInterface {
public:
  using DataKindInterface::DataKindInterface;

  ArrayRef<DataKind> getDataKinds() const override {
    static constexpr DataKind kinds[] = {
        {"tokens", /*integers=*/true, /*reals=*/false, /*counted=*/false,
         /*sequence=*/true},
        {"labels", true, false, /*counted=*/true, false},
        {"classes", true, false, /*counted=*/true, false},
        {"token_types", true, false, false, false},
        {"mask", true, /*reals=*/true, false, false},
        {kDocumentStarts, true, false, false, false},
        {kCacheRows, true, false, false, false},
        {kPositions, true, false, false, false},
        {kSourceRows, true, false, false, false},
        {kSourceLengths, true, false, false, false},
        {"images", /*integers=*/false, /*reals=*/true, false, false}};
    return kinds;
  }
};

/// The kinds of all loaded dialects.
SmallVector<DataKind> getAllKinds(MLIRContext *context) {
  SmallVector<DataKind> kinds;
  for (Dialect *dialect : context->getLoadedDialects())
    if (auto *interface = dialect->getRegisteredInterface<DataKindInterface>())
      llvm::append_range(kinds, interface->getDataKinds());
  return kinds;
}

} // namespace

void GalvatronDialect::registerDataKinds() {
  addInterfaces<BuiltinDataKinds>();
}

std::optional<DataKind> mlir::galvatron::findDataKind(MLIRContext *context,
                                                      StringRef name) {
  for (const DataKind &kind : getAllKinds(context))
    if (kind.name == name)
      return kind;
  return std::nullopt;
}

std::string mlir::galvatron::listDataKinds(MLIRContext *context) {
  SmallVector<DataKind> kinds = getAllKinds(context);
  std::string text;
  for (auto [index, kind] : llvm::enumerate(kinds)) {
    if (index > 0)
      text += index + 1 < kinds.size() ? ", " : " or ";
    text += "'" + kind.name.str() + "'";
  }
  return text;
}

//===----------------------------------------------------------------------===//
// DataAttr
//===----------------------------------------------------------------------===//

// data ::= `<` kind (`,` `name` `=` string)? (`,` `below` `=` integer)? `>`
Attribute DataAttr::parse(AsmParser &parser, Type type) {
  llvm::SMLoc place = parser.getCurrentLocation();
  StringRef kind;
  std::string name;
  int64_t below = 0;
  if (parser.parseLess() || parser.parseKeyword(&kind))
    return {};
  bool named = false, bounded = false;
  while (succeeded(parser.parseOptionalComma())) {
    if (!named && !bounded && succeeded(parser.parseOptionalKeyword("name"))) {
      named = true;
      if (parser.parseEqual() || parser.parseString(&name))
        return {};
    } else if (!bounded && succeeded(parser.parseOptionalKeyword("below"))) {
      bounded = true;
      llvm::SMLoc number = parser.getCurrentLocation();
      if (parser.parseEqual() || parser.parseInteger(below))
        return {};
      // 0 stands for none.
      if (below == 0) {
        parser.emitError(number, "expected 'below' to be at least 1, found 0");
        return {};
      }
    } else {
      parser.emitError(parser.getCurrentLocation(),
                       "expected 'name' or 'below', each once and in this "
                       "order");
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  if (!type) {
    parser.emitError(place, "expected the type of the data behind it");
    return {};
  }
  return DataAttr::getChecked([&] { return parser.emitError(place); },
                              parser.getContext(), StringRef(kind),
                              named ? StringRef(name) : kind, below, type);
}

void DataAttr::print(AsmPrinter &printer) const {
  printer << '<' << getKind();
  if (getName() != getKind()) {
    printer << ", name = ";
    printer.printString(getName());
  }
  if (getBelow() != 0)
    printer << ", below = " << getBelow();
  printer << '>';
}

LogicalResult DataAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               StringRef kind, StringRef name, int64_t below,
                               Type type) {
  // (C1)
  MLIRContext *context = type.getContext();
  std::optional<DataKind> known = findDataKind(context, kind);
  if (!known)
    return emitError() << "expected data of kind " << listDataKinds(context)
                       << ", found '" << kind << "'";
  // (C2)
  if (name.empty())
    return emitError()
           << "expected data of kind '" << kind
           << "' to have a name that is not empty, found an empty one";
  // (C3)
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.getRank() == 0 || !tensor.isDynamicDim(0) ||
      tensor.getNumDynamicDims() != 1 ||
      llvm::is_contained(tensor.getShape(), 0))
    return emitError() << "expected data '" << name
                       << "' to be a tensor whose first dimension alone is "
                          "dynamic, found "
                       << type;
  Type element = tensor.getElementType();
  bool integers = element.isSignlessInteger(32);
  bool reals = element.isF32() || element.isF64() || element.isBF16();
  if (!(integers && known->integers) && !(reals && known->reals))
    return emitError() << "expected data '" << name << "' of kind '" << kind
                       << "' to have elements of type "
                       << (known->integers && known->reals
                               ? "i32, f32, f64 or bf16"
                           : known->integers ? "i32"
                                             : "f32, f64 or bf16")
                       << ", found " << element;
  // (C4)
  if (integers && below < 1)
    return emitError() << "expected integers '" << name
                       << "' to have a bound 'below' of at least 1, found "
                       << (below == 0 ? "none" : std::to_string(below));
  if (below > std::numeric_limits<int32_t>::max())
    return emitError() << "expected 'below' of '" << name << "' to be at most "
                       << std::numeric_limits<int32_t>::max() << ", found "
                       << below;
  if (!integers && below != 0)
    return emitError() << "expected no bound 'below' of '" << name
                       << "', whose elements are no integers, found " << below;
  // (C5)
  int64_t bytes = tensor.getElementTypeBitWidth() / 8;
  for (int64_t dim : tensor.getShape().drop_front())
    bytes = ::galvatron::multiplyBytes(bytes, dim);
  if (bytes > ::galvatron::kMostLayerBytes)
    return emitError() << "expected a sample of '" << name
                       << "' to take at most " << ::galvatron::kMostLayerBytes
                       << " bytes, found " << type;
  return success();
}

RankedTensorType DataAttr::getTensorType() {
  return cast<RankedTensorType>(getType());
}

ArrayRef<int64_t> DataAttr::getSampleShape() {
  return getTensorType().getShape().drop_front();
}

int64_t DataAttr::getElementsPerSample() {
  return ShapedType::getNumElements(getSampleShape());
}

int64_t DataAttr::getBytesPerSample() {
  return getElementsPerSample() *
         (getTensorType().getElementTypeBitWidth() / 8);
}

bool DataAttr::isCounted() {
  return findDataKind(getContext(), getKind())->counted;
}

bool DataAttr::isSequence() {
  return findDataKind(getContext(), getKind())->sequence;
}
