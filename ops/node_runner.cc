#include "ops/node_runner.h"

#include "ops/concrete_node.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class RegistryEvaluator final : public NodeEvaluator {
 public:
  explicit RegistryEvaluator(const KernelRegistry& registry) : registry_(registry) {}

  absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph&, const Node& node,
                                               const std::vector<Tensor>& inputs) override {
    NodeRunOptions options;
    options.registry = &registry_;
    WEFT_ASSIGN_OR_RETURN(const ConcreteNode concrete,
                          ConcreteNode::Create(node, inputs, std::move(options)));
    return concrete.Run();
  }

 private:
  const KernelRegistry& registry_;
};

}  // namespace

NodeEvaluator& CpuNodeEvaluator() {
  static RegistryEvaluator* const evaluator = new RegistryEvaluator(KernelRegistry::Global());
  return *evaluator;
}

NodeEvaluator& ReferenceNodeEvaluator() {
  static RegistryEvaluator* const evaluator = new RegistryEvaluator(KernelRegistry::Reference());
  return *evaluator;
}

}  // namespace weft
