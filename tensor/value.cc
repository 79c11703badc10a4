#include "tensor/value.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

Value Value::Sequence(std::vector<Value> elements) {
  Value value;
  value.kind_ = ValueKind::kSequence;
  value.elements_ = std::move(elements);
  return value;
}

Value Value::Optional(std::shared_ptr<const Value> element) {
  Value value;
  value.kind_ = ValueKind::kOptional;
  if (element != nullptr) value.elements_.push_back(*element);
  return value;
}

std::string Value::ToString() const {
  switch (kind_) {
    case ValueKind::kTensor:
      return tensor_.ToString();
    case ValueKind::kSequence:
      return absl::StrCat("sequence(",
                          absl::StrJoin(elements_, ", ",
                                        [](std::string* out, const Value& element) {
                                          out->append(element.ToString());
                                        }),
                          ")");
    case ValueKind::kOptional:
      return absl::StrCat("optional(", has_value() ? value().ToString() : "", ")");
  }
  return "";
}

}  // namespace weft
