#include "training/recovery/initial_source.h"

#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "training/recovery/held_source.h"

namespace weft {

InitialSource::InitialSource(const PreparedJob& job) {
  const std::set<std::string> names = StateNames(job);
  for (const Graph* const graph : job.graphs()) {
    for (const Variable& variable : graph->variables()) {
      if (!names.contains(variable.name)) continue;
      variables_.try_emplace(variable.name, Initial{&variable, &graph->value(variable.value).type});
    }
  }
}

std::vector<std::string> InitialSource::names() const {
  std::vector<std::string> names;
  for (const auto& [name, initial] : variables_) names.push_back(name);
  return names;
}

absl::StatusOr<Tensor> InitialSource::Read(const std::string& name) {
  const auto found = variables_.find(name);
  if (found == variables_.end()) {
    return absl::NotFoundError(absl::StrCat("the job has no variable '", name, "'"));
  }
  const Initial& initial = found->second;
  if (initial.variable->initial.valid()) return initial.variable->initial;
  const std::optional<Shape> shape = initial.type->shape.ToConcrete();
  if (!shape.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("variable '", name, "' has no initial value, and no size"));
  }
  return Tensor::Zeros(initial.type->dtype, *shape);
}

}  // namespace weft
