// Attributes of nodes.
#ifndef WEFT_GRAPH_ATTRIBUTE_H_
#define WEFT_GRAPH_ATTRIBUTE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace weft {

class Graph;

// A subgraph (body of If, Loop, Scan) is owned by the attribute and never shared with another node.
using Attribute =
    std::variant<int64_t, float, std::string, Tensor, std::shared_ptr<Graph>, std::vector<int64_t>,
                 std::vector<float>, std::vector<std::string>, std::vector<Tensor>>;

// Ordered by name, so that iteration is deterministic.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> items)
      : items_(items) {}

  bool Has(const std::string& name) const { return items_.contains(name); }
  void Set(const std::string& name, Attribute value) { items_[name] = std::move(value); }
  void Erase(const std::string& name) { items_.erase(name); }
  // Null when absent.
  const Attribute* Find(const std::string& name) const;

  // The value, or `fallback` when absent. A present attribute of another type is a broken model
  // that import refuses (schemas say the types), so these return the fallback then.
  int64_t Int(const std::string& name, int64_t fallback) const;
  float Float(const std::string& name, float fallback) const;
  std::string String(const std::string& name, const std::string& fallback) const;
  std::vector<int64_t> Ints(const std::string& name, std::vector<int64_t> fallback = {}) const;
  std::vector<float> Floats(const std::string& name, std::vector<float> fallback = {}) const;
  std::vector<std::string> Strings(const std::string& name) const;

  const std::map<std::string, Attribute>& items() const { return items_; }
  // Deep equality (tensors bitwise, subgraphs never equal); used by common-subexpression
  // elimination.
  bool Equals(const Attributes& other) const;

 private:
  std::map<std::string, Attribute> items_;
};

// The alternatives of Attribute, in ONNX's terms.
enum class AttributeType {
  kInt,
  kFloat,
  kString,
  kTensor,
  kGraph,
  kInts,
  kFloats,
  kStrings,
  kTensors
};
AttributeType TypeOf(const Attribute& attribute);
const char* AttributeTypeName(AttributeType type);

}  // namespace weft

#endif  // WEFT_GRAPH_ATTRIBUTE_H_
