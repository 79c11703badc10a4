#include "placement/search/testing/tensor_program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "placement/search/tensor_split.h"
#include "placement/search/testing/node_choices.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kClosed = -1;
// More would drown what takes microseconds in the solver's tolerances. A megabyte that is kept then
// counts like a second, far more than to send it.
constexpr double kMaxSecondsPerByte = 1e-6;

class TensorProgram {
 public:
  TensorProgram(TensorCosts& costs, const TensorProgramLimits& limits)
      : costs_(costs),
        graph_(costs.graph()),
        maker_(costs, limits.max_operand_ways),
        question_of_(graph_.value_capacity(), kClosed),
        layouts_(graph_.value_capacity()) {}

  absl::Status Build() {
    WEFT_RETURN_IF_ERROR(AskAboutVariables());
    for (const NodeId id : costs_.forward()) WEFT_RETURN_IF_ERROR(AddNode(graph_.node(id)));
    return absl::OkStatus();
  }
  const ChoiceProblem& problem() const { return problem_; }
  bool leaves_ways_out() const { return leaves_ways_out_; }
  // What preferences make of an answer's cost at most.
  double max_preference() const { return max_preference_; }
  TensorSplit SplitOf(const std::vector<int>& answers) const;

 private:
  struct Member {
    NodeId node;
    std::shared_ptr<const NodeChoices> choices;
    std::vector<ValueId> values;  // by slot
  };

  absl::Status FindWaysToRead(const Node& node);
  absl::Status AskAboutVariables();
  void Ask(ValueId value);
  std::vector<OperandWays> OperandsOf(const Node& node) const;
  std::string KeyOf(const Node& node, const std::vector<OperandWays>& operands) const;
  absl::Status AddNode(const Node& node);
  void AddTable(const Member& member);
  const NodeChoices::Row& RowOf(const Member& member, const std::vector<int>& answers) const;

  TensorCosts& costs_;
  const Graph& graph_;
  const NodeChoiceMaker maker_;
  ChoiceProblem problem_;
  std::vector<int> question_of_;                    // by ValueId: of shared values
  std::vector<std::vector<AxisSharding>> layouts_;  // by ValueId: of all that are open
  std::vector<Member> members_;
  std::map<std::string, std::vector<AxisSharding>> known_ways_;
  std::map<std::string, std::shared_ptr<const NodeChoices>> known_;
  bool leaves_ways_out_ = false;
  double max_preference_ = 0;
};

void TensorProgram::Ask(ValueId value) {
  question_of_[value.value] = static_cast<int>(problem_.answers.size());
  problem_.answers.push_back(static_cast<int>(layouts_[value.value].size()));
}

// Adds to the layouts of each variable those in which the node can read it.
absl::Status TensorProgram::FindWaysToRead(const Node& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!costs_.IsVariable(input)) continue;
    std::vector<AxisSharding>& layouts = layouts_[input.value];
    const AxisSharding* const given = costs_.GivenFor(input);
    if (given != nullptr || !graph_.VariableOf(input)->slot_of.empty()) {
      layouts = {given != nullptr ? *given : AxisSharding::Replicated()};
      continue;
    }
    const auto [known, is_new] =
        known_ways_.try_emplace(absl::StrCat(costs_.ClassOf(node), "#", i));
    if (is_new) {
      WEFT_ASSIGN_OR_RETURN(known->second, maker_.WaysToRead(node, input));
    }
    for (const AxisSharding& way : known->second) {
      if (std::find(layouts.begin(), layouts.end(), way) == layouts.end()) layouts.push_back(way);
    }
  }
  return absl::OkStatus();
}

// A variable with one reader is that reader's own matter.
absl::Status TensorProgram::AskAboutVariables() {
  for (const NodeId id : costs_.forward()) WEFT_RETURN_IF_ERROR(FindWaysToRead(graph_.node(id)));
  for (const Variable& variable : graph_.variables()) {
    if (costs_.ForwardReaders(variable.value) < 2) continue;
    Ask(variable.value);
    ChoiceTable table;
    table.questions = {question_of_[variable.value.value]};
    for (const AxisSharding& layout : layouts_[variable.value.value]) {
      table.answers.push_back({static_cast<int>(table.costs.size())});
      table.costs.push_back(costs_.KeepingSeconds(variable.value, layout));
    }
    problem_.tables.push_back(std::move(table));
  }
  return absl::OkStatus();
}

std::vector<OperandWays> TensorProgram::OperandsOf(const Node& node) const {
  std::vector<OperandWays> operands;
  for (const ValueId input : node.inputs) {
    if (!input.valid() || layouts_[input.value].empty()) continue;
    const bool is_known = std::any_of(operands.begin(), operands.end(),
                                      [&](const OperandWays& one) { return one.value == input; });
    if (is_known) continue;
    const bool is_shared = question_of_[input.value] != kClosed;
    operands.push_back({input, layouts_[input.value], is_shared});
  }
  return operands;
}

std::string TensorProgram::KeyOf(const Node& node, const std::vector<OperandWays>& operands) const {
  std::string key = costs_.ClassOf(node);
  for (const OperandWays& operand : operands) {
    key.push_back(operand.is_shared ? '@' : '!');
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == operand.value) absl::StrAppend(&key, i, ",");
    }
    for (const AxisSharding& layout : operand.layouts) AppendSharding(layout, key);
  }
  for (const ValueId output : node.outputs) maker_.AppendResult(output, key);
  return key;
}

absl::Status TensorProgram::AddNode(const Node& node) {
  const std::vector<OperandWays> operands = OperandsOf(node);
  std::shared_ptr<const NodeChoices>& known = known_[KeyOf(node, operands)];
  if (known == nullptr) {
    WEFT_ASSIGN_OR_RETURN(NodeChoices choices, maker_.Make(node, operands));
    leaves_ways_out_ |= choices.leaves_ways_out;
    known = std::make_shared<const NodeChoices>(std::move(choices));
  }
  Member member = {node.id, known, {}};
  for (const OperandWays& operand : operands) member.values.push_back(operand.value);
  for (const ValueId output : node.outputs) {
    if (!output.valid()) continue;
    const size_t slot = member.values.size();
    layouts_[output.value] = known->layouts[slot];
    if (known->is_shared[slot]) Ask(output);
    member.values.push_back(output);
  }
  AddTable(member);
  members_.push_back(std::move(member));
  return absl::OkStatus();
}

void TensorProgram::AddTable(const Member& member) {
  ChoiceTable table;
  double preference = 0;
  for (size_t slot = 0; slot < member.values.size(); ++slot) {
    if (!member.choices->is_shared[slot]) continue;
    table.questions.push_back(question_of_[member.values[slot].value]);
  }
  for (const NodeChoices::Row& row : member.choices->rows) {
    table.answers.push_back(member.choices->SharedLayouts(row));
    table.costs.push_back(row.cost());
    preference = std::max(preference, row.preference);
  }
  max_preference_ += preference;
  problem_.tables.push_back(std::move(table));
}

const NodeChoices::Row& TensorProgram::RowOf(const Member& member,
                                             const std::vector<int>& answers) const {
  std::vector<int> wanted;
  for (size_t slot = 0; slot < member.values.size(); ++slot) {
    if (!member.choices->is_shared[slot]) continue;
    wanted.push_back(answers[question_of_[member.values[slot].value]]);
  }
  const auto found = std::find_if(
      member.choices->rows.begin(), member.choices->rows.end(),
      [&](const NodeChoices::Row& row) { return member.choices->SharedLayouts(row) == wanted; });
  return *found;
}

TensorSplit TensorProgram::SplitOf(const std::vector<int>& answers) const {
  TensorSplit split;
  for (const Member& member : members_) {
    const NodeChoices::Row& row = RowOf(member, answers);
    for (size_t slot = 0; slot < member.values.size(); ++slot) {
      const ValueId value = member.values[slot];
      const AxisSharding& layout = member.choices->layouts[slot][row.layouts[slot]];
      if (costs_.IsVariable(value)) {
        const Variable& variable = *graph_.VariableOf(value);
        if (layout.is_split() && variable.slot_of.empty()) split.shardings[variable.name] = layout;
        continue;
      }
      const bool is_made = graph_.value(value).producer == member.node;
      if (is_made && row.is_hinted) split.shardings[graph_.value(value).name] = layout;
    }
    split.seconds += row.seconds;
  }
  for (const Variable& variable : graph_.variables()) {
    const int question = question_of_[variable.value.value];
    if (question == kClosed) continue;
    split.seconds +=
        costs_.KeepingSeconds(variable.value, layouts_[variable.value.value][answers[question]]);
  }
  return split;
}

// What is given for values that nodes make.
void AddGiven(const TensorCosts& costs, std::map<std::string, AxisSharding>& hints) {
  for (const auto& [name, sharding] : costs.options().given) {
    const std::optional<ValueId> value = costs.graph().FindValue(name);
    const bool is_made =
        value.has_value() && costs.graph().value(*value).source == ValueSource::kNode;
    if (is_made) hints[name] = sharding;
  }
}

}  // namespace

absl::StatusOr<TensorSplit> SolveTensorSplit(const Graph& graph, const CostModel& cost,
                                             const TensorSplitOptions& options,
                                             const TensorProgramLimits& limits) {
  TensorSplitOptions bounded = options;
  bounded.seconds_per_byte = std::min(options.seconds_per_byte, kMaxSecondsPerByte);
  WEFT_ASSIGN_OR_RETURN(const auto costs, TensorCosts::Create(graph, cost, bounded));
  TensorProgram program(*costs, limits);
  WEFT_RETURN_IF_ERROR(program.Build());
  const absl::StatusOr<ChoiceAnswer> answer = SolveChoices(program.problem(), limits.choices);
  if (absl::IsResourceExhausted(answer.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("how tensors lie over ", costs->shards(), " workers is too much for --search ",
                     "ilp: ", answer.status().message(), "; --search dp has no such limit"));
  }
  WEFT_RETURN_IF_ERROR(answer.status());
  TensorSplit split;
  split.seconds = std::numeric_limits<double>::infinity();
  if (!answer->answers.empty()) split = program.SplitOf(answer->answers);
  AddGiven(*costs, split.shardings);
  const bool is_proven = !answer->answers.empty() && answer->min_cost == answer->cost;
  if (is_proven && !program.leaves_ways_out()) {
    split.min_seconds = split.seconds;
    return split;
  }
  WEFT_ASSIGN_OR_RETURN(TensorSplit other, FindTensorSplit(graph, cost, bounded));
  AddGiven(*costs, other.shardings);
  WEFT_ASSIGN_OR_RETURN(other.seconds, costs->SecondsOf(other.shardings));
  if (other.seconds < split.seconds) split = std::move(other);
  if (!program.leaves_ways_out()) {
    split.min_seconds = std::max(0.0, answer->min_cost - program.max_preference());
  }
  return split;
}

}  // namespace weft
