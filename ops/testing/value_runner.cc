#include "ops/testing/value_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph.h"
#include "ops/value_node.h"

namespace weft::testing {

absl::StatusOr<std::vector<Value>> RunOp(const std::string& op, std::vector<Value> inputs,
                                         Attributes attributes, int outputs) {
  Graph graph;
  Graph::NodeSpec spec;
  spec.name = "n";
  const size_t domain_end = op.find("::");
  if (domain_end != std::string::npos) spec.domain = op.substr(0, domain_end);
  spec.op = domain_end == std::string::npos ? op : op.substr(domain_end + 2);
  spec.attributes = std::move(attributes);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool omitted = inputs[i].kind() == ValueKind::kTensor && !inputs[i].tensor().valid();
    spec.inputs.push_back(omitted ? kNoValue : graph.AddInput(absl::StrCat("x", i), ValueType()));
  }
  for (int i = 0; i < outputs; ++i) spec.outputs.push_back(absl::StrCat("y", i));
  ValueNode node(graph.node(graph.AddNode(std::move(spec))), {});
  return node.Run(std::move(inputs));
}

std::string ResultText(const std::string& op, std::vector<Value> inputs, Attributes attributes,
                       int output) {
  const auto results = RunOp(op, std::move(inputs), std::move(attributes), output + 1);
  if (!results.ok()) return std::string(results.status().message());
  return (*results)[static_cast<size_t>(output)].ToString();
}

}  // namespace weft::testing
