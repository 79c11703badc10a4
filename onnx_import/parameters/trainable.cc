#include "onnx_import/parameters/trainable.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "onnx_import/codec/quote.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"
#include "tensor/special_values.h"

namespace weft {
namespace {

// How a variable meets the loss: the best of its uses on paths that gradients take.
enum class Meeting : uint8_t {
  kNone,
  kShapeValue,  // at an input whose value decides a shape
  kNever,       // at a port that is never learnable
  kOrdinary,    // as an ordinary operand
  kLearnable,   // at a learnable port
};

struct Use {
  Meeting meeting = Meeting::kNone;
  const Node* node = nullptr;
  int input = 0;
};

// Walks back from the loss along inputs that gradients flow through.
class ReachWalk {
 public:
  explicit ReachWalk(const Graph& graph)
      : graph_(graph), seen_(graph.value_capacity()), uses_(graph.value_capacity()) {}

  void Run(const std::vector<ValueId>& from) {
    for (const ValueId value : from) Push(value);
    while (!stack_.empty()) {
      const ValueId value = stack_.back();
      stack_.pop_back();
      if (graph_.value(value).source == ValueSource::kNode) {
        VisitInputs(graph_.node(graph_.value(value).producer));
      }
    }
  }

  const Use& use(ValueId value) const { return uses_[value.value]; }
  bool reached(ValueId value) const { return seen_[value.value]; }

 private:
  void Push(ValueId value) {
    if (seen_[value.value]) return;
    seen_[value.value] = true;
    stack_.push_back(value);
  }

  void VisitInputs(const Node& node) {
    const OpSchema* schema = node.schema;
    const bool blocked = schema != nullptr && schema->gradient_kind() == GradientKind::kNone;
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
      const ValueId input = node.inputs[i];
      if (!input.valid()) continue;
      const Meeting meeting = MeetingAt(schema, i, blocked);
      Use& best = uses_[input.value];
      if (meeting > best.meeting) best = {meeting, &node, i};
      const DType dtype = graph_.value(input).type.dtype;
      const bool carries_gradient = dtype == DType::kInvalid || IsFloatingPoint(dtype);
      if (meeting >= Meeting::kOrdinary && carries_gradient) Push(input);
    }
  }

  static Meeting MeetingAt(const OpSchema* schema, int i, bool blocked) {
    if (schema == nullptr) return Meeting::kOrdinary;
    const FormalParameter* formal = schema->FormalInput(i);
    const std::vector<int>& shape_inputs = schema->value_inputs();
    if (std::find(shape_inputs.begin(), shape_inputs.end(), i) != shape_inputs.end()) {
      return Meeting::kShapeValue;
    }
    if (blocked || formal == nullptr || formal->never_learnable) return Meeting::kNever;
    return formal->learnable ? Meeting::kLearnable : Meeting::kOrdinary;
  }

  const Graph& graph_;
  std::vector<bool> seen_;
  std::vector<Use> uses_;
  std::vector<ValueId> stack_;
};

// What becomes of a variable beside the decision that is reported.
struct Verdict {
  bool trainable = false;
  bool constant = false;  // can never be a parameter
  std::string reason;
};

std::string Place(const Use& use) {
  std::string port = absl::StrCat(use.input);
  if (use.node->schema != nullptr) {
    const FormalParameter* formal = use.node->schema->FormalInput(use.input);
    if (formal != nullptr) port = formal->name;
  }
  return absl::StrCat(use.node->op, ".", port, " (node ", Quoted(use.node->name), ")");
}

std::optional<std::string> MatchOf(const std::vector<std::string>& patterns,
                                   const std::string& name) {
  for (const std::string& pattern : patterns) {
    if (MatchesGlob(pattern, name)) return pattern;
  }
  return std::nullopt;
}

int64_t ElementsOf(const ValueType& type) {
  const std::optional<Shape> shape = type.shape.ToConcrete();
  return shape ? shape->num_elements() : 0;
}

// The first element that is not finite or its type's lowest value; -1: none. A tensor that lies in
// a mapped file was only looked at: in pieces, so that little of it is in memory at a time.
int64_t FirstSpecialElement(const Tensor& tensor) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  const int64_t count = tensor.num_elements();
  const Tensor flat = tensor.Reshaped(Shape{count});
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const Tensor piece = flat.Rows(begin, std::min(count, begin + kPiece));
    const int64_t index = FindNonFiniteOrLowest(piece);
    ReleaseMappedPages({static_cast<const std::byte*>(piece.raw_data()), piece.bytes()});
    if (index >= 0) return begin + index;
  }
  return -1;
}

// Why no element of a tensor is a parameter's: it masks others, or is broken. Training would add 0
// times an infinity to it, which is NaN. "" for an ordinary tensor.
std::string SpecialValue(const Tensor& initial) {
  if (!initial.valid()) return "";
  const int64_t index = FirstSpecialElement(initial);
  if (index < 0) return "";
  return absl::StrCat("holds ", ElementText(initial, index), " (element ", index,
                      "), as masks do and parameters do not");
}

Verdict Judge(const std::string& name, const ValueType& type, const Use& use, bool is_loss,
              const TrainableOptions& options) {
  const std::optional<std::string> frozen = MatchOf(options.freeze, name);
  if (frozen) return {false, false, absl::StrCat("frozen by ", Quoted(*frozen))};
  const bool single = ElementsOf(type) <= 1;
  if (use.meeting == Meeting::kNone) return {false, !is_loss, "does not reach the loss"};
  const std::optional<std::string> added = MatchOf(options.trainable, name);
  if (added && use.meeting != Meeting::kShapeValue) {
    return {true, false, absl::StrCat("made trainable by ", Quoted(*added))};
  }
  if (absl::StartsWith(name, "const.")) return {false, true, "its name begins with const."};
  if (use.meeting == Meeting::kShapeValue) {
    return {false, true, absl::StrCat("decides a shape at ", Place(use))};
  }
  if (use.meeting == Meeting::kNever) {
    return {false, single, absl::StrCat("is never learnable at ", Place(use))};
  }
  if (use.meeting == Meeting::kOrdinary && single) {
    return {false, true, absl::StrCat("has one element at ", Place(use))};
  }
  return {true, false, absl::StrCat("reaches the loss at ", Place(use))};
}

absl::Status CheckPatterns(const Graph& graph, const std::vector<std::string>& patterns,
                           const char* flag) {
  for (const std::string& pattern : patterns) {
    const auto matches = [&pattern](const Variable& variable) {
      return MatchesGlob(pattern, variable.name);
    };
    const std::vector<Variable>& variables = graph.variables();
    if (std::any_of(variables.begin(), variables.end(), matches)) continue;
    const std::string example =
        variables.empty() ? "" : absl::StrCat(" (such as ", Quoted(variables[0].name), ")");
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, " ", Quoted(pattern), " matches none of the model's ", variables.size(),
        " float tensors", example, "; graph_runner inspect lists them"));
  }
  return absl::OkStatus();
}

// A pattern may match such a tensor among others; a name asks for it.
absl::Status CheckNotNamed(const std::string& name, const std::string& special,
                           const TrainableOptions& options) {
  const std::vector<std::string>& asked = options.trainable;
  if (std::find(asked.begin(), asked.end(), name) == asked.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--trainable ", Quoted(name), ": the tensor ",
                                                 special,
                                                 "; it cannot train. Give it finite values first"));
}

absl::StatusOr<std::vector<ValueId>> LossValues(const Graph& graph, const std::string& loss) {
  if (loss.empty()) return graph.outputs();
  const std::optional<ValueId> value = graph.FindValue(loss);
  if (value) return std::vector<ValueId>{*value};
  std::string outputs;
  for (const ValueId output : graph.outputs()) {
    absl::StrAppend(&outputs, outputs.empty() ? "" : ", ", Quoted(graph.value(output).name));
  }
  return absl::InvalidArgumentError(absl::StrCat("the loss ", Quoted(loss),
                                                 " is no value of the model, expected one of its "
                                                 "outputs: ",
                                                 outputs));
}

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // the last '*' seen, and where its match ends for now
  size_t star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::StatusOr<std::vector<ParameterDecision>> MarkTrainable(Graph& graph,
                                                             const TrainableOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckPatterns(graph, options.freeze, "freeze"));
  WEFT_RETURN_IF_ERROR(CheckPatterns(graph, options.trainable, "trainable"));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> losses, LossValues(graph, options.loss));
  ReachWalk walk(graph);
  walk.Run(losses);
  std::vector<ParameterDecision> decisions;
  std::vector<std::pair<ValueId, Tensor>> constants;
  for (Variable& variable : graph.mutable_variables()) {
    if (!variable.slot_of.empty()) continue;
    const ValueDef& value = graph.value(variable.value);
    const bool is_loss = walk.reached(variable.value) && walk.use(variable.value).node == nullptr;
    Verdict verdict = Judge(variable.name, value.type, walk.use(variable.value), is_loss, options);
    const std::string special = verdict.trainable ? SpecialValue(variable.initial) : "";
    if (!special.empty()) {
      WEFT_RETURN_IF_ERROR(CheckNotNamed(variable.name, special, options));
      verdict = {false, true, special};
    }
    variable.trainable = verdict.trainable;
    decisions.push_back({variable.name, value.type, verdict.trainable, verdict.reason});
    const bool updated = variable.update.valid() || !variable.initial.valid();
    if (verdict.constant && !updated) constants.emplace_back(variable.value, variable.initial);
  }
  // From the back, so that few variables move up each time.
  std::reverse(constants.begin(), constants.end());
  for (auto& [value, tensor] : constants) graph.MakeConstant(value, std::move(tensor));
  return decisions;
}

}  // namespace weft
