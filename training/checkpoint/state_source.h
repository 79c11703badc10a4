// StateSource: the state of a job after a step, wherever it lies: in a checkpoint's folder, or in
// the memory of workers (training/recovery/held_source.h).
#ifndef WEFT_TRAINING_CHECKPOINT_STATE_SOURCE_H_
#define WEFT_TRAINING_CHECKPOINT_STATE_SOURCE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/tensor.h"
#include "training/checkpoint/checkpoint.h"

namespace weft {

// Gives whole tensors, put together from the parts that ranks had, whatever plan those were of.
// One thread.
class StateSource {
 public:
  virtual ~StateSource() = default;
  // Steps of the job that were done.
  virtual int64_t step() const = 0;
  // For people: "checkpoint '/ckpt/step-00000100'", "copies in the memory of 3 workers".
  virtual std::string text() const = 0;
  // All that steps change, by name, in order.
  virtual std::vector<std::string> names() const = 0;
  // A host tensor of the global shape, of its own. NotFound for an unknown name; the errors are
  // else those of disks, or of the workers that hold the parts.
  virtual absl::StatusOr<Tensor> Read(const std::string& name) = 0;
};

// Of a checkpoint, whose files it maps.
class CheckpointSource final : public StateSource {
 public:
  explicit CheckpointSource(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  int64_t step() const override { return checkpoint_.index().step; }
  std::string text() const override;
  std::vector<std::string> names() const override;
  absl::StatusOr<Tensor> Read(const std::string& name) override { return checkpoint_.Read(name); }

 private:
  const Checkpoint checkpoint_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_CHECKPOINT_STATE_SOURCE_H_
