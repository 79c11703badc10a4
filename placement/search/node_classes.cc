#include "placement/search/node_classes.h"

#include <memory>
#include <string>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Longer constants are told by their type alone: no rule or cost depends on their values.
constexpr int64_t kMaxConstantBytes = 256;

class ClassText {
 public:
  void Add(int64_t number) { absl::StrAppend(&text_, number, ";"); }
  void Add(float number) { AddBytes(&number, sizeof number); }
  void Add(const std::string& text) { absl::StrAppend(&text_, text.size(), ":", text, ";"); }
  void Add(const Tensor& tensor) {
    absl::StrAppend(&text_, static_cast<int>(tensor.dtype()), tensor.shape().ToString(), ";");
    const bool is_plain = tensor.valid() && tensor.dtype() != DType::kString;
    if (is_plain && tensor.bytes() > 0 &&
        static_cast<int64_t>(tensor.bytes()) <= kMaxConstantBytes) {
      AddBytes(tensor.raw_data(), tensor.bytes());
    }
  }
  void Add(const std::shared_ptr<Graph>&) { has_body_ = true; }
  template <typename T>
  void Add(const std::vector<T>& items) {
    Add(static_cast<int64_t>(items.size()));
    for (const T& item : items) Add(item);
  }
  void AddAttribute(const std::string& name, const Attribute& attribute) {
    Add(name);
    Add(static_cast<int64_t>(attribute.index()));
    std::visit([this](const auto& value) { Add(value); }, attribute);
  }

  bool has_body() const { return has_body_; }
  std::string& text() { return text_; }

 private:
  void AddBytes(const void* data, size_t bytes) {
    Add(static_cast<int64_t>(bytes));
    text_.append(static_cast<const char*>(data), bytes);
  }

  std::string text_;
  bool has_body_ = false;
};

void AddValue(const Graph& graph, ValueId id, ClassText& text) {
  if (!id.valid()) {
    text.Add(int64_t{-1});
    return;
  }
  const ValueDef& value = graph.value(id);
  text.Add(static_cast<int64_t>(value.source));
  text.Add(static_cast<int64_t>(value.type.kind));
  text.Add(static_cast<int64_t>(value.type.dtype));
  const Shape shape = value.type.shape.ToConcrete().value_or(Shape());
  text.Add(int64_t{shape.rank()});
  for (const int64_t dim : shape.dims()) text.Add(dim);
  if (value.source == ValueSource::kConstant) text.Add(value.constant);
}

}  // namespace

std::vector<int> ClassifyNodes(const Graph& graph,
                               const std::vector<std::vector<Graph::Use>>& uses) {
  std::vector<int> classes(graph.node_capacity(), -1);
  absl::flat_hash_map<std::string, int> numbers;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    ClassText text;
    text.Add(node.domain);
    text.Add(node.op);
    text.Add(static_cast<int64_t>(node.phase));
    for (const auto& [name, attribute] : node.attributes.items()) {
      text.AddAttribute(name, attribute);
    }
    text.Add(static_cast<int64_t>(node.inputs.size()));
    for (const ValueId input : node.inputs) {
      AddValue(graph, input, text);
      if (input.valid()) text.Add(static_cast<int64_t>(uses[input.value].size()));
    }
    for (const ValueId output : node.outputs) AddValue(graph, output, text);
    if (text.has_body()) text.Add(int64_t{id.value});
    const int next = static_cast<int>(numbers.size());
    classes[id.value] = numbers.try_emplace(std::move(text.text()), next).first->second;
  }
  return classes;
}

}  // namespace weft
