#include "ops/node_runner.h"

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/concrete_node.h"
#include "ops/value_kernel.h"
#include "ops/value_node.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// What takes more is not computed ahead: a small file may ask for products of large constants.
constexpr double kMaxFlopsAhead = 1e10;

absl::Status CheckCost(const Node& node, const std::vector<Tensor>& inputs) {
  if (node.schema == nullptr || !node.schema->cost()) return absl::OkStatus();
  const absl::StatusOr<ConcreteNode> concrete = ConcreteNode::Create(node, inputs);
  if (!concrete.ok()) return absl::OkStatus();  // its shapes depend on data; running it says more
  const double flops = node.schema->cost()(*concrete).flops;
  if (!(flops > kMaxFlopsAhead)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "it takes ", flops, " FLOPs, too many to be computed ahead (limit ", kMaxFlopsAhead, ")"));
}

// With the production kernels, of both kinds.
class ProductionEvaluator final : public NodeEvaluator {
 public:
  absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph&, const Node& node,
                                               const std::vector<Tensor>& inputs) override {
    WEFT_RETURN_IF_ERROR(CheckCost(node, inputs));
    ValueNode::Settings settings;
    settings.strict = true;
    ValueNode runner(node, settings);
    WEFT_ASSIGN_OR_RETURN(const std::vector<Value> values,
                          runner.Run({inputs.begin(), inputs.end()}));
    std::vector<Tensor> outputs;
    for (const Value& value : values) {
      if (value.kind() != ValueKind::kTensor) {
        return absl::UnimplementedError("its outputs are no tensors");
      }
      outputs.push_back(value.tensor());
    }
    return outputs;
  }
};

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
  static ProductionEvaluator* const evaluator = new ProductionEvaluator;
  return *evaluator;
}

NodeEvaluator& ReferenceNodeEvaluator() {
  static RegistryEvaluator* const evaluator = new RegistryEvaluator(KernelRegistry::Reference());
  return *evaluator;
}

bool RunsNode(const Node& node) {
  if (node.schema != nullptr &&
      (node.schema->op_class() != OpClass::kCompute || !node.schema->aliases().empty())) {
    return true;
  }
  return KernelRegistry::Global().Find(node.domain, node.op, DeviceKind::kCpu) != nullptr ||
         ValueKernelRegistry::Global().Find(node.domain, node.op) != nullptr;
}

}  // namespace weft
