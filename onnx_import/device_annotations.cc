#include "onnx_import/device_annotations.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// An axis that is cut into several shards.
struct SplitAxis {
  int axis = 0;
  int64_t blocks = 1;
  int shards = 1;
};

// A ShardingSpecProto that obeys ONNX's rules.
struct TensorSpec {
  std::string where;  // "node 'up' (MatMul), tensor 'up.weight'"
  std::string tensor;
  ValueSource source = ValueSource::kInput;
  int stage = -1;  // of the node; -1 = not said
  std::vector<SplitAxis> axes;
  // The devices of each shard, axes from major to minor.
  std::vector<std::vector<int64_t>> shards;
};

std::string DeviceList(const std::vector<int64_t>& devices) {
  return absl::StrCat("[", absl::StrJoin(devices, ", "), "]");
}

// Reads one node's specs.
class SpecReader {
 public:
  SpecReader(const Graph& graph, int devices, const onnx::NodeProto& node, std::string label)
      : graph_(graph), devices_(devices), node_(node), label_(std::move(label)) {}

  absl::StatusOr<TensorSpec> Read(const onnx::ShardingSpecProto& proto) {
    TensorSpec spec;
    spec.tensor = proto.tensor_name();
    spec.where = absl::StrCat(label_, ", tensor ", Quoted(spec.tensor));
    where_ = spec.where;
    WEFT_ASSIGN_OR_RETURN(const ValueDef* const value, FindTensor(proto.tensor_name()));
    spec.source = value->source;
    WEFT_RETURN_IF_ERROR(ReadAxes(proto, value->type.shape, spec));
    WEFT_RETURN_IF_ERROR(ReadDevices(proto, spec));
    return spec;
  }

 private:
  absl::Status Error(const std::string& message) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", message));
  }

  absl::StatusOr<const ValueDef*> FindTensor(const std::string& name) const {
    const auto has = [&](const auto& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (name.empty() || (!has(node_.input()) && !has(node_.output()))) {
      return Error("a sharding spec must name an input or output of its node");
    }
    const std::optional<ValueId> value = graph_.FindValue(name);
    if (!value.has_value()) return Error("the sharded tensor is not there any more");
    return &graph_.value(*value);
  }

  absl::Status ReadAxes(const onnx::ShardingSpecProto& proto, const SymbolicShape& shape,
                        TensorSpec& spec) {
    std::set<int64_t> seen;
    for (const onnx::ShardedDimProto& dim : proto.sharded_dim()) {
      if (!shape.has_rank()) return Error("its rank is not known, so no axis can be sharded");
      const int64_t rank = shape.rank();
      if (!dim.has_axis() || dim.axis() < -rank || dim.axis() >= rank) {
        return Error(
            absl::StrCat("sharded axis ", dim.axis(), " is outside [", -rank, ", ", rank, ")"));
      }
      const int axis = static_cast<int>(dim.axis() < 0 ? dim.axis() + rank : dim.axis());
      if (!seen.insert(axis).second) {
        return Error(absl::StrCat("axis ", axis, " is sharded twice"));
      }
      WEFT_ASSIGN_OR_RETURN(const SplitAxis split, ReadAxis(dim, axis, shape.dim(axis)));
      if (split.shards > 1) spec.axes.push_back(split);
    }
    std::sort(spec.axes.begin(), spec.axes.end(),
              [](const SplitAxis& a, const SplitAxis& b) { return a.axis < b.axis; });
    return absl::OkStatus();
  }

  absl::StatusOr<SplitAxis> ReadAxis(const onnx::ShardedDimProto& dim, int axis,
                                     const Dim& size) const {
    const std::string name = absl::StrCat("axis ", axis);
    if (dim.simple_sharding_size() == 0) {
      return Error(absl::StrCat(name, " does not say into how many shards"));
    }
    SplitAxis split{axis, 1, 1};
    int64_t product = 1;
    bool all_known = true;
    for (const onnx::SimpleShardedDimProto& factor : dim.simple_sharding()) {
      const int64_t shards = factor.num_shards();
      if (shards < 1 || shards > devices_) {
        return Error(absl::StrCat(name, " is to be cut into ", shards, " shards; expected 1 to ",
                                  devices_, ", the number of devices"));
      }
      if (factor.has_dim_value() && (factor.dim_value() < 1 || factor.dim_value() > kMaxDim)) {
        return Error(absl::StrCat(name, " has a factor of ", factor.dim_value()));
      }
      all_known = all_known && factor.has_dim_value() && product <= kMaxDim;
      if (shards > 1) {
        if (split.shards > 1) return Error(absl::StrCat(name, " is cut along two factors"));
        if (!all_known && product != 1) {
          return Error(absl::StrCat(name, " is cut along a factor of unknown place"));
        }
        split.shards = static_cast<int>(shards);
        split.blocks = product;
        const int64_t rows = factor.has_dim_value() ? factor.dim_value() : shards;
        if (rows < shards) {
          return Error(absl::StrCat(name, " has ", rows, " rows for ", shards, " shards"));
        }
      }
      if (factor.has_dim_value()) {  // what is beyond the largest dimension stays there
        const int64_t rows = factor.dim_value();
        product = product > kMaxDim / rows ? kMaxDim + 1 : product * rows;
      }
    }
    if (size.is_known() && all_known && product != size.size()) {
      return Error(absl::StrCat(name, " is sharded as one of ", product, " elements, but has ",
                                size.size()));
    }
    if (size.is_known() && size.size() / split.blocks < split.shards) {
      return Error(
          absl::StrCat(name, " has ", size.size(), " elements for ", split.shards, " shards"));
    }
    return split;
  }

  absl::Status ReadDevices(const onnx::ShardingSpecProto& proto, TensorSpec& spec) const {
    std::map<int64_t, const onnx::IntIntListEntryProto*> groups;
    for (const onnx::IntIntListEntryProto& group : proto.index_to_device_group_map()) {
      if (!groups.emplace(group.key(), &group).second) {
        return Error(absl::StrCat("device group ", group.key(), " is there twice"));
      }
    }
    std::set<int64_t> seen;
    for (const int64_t entry : proto.device()) {
      std::vector<int64_t> devices = {entry};
      if (const auto group = groups.find(entry); group != groups.end()) {
        devices.assign(group->second->value().begin(), group->second->value().end());
        if (devices.empty()) return Error(absl::StrCat("device group ", entry, " is empty"));
        groups.erase(group);
      }
      for (const int64_t device : devices) {
        if (device < 0 || device >= devices_) {
          return Error(absl::StrCat("device ", device, " is not one of the configuration's ",
                                    devices_, ", 0 to ", devices_ - 1));
        }
        if (!seen.insert(device).second) {
          return Error(absl::StrCat("device ", device, " is named twice"));
        }
      }
      spec.shards.push_back(std::move(devices));
    }
    if (!groups.empty()) {
      return Error(absl::StrCat("device group ", groups.begin()->first, " has no shard"));
    }
    return CheckShards(spec);
  }

  // One entry per shard; without shards, all entries hold a copy.
  absl::Status CheckShards(TensorSpec& spec) const {
    int64_t expected = 1;
    std::vector<int> axes;
    for (const SplitAxis& axis : spec.axes) {
      expected *= axis.shards;
      axes.push_back(axis.axis);
    }
    if (spec.shards.empty()) return Error("the sharding spec names no devices");
    if (spec.axes.empty()) {
      for (size_t i = 1; i < spec.shards.size(); ++i) {
        spec.shards[0].insert(spec.shards[0].end(), spec.shards[i].begin(), spec.shards[i].end());
      }
      spec.shards.resize(1);
      return absl::OkStatus();
    }
    if (static_cast<int64_t>(spec.shards.size()) == expected) return absl::OkStatus();
    return Error(absl::StrCat("axis ", absl::StrJoin(axes, " and axis "), " make ", expected,
                              " shards, but there are ", spec.shards.size(),
                              " devices or groups of devices for them"));
  }

  const Graph& graph_;
  const int devices_;
  const onnx::NodeProto& node_;
  const std::string label_;
  std::string where_;
};

// Which device each cell of a stage's grid of replicas and shards may be.
class StageDevices {
 public:
  StageDevices(int stage, int data, int tensor, int devices)
      : stage_(stage), data_(data), tensor_(tensor) {
    std::set<int64_t> all;
    for (int device = 0; device < devices; ++device) all.insert(all.end(), device);
    cells_.assign(static_cast<size_t>(data) * tensor, all);
  }

  absl::Status Add(const TensorSpec& spec) {
    is_given_ = true;
    for (size_t i = 0; i < spec.shards.size(); ++i) {
      const std::vector<size_t> cells = CellsOf(spec, i);
      if (cells.size() != spec.shards[i].size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(spec.where, ": shard ", i, " is on the devices ",
                         DeviceList(spec.shards[i]), ", but stage ", stage_, " has ", cells.size(),
                         " that need it (", data_, " replicas of ", tensor_, " shards)"));
      }
      const std::set<int64_t> allowed(spec.shards[i].begin(), spec.shards[i].end());
      for (const size_t cell : cells) {
        std::erase_if(cells_[cell], [&](int64_t device) { return !allowed.contains(device); });
        if (!cells_[cell].empty()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(spec.where, ": shard ", i, " on the devices ", DeviceList(spec.shards[i]),
                         " contradicts what other tensors of stage ", stage_, " say"));
      }
    }
    return absl::OkStatus();
  }

  bool is_given() const { return is_given_; }

  // Gives each cell a device that none has; the devices by cell.
  absl::StatusOr<std::vector<int>> Choose(std::set<int64_t>& taken) const {
    std::vector<int> chosen;
    for (const std::set<int64_t>& cell : cells_) {
      const auto device = std::find_if(
          cell.begin(), cell.end(), [&](int64_t candidate) { return !taken.contains(candidate); });
      if (device == cell.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("stage ", stage_, " has no device of its own left for replica ",
                         chosen.size() / tensor_, ", shard ", chosen.size() % tensor_));
      }
      taken.insert(*device);
      chosen.push_back(static_cast<int>(*device));
    }
    return chosen;
  }

 private:
  // The cells that hold shard `index` of the spec.
  std::vector<size_t> CellsOf(const TensorSpec& spec, size_t index) const {
    int replica = -1;
    int shard = -1;
    for (auto axis = spec.axes.rbegin(); axis != spec.axes.rend(); ++axis) {
      const int place = static_cast<int>(index % axis->shards);
      index /= axis->shards;
      const bool is_batch = spec.source != ValueSource::kVariable &&
                            spec.source != ValueSource::kConstant && axis->axis == 0;
      (is_batch ? replica : shard) = place;
    }
    std::vector<size_t> cells;
    for (int d = 0; d < data_; ++d) {
      for (int t = 0; t < tensor_; ++t) {
        if ((replica < 0 || replica == d) && (shard < 0 || shard == t)) {
          cells.push_back(static_cast<size_t>(d) * tensor_ + t);
        }
      }
    }
    return cells;
  }

  const int stage_;
  const int data_;
  const int tensor_;
  bool is_given_ = false;
  std::vector<std::set<int64_t>> cells_;
};

class AnnotationReader {
 public:
  AnnotationReader(const ImportedModel& model, const onnx::DeviceConfigurationProto& configuration)
      : model_(model),
        graph_(model.graph),
        name_(configuration.name()),
        devices_(configuration.num_devices()),
        device_names_(configuration.device_size()) {}

  absl::StatusOr<Plan> Read() {
    if (devices_ < 1 || devices_ > kMaxDevices) {
      return Error(absl::StrCat("it has ", devices_, " devices; expected 1 to ", kMaxDevices));
    }
    if (device_names_ != 0 && device_names_ != devices_) {
      return Error(absl::StrCat("it names ", device_names_, " devices, but has ", devices_));
    }
    const onnx::GraphProto& graph = model_.file.proto()->graph();
    for (int i = 0; i < graph.node_size(); ++i) {
      WEFT_RETURN_IF_ERROR(ReadNode(graph.node(i), NodeLabel(graph.node(i), i)));
    }
    for (const TensorSpec& spec : specs_) WEFT_RETURN_IF_ERROR(AddDegrees(spec));
    WEFT_RETURN_IF_ERROR(FinishMesh());
    WEFT_RETURN_IF_ERROR(FinishWorkers());
    return std::move(plan_);
  }

 private:
  static constexpr int kMaxDevices = 1 << 16;
  static constexpr int kMaxStages = 1 << 16;

  absl::Status Error(const std::string& message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(model_.file.Label(), ", device configuration ", Quoted(name_), ": ", message));
  }

  absl::Status ReadNode(const onnx::NodeProto& node, const std::string& label) {
    bool seen = false;
    for (const onnx::NodeDeviceConfigurationProto& proto : node.device_configurations()) {
      if (proto.configuration_id() != name_) continue;
      if (seen) return Error(absl::StrCat(label, " has two annotations of it"));
      seen = true;
      int stage = -1;
      if (proto.has_pipeline_stage()) {
        stage = proto.pipeline_stage();
        if (stage < 0 || stage >= kMaxStages) {
          return Error(absl::StrCat(label, " is on pipeline stage ", stage));
        }
        last_stage_ = std::max(last_stage_, stage);
        SetStage(node, stage);
      }
      SpecReader reader(graph_, devices_, node, label);
      for (const onnx::ShardingSpecProto& spec : proto.sharding_spec()) {
        absl::StatusOr<TensorSpec> read = reader.Read(spec);
        if (!read.ok()) return Error(std::string(read.status().message()));
        read->stage = stage;
        specs_.push_back(*std::move(read));
      }
    }
    return absl::OkStatus();
  }

  // For a call of a function: of all nodes that it has become.
  void SetStage(const onnx::NodeProto& node, int stage) {
    for (const std::string& output : node.output()) {
      const std::optional<ValueId> value = graph_.FindValue(output);
      if (!value.has_value() || graph_.value(*value).source != ValueSource::kNode) continue;
      const std::string& name = graph_.node(graph_.value(*value).producer).name;
      plan_.stages[name] = stage;
      if (const size_t slash = name.rfind('/'); !node.name().empty() &&
                                                slash != std::string::npos &&
                                                name.compare(0, slash, node.name()) == 0) {
        plan_.stages[absl::StrCat(node.name(), "/*")] = stage;
      }
    }
  }

  // How many ranks each axis of the mesh has, and how the tensor lies.
  absl::Status AddDegrees(const TensorSpec& spec) {
    const bool is_parameter =
        spec.source == ValueSource::kVariable || spec.source == ValueSource::kConstant;
    AxisSharding sharding;
    for (const SplitAxis& axis : spec.axes) {
      if (!is_parameter && axis.axis == 0) {
        if (axis.blocks > 1) {
          return Error(absl::StrCat(spec.where, ": axis 0, the batch, is split in blocks"));
        }
        WEFT_RETURN_IF_ERROR(Agree(spec, axis, "replicas", plan_.mesh.data, data_from_));
        continue;
      }
      if (spec.source == ValueSource::kInput) {
        return Error(absl::StrCat(spec.where, ": axis ", axis.axis,
                                  " of an input of the model is split; only axis 0, the batch, can "
                                  "be"));
      }
      if (sharding.is_split()) {
        return Error(absl::StrCat(spec.where, ": axis ", sharding.axis, " and axis ", axis.axis,
                                  " are split; one axis is, or the batch and one other"));
      }
      WEFT_RETURN_IF_ERROR(Agree(spec, axis, "shards", plan_.mesh.tensor, tensor_from_));
      sharding = AxisSharding::Split(axis.axis, axis.blocks);
    }
    return AddSharding(spec, sharding);
  }

  absl::Status Agree(const TensorSpec& spec, const SplitAxis& axis, const char* what, int& degree,
                     std::string& from) {
    if (from.empty()) {
      degree = axis.shards;
      from = spec.where;
    }
    if (degree == axis.shards) return absl::OkStatus();
    return Error(absl::StrCat(spec.where, ": axis ", axis.axis, " is cut into ", axis.shards, " ",
                              what, ", but ", from, " has ", degree));
  }

  absl::Status AddSharding(const TensorSpec& spec, const AxisSharding& sharding) {
    const auto [place, is_new] = shardings_.try_emplace(spec.tensor, sharding, spec.where);
    if (!is_new && place->second.first != sharding) {
      const int axis = sharding.is_split() ? sharding.axis : place->second.first.axis;
      return Error(absl::StrCat(spec.where, ": axis ", axis, ": the tensor lies as ",
                                sharding.ToString(), " here and as ",
                                place->second.first.ToString(), " at ", place->second.second,
                                "; it can lie in one way only"));
    }
    if (sharding.is_split()) plan_.tensor_shardings[spec.tensor] = sharding;
    return absl::OkStatus();
  }

  absl::Status FinishMesh() {
    Mesh& mesh = plan_.mesh;
    mesh.pipeline = last_stage_ + 1;
    const int64_t others = int64_t{mesh.pipeline} * mesh.tensor;
    if (data_from_.empty() && devices_ % others == 0) {
      mesh.data = static_cast<int>(devices_ / others);
    }
    if (others * mesh.data == devices_) return absl::OkStatus();
    return Error(absl::StrCat("its ", devices_, " devices are not ", mesh.pipeline,
                              " pipeline stages of ", mesh.data, " replicas of ", mesh.tensor,
                              " shards, which its nodes ask for"));
  }

  absl::Status FinishWorkers() {
    const Mesh& mesh = plan_.mesh;
    std::vector<StageDevices> stages;
    for (int stage = 0; stage < mesh.pipeline; ++stage) {
      stages.emplace_back(stage, mesh.data, mesh.tensor, devices_);
    }
    for (const TensorSpec& spec : specs_) {
      if (spec.stage < 0 && mesh.pipeline > 1) continue;
      if (absl::Status added = stages[std::max(spec.stage, 0)].Add(spec); !added.ok()) {
        return Error(std::string(added.message()));
      }
    }
    // Who says nothing takes what the others leave.
    std::set<int64_t> taken;
    plan_.workers.assign(mesh.size(), 0);
    for (const bool given : {true, false}) {
      for (int stage = 0; stage < mesh.pipeline; ++stage) {
        if (stages[stage].is_given() != given) continue;
        absl::StatusOr<std::vector<int>> chosen = stages[stage].Choose(taken);
        if (!chosen.ok()) return Error(std::string(chosen.status().message()));
        std::copy(chosen->begin(), chosen->end(),
                  plan_.workers.begin() + int64_t{stage} * mesh.data * mesh.tensor);
      }
    }
    return absl::OkStatus();
  }

  const ImportedModel& model_;
  const Graph& graph_;
  const std::string name_;
  const int devices_;
  const int device_names_;
  Plan plan_;
  std::vector<TensorSpec> specs_;
  std::map<std::string, std::pair<AxisSharding, std::string>> shardings_;
  int last_stage_ = 0;
  std::string data_from_;  // who said how many replicas
  std::string tensor_from_;
};

// Every annotation must belong to some configuration, whichever is read.
absl::Status CheckReferences(const ImportedModel& model) {
  std::set<std::string> names;
  for (const onnx::DeviceConfigurationProto& proto : model.file.proto()->configuration()) {
    if (proto.name().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(model.file.Label(), " has a device configuration without a name"));
    }
    if (!names.insert(proto.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          model.file.Label(), " has two device configurations ", Quoted(proto.name())));
    }
  }
  const onnx::GraphProto& graph = model.file.proto()->graph();
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const auto& proto : graph.node(i).device_configurations()) {
      if (names.contains(proto.configuration_id())) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(model.file.Label(), ": ", NodeLabel(graph.node(i), i),
                       " is annotated for the device configuration ",
                       Quoted(proto.configuration_id()), ", which the model does not have"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<DeviceConfiguration> DeviceConfigurationsOf(const ImportedModel& model) {
  std::vector<DeviceConfiguration> configurations;
  for (const onnx::DeviceConfigurationProto& proto : model.file.proto()->configuration()) {
    configurations.push_back(
        {proto.name(), proto.num_devices(), {proto.device().begin(), proto.device().end()}});
  }
  return configurations;
}

absl::StatusOr<Plan> PlanOfConfiguration(const ImportedModel& model,
                                         const std::string& configuration) {
  WEFT_RETURN_IF_ERROR(CheckReferences(model));
  for (const onnx::DeviceConfigurationProto& proto : model.file.proto()->configuration()) {
    if (proto.name() == configuration) return AnnotationReader(model, proto).Read();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(model.file.Label(), " has no device configuration ", Quoted(configuration)));
}

}  // namespace weft
