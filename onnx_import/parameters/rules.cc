#include "onnx_import/parameters/rules.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/parameters/number_patterns.h"
#include "platform/mapped_pages.h"
#include "tensor/special_values.h"

namespace weft {
namespace {

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

std::optional<Verdict> IsFrozen(const Candidate& candidate) {
  if (!candidate.frozen_by.has_value()) return std::nullopt;
  return Verdict{DecisionKind::kFrozen, false,
                 absl::StrCat("frozen by ", Quoted(*candidate.frozen_by))};
}

std::optional<Verdict> IsUnused(const Candidate& candidate) {
  if (candidate.use.meeting != Meeting::kNone) return std::nullopt;
  const bool is_loss = candidate.gradients.IsReached(candidate.variable.value);
  return Verdict{DecisionKind::kUnused, !is_loss, "does not reach the loss"};
}

// It masks others, or is broken: an update would add 0 times an infinity to it, which is NaN.
std::optional<Verdict> HoldsSpecialValue(const Candidate& candidate) {
  const Tensor& initial = candidate.initial();
  const int64_t index = initial.valid() ? FirstSpecialElement(initial) : -1;
  if (index < 0) return std::nullopt;
  const bool is_statistic = candidate.use.meeting == Meeting::kNever && !candidate.is_single();
  return Verdict{DecisionKind::kTable, !is_statistic,
                 absl::StrCat("holds ", ElementText(initial, index), " (element ", index,
                              "), as masks do and parameters do not")};
}

std::optional<Verdict> IsAskedFor(const Candidate& candidate) {
  if (!candidate.added_by.has_value() || candidate.use.meeting == Meeting::kShapeValue) {
    return std::nullopt;
  }
  return Verdict{DecisionKind::kTrains, false,
                 absl::StrCat("made trainable by ", Quoted(*candidate.added_by))};
}

// Some who write models by hand call constants so. A module can be called so too, and then its
// parameters are: they are used as such.
std::optional<Verdict> IsNamedConstant(const Candidate& candidate) {
  if (!absl::StartsWith(candidate.variable.name, "const.") || IsUsedAsParameter(candidate)) {
    return std::nullopt;
  }
  return Verdict{DecisionKind::kConstant, true,
                 absl::StrCat("has a name that begins with const., and is used as no parameter is, "
                              "at ",
                              candidate.Place())};
}

std::optional<Verdict> DecidesShape(const Candidate& candidate) {
  if (candidate.use.meeting != Meeting::kShapeValue) return std::nullopt;
  return Verdict{DecisionKind::kConstant, true,
                 absl::StrCat("decides a shape at ", candidate.Place())};
}

// Running statistics stay variables: in training mode a step changes them.
std::optional<Verdict> IsNeverLearnable(const Candidate& candidate) {
  if (candidate.use.meeting != Meeting::kNever) return std::nullopt;
  const bool is_single = candidate.is_single();
  return Verdict{is_single ? DecisionKind::kConstant : DecisionKind::kStatistic, is_single,
                 absl::StrCat("is never learnable at ", candidate.Place())};
}

// What the exporter wrote about the tensor is believed.
std::optional<Verdict> IsParameterOfModule(const Candidate& candidate) {
  if (candidate.kind() != ExportedKind::kParameter) return std::nullopt;
  return Verdict{
      DecisionKind::kTrains, false,
      absl::StrCat("a parameter, says the exporter; reaches the loss at ", candidate.Place())};
}

std::optional<Verdict> IsNoParameterOfModule(const Candidate& candidate) {
  const std::optional<ExportedKind> kind = candidate.kind();
  if (!kind.has_value() || kind == ExportedKind::kParameter) return std::nullopt;
  const bool is_buffer = kind == ExportedKind::kBuffer;
  const auto& uses = candidate.gradients.Of(candidate.variable.value);
  const bool is_statistic = std::any_of(
      uses.begin(), uses.end(), [](const auto& use) { return use.meeting == Meeting::kNever; });
  return Verdict{is_buffer ? DecisionKind::kBuffer : DecisionKind::kConstant,
                 !is_statistic || candidate.is_single(),
                 is_buffer ? "a buffer, says the exporter" : "a constant, says the exporter"};
}

std::optional<Verdict> IsSingleNumber(const Candidate& candidate) {
  if (!candidate.is_ordinary() || !candidate.is_single()) return std::nullopt;
  // A slope of PRelu behind an Unsqueeze, say.
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  const bool is_learnable = std::any_of(uses.begin(), uses.end(), [](const auto& use) {
    const FormalParameter* const formal =
        use.node->schema == nullptr ? nullptr : use.node->schema->FormalInput(use.input);
    return formal != nullptr && formal->learnable;
  });
  if (is_learnable && !candidate.has_made_up_name()) return std::nullopt;
  // Constants are stored as they are used; a scale in its logarithm is one that trains.
  const bool is_logarithm = !uses.empty() && std::all_of(uses.begin(), uses.end(), [](auto& use) {
    return IsOneOf(*use.node, {"Exp", "Sigmoid", "Softplus", "Tanh"});
  });
  if (is_logarithm && !candidate.has_made_up_name()) return std::nullopt;
  const std::string& name = candidate.variable.name;
  const bool is_undecided = !candidate.metadata.has_signature() && !candidate.has_made_up_name() &&
                            absl::StrContains(name, ".") && !absl::StartsWith(name, "const.");
  return Verdict{is_undecided ? DecisionKind::kUndecided : DecisionKind::kConstant, true,
                 absl::StrCat("has one element at ", candidate.Place())};
}

// A name alone says little: exporters make names up for weights that they have transposed or cut.
// So are the rows of a position embedding that the exporter has looked up: the embedding itself is
// lost.
std::optional<Verdict> IsMadeUp(const Candidate& candidate) {
  if (!candidate.has_made_up_name() || IsUsedAsParameter(candidate)) return std::nullopt;
  if (candidate.may_be_lost()) return std::nullopt;
  return Verdict{DecisionKind::kTable, true,
                 absl::StrCat("is named as exporters name what they compute, and used as no "
                              "parameter is, at ",
                              candidate.Place())};
}

std::optional<Verdict> Trains(const Candidate& candidate) {
  return Verdict{DecisionKind::kTrains, false,
                 absl::StrCat("reaches the loss at ", candidate.Place())};
}

// Whether `value` was made by one of these operators, reshaped or not.
bool IsMadeBy(const Candidate& candidate, ValueId value, const std::vector<std::string_view>& ops) {
  const Node* const maker = candidate.forward.MakerOf(value);
  return maker != nullptr && IsOneOf(*maker, ops);
}

bool IsParameterUse(const Candidate& candidate, const ForwardWalk::Use& use) {
  const Node& node = *use.node;
  const FormalParameter* const formal =
      node.schema == nullptr ? nullptr : node.schema->FormalInput(use.input);
  if (node.schema == nullptr || (formal != nullptr && formal->learnable)) return true;
  const size_t long_axes = candidate.long_axes().size();
  if (IsOneOf(node, {"MatMul", "Einsum"})) return use.input > 0 || long_axes > 1;
  if (IsOp(node, "GatherND")) return use.input == 0;
  // Stored as a logarithm, as decays of state spaces are. A vector may be frequencies.
  if (IsOp(node, "Exp")) return long_axes > 1;
  // Rows of a position embedding that the exporter cut out.
  if (IsOp(node, "Add") && long_axes > 1) {
    return !LeadsToSoftmax(candidate.forward, node) && AreMostlyDistinct(candidate.initial());
  }
  const ValueId other = ForwardWalk::OtherOperand(node, use.input);
  if (long_axes != 1 || !other.valid()) return false;
  if (IsOneOf(node, {"Add", "Sub"})) {
    return IsMadeBy(candidate, other,
                    {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Mul",
                     "BatchNormalization", "InstanceNormalization", "LayerNormalization"});
  }
  return IsOp(node, "Mul") && IsMadeBy(candidate, other,
                                       {"Div", "Mul", "BatchNormalization", "LayerNormalization",
                                        "InstanceNormalization", "RMSNormalization"});
}

}  // namespace

bool Candidate::is_single() const {
  const std::optional<Shape> shape = type().shape.ToConcrete();
  return !shape.has_value() || shape->num_elements() <= 1;
}

std::vector<int64_t> Candidate::long_axes() const {
  const std::optional<Shape> shape = type().shape.ToConcrete();
  return shape.has_value() ? LongAxes(*shape) : std::vector<int64_t>();
}

std::string Candidate::Place() const {
  return absl::StrCat(use.node->op, ".", PortName(*use.node, use.input), " (node ",
                      Quoted(use.node->name), ")");
}

bool Candidate::has_made_up_name() const {
  if (!metadata.has_signature()) return IsMadeUpName(variable.name);
  if (kind().has_value()) return false;
  return IsMadeUpName(variable.name) || variable.name.find('.') == std::string::npos;
}

bool Candidate::may_be_lost() const {
  const std::set<std::string> modules = names.ModulesOf(variable);
  return std::any_of(modules.begin(), modules.end(), [this](const std::string& module) {
    return modules_of_lost.contains(module);
  });
}

bool IsUsedAsParameter(const Candidate& candidate) {
  const std::vector<ForwardWalk::Use> uses =
      candidate.forward.EffectiveUses(candidate.variable.value);
  return std::any_of(uses.begin(), uses.end(), [&candidate](const ForwardWalk::Use& use) {
    return IsParameterUse(candidate, use);
  });
}

const std::vector<Rule>& TrainableRules() {
  // What nobody can change; what the user says; what the graph says of any tensor; numbers that are
  // nobody's parameter (an exporter calls tables parameters that have requires_grad=False); what
  // the exporter says; what modules keep beside parameters, by use and numbers.
  static const auto* const rules = new std::vector<Rule>{
      {"frozen", IsFrozen},
      {"unused", IsUnused},
      {"special values", HoldsSpecialValue},
      {"asked for", IsAskedFor},
      {"shape", DecidesShape},
      {"port", IsNeverLearnable},
      {"sinusoids", TabulatesSinusoids},
      {"parameter of the module", IsParameterOfModule},
      {"no parameter of the module", IsNoParameterOfModule},
      {"single number", IsSingleNumber},
      {"score mask", MasksScores},
      {"mask of 0 and 1", MultipliesMask},
      {"regions", NumbersRegions},
      {"frequencies", IsFrequency},
      {"progression", IsProgression},
      {"image statistics", NormalizesImages},
      {"decomposed normalization", FillsGroupNormalization},
      {"neutral", IsNeutral},
      {"coordinates", TabulatesCoordinates},
      {"zero buffer", IsZeroBuffer},
      {"named const.", IsNamedConstant},
      {"made-up name", IsMadeUp},
      {"trains", Trains},
  };
  return *rules;
}

}  // namespace weft
