// FakeCard: a fake device that FakeNccl joins with others.
#ifndef WEFT_DISTRIBUTED_NCCL_TESTING_FAKE_CARD_H_
#define WEFT_DISTRIBUTED_NCCL_TESTING_FAKE_CARD_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "distributed/nccl/testing/fake_nccl.h"
#include "distributed/nccl/worker_card.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {

// A device whose streams run host work later, in an order drawn from `seed`, and whose memory the
// host cannot touch; a rank of the world, which outlives it. `version`: of its NCCL; 0: the
// world's. `memory_limit`: bytes of the device; 0: any number.
class FakeCard final : public FakeDevice {
 public:
  FakeCard(FakeNcclWorld& world, int index, uint64_t seed, int version = 0, size_t memory_limit = 0)
      : FakeDevice({.index = index, .memory_limit = memory_limit, .scheduling = {.seed = seed}}),
        nccl_(world.AddRank(
            [this](const void* data, size_t bytes) { return memory().IsAllocated(data, bytes); },
            version)) {}

  Nccl& nccl() { return nccl_; }
  WorkerCard card() { return {absl::StrCat("machine/", info().index), &nccl_, ""}; }

 private:
  Nccl& nccl_;
};

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_NCCL_TESTING_FAKE_CARD_H_
