#include "ops/value_kernel.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "graph/schema_lookup.h"

namespace weft {
namespace {

std::string TypeText(const Value& value) {
  if (value.kind() != ValueKind::kTensor) {
    return value.kind() == ValueKind::kSequence ? "a sequence" : "an optional";
  }
  const Tensor& tensor = value.tensor();
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), tensor.shape().ToString());
}

// "node 'find' (NonZero of bool[2,3])"
std::string Describe(const ValueContext& context) {
  std::string operands;
  for (int i = 0; i < context.num_inputs(); ++i) {
    absl::StrAppend(&operands, i > 0 ? ", " : "",
                    context.HasInput(i) ? TypeText(context.Input(i)) : "-");
  }
  const Node& node = context.node();
  return absl::StrCat("node '", node.name, "' (", FullOpName(node.domain, node.op), " of ",
                      operands, ")");
}

}  // namespace

absl::Status ValueContext::InvalidArgument(const std::string& message) const {
  return absl::InvalidArgumentError(absl::StrCat(Describe(*this), ": ", message));
}

absl::Status ValueContext::Unimplemented(const std::string& message) const {
  return absl::UnimplementedError(absl::StrCat(Describe(*this), ": ", message));
}

ValueKernelRegistry& ValueKernelRegistry::Global() {
  static ValueKernelRegistry* const registry = new ValueKernelRegistry;
  return *registry;
}

absl::Status ValueKernelRegistry::Register(std::string_view domain, std::string_view op,
                                           ValueKernel kernel) {
  const auto [entry, inserted] = kernels_.try_emplace(
      {std::string(CanonicalDomain(domain)), std::string(op)}, std::move(kernel));
  if (inserted) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("a value kernel of ", FullOpName(domain, op), " is registered already"));
}

const ValueKernel* ValueKernelRegistry::Find(std::string_view domain, std::string_view op) const {
  const auto entry = kernels_.find({std::string(CanonicalDomain(domain)), std::string(op)});
  return entry == kernels_.end() ? nullptr : &entry->second;
}

namespace internal {

bool RegisterValueKernelOrDie(std::string_view domain, std::string_view op, ValueKernel kernel) {
  const absl::Status status = ValueKernelRegistry::Global().Register(domain, op, std::move(kernel));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return true;
}

}  // namespace internal
}  // namespace weft
