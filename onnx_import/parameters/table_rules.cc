// Rules about tables and constants that modules keep beside their parameters.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/parameters/number_patterns.h"
#include "onnx_import/parameters/rules.h"

namespace weft {
namespace {

constexpr int kMaxSteps = 16;
constexpr int64_t kMaxChannels = 4;

Verdict Table(const std::string& what, const Candidate& candidate) {
  return {DecisionKind::kTable, true, absl::StrCat(what, ", at ", candidate.Place())};
}

// An operand of arithmetic, or a table that Gather reads; no factor of a product.
bool IsTableOperand(const Candidate& candidate) {
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  const bool is_factor = std::any_of(uses.begin(), uses.end(), [](const auto& use) {
    return IsOneOf(*use.node, {"MatMul", "Einsum"});
  });
  const auto& met = candidate.gradients.Of(candidate.variable.value);
  return !is_factor && std::all_of(met.begin(), met.end(), [](const auto& use) {
    return use.meeting != Meeting::kLearnable || IsOp(*use.node, "Gather");
  });
}

// Back through reshapes and arithmetic with stored numbers to an input of the model with a shape
// [N,C,...] or [N,...,C].
bool IsInputOfImages(const Graph& graph, ValueId value) {
  for (int i = 0; i < kMaxSteps && value.valid(); ++i) {
    const ValueDef& def = graph.value(value);
    if (def.source == ValueSource::kInput) {
      return def.type.shape.has_rank() && def.type.shape.rank() >= 3;
    }
    if (def.source != ValueSource::kNode) return false;
    const Node& node = graph.node(def.producer);
    const bool is_scaled = IsOneOf(node, {"Sub", "Div", "Mul"}) && node.inputs.size() == 2 &&
                           node.inputs[1].valid() &&
                           graph.value(node.inputs[1]).source != ValueSource::kNode;
    if (!PassesOn(node, 0) && !is_scaled) return false;
    value = node.inputs.front();
  }
  return false;
}

bool MakesOnly(const Candidate& candidate, const Node& node,
               const std::vector<std::string_view>& ops) {
  return !node.outputs.empty() && node.outputs[0].valid() &&
         candidate.forward.AllEndAt(
             node.outputs[0], [](const Node& next, int) { return IsOp(next, "Reshape"); },
             [&ops](const Node& end, int) { return IsOneOf(end, ops); });
}

// Whether a stored scale for each channel [C,1,...] multiplies what the node makes, and nothing
// else reads it.
bool HasScaleBehind(const Candidate& candidate, const Node& node) {
  if (node.outputs.empty() || !node.outputs[0].valid()) return false;
  const auto uses = candidate.forward.EffectiveUses(node.outputs[0]);
  return uses.size() == 1 && std::all_of(uses.begin(), uses.end(), [&](const auto& use) {
           const ValueId other = ForwardWalk::OtherOperand(*use.node, use.input);
           if (!IsOp(*use.node, "Mul") || !other.valid()) return false;
           const ValueDef& scale = candidate.graph.value(other);
           const std::optional<Shape> shape = scale.type.shape.ToConcrete();
           return scale.source != ValueSource::kNode && scale.source != ValueSource::kInput &&
                  shape.has_value() && LongAxes(*shape).size() == 1 &&
                  shape->dim(shape->rank() - 1) == 1;
         });
}

// Between Reshapes, as GroupNormalization is written with it. Where each channel is a group, its
// own scale follows at once.
bool StandsForGroups(const Candidate& candidate, const Node& node) {
  if (!IsOp(node, "InstanceNormalization") || node.inputs.empty()) return false;
  const ValueDef& input = candidate.graph.value(node.inputs[0]);
  if (input.source != ValueSource::kNode) return false;
  if (!IsOp(candidate.graph.node(input.producer), "Reshape")) return false;
  const bool has_own_scale = MakesOnly(candidate, node, {"Mul", "Add"});
  const bool goes_on = MakesOnly(candidate, node, {"Reshape"});
  const bool is_between = goes_on && (has_own_scale || candidate.has_made_up_name());
  return is_between || HasScaleBehind(candidate, node);
}

// "/4/Constant_output_0", "/norm/Constant_1_output_0", as TorchScript calls what is in no module.
bool IsNameOfConstantNode(const std::string& name) {
  const size_t slash = name.rfind('/');
  if (slash == std::string::npos) return false;
  return absl::StartsWith(name.substr(slash + 1), "Constant_") && absl::EndsWith(name, "output_0");
}

bool IsNormalization(const Node& node) {
  return IsOneOf(node, {"BatchNormalization", "InstanceNormalization", "LayerNormalization",
                        "GroupNormalization", "RMSNormalization"});
}

// Through scale and shift of a decomposed one.
bool ComesFromNormalization(const Candidate& candidate, ValueId value) {
  for (int i = 0; i < kMaxSteps && value.valid(); ++i) {
    const Node* const maker = candidate.forward.MakerOf(value);
    if (maker == nullptr) return false;
    if (IsNormalization(*maker)) return true;
    if (!IsOneOf(*maker, {"Mul", "Add"})) return false;
    value = maker->inputs.front();
  }
  return false;
}

// What is multiplied by a weight, as an input is.
bool IsLeftFactor(const Candidate& candidate) {
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [](const auto& use) {
    return use.input == 0 && IsOneOf(*use.node, {"MatMul", "Gemm"});
  });
}

}  // namespace

std::optional<Verdict> TabulatesSinusoids(const Candidate& candidate) {
  if (candidate.long_axes().size() < 2 || candidate.use.meeting < Meeting::kOrdinary) {
    return std::nullopt;
  }
  if (!IsTableOperand(candidate) || !candidate.initial().valid()) return std::nullopt;
  if (!IsSinusoidTable(candidate.initial())) return std::nullopt;
  return Table("is a table of cos and sin of a linear ramp", candidate);
}

std::optional<Verdict> IsFrequency(const Candidate& candidate) {
  if (!candidate.is_ordinary() || candidate.long_axes().size() != 1) return std::nullopt;
  const auto follow = [](const Node& node, int input) {
    return PassesOn(node, input) ||
           IsOneOf(node, {"Mul", "MatMul", "Einsum", "Concat", "Add", "Sub", "Div", "Gather"});
  };
  const auto accept = [](const Node& node, int) { return IsOneOf(node, {"Cos", "Sin"}); };
  if (!candidate.forward.AllEndAt(candidate.variable.value, follow, accept)) return std::nullopt;
  const Tensor& initial = candidate.initial();
  const bool is_positive = EveryNumber(initial, [](double number) { return number > 0; });
  const bool fits = IsGeometric(initial) || IsPositiveAndMonotonic(initial) ||
                    (is_positive && candidate.has_made_up_name());
  if (!fits) return std::nullopt;
  return Table("holds frequencies that only Cos and Sin see", candidate);
}

std::optional<Verdict> IsProgression(const Candidate& candidate) {
  if (!candidate.is_ordinary() || !IsTableOperand(candidate)) return std::nullopt;
  if (IsGeometric(candidate.initial())) return Table("is a geometric sequence", candidate);
  // Short ones can be anything.
  if (!candidate.has_made_up_name() || !IsCountingUp(candidate.initial())) return std::nullopt;
  return Table("counts positions", candidate);
}

std::optional<Verdict> NormalizesImages(const Candidate& candidate) {
  const std::vector<int64_t> axes = candidate.long_axes();
  if (!candidate.is_ordinary() || axes.size() != 1 || axes[0] > kMaxChannels) return std::nullopt;
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  const bool fits = std::all_of(uses.begin(), uses.end(), [&candidate](const auto& use) {
    const bool takes = use.input == 1 && IsOneOf(*use.node, {"Sub", "Div"});
    return takes && use.node->inputs[0].valid() &&
           IsInputOfImages(candidate.graph, use.node->inputs[0]);
  });
  if (!fits || uses.empty()) return std::nullopt;
  return Table("is a statistic of the input's channels", candidate);
}

std::optional<Verdict> FillsGroupNormalization(const Candidate& candidate) {
  if (!candidate.initial().valid()) return std::nullopt;
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  const bool is_scale = std::all_of(uses.begin(), uses.end(), [&candidate](const auto& use) {
    return use.input == 1 && StandsForGroups(candidate, *use.node);
  });
  const bool is_bias = std::all_of(uses.begin(), uses.end(), [&candidate](const auto& use) {
    return use.input == 2 && StandsForGroups(candidate, *use.node);
  });
  if (uses.empty() || (!is_scale && !is_bias)) return std::nullopt;
  if (CommonNumber(candidate.initial()) != (is_scale ? 1.0 : 0.0)) return std::nullopt;
  return Table("fills the normalization of groups, whose own scale and bias follow", candidate);
}

std::optional<Verdict> IsNeutral(const Candidate& candidate) {
  if (!candidate.initial().valid() || candidate.kind().has_value()) return std::nullopt;
  const std::vector<std::string>& names = candidate.variable.other_names;
  const std::set<std::string>& lost = candidate.metadata.lost_parameters;
  const bool is_lost = std::any_of(
      names.begin(), names.end(), [&lost](const std::string& name) { return lost.contains(name); });
  const bool is_told = candidate.metadata.has_signature() && !is_lost && !candidate.may_be_lost();
  if (!is_told && !IsNameOfConstantNode(candidate.variable.name)) return std::nullopt;
  const std::optional<double> number = CommonNumber(candidate.initial());
  if (number != 0.0 && number != 1.0) return std::nullopt;
  const bool is_scale = number == 1.0;
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  const bool changes_nothing = std::all_of(uses.begin(), uses.end(), [&](const auto& use) {
    if (IsNormalization(*use.node)) return use.input == (is_scale ? 1 : 2);
    const ValueId other = ForwardWalk::OtherOperand(*use.node, use.input);
    const bool fits = IsOp(*use.node, is_scale ? "Mul" : "Add") && other.valid();
    return fits && ComesFromNormalization(candidate, other);
  });
  if (uses.empty() || !changes_nothing) return std::nullopt;
  return Table(is_scale ? "is the scale of 1 of a normalization without parameters"
                        : "is the bias of 0 of a normalization without parameters",
               candidate);
}

std::optional<Verdict> TabulatesCoordinates(const Candidate& candidate) {
  if (!candidate.is_ordinary() && !IsLeftFactor(candidate)) return std::nullopt;
  if (candidate.long_axes().size() < 3 || !candidate.initial().valid()) return std::nullopt;
  if (!IsCoordinateGrid(candidate.initial())) return std::nullopt;
  return Table("is a grid of coordinates", candidate);
}

std::optional<Verdict> IsZeroBuffer(const Candidate& candidate) {
  const std::string& name = candidate.variable.name;
  const bool is_named =
      absl::EndsWith(name, "final_logits_bias") || absl::StrContains(name, "buffer");
  const std::optional<Shape> shape = candidate.type().shape.ToConcrete();
  const bool is_row = shape.has_value() && shape->rank() == 2 && shape->dim(0) == 1;
  if (!is_named || !is_row || !candidate.is_ordinary()) return std::nullopt;
  // Behind a Cast, say: PyTorch moves it to the device of the scores.
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  const bool is_addend =
      std::all_of(uses.begin(), uses.end(), [](const auto& use) { return IsOp(*use.node, "Add"); });
  if (uses.empty() || !is_addend || CommonNumber(candidate.initial()) != 0.0) return std::nullopt;
  return Verdict{
      DecisionKind::kBuffer, true,
      absl::StrCat("is a zero addend that its name calls a buffer, at ", candidate.Place())};
}

}  // namespace weft
