#include "ops/custom/sharding_notation.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

class ShardingNotation::Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) { Next(); }

  absl::StatusOr<ShardingNotation> Run() {
    ShardingNotation notation;
    WEFT_RETURN_IF_ERROR(Operands(notation.inputs_));
    WEFT_RETURN_IF_ERROR(Expect("->"));
    WEFT_RETURN_IF_ERROR(Operands(notation.outputs_));
    while (token_ == ";") {
      Next();
      WEFT_RETURN_IF_ERROR(Expect("linear"));
      std::vector<int> set;
      int input = 0;
      while (absl::SimpleAtoi(token_, &input)) {
        if (input >= static_cast<int>(notation.inputs_.size())) {
          return Error("an input of the notation");
        }
        set.push_back(input);
        Next();
      }
      if (set.empty()) return Error("the number of an input");
      notation.linear_.push_back(std::move(set));
    }
    if (!token_.empty()) return Error("the end");
    return notation;
  }

 private:
  static bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  void Next() {
    while (end_ < text_.size() && text_[end_] == ' ') ++end_;
    begin_ = end_;
    if (begin_ == text_.size()) {
      token_.clear();
      return;
    }
    if (IsWord(text_[begin_])) {
      while (end_ < text_.size() && IsWord(text_[end_])) ++end_;
    } else if (text_.compare(begin_, 3, "...") == 0) {
      end_ += 3;
    } else if (text_.compare(begin_, 2, "->") == 0) {
      end_ += 2;
    } else {
      ++end_;
    }
    token_ = text_.substr(begin_, end_ - begin_);
  }

  absl::Status Error(const std::string& expected) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "sharding notation '", text_, "': at character ", begin_ + 1, " is ",
        token_.empty() ? "the end" : absl::StrCat("'", token_, "'"), ", expected ", expected));
  }

  absl::Status Expect(const std::string& token) {
    if (token_ != token) return Error(absl::StrCat("'", token, "'"));
    Next();
    return absl::OkStatus();
  }

  absl::Status Operands(std::vector<Operand>& operands) {
    do {
      if (token_ == ",") Next();
      WEFT_RETURN_IF_ERROR(OneOperand(operands.emplace_back()));
    } while (token_ == ",");
    return absl::OkStatus();
  }

  absl::Status OneOperand(Operand& operand) {
    if (token_ == "...") {
      operand.has_leading = true;
      Next();
    }
    while (!token_.empty() && (IsWord(token_[0]) || token_ == "(")) {
      std::vector<Term>& dim = operand.dims.emplace_back();
      if (token_ != "(") {
        WEFT_RETURN_IF_ERROR(OneTerm(dim));
        continue;
      }
      Next();
      while (token_ != ")") WEFT_RETURN_IF_ERROR(OneTerm(dim));
      if (dim.empty()) return Error("a name or a number");
      Next();
    }
    return absl::OkStatus();
  }

  absl::Status OneTerm(std::vector<Term>& dim) {
    if (token_.empty() || !IsWord(token_[0])) return Error("a name or a number");
    Term term;
    if (std::isdigit(static_cast<unsigned char>(token_[0]))) {
      if (!absl::SimpleAtoi(token_, &term.size) || term.size < 1) return Error("a positive number");
      Next();
    } else {
      term.name = token_;
      Next();
      if (token_ == "!") {
        term.is_whole = true;
        Next();
      }
    }
    dim.push_back(std::move(term));
    return absl::OkStatus();
  }

  const std::string& text_;
  size_t begin_ = 0;
  size_t end_ = 0;
  std::string token_;  // empty at the end
};

// Finds the size of every name, then writes the factors down.
class ShardingNotation::Binder {
 public:
  Binder(const ShardingNotation& notation, const NodeView& view)
      : notation_(notation), view_(view) {}

  absl::StatusOr<FactorRule> Run() {
    WEFT_RETURN_IF_ERROR(Collect());
    WEFT_RETURN_IF_ERROR(FindSizes());
    for (const Operand* operand : outputs_) NoteNames(operand, in_outputs_);
    for (int i = 0; i < view_.num_inputs(); ++i) {
      WEFT_ASSIGN_OR_RETURN(rule_.inputs.emplace_back(),
                            Factors(inputs_[i], view_.InputShape(i), view_.HasInput(i)));
    }
    for (int i = 0; i < view_.num_outputs(); ++i) {
      WEFT_ASSIGN_OR_RETURN(rule_.outputs.emplace_back(),
                            Factors(outputs_[i], view_.OutputShape(i), view_.HasOutput(i)));
    }
    rule_.linear = notation_.linear_;
    return std::move(rule_);
  }

 private:
  absl::Status Misfit(const Shape& shape, const std::string& why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("node '", view_.node().name, "' (", view_.node().op, "): the shape ",
                     shape.ToString(), " does not fit the sharding notation: ", why));
  }

  absl::Status Collect() {
    for (int i = 0; i < view_.num_inputs(); ++i) {
      inputs_.push_back(At(notation_.inputs_, i));
      if (view_.HasInput(i)) WEFT_RETURN_IF_ERROR(Add(inputs_[i], view_.InputShape(i)));
    }
    for (int i = 0; i < view_.num_outputs(); ++i) {
      outputs_.push_back(At(notation_.outputs_, i));
      if (view_.HasOutput(i)) WEFT_RETURN_IF_ERROR(Add(outputs_[i], view_.OutputShape(i)));
    }
    return absl::OkStatus();
  }

  // The dimensions of an operand, leading ones as names of their own, counted from the right.
  static std::vector<std::vector<Term>> Dims(const Operand& operand, const Shape& shape) {
    std::vector<std::vector<Term>> dims;
    for (int left = shape.rank() - static_cast<int>(operand.dims.size()); left > 0; --left) {
      dims.push_back({Term{absl::StrCat("...", left - 1)}});
    }
    dims.insert(dims.end(), operand.dims.begin(), operand.dims.end());
    return dims;
  }

  absl::Status Add(const Operand* operand, const Shape& shape) {
    const int named = static_cast<int>(operand->dims.size());
    if (shape.rank() < named || (shape.rank() > named && !operand->has_leading)) {
      return Misfit(shape, absl::StrCat("it names ", named, " dimensions"));
    }
    const auto dims = Dims(*operand, shape);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      equations_.push_back({dims[axis], shape.dim(axis), &shape});
    }
    return absl::OkStatus();
  }

  // A dimension of size one may be broadcast: it says nothing where others do. Products are solved
  // for their one unknown name, until nothing new is found.
  absl::Status FindSizes() {
    for (bool found = true; found;) {
      found = false;
      for (const Equation& equation : equations_) {
        if (equation.size == 1) continue;
        WEFT_ASSIGN_OR_RETURN(const bool solved, Solve(equation));
        found = found || solved;
      }
    }
    for (const Equation& equation : equations_) {
      for (const Term& term : equation.terms) {
        if (!term.name.empty()) sizes_.try_emplace(term.name, 1);
      }
    }
    return absl::OkStatus();
  }

  struct Equation {
    std::vector<Term> terms;
    int64_t size;
    const Shape* shape;
  };

  absl::StatusOr<bool> Solve(const Equation& equation) {
    int64_t known = 1;
    const Term* unknown = nullptr;
    for (const Term& term : equation.terms) {
      const auto size = sizes_.find(term.name);
      if (term.name.empty()) {
        known *= term.size;
      } else if (size != sizes_.end()) {
        known *= size->second;
      } else if (unknown != nullptr) {
        return false;
      } else {
        unknown = &term;
      }
    }
    if (unknown == nullptr) {
      const bool is_free = equation.terms.size() == 1 && equation.terms[0].name.empty();
      if (known == equation.size || is_free) return false;
      return Misfit(*equation.shape, absl::StrCat("a dimension should have the size ", known));
    }
    if (known == 0 || equation.size % known != 0) {
      return Misfit(*equation.shape, absl::StrCat(equation.size, " is no multiple of ", known));
    }
    sizes_[unknown->name] = equation.size / known;
    return true;
  }

  static void NoteNames(const Operand* operand, std::map<std::string, bool>& names) {
    if (operand == nullptr) return;
    for (const std::vector<Term>& dim : operand->dims) {
      for (const Term& term : dim) names[term.name] = true;
    }
  }

  int NewFactor(int64_t size, FactorKind kind) {
    rule_.factors.push_back({size, kind});
    return static_cast<int>(rule_.factors.size()) - 1;
  }

  bool IsWholeAnywhere(const std::string& name) const {
    for (const Equation& equation : equations_) {
      for (const Term& term : equation.terms) {
        if (term.name == name && term.is_whole) return true;
      }
    }
    return false;
  }

  int FactorOf(const Term& term, int64_t size) {
    if (term.name.empty()) return NewFactor(size, FactorKind::kWhole);
    const auto known = factors_.find(term.name);
    if (known != factors_.end()) return known->second;
    const bool is_leading = term.name[0] == '.';
    FactorKind kind = FactorKind::kParallel;
    if (IsWholeAnywhere(term.name)) {
      kind = FactorKind::kWhole;
    } else if (!is_leading && !in_outputs_.contains(term.name)) {
      kind = FactorKind::kSum;
    }
    return factors_[term.name] = NewFactor(sizes_.at(term.name), kind);
  }

  absl::StatusOr<OperandFactors> Factors(const Operand* operand, const Shape& shape,
                                         bool is_present) {
    OperandFactors result;
    if (!is_present) return result;
    const auto dims = Dims(*operand, shape);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      std::vector<int>& factors = result.dims.emplace_back();
      int64_t product = 1;
      for (const Term& term : dims[axis]) {
        product *= term.name.empty() ? term.size : sizes_.at(term.name);
      }
      if (shape.dim(axis) == 1 && product != 1) continue;  // broadcast
      const bool is_free = dims[axis].size() == 1 && dims[axis][0].name.empty();
      for (const Term& term : dims[axis]) {
        factors.push_back(FactorOf(term, is_free ? shape.dim(axis) : term.size));
      }
    }
    return result;
  }

  const ShardingNotation& notation_;
  const NodeView& view_;
  std::vector<const Operand*> inputs_;
  std::vector<const Operand*> outputs_;
  std::vector<Equation> equations_;
  std::map<std::string, int64_t> sizes_;
  std::map<std::string, bool> in_outputs_;
  std::map<std::string, int> factors_;
  FactorRule rule_;
};

const ShardingNotation::Operand* ShardingNotation::At(const std::vector<Operand>& operands, int i) {
  return &operands[std::min<size_t>(static_cast<size_t>(i), operands.size() - 1)];
}

absl::StatusOr<ShardingNotation> ShardingNotation::Parse(const std::string& text) {
  return Parser(text).Run();
}

absl::StatusOr<FactorRule> ShardingNotation::Bind(const NodeView& view) const {
  return Binder(*this, view).Run();
}

std::vector<Shape> ShardingNotation::InputShapes(
    int count, int leading, const std::function<int64_t(const std::string&)>& size) const {
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) {
    const Operand& operand = *At(inputs_, i);
    Shape shape;
    for (int left = operand.has_leading ? leading : 0; left > 0; --left) {
      shape.AddDim(size(absl::StrCat("...", left - 1)));
    }
    for (const std::vector<Term>& dim : operand.dims) {
      int64_t product = 1;
      for (const Term& term : dim) product *= term.name.empty() ? term.size : size(term.name);
      shape.AddDim(product);
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace weft
