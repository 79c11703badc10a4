// GraphDigest: a hash of all that a graph computes, but for the values of its variables.
#include "placement/graph_views/graph_digest.h"

#include <xxhash.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Writes every field with its length, so that no two graphs give the same text.
class DigestText {
 public:
  void Add(const std::string& text) { absl::StrAppend(&text_, text.size(), ":", text, ";"); }
  void Add(int64_t number) { absl::StrAppend(&text_, number, ";"); }
  void Add(float number) { AddBytes(&number, sizeof number); }
  void Add(const Tensor& tensor) {
    absl::StrAppend(&text_, std::string(DTypeName(tensor.dtype())), tensor.shape().ToString(), ";");
    if (tensor.dtype() == DType::kString) {
      for (const std::string& text : tensor.strings()) Add(text);
    } else if (tensor.valid() && tensor.bytes() > 0) {
      AddBytes(tensor.raw_data(), tensor.bytes());
    }
  }
  void Add(const std::shared_ptr<Graph>& graph) {
    Add(graph == nullptr ? int64_t{0} : static_cast<int64_t>(GraphDigest(*graph)));
  }
  template <typename T>
  void Add(const std::vector<T>& items) {
    Add(static_cast<int64_t>(items.size()));
    for (const T& item : items) Add(item);
  }
  void Add(const Attribute& attribute) {
    Add(static_cast<int64_t>(attribute.index()));
    std::visit([this](const auto& value) { Add(value); }, attribute);
  }
  void AddValue(const Graph& graph, ValueId id) {
    Add(id.valid() ? graph.value(id).name : std::string());
  }
  uint64_t Finish() const { return XXH3_64bits(text_.data(), text_.size()); }

 private:
  void AddBytes(const void* data, size_t bytes) {
    absl::StrAppend(&text_, bytes, ":", XXH3_64bits(data, bytes), ";");
  }
  std::string text_;
};

void AddNode(const Graph& graph, const Node& node, DigestText& text) {
  for (const std::string* part : {&node.name, &node.domain, &node.op}) text.Add(*part);
  text.Add(static_cast<int64_t>(node.phase));
  for (const auto& [name, attribute] : node.attributes.items()) {
    text.Add(name);
    text.Add(attribute);
  }
  text.Add(static_cast<int64_t>(node.inputs.size()));
  for (const ValueId input : node.inputs) text.AddValue(graph, input);
  for (const ValueId output : node.outputs) text.AddValue(graph, output);
}

}  // namespace

uint64_t GraphDigest(const Graph& graph) {
  DigestText text;
  for (const ValueId id : graph.value_ids()) {
    const ValueDef& value = graph.value(id);
    if (value.source == ValueSource::kNode) continue;
    text.Add(static_cast<int64_t>(value.source));
    text.Add(value.name);
    text.Add(value.type.ToString());
    if (value.source == ValueSource::kConstant) text.Add(value.constant);
    if (value.source == ValueSource::kInput) text.Add(static_cast<int64_t>(graph.input_role(id)));
  }
  for (const Variable& variable : graph.variables()) {
    text.Add(variable.name);
    text.Add(int64_t{variable.trainable});
    text.Add(variable.slot_of);
    text.AddValue(graph, variable.update);
  }
  for (const NodeId id : graph.node_ids()) AddNode(graph, graph.node(id), text);
  for (const ValueId output : graph.outputs()) text.AddValue(graph, output);
  return text.Finish();
}

}  // namespace weft
