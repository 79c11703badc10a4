#include "training/calibration/solo_partition.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_class.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class PeerRemoval {
 public:
  explicit PeerRemoval(Partition& partition) : partition_(partition) {}

  absl::Status Run() {
    WEFT_RETURN_IF_ERROR(RemoveFrom(partition_.begin, "begin"));
    for (size_t i = 0; i < partition_.micro.size(); ++i) {
      WEFT_RETURN_IF_ERROR(RemoveFrom(partition_.micro[i], absl::StrCat("micro", i)));
    }
    WEFT_RETURN_IF_ERROR(RemoveFrom(partition_.end, "end"));
    partition_.channels.clear();
    return absl::OkStatus();
  }

 private:
  absl::Status RemoveFrom(Graph& graph, const std::string& place) {
    for (const NodeId id : graph.node_ids()) {
      if (!IsCommunication(graph.node(id))) continue;
      WEFT_RETURN_IF_ERROR(RemoveNode(graph, id, place));
    }
    return absl::OkStatus();
  }

  absl::Status RemoveNode(Graph& graph, NodeId id, const std::string& place) {
    const Node node = graph.node(id);
    // Each of its outputs that somebody wants, and what stands for it.
    std::vector<std::pair<std::string, ValueId>> replaced;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].valid()) continue;
      const ValueId output = node.outputs[i];
      const bool same_type = i < node.inputs.size() && node.inputs[i].valid() &&
                             graph.value(node.inputs[i]).type == graph.value(output).type;
      ValueId value = kNoValue;
      if (same_type) {
        WEFT_ASSIGN_OR_RETURN(value, AddIdentity(graph, node, node.inputs[i]));
      } else {
        WEFT_ASSIGN_OR_RETURN(value, AddZeros(graph, output, place));
      }
      graph.value(value).placement = graph.value(output).placement;
      replaced.emplace_back(graph.value(output).name, value);
      graph.ReplaceUses(output, value);
    }
    graph.RemoveNode(id);
    // Values pass between graphs by name.
    for (const auto& [name, value] : replaced) {
      graph.RenameValue(value, name);
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<ValueId> AddIdentity(Graph& graph, const Node& node, ValueId input) {
    Graph::NodeSpec spec;
    spec.name = absl::StrCat("solo/", node.name);
    spec.op = "Identity";
    spec.inputs = {input};
    spec.outputs = {absl::StrCat("solo/", graph.value(input).name)};
    spec.phase = node.phase;
    spec.stage = node.stage;
    spec.origin = node.origin;
    const NodeId identity = graph.AddNode(std::move(spec));
    WEFT_RETURN_IF_ERROR(InferNode(graph, identity));
    return graph.node(identity).outputs[0];
  }

  // A variable, which no step changes, under an Identity that can have the output's name.
  absl::StatusOr<ValueId> AddZeros(Graph& graph, ValueId output, const std::string& place) {
    const ValueDef& value = graph.value(output);
    const auto shape = value.type.shape.ToConcrete();
    if (!shape.has_value()) {
      return absl::InternalError(
          absl::StrCat("the shape of '", value.name, "', which a peer sends, is not concrete"));
    }
    VariableShard shard;
    shard.name = absl::StrCat("solo/", place, "/", value.name);
    shard.dtype = value.type.dtype;
    shard.global_shape = shard.local_shape = *shape;
    shard.is_primary = true;
    const ValueType type = value.type;
    const Node producer = graph.node(value.producer);
    partition_.variables.push_back(shard);
    const ValueId zeros = graph.AddVariable(shard.name, type, Tensor(), /*trainable=*/false);
    return AddIdentity(graph, producer, zeros);
  }

  Partition& partition_;
};

}  // namespace

absl::Status RemovePeers(Partition& partition) { return PeerRemoval(partition).Run(); }

}  // namespace weft
