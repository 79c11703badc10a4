// ValueKernel: how an op runs that a Kernel (kernel.h) cannot express: its output shapes depend on
// data (NonZero), its operands are strings, sequences or optionals, or it runs subgraphs (If,
// Loop). On the host, at run time, with outputs it allocates itself. An op may have both; a node
// whose operands are plain numbers and whose output shapes are known ahead then takes the Kernel.
//
//   absl::Status RunNonZero(ValueContext& context) {
//     const Tensor& x = context.InputTensor(0);
//     ...
//     context.SetOutput(0, std::move(positions));
//     return absl::OkStatus();
//   }
//   WEFT_REGISTER_VALUE_KERNEL("", "NonZero", RunNonZero);
#ifndef WEFT_OPS_VALUE_KERNEL_H_
#define WEFT_OPS_VALUE_KERNEL_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "tensor/value.h"

namespace weft {

// One run of one node. Inputs are checked against the schema's dtypes and arity; everything else,
// values and shapes alike, comes from files and data and is the kernel's to check.
class ValueContext : public NodeOperands {
 public:
  // REQUIRES: HasInput(i). Tensors are on the host.
  virtual const Value& Input(int i) const = 0;
  // REQUIRES: HasInput(i), and the schema allows only a tensor there.
  const Tensor& InputTensor(int i) const { return Input(i).tensor(); }
  // Outputs that are not wanted are dropped. Every wanted one must be set.
  virtual void SetOutput(int i, Value value) = 0;
  // Threads the kernel may use, >= 1.
  virtual int threads() const = 0;
  // Runs the subgraph in attribute `name` on its inputs, in their order; one value per output.
  virtual absl::StatusOr<std::vector<Value>> RunBody(const std::string& name,
                                                     std::vector<Value> inputs) = 0;
  // InvalidArgument / Unimplemented with node name, op and operand types in front of `message`.
  absl::Status InvalidArgument(const std::string& message) const;
  absl::Status Unimplemented(const std::string& message) const;
};

// Must not throw, keeps nothing from run to run, and is called from any thread.
using ValueKernel = std::function<absl::Status(ValueContext&)>;

// Filled by static registration; reading is thread-safe.
class ValueKernelRegistry {
 public:
  static ValueKernelRegistry& Global();
  absl::Status Register(std::string_view domain, std::string_view op, ValueKernel kernel);
  // Null when there is none.
  const ValueKernel* Find(std::string_view domain, std::string_view op) const;

 private:
  std::map<std::pair<std::string, std::string>, ValueKernel> kernels_;
};

namespace internal {
bool RegisterValueKernelOrDie(std::string_view domain, std::string_view op, ValueKernel kernel);
}

#define WEFT_REGISTER_VALUE_KERNEL(domain, op, kernel) \
  WEFT_REGISTER_VALUE_KERNEL_AT(__COUNTER__, domain, op, kernel)
#define WEFT_REGISTER_VALUE_KERNEL_AT(n, domain, op, kernel) \
  WEFT_REGISTER_VALUE_KERNEL_NAMED(n, domain, op, kernel)
#define WEFT_REGISTER_VALUE_KERNEL_NAMED(n, domain, op, kernel) \
  [[maybe_unused]] static const bool weft_value_kernel_##n =    \
      ::weft::internal::RegisterValueKernelOrDie(domain, op, kernel)

}  // namespace weft

#endif  // WEFT_OPS_VALUE_KERNEL_H_
