// Calls the functions of a custom op's descriptor (ops/custom_op.h).
#ifndef WEFT_OPS_CUSTOM_CUSTOM_OP_H_
#define WEFT_OPS_CUSTOM_CUSTOM_OP_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/op_schema.h"
#include "ops/custom_op.h"
#include "ops/kernel.h"

namespace weft {

// Runs the parallel loops of custom kernels.
class LoopRunner {
 public:
  virtual ~LoopRunner() = default;
  // Calls body(begin, end) for disjoint ranges that cover [0, items).
  virtual void Run(int64_t items, double nanoseconds_per_item,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> body) = 0;
};

// In all of these the descriptor is one that LoadOpLibrary has checked. What the library's function
// fails with, or an output type that cannot be, is InvalidArgument with the node's name and op.
absl::Status InferCustomOp(const WeftOpDescriptor& op, InferenceContext& context);
absl::Status AddCustomGradient(const WeftOpDescriptor& op, GradientContext& context);
// One FLOP per element of output 0 when the function fails.
double CustomOpFlops(const WeftOpDescriptor& op, const NodeView& view);

// A kernel that calls `run`. Its loops go to `loops` (borrowed), or over the threads of the context
// when that is null.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareCustomKernel(const WeftOpDescriptor& op,
                                                            WeftFunction run,
                                                            const PrepareContext& context,
                                                            LoopRunner* loops = nullptr);

// ---- For whoever stands between the host and a library (ops/custom/isolation).

// The node that a call of these functions is about. Lives as long as the call.
const Node& NodeOfCall(const WeftCall& call);
// Threads among which `parallel_for` of a kernel's call divides its loops; 1 in other calls, and
// where a LoopRunner runs them.
int LoopThreads(const WeftCall& call);

// The attribute as the library sees it, with pointers into `attributes`; 0 when it is absent or of
// a type that libraries do not see. And back, as values of a new node.
int32_t AttributeToAbi(const Attributes& attributes, const char* name, WeftAttribute* attribute);
Attributes AttributesFromAbi(const WeftAttribute* attributes, int32_t count);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_CUSTOM_OP_H_
