// ResidentBuffers: what has an address of its own for the whole life of a program. Internal to
// executor/.
#ifndef WEFT_EXECUTOR_LOWERING_RESIDENT_BUFFERS_H_
#define WEFT_EXECUTOR_LOWERING_RESIDENT_BUFFERS_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowered_step.h"
#include "graph/graph.h"
#include "tensor/device.h"

namespace weft {

// The fixed buffers of a step while it is being bound: step scalars, constants, variables. Borrows
// the step, to which it adds what it makes.
class ResidentBuffers {
 public:
  ResidentBuffers(const ExecutorEnvironment& environment, LoweredStep& step)
      : environment_(environment), step_(step) {}

  // Gives a step scalar memory on the device.
  absl::Status AddScalar(const FeedInput& feed);
  // REQUIRES: AddScalar of this name.
  BufferIndex OfScalar(const std::string& name) const { return scalars_.at(name); }
  // Constants that share their bytes share a buffer. One that the device cannot read where it is,
  // is copied.
  absl::StatusOr<BufferIndex> OfConstant(const Tensor& tensor);
  // NotFound where the rank has no such variable.
  absl::StatusOr<BufferIndex> OfVariable(const Graph& graph, const ValueDef& value);

 private:
  absl::StatusOr<Tensor> OnDevice(const Tensor& tensor);

  const ExecutorEnvironment& environment_;
  LoweredStep& step_;
  std::unique_ptr<Stream> stream_;  // from the first copy on
  std::map<std::string, BufferIndex> scalars_;
  std::map<std::string, BufferIndex> variables_;
  std::map<const void*, BufferIndex> constants_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_RESIDENT_BUFFERS_H_
