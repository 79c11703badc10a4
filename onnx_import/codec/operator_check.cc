#include "onnx_import/codec/operator_check.h"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "graph/policy/operator_policy.h"
#include "onnx_import/codec/model_validator.h"
#include "platform/status.h"

namespace weft {
namespace {

using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using AttributeList = google::protobuf::RepeatedPtrField<onnx::AttributeProto>;

// Every list of nodes of a model, one after the other.
class OperatorCheck {
 public:
  explicit OperatorCheck(const onnx::ModelProto& model) {
    for (const onnx::FunctionProto& function : model.functions()) {
      functions_.insert(
          {NormalizedDomain(function.domain()), function.name(), function.overload()});
      AddBodies(function.attribute_proto());
      pending_.push_back(&function.node());
    }
    for (const onnx::TrainingInfoProto& info : model.training_info()) {
      pending_.push_back(&info.initialization().node());
      pending_.push_back(&info.algorithm().node());
    }
    pending_.push_back(&model.graph().node());
  }

  absl::Status Run() {
    const OperatorPolicy& policy = CurrentOperatorPolicy();
    while (!pending_.empty()) {
      const NodeList& nodes = *pending_.back();
      pending_.pop_back();
      for (int i = 0; i < nodes.size(); ++i) {
        const onnx::NodeProto& node = nodes[i];
        AddBodies(node.attribute());
        const std::string domain = NormalizedDomain(node.domain());
        if (functions_.contains({domain, node.op_type(), node.overload()})) continue;
        const absl::Status status = policy.Check(domain, node.op_type());
        if (!status.ok()) return Annotate(status, NodeLabel(node, i));
      }
    }
    return absl::OkStatus();
  }

 private:
  void AddBodies(const AttributeList& attributes) {
    for (const onnx::AttributeProto& attribute : attributes) {
      if (attribute.has_g()) pending_.push_back(&attribute.g().node());
      for (const onnx::GraphProto& graph : attribute.graphs()) pending_.push_back(&graph.node());
    }
  }

  std::set<std::tuple<std::string, std::string, std::string>> functions_;
  std::vector<const NodeList*> pending_;
};

}  // namespace

absl::Status CheckOperators(const onnx::ModelProto& model) {
  if (CurrentOperatorPolicy().allows_all()) return absl::OkStatus();
  return OperatorCheck(model).Run();
}

}  // namespace weft
