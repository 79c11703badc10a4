#include "onnx_import/edit/lost_biases.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "onnx_import/codec/graph_signature.h"
#include "onnx_import/codec/model_validator.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kBiasPort = 2;
constexpr int64_t kFirstIrWithFreeInitializers = 4;
// Nodes of one module that lack biases; no module has so many without parts.
constexpr size_t kMaxInOrder = 16;

std::string OwnerOf(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool IsNameOfBias(const std::string& name) {
  const size_t dot = name.rfind('.');
  const std::string leaf = dot == std::string::npos ? name : name.substr(dot + 1);
  return absl::StartsWith(leaf, "bias") || absl::EndsWith(leaf, "bias");
}

const onnx::AttributeProto* AttributeOf(const onnx::NodeProto& node, const char* name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

int64_t IntegerOf(const onnx::NodeProto& node, const char* name, int64_t otherwise) {
  const onnx::AttributeProto* const attribute = AttributeOf(node, name);
  return attribute != nullptr ? attribute->i() : otherwise;
}

// How many numbers the bias of a node has whose weight has this shape; nothing for nodes that have
// a bias, or cannot have one. No more than the weight has.
std::optional<int64_t> BiasExtent(const onnx::NodeProto& node, const Shape& weight) {
  const bool has_room = node.input_size() == kBiasPort && weight.rank() >= 2;
  if (!has_room || !NormalizedDomain(node.domain()).empty()) return std::nullopt;
  if (node.op_type() == "Conv") return weight.dim(0);
  if (node.op_type() == "ConvTranspose") {
    const int64_t groups = IntegerOf(node, "group", 1);
    const bool fits = groups >= 1 && groups <= weight.dim(0) && weight.num_elements() > 0;
    return fits ? std::optional<int64_t>(weight.dim(1) * groups) : std::nullopt;
  }
  if (node.op_type() != "Gemm" || weight.rank() != 2) return std::nullopt;
  const onnx::AttributeProto* const beta = AttributeOf(node, "beta");
  if (beta != nullptr && beta->f() != 1.0F) return std::nullopt;
  return IntegerOf(node, "transB", 0) != 0 ? weight.dim(0) : weight.dim(1);
}

size_t BiasBytes(const FileTensor& like, int64_t extent) {
  return static_cast<size_t>(extent) * static_cast<size_t>(DTypeBits(like.dtype) / 8);
}

onnx::TensorProto Zeros(const std::string& name, const FileTensor& like, int64_t extent) {
  onnx::TensorProto zeros;
  zeros.set_name(name);
  zeros.set_data_type(like.proto->data_type());
  zeros.add_dims(extent);
  zeros.set_raw_data(std::string(BiasBytes(like, extent), '\0'));
  return zeros;
}

class Restorer {
 public:
  Restorer(const TensorUses& uses, CopyBudget& budget, FileEdit& edit, TieReport& report)
      : uses_(uses), budget_(budget), edit_(edit), report_(report) {
    for (const SignatureEntry& entry : GraphSignatureOf(*uses_.file().proto())) {
      const bool is_parameter = entry.kind == ExportedKind::kParameter;
      if (is_parameter && parameters_.insert(entry.target).second) order_.push_back(entry.target);
      if (entry.kind == ExportedKind::kBuffer) buffers_.insert(entry.target);
    }
    for (const UntiedTensor& untied : report_.untied) untied_.insert(untied.name);
  }

  absl::Status Run() {
    // By module: nodes of whose bias no name is known.
    std::map<std::string, std::vector<int>> nameless;
    for (int i = 0; i < uses_.num_nodes() && !parameters_.empty(); ++i) {
      const std::optional<int64_t> extent = ExtentAt(i);
      if (!extent.has_value()) continue;
      const std::string name = NameOf(i, WeightNameOf(i));
      if (name.empty()) {
        nameless[uses_.ModuleAt(i)].push_back(i);
      } else {
        WEFT_RETURN_IF_ERROR(Restore(i, *extent, name));
      }
    }
    return nameless.empty() ? absl::OkStatus() : RestoreInOrder(nameless);
  }

 private:
  // Of the bias that a node can have and lacks.
  std::optional<int64_t> ExtentAt(int index) const {
    const onnx::NodeProto& node = uses_.node(index);
    const int tensor = node.input_size() == kBiasPort ? uses_.TensorOf(node.input(1)) : -1;
    if (tensor < 0 || edit_.removed_nodes.contains(index)) return std::nullopt;
    const FileTensor& weight = uses_.tensors()[static_cast<size_t>(tensor)];
    const std::optional<int64_t> extent = BiasExtent(node, weight.shape);
    // A weight without elements may have any extent.
    const bool fits = extent.has_value() && *extent > 0 && *extent <= weight.shape.num_elements();
    return fits ? extent : std::nullopt;
  }

  const FileTensor& WeightAt(int index) const {
    return uses_.tensors()[static_cast<size_t>(uses_.TensorOf(uses_.node(index).input(1)))];
  }

  // Of a weight that is untied, the name that it has from now on.
  std::string WeightNameOf(int index) const {
    const auto renamed = edit_.renamed.find({index, 1});
    return renamed != edit_.renamed.end() ? renamed->second : WeightAt(index).name;
  }

  absl::Status Restore(int index, int64_t extent, const std::string& name) {
    const FileTensor& weight = WeightAt(index);
    const auto [made, is_new] = made_.emplace(name, extent);
    if (made->second != extent) return absl::OkStatus();  // another module's
    size_t bytes = name.size();
    if (is_new) bytes += name.size() + BiasBytes(weight, extent);
    const absl::Status status = budget_.TakeNames(weight.name, weight.encoded, bytes);
    if (!status.ok()) return Annotate(status, uses_.file().Label());
    if (is_new) {
      edit_.new_initializers.push_back(Zeros(name, weight, extent).SerializeAsString());
      report_.restored.push_back(name);
    }
    edit_.added_inputs[index] = name;
    return absl::OkStatus();
  }

  bool IsLost(const std::string& name) const {
    return parameters_.contains(name) && !untied_.contains(name) && !uses_.IsTaken(name);
  }

  // A module may give its nodes the parameters of its own, or of a part that makes no node itself:
  // as many lost biases as nodes without one are theirs, in order.
  absl::Status RestoreInOrder(const std::map<std::string, std::vector<int>>& nameless) {
    std::set<std::string> with_nodes;
    for (int i = 0; i < uses_.num_nodes(); ++i) with_nodes.insert(uses_.ModuleAt(i));
    const auto makes_nodes = [&with_nodes](const std::string& module) {
      const auto inside = with_nodes.lower_bound(absl::StrCat(module, "."));
      return with_nodes.contains(module) ||
             (inside != with_nodes.end() && absl::StartsWith(*inside, absl::StrCat(module, ".")));
    };
    std::map<std::string, std::vector<std::string>> lost;  // by the module that may use them
    for (const std::string& name : order_) {
      if (!IsNameOfBias(name) || !IsLost(name) || made_.contains(name)) continue;
      const std::string owner = OwnerOf(name);
      // That weight's product is another node, or has no room for a bias.
      const bool has_product =
          absl::EndsWith(absl::StrCat(".", name), ".bias") &&
          uses_.IsTaken(absl::StrCat(owner, owner.empty() ? "" : ".", "weight"));
      if (has_product) continue;
      const bool is_of_part = !owner.empty() && !makes_nodes(owner);
      lost[is_of_part ? OwnerOf(owner) : owner].push_back(name);
    }
    for (const auto& [module, nodes] : nameless) {
      const auto names = lost.find(module);
      const bool fits = names != lost.end() && names->second.size() == nodes.size() &&
                        nodes.size() <= kMaxInOrder;
      for (size_t i = 0; fits && i < nodes.size(); ++i) {
        WEFT_RETURN_IF_ERROR(Restore(nodes[i], *ExtentAt(nodes[i]), names->second[i]));
      }
    }
    return absl::OkStatus();
  }

  // What the signature calls the bias that the node lacks; "" where it lacks none.
  std::string NameOf(int node, const std::string& weight) const {
    std::vector<std::string> names;
    const std::string module = uses_.ModuleAt(node);
    // A normalization that was folded into the node before it: the bias is that node's.
    const bool is_folded = buffers_.contains(absl::StrCat(module, ".running_mean"));
    if (!module.empty() && !is_folded) names.push_back(absl::StrCat(module, ".bias"));
    absl::string_view stem = weight;
    if (parameters_.contains(weight) && absl::ConsumeSuffix(&stem, ".weight")) {
      names.push_back(absl::StrCat(stem, ".bias"));
    }
    // Where that node has none, the normalization's.
    if (is_folded) names.push_back(absl::StrCat(module, ".bias"));
    for (const std::string& name : names) {
      if (IsLost(name)) return name;
    }
    return "";
  }

  const TensorUses& uses_;
  CopyBudget& budget_;
  FileEdit& edit_;
  TieReport& report_;
  std::vector<std::string> order_;  // of the signature
  std::set<std::string> buffers_;
  std::set<std::string> parameters_;
  std::set<std::string> untied_;
  std::map<std::string, int64_t> made_;
};

}  // namespace

absl::Status RestoreBiases(const TensorUses& uses, CopyBudget& budget, FileEdit& edit,
                           TieReport& report) {
  if (uses.file().proto()->ir_version() < kFirstIrWithFreeInitializers) return absl::OkStatus();
  return Restorer(uses, budget, edit, report).Run();
}

}  // namespace weft
