// Rules about operands of masks.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "onnx_import/parameters/number_patterns.h"
#include "onnx_import/parameters/rules.h"

namespace weft {
namespace {

// On to the sum that Softmax takes: masks are added one after the other, cut and expanded.
bool StaysScores(const Node& node, int input) {
  return PassesOn(node, input) || IsOneOf(node, {"Add", "Max"}) ||
         (IsOp(node, "Where") && input > 0) || (IsOp(node, "Clip") && input == 0);
}

// What masks are put together with before they are compared.
bool StaysMask(const Node& node, int input) {
  if (PassesOn(node, input)) return true;
  if (IsOneOf(node, {"Gather", "Pad", "Trilu"})) return input == 0;
  return IsOneOf(node, {"Sub", "ScatterND", "ScatterElements", "Concat"});
}

Verdict Mask(const std::string& reason) { return {DecisionKind::kTable, true, reason}; }

}  // namespace

bool LeadsToSoftmax(const ForwardWalk& forward, const Node& node) {
  return !node.outputs.empty() && node.outputs[0].valid() &&
         forward.AllEndAt(node.outputs[0], StaysScores, [](const Node& end, int input) {
           return IsOp(end, "Softmax") && input == 0;
         });
}

std::optional<Verdict> MasksScores(const Candidate& candidate) {
  if (!candidate.is_ordinary() || !candidate.initial().valid()) return std::nullopt;
  const ForwardWalk& forward = candidate.forward;
  const auto follow = [](const Node& node, int input) {
    return PassesOn(node, input) || (IsOp(node, "Gather") && input == 0) || IsOp(node, "Concat") ||
           (IsOp(node, "Where") && input > 0);
  };
  const auto accept = [&forward](const Node& node, int) {
    return IsOp(node, "Add") && LeadsToSoftmax(forward, node);
  };
  if (!forward.AllEndAt(candidate.variable.value, follow, accept)) return std::nullopt;
  if (IsScoreMask(candidate.initial())) {
    return Mask(absl::StrCat("hides scores before Softmax, at ", candidate.Place()));
  }
  const bool hides_none = candidate.has_made_up_name() && CommonNumber(candidate.initial()) == 0.0;
  if (!hides_none) return std::nullopt;
  return Mask(absl::StrCat("is a mask of scores that hides none, at ", candidate.Place()));
}

std::optional<Verdict> MultipliesMask(const Candidate& candidate) {
  if (!candidate.is_ordinary() || candidate.long_axes().size() < 2) return std::nullopt;
  const auto uses = candidate.forward.EffectiveUses(candidate.variable.value);
  const bool is_elementwise = std::all_of(uses.begin(), uses.end(), [](const auto& use) {
    return IsOneOf(*use.node, {"Mul", "Sub", "Add", "Div", "Where", "Min", "Max"});
  });
  if (!is_elementwise || !IsBinary(candidate.initial())) return std::nullopt;
  return Mask(absl::StrCat("holds 0 and 1 alone, as masks do, at ", candidate.Place()));
}

std::optional<Verdict> NumbersRegions(const Candidate& candidate) {
  if (!candidate.is_ordinary() || !candidate.initial().valid()) return std::nullopt;
  const ForwardWalk& forward = candidate.forward;
  const auto accept = [&forward](const Node& node, int input) {
    if (IsOp(node, "Where")) return input == 0 || LeadsToSoftmax(forward, node);
    return IsOneOf(node, {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And",
                          "Or", "NonZero"});
  };
  if (!forward.AllEndAt(candidate.variable.value, StaysMask, accept)) return std::nullopt;
  const bool is_filling = candidate.has_made_up_name() && CommonNumber(candidate.initial());
  if (!is_filling && !AreRegionNumbers(candidate.initial())) return std::nullopt;
  return Mask(
      absl::StrCat("holds numbers that are compared to make a mask, at ", candidate.Place()));
}

}  // namespace weft
