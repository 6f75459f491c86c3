//===- Changes.cpp - Single changes of a module ---------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Changes.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

#include <map>

using namespace mlir;

namespace galvatron::test {

const char *changeKindName(ChangeKind kind) {
  switch (kind) {
  case ChangeKind::DropOperation:
    return "drop operation";
  case ChangeKind::Duplicate:
    return "duplicate";
  case ChangeKind::Reorder:
    return "reorder";
  case ChangeKind::SwapOperands:
    return "swap operands";
  case ChangeKind::ReplaceOperand:
    return "replace operand";
  case ChangeKind::DropAttribute:
    return "drop attribute";
  case ChangeKind::BorrowAttribute:
    return "borrow attribute";
  case ChangeKind::Integer:
    return "integer";
  case ChangeKind::Real:
    return "real";
  case ChangeKind::Symbol:
    return "symbol";
  case ChangeKind::DropEntry:
    return "drop entry";
  case ChangeKind::DropElement:
    return "drop element";
  case ChangeKind::SwapElements:
    return "swap elements";
  case ChangeKind::Boolean:
    return "boolean";
  case ChangeKind::Type:
    return "type";
  }
  llvm_unreachable("unknown kind");
}

namespace {

template <typename T> std::string textOf(T value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

/// A piece of an attribute's text and what may stand there.
struct Piece {
  size_t begin, end;
  ChangeKind kind;
  std::string swapped = {}; ///< of elements, what stands there then
};

bool isWord(char letter) {
  return llvm::isAlnum(letter) || letter == '_' || letter == '.' ||
         letter == '$' || letter == '-';
}

/// Finds numbers, symbols, entries and elements in the text of an attribute.
class TextScanner {
public:
  explicit TextScanner(StringRef text) : text(text) {}

  std::vector<Piece> scan() {
    for (size_t at = 0; at < text.size();)
      at = step(at);
    return std::move(pieces);
  }

private:
  /// The end of a quoted string that begins at `at`.
  size_t skipQuoted(size_t at) {
    for (++at; at < text.size() && text[at] != '"'; ++at)
      at += text[at] == '\\';
    return at + 1;
  }

  /// The end of an element that begins at `at`: a comma or a bracket that
  /// closes what is around it.
  size_t endOfElement(size_t at) {
    int depth = 0;
    while (at < text.size()) {
      char letter = text[at];
      if (letter == '"') {
        at = skipQuoted(at);
        continue;
      }
      if (text.substr(at).starts_with("->"))
        ++at;
      else if (StringRef("{[(<").contains(letter))
        ++depth;
      else if (StringRef("}])>").contains(letter) && depth-- == 0)
        break;
      else if (letter == ',' && depth == 0)
        break;
      ++at;
    }
    return at;
  }

  void addElement(size_t begin, bool first) {
    size_t end = endOfElement(begin);
    if (end == begin)
      return;
    // An entry is `name = value`.
    StringRef element = text.slice(begin, end);
    size_t equals = element.find(" = ");
    bool entry = equals != StringRef::npos &&
                 llvm::all_of(element.take_front(equals), [](char letter) {
                   return isWord(letter) || letter == '"';
                 });
    bool comma = end < text.size() && text[end] == ',';
    if (comma && !entry) {
      size_t second = end + (text.substr(end).starts_with(", ") ? 2 : 1);
      size_t last = endOfElement(second);
      StringRef behind = text.slice(second, last);
      if (!behind.empty() && behind != element)
        pieces.push_back({begin, last, ChangeKind::SwapElements,
                          (behind + text.slice(end, second) + element).str()});
    }
    size_t from = begin;
    if (comma)
      end += text.substr(end).starts_with(", ") ? 2 : 1;
    else if (!first)
      from = text.rfind(',', begin);
    pieces.push_back(
        {from, end, entry ? ChangeKind::DropEntry : ChangeKind::DropElement});
  }

  size_t step(size_t at) {
    char letter = text[at];
    if (letter == '"')
      return skipQuoted(at);
    if (letter == '@') {
      size_t end = at + 1;
      if (end < text.size() && text[end] == '"')
        end = skipQuoted(end);
      else
        while (end < text.size() && isWord(text[end]))
          ++end;
      pieces.push_back({at, end, ChangeKind::Symbol});
      return end;
    }
    if (StringRef("{[(<").contains(letter)) {
      addElement(at + 1, /*first=*/true);
      return at + 1;
    }
    if (letter == ',') {
      size_t begin = at + 1 + (text.substr(at + 1).starts_with(" ") ? 1 : 0);
      addElement(begin, /*first=*/false);
      return at + 1;
    }
    bool negative =
        letter == '-' && at + 1 < text.size() && llvm::isDigit(text[at + 1]);
    if (llvm::isDigit(letter) || negative) {
      size_t end = at + 1;
      while (end < text.size() &&
             (llvm::isDigit(text[end]) || text[end] == '.' ||
              text[end] == 'e' || text[end] == '+' ||
              (text[end] == '-' && text[end - 1] == 'e')))
        ++end;
      bool real = text.slice(at, end).find_first_of(".e") != StringRef::npos;
      pieces.push_back(
          {at, end, real ? ChangeKind::Real : ChangeKind::Integer});
      return end;
    }
    if (isWord(letter) || letter == '!' || letter == '#') {
      const size_t begin = at;
      // Names, and types like `i64`, whose digits are no numbers; not what
      // follows the `x` of a shape.
      while (at < text.size() &&
             (isWord(text[at]) || text[at] == '!' || text[at] == '#'))
        ++at;
      StringRef word = text.slice(begin, at);
      if (word == "true" || word == "false")
        pieces.push_back({begin, at, ChangeKind::Boolean});
      return at;
    }
    return at + 1;
  }

  StringRef text;
  std::vector<Piece> pieces;
};

/// A shape's `64x64xf32` is numbers with an `x` behind each.
std::vector<Piece> scanShapes(StringRef text) {
  std::vector<Piece> pieces;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!llvm::isDigit(text[at]) ||
        (at > 0 && text[at - 1] != '<' && text[at - 1] != 'x'))
      continue;
    size_t end = at;
    while (end < text.size() && llvm::isDigit(text[end]))
      ++end;
    if (end < text.size() && text[end] == 'x')
      pieces.push_back({at, end, ChangeKind::Integer});
    at = end;
  }
  return pieces;
}

class Finder {
public:
  explicit Finder(ModuleOp module) : module(module) {}

  std::vector<Change> find() {
    size_t number = 0;
    module->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (auto name =
              op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
        symbols[op->getName().getStringRef()].push_back("@" +
                                                        name.getValue().str());
      for (NamedAttribute attribute : op->getAttrs())
        values[{op->getName().getStringRef(), attribute.getName().getValue()}]
            .insert(attribute.getValue());
    });
    module->walk<WalkOrder::PreOrder>([&](Operation *op) {
      addOperation(op, number);
      addAttributes(op, number);
      addTypes(op, number);
      ++number;
    });
    return std::move(changes);
  }

private:
  void add(Operation *op, Change change, const Twine &what) {
    change.where = (op->getName().getStringRef() + " " + what).str();
    changes.push_back(std::move(change));
  }

  void addOperation(Operation *op, size_t number) {
    if (op == module.getOperation())
      return;
    bool replaceable = llvm::all_of(op->getResults(), [&](OpResult result) {
      return result.use_empty() ||
             llvm::is_contained(op->getOperandTypes(), result.getType());
    });
    bool terminates = op->hasTrait<OpTrait::IsTerminator>();
    if (replaceable && !terminates)
      add(op, {ChangeKind::DropOperation, number}, "dropped");
    if (!terminates)
      add(op, {ChangeKind::Duplicate, number}, "twice");
    Operation *next = op->getNextNode();
    if (next && !next->hasTrait<OpTrait::IsTerminator>() &&
        llvm::none_of(op->getUsers(),
                      [&](Operation *user) { return next->isAncestor(user); }))
      add(op, {ChangeKind::Reorder, number},
          "behind " + next->getName().getStringRef());
    for (size_t i = 0; i < op->getNumOperands(); ++i) {
      Value operand = op->getOperand(i);
      for (size_t j = i + 1; j < op->getNumOperands(); ++j)
        if (op->getOperand(j) != operand &&
            op->getOperand(j).getType() == operand.getType()) {
          Change change{ChangeKind::SwapOperands, number};
          change.operand = i;
          change.other = j;
          add(op, change, "operands " + Twine(i) + " and " + Twine(j));
          break;
        }
      if (before(op, operand)) {
        Change change{ChangeKind::ReplaceOperand, number};
        change.operand = i;
        add(op, change, "operand " + Twine(i));
      }
    }
  }

public:
  /// The last value in front of `op`, in its block, that has the type of
  /// `operand` and is another one.
  static Value before(Operation *op, Value operand) {
    for (Operation *at = op->getPrevNode(); at; at = at->getPrevNode())
      for (Value result : at->getResults())
        if (result != operand && result.getType() == operand.getType())
          return result;
    for (Value argument : op->getBlock()->getArguments())
      if (argument != operand && argument.getType() == operand.getType())
        return argument;
    return {};
  }

private:
  void addText(Operation *op, size_t number, NamedAttribute attribute,
               ChangeKind kind, std::string text, const Twine &what) {
    Change change{kind, number};
    change.attribute = attribute.getName().str();
    change.text = std::move(text);
    add(op, change, what);
  }

  void addPiece(Operation *op, size_t number, NamedAttribute attribute,
                StringRef text, const Piece &piece) {
    StringRef name = attribute.getName();
    StringRef old = text.slice(piece.begin, piece.end);
    auto with = [&](const Twine &replacement) {
      return (text.take_front(piece.begin) + replacement +
              text.drop_front(piece.end))
          .str();
    };
    auto change = [&](const std::string &replacement) {
      addText(op, number, attribute, piece.kind, with(replacement),
              "'" + name + "' " + old.trim(" ,").take_front(60) +
                  (replacement.empty() ? " dropped" : " to " + replacement));
    };
    int64_t integer = 0;
    double real = 0;
    switch (piece.kind) {
    case ChangeKind::Integer:
      if (old.getAsInteger(10, integer))
        return;
      change(std::to_string(integer + 1));
      if (integer > 0)
        change(std::to_string(integer - 1));
      return;
    case ChangeKind::Real:
      if (old.getAsDouble(real))
        return;
      change(llvm::formatv("{0:e6}", real ? 1.5 * real : 0.5).str());
      return;
    case ChangeKind::Symbol:
      for (auto &[kind, names] : symbols) {
        auto at = llvm::find(names, old);
        if (at == names.end() || names.size() < 2)
          continue;
        change(*(at + 1 == names.end() ? names.begin() : at + 1));
      }
      return;
    case ChangeKind::SwapElements:
      return change(piece.swapped);
    case ChangeKind::Boolean:
      return change(old == "true" ? "false" : "true");
    default:
      change("");
    }
  }

  void addAttributes(Operation *op, size_t number) {
    for (NamedAttribute attribute : op->getAttrs()) {
      StringRef name = attribute.getName();
      if (name.ends_with("SegmentSizes"))
        continue;
      addText(op, number, attribute, ChangeKind::DropAttribute, "",
              "'" + name + "' dropped");
      auto &others = values[{op->getName().getStringRef(), name}];
      auto *at = llvm::find(others, attribute.getValue());
      if (others.size() > 1 && at != others.end())
        addBorrowed(op, number, name,
                    at + 1 == others.end() ? others.front() : *(at + 1));
      std::string text = textOf(attribute.getValue());
      std::vector<Piece> pieces = TextScanner(text).scan();
      llvm::append_range(pieces, scanShapes(text));
      for (const Piece &piece : pieces)
        addPiece(op, number, attribute, text, piece);
    }
    for (auto &[key, others] : values)
      if (key.first == op->getName().getStringRef() && !op->hasAttr(key.second))
        addBorrowed(op, number, key.second, others.front());
  }

  void addBorrowed(Operation *op, size_t number, StringRef name,
                   Attribute value) {
    Change change{ChangeKind::BorrowAttribute, number};
    change.attribute = name.str();
    change.text = textOf(value);
    add(op, change, "'" + name + "' of another");
  }

  void addTypes(Operation *op, size_t number) {
    size_t value = 0;
    auto addValue = [&](Value of) {
      if (auto shaped = dyn_cast<ShapedType>(of.getType()))
        for (int64_t dim = 0; dim < shaped.getRank(); ++dim) {
          Change change{ChangeKind::Type, number};
          change.operand = value;
          change.other = size_t(dim);
          add(op, change, "value " + Twine(value) + " dim " + Twine(dim));
        }
      ++value;
    };
    llvm::for_each(op->getResults(), addValue);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), addValue);
  }

  using Key = std::pair<StringRef, StringRef>;

  ModuleOp module;
  std::vector<Change> changes;
  std::map<StringRef, std::vector<std::string>> symbols;
  std::map<Key, llvm::SetVector<Attribute>> values;
};

void makeLarger(Operation *op, const Change &change) {
  SmallVector<Value> values(op->getResults());
  for (Region &region : op->getRegions())
    for (Block &block : region)
      llvm::append_range(values, block.getArguments());
  Value value = values[change.operand];
  auto shaped = cast<ShapedType>(value.getType());
  SmallVector<int64_t> shape(shaped.getShape());
  int64_t &dim = shape[change.other];
  dim = ShapedType::isDynamic(dim) ? 2 : dim + 1;
  value.setType(shaped.clone(shape));
  if (auto function = dyn_cast<FunctionOpInterface>(op))
    function.setType(function.cloneTypeWith(function.front().getArgumentTypes(),
                                            function.getResultTypes()));
}

LogicalResult changeAttribute(Operation *op, const Change &change) {
  if (change.text.empty()) {
    op->removeAttr(change.attribute);
    return success();
  }
  ScopedDiagnosticHandler quiet(op->getContext(),
                                [](Diagnostic &) { return success(); });
  Attribute value = parseAttribute(change.text, op->getContext());
  if (!value)
    return failure();
  op->setAttr(change.attribute, value);
  return success();
}

} // namespace

std::vector<Change> findChanges(ModuleOp module) {
  return Finder(module).find();
}

std::vector<Change> drawChanges(const std::vector<Change> &all, size_t count,
                                std::mt19937 &generator) {
  // By operation's name, then by kind; each list is drawn from its end.
  std::map<std::string, std::map<ChangeKind, std::vector<size_t>>> lists;
  for (size_t i = 0; i < all.size(); ++i) {
    StringRef name = StringRef(all[i].where).split(' ').first;
    lists[name.str()][all[i].kind].push_back(i);
  }
  for (auto &[name, kinds] : lists)
    for (auto &[kind, list] : kinds)
      std::shuffle(list.begin(), list.end(), generator);
  std::vector<Change> drawn;
  auto pick = [&](auto &map) {
    auto it = map.begin();
    std::advance(it, generator() % map.size());
    return it;
  };
  while (drawn.size() < count && !lists.empty()) {
    auto name = pick(lists);
    auto kind = pick(name->second);
    drawn.push_back(all[kind->second.back()]);
    kind->second.pop_back();
    if (kind->second.empty())
      name->second.erase(kind);
    if (name->second.empty())
      lists.erase(name);
  }
  return drawn;
}

LogicalResult applyChange(ModuleOp module, const Change &change) {
  Operation *op = nullptr;
  size_t number = 0;
  module->walk<WalkOrder::PreOrder>([&](Operation *at) {
    if (number++ != change.operation)
      return WalkResult::advance();
    op = at;
    return WalkResult::interrupt();
  });
  switch (change.kind) {
  case ChangeKind::DropOperation:
    for (OpResult result : op->getResults())
      for (Value operand : op->getOperands())
        if (operand.getType() == result.getType())
          result.replaceAllUsesWith(operand);
    op->erase();
    return success();
  case ChangeKind::Duplicate:
    op->getBlock()->getOperations().insertAfter(op->getIterator(), op->clone());
    return success();
  case ChangeKind::Reorder:
    op->moveAfter(op->getNextNode());
    return success();
  case ChangeKind::SwapOperands: {
    Value value = op->getOperand(change.operand);
    op->setOperand(change.operand, op->getOperand(change.other));
    op->setOperand(change.other, value);
    return success();
  }
  case ChangeKind::ReplaceOperand:
    op->setOperand(change.operand,
                   Finder::before(op, op->getOperand(change.operand)));
    return success();
  case ChangeKind::Type:
    makeLarger(op, change);
    return success();
  default:
    return changeAttribute(op, change);
  }
}

} // namespace galvatron::test
