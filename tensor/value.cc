#include "tensor/value.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

Value Value::Sequence(std::vector<Value> elements) {
  Value value;
  value.kind_ = ValueKind::kSequence;
  value.elements_ = std::make_shared<const std::vector<Value>>(std::move(elements));
  return value;
}

Value Value::Optional(std::shared_ptr<const Value> element) {
  Value value;
  value.kind_ = ValueKind::kOptional;
  if (element != nullptr) {
    value.elements_ = std::make_shared<const std::vector<Value>>(1, *element);
  }
  return value;
}

const std::vector<Value>& Value::elements() const {
  static const std::vector<Value>& none = *new std::vector<Value>;
  return elements_ == nullptr ? none : *elements_;
}

std::string Value::ToString() const {
  switch (kind_) {
    case ValueKind::kTensor:
      return tensor_.ToString();
    case ValueKind::kSequence:
      return absl::StrCat("sequence(",
                          absl::StrJoin(elements(), ", ",
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
