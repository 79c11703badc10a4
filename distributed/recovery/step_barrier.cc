#include "distributed/recovery/step_barrier.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/collective_schedule.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<std::unique_ptr<StepBarrier>> StepBarrier::Open(Communicator& communicator,
                                                               int ranks) {
  CollectiveSpec spec;
  spec.name = "step/barrier";
  for (int rank = 0; rank < ranks; ++rank) spec.group.push_back(RankId(rank));
  spec.dtype = DType::kFloat32;
  spec.schedule = RecursiveDoublingAllReduce(ranks, communicator.rank().value, 1);
  spec.tensors = "the ranks that have summed their gradients";
  std::unique_ptr<StepBarrier> barrier(new StepBarrier(communicator, ranks));
  for (const int64_t elements : spec.schedule.buffer_elements) {
    barrier->values_.emplace_back(static_cast<size_t>(elements));
  }
  for (std::vector<float>& values : barrier->values_) barrier->buffers_.push_back(values.data());
  if (ranks > 1) {
    WEFT_ASSIGN_OR_RETURN(barrier->collective_, communicator.OpenCollective(spec));
  }
  return barrier;
}

absl::Status StepBarrier::Agree(int64_t step) {
  if (ranks_ == 1) return absl::OkStatus();
  values_.front().front() = 1;
  WEFT_RETURN_IF_ERROR(communicator_.RunCollective(collective_, {step}, buffers_.data()));
  const float come = values_.front().front();
  if (come == static_cast<float>(ranks_)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("of ", ranks_, " ranks, ", come, " have come to the barrier of step ", step));
}

}  // namespace weft
