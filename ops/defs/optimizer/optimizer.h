// OptimizerKind: all there is to know of one algorithm that `--optimizer` names, but for how its
// ops are computed. It is declared in one file of this folder, beside the ops of its update:
//
//   OptimizerKind Lion() {
//     return {.name = "lion",
//             .help = "the sign of a mean gradient (Chen et al., 2023)",
//             .learning_rate = 0.0001,
//             .options = {Beta1(0.9), Beta2(0.99)},
//             .slots = {{.name = "m"}},
//             .op = "LionUpdate"};
//   }
//   WEFT_REGISTER_OPTIMIZER(Lion());
//   WEFT_REGISTER_OP(UpdateOp(Lion(), /*flops_per_element=*/9));
//
// Flags and keys of job files, --help, checks of numbers, the state of each parameter and its names
// in checkpoints, and random cases for the sharding checks follow. The table of docs/training.md is
// written by hand; tests/house/optimizer_docs_test compares it with the declarations.
#ifndef WEFT_OPS_DEFS_OPTIMIZER_OPTIMIZER_H_
#define WEFT_OPS_DEFS_OPTIMIZER_OPTIMIZER_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"

namespace weft {

// A number that the user may set. Kinds that share an option declare it by the same function below,
// so that it means the same; only the usual value differs.
struct OptimizerOption {
  std::string name;  // "initial-accumulator": the flag, and the key of a job file
  double usual = 0;  // where the user says nothing
  std::string help = "";
  double low = 0;  // low <= value < high
  double high = 1;
  bool is_switch = false;  // a flag without a number: 1 where it is given
  // The op's attribute; left out: `name` with '_' for '-'; "": none.
  std::optional<std::string> attribute = std::nullopt;
  // An update with this option above zero reads the number of the step.
  bool needs_step = false;

  std::string AttributeName() const;
};

OptimizerOption Momentum(double usual);
OptimizerOption Beta1(double usual);
OptimizerOption Beta2(double usual);
OptimizerOption Epsilon(double usual);

// What is remembered of each element of a parameter: a variable "PARAMETER/name" of its type.
struct OptimizerSlot {
  std::string name;
  // The option that must be above zero; else the parameter has no such state.
  std::string only_with = "";
  // The option that it starts with; zeros where there is none.
  std::string starts_at = "";
  // Never below zero: a sum or mean of squares.
  bool non_negative = false;
};

class UpdateSite;

struct OptimizerKind {
  std::string name;          // "adam"
  std::string help = "";     // half a line
  double learning_rate = 0;  // the usual one: PyTorch's, where it has the algorithm
  std::vector<OptimizerOption> options = {};  // weight decay and learning rate are not among them
  std::vector<OptimizerSlot> slots = {};
  bool needs_step = false;  // every update reads the number of the step
  // A gradient twice as long makes a step twice as long: its rate grows as the batch does, and that
  // of others as its root (training/scaling/batch_rule.h).
  bool is_linear = false;
  // The op of our own domain that computes the update, and attributes that do not change.
  std::string op = "";
  Attributes attributes = {};
  // Adds the update by several nodes and returns the parameter's new value; empty: `op` alone.
  std::function<ValueId(UpdateSite&)> update = nullptr;

  // Null when there is none.
  const OptimizerOption* FindOption(const std::string& option) const;
  // The value of an option: of `options`, else the usual one; 0 when the kind does not have it.
  double ValueOf(const std::string& option, const std::map<std::string, double>& options) const;
  // Whether an update with these options reads the number of the step.
  bool ReadsStep(const std::map<std::string, double>& options) const;
};

// By name. Null when there is none.
const OptimizerKind* FindOptimizer(const std::string& name);
// In the order of their names.
std::vector<const OptimizerKind*> AllOptimizers();

// What the update of one parameter is made from.
struct UpdateRequest {
  std::string variable;
  ValueId gradient;  // of the variable's type
  ValueId learning_rate;
  ValueId step;  // 1 in the first; kNoValue where ReadsStep() is false
  double weight_decay = 0;
  std::map<std::string, double> options = {};  // by name; the others have their usual values
};

// Adds the nodes of an update to the graph, with the state that they need as variables (a suffix
// where the graph has a value of that name), and makes the results the variables' updates.
absl::Status AddOptimizerUpdate(GraphBuilder& builder, const OptimizerKind& kind,
                                const UpdateRequest& request);

// Adds state of a variable, in its dtype and shape, that starts with `initial` (not valid: zeros).
ValueId AddSlotVariable(Graph& graph, const std::string& variable, const std::string& slot,
                        Tensor initial);
void SetSlotUpdate(Graph& graph, ValueId slot, ValueId updated);

// What OptimizerKind::update sees. Borrows all of it.
class UpdateSite {
 public:
  UpdateSite(GraphBuilder& builder, const OptimizerKind& kind, const UpdateRequest& request)
      : builder_(builder), kind_(kind), request_(request) {}

  GraphBuilder& builder() { return builder_; }
  ValueId weight() const;
  ValueId gradient() const { return request_.gradient; }
  // As an attribute has it.
  float Option(const std::string& name) const;
  float weight_decay() const { return static_cast<float>(request_.weight_decay); }
  // weight_decay, the kind's attributes, and those of its options. An option that a slot or the
  // step depends on is left out where it is zero.
  Attributes AllAttributes() const;

  // Adds the op. An input takes what `operands` has under its name, or else by its name: w, g,
  // learning_rate and step are this site's, any other is the parameter's state. Output new_X is
  // the new value of state X. Returns output 0.
  ValueId AddOp(const std::string& op, Attributes attributes,
                const std::map<std::string, ValueId>& operands = {});

 private:
  ValueId Operand(const std::string& name);
  ValueId SlotOf(const std::string& name);
  absl::StatusOr<Tensor> InitialOf(const OptimizerSlot& slot) const;

  GraphBuilder& builder_;
  const OptimizerKind& kind_;
  const UpdateRequest& request_;
  std::map<std::string, ValueId> slots_;
  absl::Status status_;

  friend absl::Status AddOptimizerUpdate(GraphBuilder&, const OptimizerKind&, const UpdateRequest&);
};

namespace internal {
bool RegisterOptimizerOrDie(OptimizerKind kind);  // a duplicate is our own broken invariant
}

#define WEFT_REGISTER_OPTIMIZER(...) WEFT_REGISTER_OPTIMIZER_AT(__COUNTER__, __VA_ARGS__)
#define WEFT_REGISTER_OPTIMIZER_AT(n, ...) WEFT_REGISTER_OPTIMIZER_NAMED(n, __VA_ARGS__)
#define WEFT_REGISTER_OPTIMIZER_NAMED(n, ...)             \
  [[maybe_unused]] static const bool weft_optimizer_##n = \
      ::weft::internal::RegisterOptimizerOrDie(__VA_ARGS__)

}  // namespace weft

#endif  // WEFT_OPS_DEFS_OPTIMIZER_OPTIMIZER_H_
