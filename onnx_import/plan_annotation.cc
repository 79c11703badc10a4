// AnnotateModel: a plan as ONNX's multi-device annotations.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_reader.h"
#include "onnx_import/device_annotations.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Field numbers of wire.proto.
constexpr int kModelIrVersion = 1;
constexpr int kModelGraph = 7;
constexpr int kModelMetadata = 14;
constexpr int kModelConfiguration = 26;
constexpr int kGraphNode = 1;

constexpr uint64_t kIrVersionWithDevices = 11;

class Annotator {
 public:
  // `devices`: that of each worker.
  Annotator(const ImportedModel& model, const Plan& plan, const DeviceConfiguration& configuration,
            const std::map<int, int64_t>& devices, const std::string& plan_text)
      : model_(model),
        plan_(plan),
        configuration_(configuration),
        devices_(devices),
        plan_text_(plan_text) {}

  absl::StatusOr<std::string> Run() {
    const std::string_view bytes = model_.file.bytes();
    std::string out;
    out.reserve(bytes.size() + bytes.size() / 8);
    AppendVarintField(kModelIrVersion,
                      std::max(static_cast<uint64_t>(std::max<int64_t>(model_.ir_version, 0)),
                               kIrVersionWithDevices),
                      out);
    WireReader reader(bytes);
    while (!reader.AtEnd()) {
      const std::optional<WireField> field = reader.Next();
      if (!field) return Changed(reader);
      if (field->number == kModelIrVersion || IsReplaced(*field)) continue;
      if (field->number == kModelGraph) {
        WEFT_ASSIGN_OR_RETURN(const std::string graph, AnnotateGraph(field->payload));
        AppendBytesField(kModelGraph, graph, out);
      } else {
        out.append(field->whole);
      }
    }
    onnx::ModelProto added;
    onnx::DeviceConfigurationProto& proto = *added.add_configuration();
    proto.set_name(configuration_.name);
    proto.set_num_devices(configuration_.devices);
    for (const std::string& name : configuration_.device_names) proto.add_device(name);
    onnx::StringStringEntryProto& metadata = *added.add_metadata_props();
    metadata.set_key(kPlanMetadata);
    metadata.set_value(plan_text_);
    out.append(added.SerializePartialAsString());
    return out;
  }

 private:
  absl::Status Changed(const WireReader& reader) const {
    return absl::InternalError(absl::StrCat("the model changed: ", reader.error()));
  }

  // What an earlier annotation of this name has left.
  bool IsReplaced(const WireField& field) const {
    const auto parse = [&](auto& proto) {
      return proto.ParseFromArray(field.payload.data(), static_cast<int>(field.payload.size()));
    };
    if (field.number == kModelMetadata) {
      onnx::StringStringEntryProto proto;
      return parse(proto) && proto.key() == kPlanMetadata;
    }
    if (field.number == kModelConfiguration) {
      onnx::DeviceConfigurationProto proto;
      return parse(proto) && proto.name() == configuration_.name;
    }
    return false;
  }

  absl::StatusOr<std::string> AnnotateGraph(std::string_view bytes) const {
    std::string out;
    out.reserve(bytes.size() + bytes.size() / 8);
    WireReader reader(bytes);
    while (!reader.AtEnd()) {
      const std::optional<WireField> field = reader.Next();
      if (!field) return Changed(reader);
      if (field->number != kGraphNode) {
        out.append(field->whole);
        continue;
      }
      onnx::NodeProto node;
      if (!node.ParseFromArray(field->payload.data(), static_cast<int>(field->payload.size()))) {
        return absl::InternalError("the model changed: a node cannot be read any more");
      }
      Annotate(node);
      AppendBytesField(kGraphNode, node.SerializePartialAsString(), out);
    }
    return out;
  }

  void Annotate(onnx::NodeProto& node) const {
    auto& annotations = *node.mutable_device_configurations();
    for (int i = annotations.size() - 1; i >= 0; --i) {
      if (annotations[i].configuration_id() == configuration_.name) {
        annotations.DeleteSubrange(i, 1);
      }
    }
    const std::optional<int> stage = StageOf(node);
    if (!stage.has_value()) return;
    onnx::NodeDeviceConfigurationProto proto;
    proto.set_configuration_id(configuration_.name);
    if (plan_.mesh.pipeline > 1) proto.set_pipeline_stage(*stage);
    std::set<std::string> named;
    for (const auto* tensors : {&node.input(), &node.output()}) {
      for (const std::string& tensor : *tensors) {
        if (!named.insert(tensor).second) continue;
        AddSpec(tensor, *stage, proto);
      }
    }
    if (proto.has_pipeline_stage() || proto.sharding_spec_size() > 0) {
      *annotations.Add() = std::move(proto);
    }
  }

  // Of the node that makes an output; none for constants and what the plan does not name.
  std::optional<int> StageOf(const onnx::NodeProto& node) const {
    for (const std::string& output : node.output()) {
      const std::optional<ValueId> value = model_.graph.FindValue(output);
      if (!value.has_value()) continue;
      const ValueDef& def = model_.graph.value(*value);
      if (def.source != ValueSource::kNode) continue;
      if (plan_.mesh.pipeline == 1) return 0;
      const auto stage = plan_.stages.find(model_.graph.node(def.producer).name);
      if (stage != plan_.stages.end()) return stage->second;
    }
    return std::nullopt;
  }

  // How a tensor lies, if it is split: parameters and hinted-for values over the tensor axis,
  // inputs of the model over the data axis.
  void AddSpec(const std::string& tensor, int stage,
               onnx::NodeDeviceConfigurationProto& proto) const {
    const std::optional<ValueId> value = model_.graph.FindValue(tensor);
    if (!value.has_value()) return;
    const ValueDef& def = model_.graph.value(*value);
    const auto sharding = plan_.tensor_shardings.find(tensor);
    const bool over_tensor = plan_.mesh.tensor > 1 && sharding != plan_.tensor_shardings.end() &&
                             sharding->second.is_split();
    const bool over_data = plan_.mesh.data > 1 && def.source == ValueSource::kInput &&
                           def.type.shape.has_rank() && def.type.shape.rank() > 0;
    if (over_tensor) {
      onnx::ShardingSpecProto& spec = *proto.add_sharding_spec();
      spec.set_tensor_name(tensor);
      AddAxis(def.type.shape, sharding->second.axis, sharding->second.blocks, plan_.mesh.tensor,
              spec);
      AddDevices(stage, MeshAxis::kTensor, spec);
    } else if (over_data) {
      onnx::ShardingSpecProto& spec = *proto.add_sharding_spec();
      spec.set_tensor_name(tensor);
      AddAxis(def.type.shape, 0, 1, plan_.mesh.data, spec);
      AddDevices(stage, MeshAxis::kData, spec);
    }
  }

  static void AddAxis(const SymbolicShape& shape, int axis, int64_t blocks, int shards,
                      onnx::ShardingSpecProto& spec) {
    onnx::ShardedDimProto& dim = *spec.add_sharded_dim();
    dim.set_axis(axis);
    const Dim size = shape.has_rank() && axis < shape.rank() ? shape.dim(axis) : Dim();
    if (blocks > 1) {
      onnx::SimpleShardedDimProto& whole = *dim.add_simple_sharding();
      whole.set_dim_value(blocks);
      whole.set_num_shards(1);
    }
    onnx::SimpleShardedDimProto& split = *dim.add_simple_sharding();
    if (size.is_known()) split.set_dim_value(size.size() / blocks);
    split.set_num_shards(shards);
  }

  // One entry per shard: a device, or a group of all that hold a copy of it.
  void AddDevices(int stage, MeshAxis axis, onnx::ShardingSpecProto& spec) const {
    const Mesh& mesh = plan_.mesh;
    const bool by_tensor = axis == MeshAxis::kTensor;
    const int shards = by_tensor ? mesh.tensor : mesh.data;
    const int copies = by_tensor ? mesh.data : mesh.tensor;
    for (int shard = 0; shard < shards; ++shard) {
      std::vector<int64_t> devices;
      for (int copy = 0; copy < copies; ++copy) {
        Mesh::Coordinate at;
        at.data = by_tensor ? copy : shard;
        at.tensor = by_tensor ? shard : copy;
        at.pipeline = stage;
        devices.push_back(devices_.at(plan_.workers[mesh.RankOf(at).value]));
      }
      if (copies == 1) {
        spec.add_device(devices[0]);
        continue;
      }
      onnx::IntIntListEntryProto& group = *spec.add_index_to_device_group_map();
      group.set_key(configuration_.devices + shard);  // no device's number
      for (const int64_t device : devices) group.add_value(device);
      spec.add_device(group.key());
    }
  }

  const ImportedModel& model_;
  const Plan& plan_;
  const DeviceConfiguration& configuration_;
  const std::map<int, int64_t>& devices_;
  const std::string& plan_text_;
};

}  // namespace

bool HasExternalTensors(const ImportedModel& model) {
  const auto& initializers = model.file.proto()->graph().initializer();
  return std::any_of(initializers.begin(), initializers.end(), [](const auto& tensor) {
    return tensor.data_location() == onnx::TensorProto::EXTERNAL;
  });
}

absl::StatusOr<std::string> AnnotateModel(const ImportedModel& model, const Plan& plan,
                                          const std::string& configuration,
                                          const std::vector<std::string>& worker_names,
                                          const std::string& plan_text) {
  if (plan.chunks > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan gives each rank ", plan.chunks,
        " pipeline stages; ONNX's annotations have one stage per device, so take another schedule "
        "than interleaved"));
  }
  const std::set<int> workers(plan.workers.begin(), plan.workers.end());
  if (static_cast<int>(workers.size()) != plan.mesh.size() || *workers.begin() < 0 ||
      *workers.rbegin() >= static_cast<int>(worker_names.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the plan's workers are not ", plan.mesh.size(),
                                                   " of the cluster's ", worker_names.size(),
                                                   "; complete it first"));
  }
  DeviceConfiguration devices{configuration, plan.mesh.size(), {}};
  std::map<int, int64_t> device_of;
  for (const int worker : workers) {
    device_of[worker] = static_cast<int64_t>(devices.device_names.size());
    devices.device_names.push_back(worker_names[worker]);
  }
  return Annotator(model, plan, devices, device_of, plan_text).Run();
}

}  // namespace weft
