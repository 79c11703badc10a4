#include "ops/kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "graph/schema_lookup.h"

namespace weft {
namespace {

std::string DescribeInputs(const PrepareContext& context) {
  std::string text;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (i > 0) text += ", ";
    if (!context.HasInput(i)) {
      text += "-";
      continue;
    }
    absl::StrAppend(&text, std::string(DTypeName(context.InputDType(i))),
                    context.InputShape(i).ToString());
  }
  return text;
}

// "node 'fc1' (Gemm of float32[2,3], float32[3,4] on cpu:0)"
std::string Describe(const PrepareContext& context) {
  const Node& node = context.node();
  return absl::StrCat("node '", node.name, "' (", FullOpName(node.domain, node.op), " of ",
                      DescribeInputs(context), " on ", context.device().info().name, ")");
}

}  // namespace

absl::Status PrepareContext::InvalidArgument(const std::string& message) const {
  return absl::InvalidArgumentError(absl::StrCat(Describe(*this), ": ", message));
}

absl::Status PrepareContext::Unimplemented(const std::string& message) const {
  return absl::UnimplementedError(absl::StrCat(Describe(*this), ": ", message));
}

KernelRegistry& KernelRegistry::Global() {
  static KernelRegistry* const registry = new KernelRegistry;
  return *registry;
}

KernelRegistry& KernelRegistry::Reference() {
  static KernelRegistry* const registry = new KernelRegistry;
  return *registry;
}

absl::Status KernelRegistry::Register(std::string_view domain, std::string_view op,
                                      DeviceKind device, KernelFactory factory) {
  const auto [entry, inserted] = factories_.try_emplace(
      {std::string(CanonicalDomain(domain)), std::string(op), device}, std::move(factory));
  if (inserted) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("a kernel of ", FullOpName(domain, op),
                                               " for this device is registered already"));
}

const KernelFactory* KernelRegistry::Find(std::string_view domain, std::string_view op,
                                          DeviceKind device) const {
  if (device == DeviceKind::kFake) device = DeviceKind::kCpu;
  const auto entry =
      factories_.find({std::string(CanonicalDomain(domain)), std::string(op), device});
  return entry == factories_.end() ? nullptr : &entry->second;
}

int KernelRegistry::Count(DeviceKind device) const {
  return static_cast<int>(std::count_if(
      factories_.begin(), factories_.end(),
      [device](const auto& factory) { return std::get<DeviceKind>(factory.first) == device; }));
}

absl::StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Prepare(
    const PrepareContext& context) const {
  const Node& node = context.node();
  const KernelFactory* factory = Find(node.domain, node.op, context.device().info().kind);
  if (factory == nullptr) return context.Unimplemented("there is no kernel for this op");
  return (*factory)(context);
}

namespace internal {

bool RegisterKernelOrDie(KernelRegistry& registry, std::string_view domain, std::string_view op,
                         DeviceKind device, KernelFactory factory) {
  const absl::Status status = registry.Register(domain, op, device, std::move(factory));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return true;
}

}  // namespace internal
}  // namespace weft
