#include "ops/op_support.h"

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/value_kernel.h"

namespace weft {

std::string_view RunSupportName(RunSupport support) {
  switch (support) {
    case RunSupport::kNo:
      return "no";
    case RunSupport::kKernel:
      return "kernel";
    case RunSupport::kAlias:
      return "alias";
    case RunSupport::kValues:
      return "values";
    case RunSupport::kExpanded:
      return "expanded";
  }
  return "";
}

std::string_view TrainSupportName(TrainSupport support) {
  switch (support) {
    case TrainSupport::kNo:
      return "no";
    case TrainSupport::kNone:
      return "-";
    case TrainSupport::kRule:
      return "rule";
    case TrainSupport::kExpanded:
      return "expanded";
  }
  return "";
}

RunSupport RunSupportOf(const OpSchema& schema, DeviceKind device) {
  if (KernelRegistry::Global().Find(schema.domain(), schema.name(), device) != nullptr) {
    return RunSupport::kKernel;
  }
  if (!schema.aliases().empty()) return RunSupport::kAlias;
  if (schema.expand()) return RunSupport::kExpanded;
  const bool on_host =
      ValueKernelRegistry::Global().Find(schema.domain(), schema.name()) != nullptr;
  return on_host ? RunSupport::kValues : RunSupport::kNo;
}

TrainSupport TrainSupportOf(const OpSchema& schema) {
  switch (schema.gradient_kind()) {
    case GradientKind::kRule:
      return TrainSupport::kRule;
    case GradientKind::kNone:
      return TrainSupport::kNone;
    case GradientKind::kMissing:
      return schema.expand() ? TrainSupport::kExpanded : TrainSupport::kNo;
  }
  return TrainSupport::kNo;
}

std::string TrainSupportText(const OpSchema& schema) {
  const TrainSupport support = TrainSupportOf(schema);
  const std::string& reason = schema.gradient_reason();
  // What it expands to may lack a rule.
  const bool expands = support == TrainSupport::kExpanded && reason.empty();
  if (support == TrainSupport::kRule || expands) return std::string(TrainSupportName(support));
  const char* const kind = support == TrainSupport::kNone ? "none" : "missing";
  return reason.empty() ? kind : absl::StrCat(kind, ": ", reason);
}

bool Shards(const OpSchema& schema) {
  return static_cast<bool>(schema.sharding()) || static_cast<bool>(schema.expand());
}

}  // namespace weft
