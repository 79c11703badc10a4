#include "graph/op_schema.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "graph/schema_lookup.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

const FormalParameter* Formal(const std::vector<FormalParameter>& formals, int i) {
  if (i < 0) return nullptr;
  if (i < static_cast<int>(formals.size())) return &formals[i];
  return !formals.empty() && formals.back().variadic ? &formals.back() : nullptr;
}

FormalParameter Parameter(std::string name, std::vector<DType> dtypes = {}) {
  FormalParameter parameter;
  parameter.name = std::move(name);
  parameter.dtypes = std::move(dtypes);
  return parameter;
}

// No op's name is as long; the distance of longer ones would take long to compute.
constexpr size_t kLongestMisspelling = 128;

}  // namespace

// Not inline: g++ 12 with a sanitizer warns in vain of the moved shape wherever this is inlined.
void InferenceContext::SetOutput(int i, DType dtype, SymbolicShape shape) {
  SetOutput(i, ValueType{ValueKind::kTensor, dtype, std::move(shape)});
}

OpSchema& OpSchema::Input(std::string name, std::vector<DType> dtypes) {
  inputs_.push_back(Parameter(std::move(name), std::move(dtypes)));
  return *this;
}

OpSchema& OpSchema::OptionalInput(std::string name, std::vector<DType> dtypes) {
  Input(std::move(name), std::move(dtypes));
  inputs_.back().optional = true;
  return *this;
}

OpSchema& OpSchema::VariadicInput(std::string name, std::vector<DType> dtypes) {
  Input(std::move(name), std::move(dtypes));
  inputs_.back().variadic = true;
  return *this;
}

OpSchema& OpSchema::AnyKind() {
  inputs_.back().any_kind = true;
  return *this;
}

OpSchema& OpSchema::Learnable() {
  inputs_.back().learnable = true;
  return *this;
}

OpSchema& OpSchema::NeverLearnable() {
  inputs_.back().never_learnable = true;
  return *this;
}

OpSchema& OpSchema::Output(std::string name) {
  outputs_.push_back(Parameter(std::move(name)));
  return *this;
}

OpSchema& OpSchema::OptionalOutput(std::string name) {
  Output(std::move(name));
  outputs_.back().optional = true;
  return *this;
}

OpSchema& OpSchema::VariadicOutput(std::string name) {
  Output(std::move(name));
  outputs_.back().variadic = true;
  return *this;
}

OpSchema& OpSchema::Attr(std::string name, AttributeType type, bool required) {
  attributes_.push_back({std::move(name), type, required});
  return *this;
}

OpSchema& OpSchema::Infer(InferFn fn) {
  infer_ = std::move(fn);
  return *this;
}

OpSchema& OpSchema::Gradient(GradientFn fn) {
  gradient_ = std::move(fn);
  gradient_kind_ = GradientKind::kRule;
  return *this;
}

OpSchema& OpSchema::NoGradient(std::string reason) {
  gradient_kind_ = GradientKind::kNone;
  gradient_reason_ = std::move(reason);
  return *this;
}

OpSchema& OpSchema::GradientMissing(std::string reason) {
  gradient_reason_ = std::move(reason);
  return *this;
}

OpSchema& OpSchema::Sharding(ShardingFn fn) {
  sharding_ = std::move(fn);
  return *this;
}

OpSchema& OpSchema::Localize(LocalizeFn fn) {
  localize_ = std::move(fn);
  return *this;
}

OpSchema& OpSchema::CostOf(CostFn fn) {
  cost_ = std::move(fn);
  return *this;
}

OpSchema& OpSchema::Expand(ExpandFn fn) {
  expand_ = std::move(fn);
  return *this;
}

OpSchema& OpSchema::MeanLoss(MeanPartsFn fn) {
  mean_loss_ = std::move(fn);
  return *this;
}

OpSchema& OpSchema::WholeBatch(WholeBatchFn fn) {
  whole_batch_ = std::move(fn);
  return *this;
}

OpSchema& OpSchema::InPlace(int input, int output) {
  in_place_.emplace_back(input, output);
  return *this;
}

OpSchema& OpSchema::Alias(int input, int output) {
  aliases_.emplace_back(input, output);
  return *this;
}

OpSchema& OpSchema::NoOpWhenSameShape() {
  no_op_when_same_shape_ = true;
  return *this;
}

OpSchema& OpSchema::ValueInputs(std::vector<int> inputs) {
  value_inputs_ = std::move(inputs);
  return *this;
}

OpSchema& OpSchema::Elements(ElementUse use) {
  element_use_ = use;
  return *this;
}

OpSchema& OpSchema::Class(OpClass op_class) {
  class_ = op_class;
  return *this;
}

OpSchema& OpSchema::Stateful() {
  stateful_ = true;
  return *this;
}

std::string OpSchema::FullName() const { return FullOpName(domain_, name_); }

const FormalParameter* OpSchema::FormalInput(int i) const { return Formal(inputs_, i); }

const FormalParameter* OpSchema::FormalOutput(int i) const { return Formal(outputs_, i); }

OpRegistry& OpRegistry::Global() {
  static OpRegistry& registry = *new OpRegistry;
  return registry;
}

absl::Status OpRegistry::Register(OpSchema schema) {
  auto key = std::make_pair(std::string(CanonicalDomain(schema.domain())), schema.name());
  auto [position, is_new] = schemas_.try_emplace(std::move(key));
  if (!is_new) {
    return absl::AlreadyExistsError(
        absl::StrCat("op ", schema.FullName(), " is registered twice; give one another name"));
  }
  position->second = std::make_unique<OpSchema>(std::move(schema));
  return absl::OkStatus();
}

const OpSchema* OpRegistry::Find(std::string_view domain, std::string_view name) const {
  const auto found = schemas_.find({std::string(CanonicalDomain(domain)), std::string(name)});
  return found == schemas_.end() ? nullptr : found->second.get();
}

std::vector<const OpSchema*> OpRegistry::All() const {
  std::vector<const OpSchema*> all;
  all.reserve(schemas_.size());
  for (const auto& [key, schema] : schemas_) all.push_back(schema.get());
  return all;
}

std::string OpRegistry::Nearest(std::string_view domain, std::string_view name) const {
  // Farther than this is no misspelling.
  size_t nearest = std::max<size_t>(2, name.size() / 3) + 1;
  std::string found;
  if (name.size() > kLongestMisspelling) return found;
  const std::string_view canonical = CanonicalDomain(domain);
  for (const auto& [key, schema] : schemas_) {
    if (key.first != canonical) continue;
    const size_t distance = EditDistance(name, key.second);
    if (distance < nearest) {
      nearest = distance;
      found = key.second;
    }
  }
  return found;
}

std::string_view CanonicalDomain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

std::string FullOpName(std::string_view domain, std::string_view op) {
  std::string name(op);
  return domain.empty() ? name : absl::StrCat(std::string(domain), "::", name);
}

const OpSchema* FindOpSchema(std::string_view domain, std::string_view name) {
  return OpRegistry::Global().Find(domain, name);
}

namespace internal {

bool RegisterOpOrDie(OpSchema schema) {
  const absl::Status status = OpRegistry::Global().Register(std::move(schema));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::abort();
  }
  return true;
}

}  // namespace internal
}  // namespace weft
