#include "placement/cost/op_key.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Elements that are read or written per FLOP tell what limits an op: products of large operands
// compute much with each, activations little.
constexpr double kContractionFlopsPerElement = 16;

// Everything as 64-bit words, so that no two nodes write the same and a call allocates nothing.
class KeyWords {
 public:
  void Add(int64_t word) { words_.push_back(word); }
  void Add(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    words_.push_back(bits);
  }
  void Add(const std::string& text) {
    words_.push_back(static_cast<int64_t>(text.size()));
    words_.push_back(static_cast<int64_t>(XXH3_64bits(text.data(), text.size())));
  }
  void Add(const Shape& shape) {
    words_.push_back(shape.rank());
    for (const int64_t dim : shape.dims()) words_.push_back(dim);
  }
  void Add(const Tensor& tensor) {
    words_.push_back(static_cast<int64_t>(tensor.dtype()));
    Add(tensor.shape());
  }
  void Add(const std::shared_ptr<Graph>&) { words_.push_back(0); }
  template <typename T>
  void Add(const std::vector<T>& items) {
    words_.push_back(static_cast<int64_t>(items.size()));
    for (const T& item : items) Add(item);
  }
  uint64_t Hash() const { return XXH3_64bits(words_.data(), words_.size() * sizeof(int64_t)); }

 private:
  absl::InlinedVector<int64_t, 96> words_;
};

bool RunsNoKernel(const NodeView& node) {
  const OpSchema* schema = node.node().schema;
  return schema != nullptr &&
         (!schema->aliases().empty() || schema->op_class() == OpClass::kCommunication);
}

double BytesOfOperands(const NodeView& node) {
  double bytes = 0;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (!node.HasInput(i)) continue;
    bytes += static_cast<double>(DTypeBytes(node.InputDType(i), node.InputShape(i).num_elements()));
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (!node.HasOutput(i)) continue;
    bytes +=
        static_cast<double>(DTypeBytes(node.OutputDType(i), node.OutputShape(i).num_elements()));
  }
  return bytes;
}

// Domain, op, and of each operand its element type and what `add` takes of its shape.
template <typename AddShape>
void AddOperands(const NodeView& node, KeyWords& words, AddShape add) {
  words.Add(node.node().domain);
  words.Add(node.node().op);
  words.Add(static_cast<int64_t>(node.num_inputs()));
  for (int i = 0; i < node.num_inputs(); ++i) {
    words.Add(static_cast<int64_t>(node.InputDType(i)));
    add(node.InputShape(i));
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    words.Add(static_cast<int64_t>(node.OutputDType(i)));
    add(node.OutputShape(i));
  }
}

}  // namespace

uint64_t OpKey(const NodeView& node) {
  KeyWords words;
  AddOperands(node, words, [&words](const Shape& shape) { words.Add(shape); });
  for (const auto& [name, attribute] : node.attributes().items()) {
    words.Add(name);
    std::visit([&words](const auto& value) { words.Add(value); }, attribute);
  }
  return words.Hash();
}

uint64_t KindKey(const NodeView& node) {
  KeyWords words;
  AddOperands(node, words,
              [&words](const Shape& shape) { words.Add(static_cast<int64_t>(shape.rank())); });
  const uint64_t hash = words.Hash();
  return hash == 0 ? 1 : hash;
}

std::string OpText(const NodeView& node) {
  const Node& n = node.node();
  std::string text = n.domain.empty() ? n.op : absl::StrCat(n.domain, "::", n.op);
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (!node.HasInput(i)) continue;
    absl::StrAppend(&text, " ", std::string(DTypeName(node.InputDType(i))),
                    node.InputShape(i).ToString());
  }
  return text;
}

Cost CostOf(const NodeView& node) {
  if (RunsNoKernel(node)) return {};
  const OpSchema* schema = node.node().schema;
  if (schema != nullptr && schema->cost()) return schema->cost()(node);
  const double bytes = BytesOfOperands(node);
  const double elements =
      node.num_outputs() > 0 ? static_cast<double>(node.OutputShape(0).num_elements()) : 0;
  return {elements, bytes};
}

DType ComputedType(const NodeView& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (IsFloatingPoint(node.InputDType(i))) return node.InputDType(i);
  }
  return node.num_outputs() > 0 ? node.OutputDType(0) : DType::kFloat32;
}

OpWork WorkOf(const NodeView& node) {
  const Cost cost = CostOf(node);
  OpWork work{KindKey(node), ComputedType(node), cost.flops, cost.bytes};
  const auto add = [&work](const Shape& shape) {
    work.dims.insert(work.dims.end(), shape.dims().begin(), shape.dims().end());
  };
  for (int i = 0; i < node.num_inputs(); ++i) add(node.InputShape(i));
  for (int i = 0; i < node.num_outputs(); ++i) add(node.OutputShape(i));
  return work;
}

OpFamily FamilyOf(const Cost& cost, DType dtype) {
  if (!(cost.flops > 0)) return OpFamily::kMovement;
  const double element_bytes = std::max(1.0, DTypeBits(dtype) / 8.0);
  const double elements = std::max(1.0, cost.bytes / element_bytes);
  return cost.flops / elements >= kContractionFlopsPerElement ? OpFamily::kContraction
                                                              : OpFamily::kElementwise;
}

}  // namespace weft
