#include "onnx_import/edit/tensor_uses.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/module_path.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/module_calls.h"

namespace weft {
namespace {

// Nodes in a row that only move elements; no exporter writes more.
constexpr int kMaxMoves = 16;

bool HoldsParameters(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

bool IsStandard(const onnx::NodeProto& node, std::string_view op) {
  return NormalizedDomain(node.domain()).empty() && node.op_type() == op;
}

// The tensor of a Constant; null for other nodes and other kinds of constants.
const onnx::TensorProto* ConstantTensor(const onnx::NodeProto& node) {
  const bool fits = IsStandard(node, "Constant") && node.input_size() == 0 &&
                    node.output_size() == 1 && node.attribute_size() == 1;
  if (!fits || node.attribute(0).name() != "value" || !node.attribute(0).has_t()) return nullptr;
  return &node.attribute(0).t();
}

}  // namespace

TensorUses::TensorUses(const ModelFile& file) : file_(file), graph_(file.proto()->graph()) {
  AddNames(graph_, /*is_main=*/true);
  for (const onnx::FunctionProto& function : file.proto()->functions()) {
    for (const onnx::NodeProto& node : function.node()) {
      names_.insert(node.output().begin(), node.output().end());
    }
  }
  AddTensors();
  AddNodes();
  AddIdentities();
  AddUses();
  AddCalls();
}

void TensorUses::AddNames(const onnx::GraphProto& graph, bool is_main) {
  for (const onnx::ValueInfoProto& input : graph.input()) {
    names_.insert(input.name());
    if (is_main) inputs_.insert(input.name());
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    names_.insert(output.name());
    (is_main ? outputs_ : captured_).insert(output.name());
  }
  for (const onnx::TensorProto& tensor : graph.initializer()) names_.insert(tensor.name());
  for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer()) {
    names_.insert(tensor.values().name());
  }
  for (const onnx::ValueInfoProto& value : graph.value_info()) names_.insert(value.name());
  for (const onnx::NodeProto& node : graph.node()) {
    names_.insert(node.output().begin(), node.output().end());
    names_.insert(node.input().begin(), node.input().end());
    // A name of a subgraph's own counts as captured too: then nothing is changed.
    if (!is_main) captured_.insert(node.input().begin(), node.input().end());
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) AddNames(attribute.g(), /*is_main=*/false);
      for (const onnx::GraphProto& inner : attribute.graphs()) AddNames(inner, /*is_main=*/false);
    }
  }
}

void TensorUses::AddTensors() {
  const EncodedTensors encoded = FindEncodedTensors(file_);
  const auto add = [this](FileTensor tensor) {
    const absl::StatusOr<TensorHeader> header = DecodeTensorHeader(*tensor.proto);
    if (!header.ok() || !HoldsParameters(header->dtype)) return;
    tensor.dtype = header->dtype;
    tensor.shape = header->shape;
    const int index = static_cast<int>(tensors_.size());
    if (tensor_of_.emplace(tensor.name, index).second) tensors_.push_back(std::move(tensor));
  };
  for (int i = 0; i < graph_.initializer_size(); ++i) {
    if (static_cast<size_t>(i) >= encoded.initializers.size()) break;
    const onnx::TensorProto& proto = graph_.initializer(i);
    add({proto.name(), i, -1, &proto, encoded.initializers[static_cast<size_t>(i)]});
  }
  for (int i = 0; i < graph_.node_size(); ++i) {
    const onnx::TensorProto* const proto = ConstantTensor(graph_.node(i));
    const auto bytes = encoded.constants.find(i);
    if (proto == nullptr || bytes == encoded.constants.end()) continue;
    add({graph_.node(i).output(0), -1, i, proto, bytes->second});
  }
  uses_.resize(tensors_.size());
}

void TensorUses::AddNodes() {
  for (int i = 0; i < graph_.node_size(); ++i) {
    const onnx::NodeProto& node = graph_.node(i);
    for (int input = 0; input < node.input_size(); ++input) {
      if (!node.input(input).empty()) readers_[node.input(input)].emplace_back(i, input);
    }
    for (const std::string& output : node.output()) producers_.emplace(output, i);
  }
}

void TensorUses::AddIdentities() {
  // Files may list nodes in any order; each round finds those behind the last ones.
  bool found = true;
  for (int round = 0; found && round < kMaxMoves; ++round) {
    found = false;
    for (int i = 0; i < graph_.node_size(); ++i) {
      const onnx::NodeProto& node = graph_.node(i);
      const bool fits = IsStandard(node, "Identity") && node.input_size() == 1 &&
                        node.output_size() == 1 && !node.output(0).empty();
      if (!fits || identities_.count(i) > 0) continue;
      const int tensor = TensorOf(node.input(0));
      if (tensor < 0 || !tensor_of_.emplace(node.output(0), tensor).second) continue;
      identities_[i] = node.output(0);
      found = true;
    }
  }
}

void TensorUses::AddUses() {
  for (int i = 0; i < graph_.node_size(); ++i) {
    if (identities_.count(i) > 0) continue;
    const onnx::NodeProto& node = graph_.node(i);
    for (int input = 0; input < node.input_size(); ++input) {
      const int tensor = TensorOf(node.input(input));
      if (tensor < 0) continue;
      TensorUse use{tensor, node.input(input), i, input};
      FollowMoves(use);
      const Shape& shape = tensors_[static_cast<size_t>(tensor)].shape;
      if (!IsPartOfGroupNorm(use.reader)) {
        use.role = RoleAt(graph_.node(use.reader), use.port, shape);
      }
      uses_[static_cast<size_t>(tensor)].push_back(std::move(use));
    }
  }
  std::vector<std::pair<std::string, int>> names(tensor_of_.begin(), tensor_of_.end());
  std::sort(names.begin(), names.end());
  for (const auto& [name, tensor] : names) {
    if (!outputs_.contains(name) && !captured_.contains(name)) continue;
    uses_[static_cast<size_t>(tensor)].push_back({tensor, name});
  }
}

void TensorUses::AddCalls() {
  std::map<std::string, std::set<int>> tensors_of;
  std::vector<std::set<int>*> of_node(static_cast<size_t>(graph_.node_size()), nullptr);
  for (int i = 0; i < graph_.node_size(); ++i) {
    if (HasNameScopes(graph_.node(i))) continue;
    const std::string module = ModuleInNodeName(graph_.node(i).name());
    if (!module.empty()) of_node[static_cast<size_t>(i)] = &tensors_of[module];
  }
  for (const std::vector<TensorUse>& uses : uses_) {
    for (const TensorUse& use : uses) {
      // Exporters write other numbers, such as an epsilon, anew for each call.
      if (use.reader < 0 || use.role == ParameterRole::kOther) continue;
      std::set<int>* const tensors = of_node[static_cast<size_t>(use.reader)];
      if (tensors != nullptr) tensors->insert(use.tensor);
    }
  }
  if (tensors_of.empty()) return;
  std::set<std::string> names;
  for (const onnx::TensorProto& tensor : graph_.initializer()) names.insert(tensor.name());
  for (const auto& [node, output] : identities_) names.insert(output);
  module_of_call_ = FindModuleCalls(tensors_of, names);
}

std::string TensorUses::ModuleAt(int node) const {
  if (node < 0) return "";
  std::string module = ModuleOf(graph_.node(node));
  if (HasNameScopes(graph_.node(node))) return module;
  const auto call = module_of_call_.find(module);
  return call != module_of_call_.end() ? call->second : module;
}

std::set<std::string> TensorUses::WeightReadersOf(int tensor) const {
  std::set<std::string> modules;
  for (const TensorUse& use : uses(tensor)) {
    if (use.role == ParameterRole::kWeight) modules.insert(ModuleAt(use.reader));
  }
  return modules;
}

bool TensorUses::IsPartOfGroupNorm(int node) const {
  const onnx::NodeProto& proto = graph_.node(node);
  if (!IsStandard(proto, "InstanceNormalization") || proto.output_size() == 0) return false;
  const int before = ProducerOf(proto.input(0));
  const std::vector<std::pair<int, int>>& readers = ReadersOf(proto.output(0));
  const bool is_behind = before >= 0 && IsStandard(graph_.node(before), "Reshape");
  if (!is_behind || readers.size() != 1) return false;
  const auto& [reader, input] = readers.front();
  const onnx::NodeProto& next = graph_.node(reader);
  if (IsStandard(next, "Reshape")) return true;
  // A group for each channel: the shape is right already, and the module's own scale follows.
  const int scale = IsStandard(next, "Mul") && next.input_size() == 2 && input < 2
                        ? MovedTensorOf(next.input(1 - input))
                        : -1;
  if (scale < 0) return false;
  const Shape& shape = tensors_[static_cast<size_t>(scale)].shape;
  int long_axes = 0;
  for (int i = 0; i < shape.rank(); ++i) long_axes += shape.dim(i) > 1;
  return long_axes == 1 && shape.dim(shape.rank() - 1) == 1;
}

void TensorUses::FollowMoves(TensorUse& use) const {
  use.reader = use.node;
  use.port = use.input;
  for (int moves = 0; moves < kMaxMoves; ++moves) {
    const onnx::NodeProto& node = graph_.node(use.reader);
    if (use.port != 0 || !OnlyMovesElements(node) || node.output_size() != 1) return;
    const std::string& output = node.output(0);
    const std::vector<std::pair<int, int>>& readers = ReadersOf(output);
    if (readers.size() != 1 || IsGraphOutput(output) || IsCaptured(output)) return;
    std::tie(use.reader, use.port) = readers.front();
  }
}

int TensorUses::TensorOf(const std::string& name) const {
  const auto found = tensor_of_.find(name);
  return found != tensor_of_.end() ? found->second : -1;
}

int TensorUses::MovedTensorOf(const std::string& name) const {
  const std::string* current = &name;
  for (int moves = 0; moves < kMaxMoves; ++moves) {
    const int tensor = TensorOf(*current);
    if (tensor >= 0) return tensor;
    const int producer = ProducerOf(*current);
    if (producer < 0 || graph_.node(producer).input_size() == 0) return -1;
    if (!OnlyMovesElements(graph_.node(producer))) return -1;
    current = &graph_.node(producer).input(0);
  }
  return -1;
}

int TensorUses::ProducerOf(const std::string& name) const {
  const auto found = producers_.find(name);
  return found != producers_.end() && !name.empty() ? found->second : -1;
}

const std::vector<std::pair<int, int>>& TensorUses::ReadersOf(const std::string& name) const {
  static const auto* const none = new std::vector<std::pair<int, int>>();
  const auto found = readers_.find(name);
  return found != readers_.end() ? found->second : *none;
}

}  // namespace weft
