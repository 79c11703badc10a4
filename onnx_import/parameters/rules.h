// The rules that say which variables train, and the order in which they are asked.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_RULES_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_RULES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "onnx_import/parameters/decision_kind.h"
#include "onnx_import/parameters/exporter_metadata.h"
#include "onnx_import/parameters/forward_walk.h"
#include "onnx_import/parameters/gradient_uses.h"
#include "onnx_import/parameters/parameter_names.h"

namespace weft {

// One variable, and all that a rule may ask about it. Borrows.
struct Candidate {
  const Graph& graph;
  const Variable& variable;
  const GradientUses& gradients;
  const ForwardWalk& forward;
  const ParameterNames& names;
  const ExporterMetadata& metadata;
  // Modules that may have computed something from a parameter that is nowhere else in the file.
  const std::set<std::string>& modules_of_lost;
  // The user's patterns that fit it.
  std::optional<std::string> frozen_by;
  std::optional<std::string> added_by;
  GradientUses::Use use;  // the best one

  const ValueType& type() const { return graph.value(variable.value).type; }
  const Tensor& initial() const { return variable.initial; }
  // At most one element.
  bool is_single() const;
  // "Conv.W (node 'conv1')", of the best use.
  std::string Place() const;
  std::optional<ExportedKind> kind() const { return metadata.KindOf(variable.name); }
  // What the exporter computed, and gave a name by itself.
  bool has_made_up_name() const;
  // Whether a node that reads it is in a module that has lost a parameter, or around one.
  bool may_be_lost() const;
  std::vector<int64_t> long_axes() const;
  // Whether the loss depends on it at an ordinary operand only.
  bool is_ordinary() const { return use.meeting == Meeting::kOrdinary; }
};

// What becomes of a variable.
struct Verdict {
  DecisionKind kind = DecisionKind::kTrains;
  // Can never be a parameter: may be folded.
  bool is_constant = false;
  std::string reason;
};

// A rule is a pure function: nothing where it has nothing to say.
using RuleFunction = std::optional<Verdict> (*)(const Candidate&);
struct Rule {
  std::string_view name;
  RuleFunction function;
};
// The first that says something decides; the last always does.
const std::vector<Rule>& TrainableRules();

// -- mask_rules.cc: operands of masks.
// An addend of scores right before Softmax that hides some of them.
std::optional<Verdict> MasksScores(const Candidate& candidate);
// Whether Softmax takes what the node makes, with others added or not.
bool LeadsToSoftmax(const ForwardWalk& forward, const Node& node);
// 0 and 1 over two axes or more, in elementwise arithmetic.
std::optional<Verdict> MultipliesMask(const Candidate& candidate);
// Numbers of regions that are only compared, to make a mask of them.
std::optional<Verdict> NumbersRegions(const Candidate& candidate);

// -- table_rules.cc: tables and constants that modules keep.
// Cos and sin of a linear ramp: of rotary embeddings, of positions.
std::optional<Verdict> TabulatesSinusoids(const Candidate& candidate);
// Frequencies that only Cos and Sin see.
std::optional<Verdict> IsFrequency(const Candidate& candidate);
// Geometric sequences and positions, as ordinary operands.
std::optional<Verdict> IsProgression(const Candidate& candidate);
// A number for each channel, subtracted from an input of the model or dividing it.
std::optional<Verdict> NormalizesImages(const Candidate& candidate);
// Scale 1 and bias 0 of the InstanceNormalization that stands for a GroupNormalization.
std::optional<Verdict> FillsGroupNormalization(const Candidate& candidate);
// Scale 1 or bias 0 that an exporter writes for a normalization without parameters: in a Constant
// node, or of a module of which the graph signature knows no parameter that is not in the file.
std::optional<Verdict> IsNeutral(const Candidate& candidate);
// A grid of coordinates: each number of a point depends on one axis alone.
std::optional<Verdict> TabulatesCoordinates(const Candidate& candidate);
// A zero addend [1,V] that its name calls a buffer.
std::optional<Verdict> IsZeroBuffer(const Candidate& candidate);

// Whether some use of it is as parameters are used: at a learnable port, as a factor of a product,
// as the bias of one, as scale or shift of a normalization, as the table of a Gather, as positions
// that are added to what is no score.
bool IsUsedAsParameter(const Candidate& candidate);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_RULES_H_
