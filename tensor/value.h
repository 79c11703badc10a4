// What an edge of a graph can carry: a tensor, a sequence of values or an optional value.
#ifndef WEFT_TENSOR_VALUE_H_
#define WEFT_TENSOR_VALUE_H_

#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace weft {

// The alternatives of Value.
enum class ValueKind : uint8_t { kTensor, kSequence, kOptional };

// Value type; copies share tensors and elements.
class Value {
 public:
  Value() = default;
  Value(Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: a tensor is a value
  static Value Sequence(std::vector<Value> elements);
  static Value Optional(std::shared_ptr<const Value> element);  // null = empty

  ValueKind kind() const { return kind_; }
  const Tensor& tensor() const { return tensor_; }           // REQUIRES: kTensor
  const std::vector<Value>& elements() const;                // REQUIRES: kSequence
  bool has_value() const { return !elements().empty(); }     // REQUIRES: kOptional
  const Value& value() const { return elements().front(); }  // REQUIRES: has_value()
  std::string ToString() const;

 private:
  ValueKind kind_ = ValueKind::kTensor;
  Tensor tensor_;
  std::shared_ptr<const std::vector<Value>> elements_;  // null = none
};

}  // namespace weft

#endif  // WEFT_TENSOR_VALUE_H_
