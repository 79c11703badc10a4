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

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_CUSTOM_OP_H_
