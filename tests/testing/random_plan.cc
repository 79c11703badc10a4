#include "tests/testing/random_plan.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace weft::testing {
namespace {

// Draws whole numbers. The engine's sequence is fixed by the standard; its distributions are not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  // In [0, sides).
  int Roll(int sides) { return static_cast<int>(engine_() % static_cast<uint64_t>(sides)); }
  template <typename T>
  const T& Of(const std::vector<T>& choices) {
    return choices[Roll(static_cast<int>(choices.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// Every stage gets consecutive nodes of the topological order, at least one.
void DrawStages(const Graph& model, Dice& dice, Plan& plan) {
  const auto order = model.TopologicalOrder();
  if (!order.ok() || static_cast<int>(order->size()) < plan.num_stages()) return;
  std::set<int> cuts;
  while (static_cast<int>(cuts.size()) + 1 < plan.num_stages()) {
    cuts.insert(1 + dice.Roll(static_cast<int>(order->size()) - 1));
  }
  int stage = 0;
  for (size_t i = 0; i < order->size(); ++i) {
    if (cuts.contains(static_cast<int>(i))) ++stage;
    plan.stages[model.node((*order)[i]).name] = stage;
  }
}

void DrawShardings(const Graph& model, Dice& dice, Plan& plan) {
  for (const Variable& variable : model.variables()) {
    const std::optional<Shape> shape = model.value(variable.value).type.shape.ToConcrete();
    if (!shape.has_value() || shape->rank() == 0 || dice.Roll(2) == 0) continue;
    const int axis = dice.Roll(shape->rank());
    const int64_t blocks = dice.Of<int64_t>({1, 1, 2, 3});
    const int64_t size = shape->dim(axis);
    if (size % blocks != 0 || size / blocks < plan.mesh.tensor) continue;
    plan.tensor_shardings[variable.name] = AxisSharding::Split(axis, blocks);
  }
}

// Segments of equal memory, or any nodes in two segments that may wind through each other.
void DrawRecomputation(const Graph& model, Dice& dice, Plan& plan) {
  if (dice.Roll(2) == 0) {
    plan.recompute_segments = 1 + dice.Roll(4);
    return;
  }
  for (const NodeId id : model.node_ids()) {
    const int segment = dice.Roll(3);
    if (segment > 0) plan.recompute[model.node(id).name] = segment == 1 ? "first" : "second";
  }
}

// A weight that several nodes read may lie on several stages.
bool HasTiedWeights(const Graph& model) {
  const std::vector<std::vector<Graph::Use>> uses = model.BuildUses();
  return std::any_of(
      model.variables().begin(), model.variables().end(),
      [&](const Variable& variable) { return uses[variable.value.value].size() > 1; });
}

}  // namespace

Plan RandomPlan(const Graph& model, uint64_t seed) {
  Dice dice(seed);
  Plan plan;
  plan.mesh = dice.Of<Mesh>({{2, 1, 1},
                             {1, 2, 1},
                             {1, 1, 2},
                             {3, 1, 1},
                             {1, 3, 1},
                             {1, 1, 3},
                             {1, 4, 1},
                             {1, 1, 4},
                             {2, 2, 1},
                             {2, 1, 2},
                             {1, 2, 2}});
  plan.micro_batches = plan.mesh.data + dice.Roll(6);
  plan.schedule = dice.Of<std::string>({"gpipe", "1f1b", "zero_bubble"});
  plan.bucket_bytes = dice.Of<int64_t>({300, 4096, int64_t{4} << 20});
  if (dice.Roll(3) == 0) plan.reduction = Reduction::kOrderedTree;
  if (plan.mesh.tensor == 1) plan.strict = dice.Roll(2) == 0;
  // What came later has dice of its own, so that the plans of a seed keep the rest.
  Dice later(~seed);
  const bool has_nodes = model.num_nodes() >= 4 * plan.mesh.pipeline;
  if (plan.mesh.pipeline > 1 && later.Roll(3) == 0 && has_nodes && !HasTiedWeights(model)) {
    plan.schedule = "interleaved";
    plan.chunks = 2;
  }
  if (plan.mesh.data > 1) plan.zero = later.Roll(4);
  if (plan.mesh.pipeline > 1 && dice.Roll(3) > 0) DrawStages(model, dice, plan);
  if (plan.mesh.tensor > 1) DrawShardings(model, dice, plan);
  if (dice.Roll(3) == 0) DrawRecomputation(model, dice, plan);
  return plan;
}

}  // namespace weft::testing
