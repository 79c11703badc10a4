#include "graph/attribute.h"

#include <algorithm>
#include <bit>

namespace weft {
namespace {

template <typename T>
T Get(const Attributes& attributes, const std::string& name, T fallback) {
  const Attribute* attribute = attributes.Find(name);
  if (attribute == nullptr) return fallback;
  const T* value = std::get_if<T>(attribute);
  return value == nullptr ? fallback : *value;
}

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

bool Same(float a, float b) { return SameBits(a, b); }
bool Same(const Tensor& a, const Tensor& b) { return BitwiseEqual(a, b); }
bool Same(const std::shared_ptr<Graph>&, const std::shared_ptr<Graph>&) { return false; }
bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, SameBits);
}
bool Same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, BitwiseEqual);
}
template <typename T>
bool Same(const T& a, const T& b) {
  return a == b;
}

bool SameAttribute(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& value) { return Same(value, std::get<std::decay_t<decltype(value)>>(b)); },
      a);
}

}  // namespace

const Attribute* Attributes::Find(const std::string& name) const {
  const auto found = items_.find(name);
  return found == items_.end() ? nullptr : &found->second;
}

int64_t Attributes::Int(const std::string& name, int64_t fallback) const {
  return Get<int64_t>(*this, name, fallback);
}

float Attributes::Float(const std::string& name, float fallback) const {
  return Get<float>(*this, name, fallback);
}

std::string Attributes::String(const std::string& name, const std::string& fallback) const {
  return Get<std::string>(*this, name, fallback);
}

std::vector<int64_t> Attributes::Ints(const std::string& name,
                                      std::vector<int64_t> fallback) const {
  return Get<std::vector<int64_t>>(*this, name, std::move(fallback));
}

std::vector<float> Attributes::Floats(const std::string& name, std::vector<float> fallback) const {
  return Get<std::vector<float>>(*this, name, std::move(fallback));
}

std::vector<std::string> Attributes::Strings(const std::string& name) const {
  return Get<std::vector<std::string>>(*this, name, {});
}

bool Attributes::Equals(const Attributes& other) const {
  return std::ranges::equal(items_, other.items_, [](const auto& a, const auto& b) {
    return a.first == b.first && SameAttribute(a.second, b.second);
  });
}

AttributeType TypeOf(const Attribute& attribute) {
  static_assert(std::is_same_v<std::variant_alternative_t<4, Attribute>, std::shared_ptr<Graph>>);
  static_assert(std::variant_size_v<Attribute> == static_cast<int>(AttributeType::kTensors) + 1);
  return static_cast<AttributeType>(attribute.index());
}

const char* AttributeTypeName(AttributeType type) {
  switch (type) {
    case AttributeType::kInt:
      return "int";
    case AttributeType::kFloat:
      return "float";
    case AttributeType::kString:
      return "string";
    case AttributeType::kTensor:
      return "tensor";
    case AttributeType::kGraph:
      return "graph";
    case AttributeType::kInts:
      return "ints";
    case AttributeType::kFloats:
      return "floats";
    case AttributeType::kStrings:
      return "strings";
    case AttributeType::kTensors:
      return "tensors";
  }
  return "unknown";
}

}  // namespace weft
