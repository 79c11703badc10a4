// InputSource: the source of a step's data rows. Declared here, implemented by training/.
#ifndef WEFT_EXECUTOR_INTERFACES_INPUT_SOURCE_H_
#define WEFT_EXECUTOR_INTERFACES_INPUT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "tensor/value.h"

namespace weft {

// Rows of the data set in the job's sample order. Position is (epoch-independent) step and sample
// within the step's global batch, so the sequence does not depend on the number of workers.
// Fill may be called from one compute thread; implementations prefetch on threads of their own.
class InputSource {
 public:
  virtual ~InputSource() = default;
  // Writes samples [first, first + count) of the global batch of `step` for input `name` into
  // `target` (host memory, count x sample bytes, in the dtype and sample shape of `input`). Errors
  // name file, record and what to do.
  virtual absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                            void* target) = 0;
  // Memory on the host that holds what Fill would write and stays as it is until the step has
  // ended, aligned to kAlignment; empty: there is none, and Fill must be called.
  virtual std::span<const std::byte> BorrowBatch(int64_t step, const FeedInput& input,
                                                 int64_t first, int64_t count) {
    (void)step, (void)input, (void)first, (void)count;
    return {};
  }
  // The value of an input whose size or kind is not known ahead (a sequence, strings), whole.
  virtual absl::StatusOr<Value> TakeValue(const FeedInput& input) {
    return absl::UnimplementedError(
        "input '" + input.name + "' is not a tensor of fixed shape; only a forward run takes such");
  }
  // Bytes that it holds now, and at most: the data set, read whole.
  virtual int64_t held_bytes() const { return 0; }
  virtual int64_t max_bytes() const { return held_bytes(); }
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_INTERFACES_INPUT_SOURCE_H_
