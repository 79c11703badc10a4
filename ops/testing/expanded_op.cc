#include "ops/testing/expanded_op.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/testing/graph_evaluator.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

class Expansion final : public ExpandContext {
 public:
  explicit Expansion(const OpCase& op_case)
      : single_(MakeSingleNodeGraph(op_case)), builder_(*single_.graph) {}
  const Node& node() const override { return single_.graph->node(single_.node); }
  const Graph& graph() const override { return *single_.graph; }
  GraphBuilder& builder() override { return builder_; }

 private:
  SingleNodeGraph single_;
  GraphBuilder builder_;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> RunExpanded(const OpCase& op_case) {
  Expansion context(op_case);
  const OpSchema* schema = context.node().schema;
  if (schema == nullptr || !schema->expand()) {
    return absl::UnimplementedError(absl::StrCat(op_case.ToString(), " has no expansion"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs, schema->expand()(context));
  std::map<ValueId, Tensor> feeds;
  size_t next = 0;
  for (const Tensor& input : op_case.inputs) {
    if (input.valid()) feeds[context.graph().inputs()[next++]] = input;
  }
  std::vector<ValueId> wanted;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (op_case.outputs[i]) wanted.push_back(outputs[i]);
  }
  return EvaluateGraph(context.graph(), feeds, wanted);
}

}  // namespace weft::testing
