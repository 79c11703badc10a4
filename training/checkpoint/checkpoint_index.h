// CheckpointIndex: what `index.json` of a checkpoint says (the README has the laws).
#ifndef WEFT_TRAINING_CHECKPOINT_CHECKPOINT_INDEX_H_
#define WEFT_TRAINING_CHECKPOINT_CHECKPOINT_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "graph/sharding.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "training/checkpoint/flag_record.h"

namespace weft {

inline constexpr char kCheckpointIndexName[] = "index.json";

// What a job is, as far as one that goes on with it must be the same.
struct CheckpointJob {
  uint64_t model_checksum = 0;    // XXH3-64 of the model file
  uint64_t weights_checksum = 0;  // of the weights it begins with, wherever they lie
  // DataSpec as JSON, checksums filled in; of updates in turn that of the first, and the others' as
  // "update NAME" in it.
  std::string data;
  int64_t steps_per_epoch = 1;
  uint64_t seed = 0;
  FlagRecord flags;  // all that change what is computed
  int workers = 1;
  std::string plan;  // YAML
  // Who trains: variables by name, in the graph's order; and of the model's other parameters, why
  // not. Both empty in records of older programs.
  std::vector<std::string> trained;
  std::map<std::string, std::string> untrained;
};

// A part of a tensor: what one rank owned.
struct CheckpointPart {
  int file = 0;           // index into CheckpointIndex::files
  AxisSharding sharding;  // part `shard` of `shards`
  int shards = 1;
  int shard = 0;
  int row_shards = 1;  // of that part's rows
  int row_shard = 0;
  uint64_t checksum = 0;  // XXH3-64 of its bytes
  friend bool operator==(const CheckpointPart&, const CheckpointPart&) = default;
};

// One tensor of a checkpoint, with the parts that make it up.
struct CheckpointTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;  // of the whole
  bool trainable = false;
  std::string slot_of;  // of optimizer state: its parameter
  std::vector<CheckpointPart> parts;
};

// One file of a checkpoint, with its size and checksum.
struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3-64
};

// The content of `index.json`. A value.
struct CheckpointIndex {
  static constexpr int kFormatVersion = 1;

  int64_t step = 0;  // steps that are done
  CheckpointJob job;
  std::map<std::string, double> loop;  // where the loop stands: its best metric and the like
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;  // by name

  const CheckpointTensor* Find(const std::string& name) const;
  int64_t bytes() const;  // of the files

  // The text ends with its own checksum.
  std::string ToJson() const;
  // Text that nobody needs to trust: DataLoss naming `name` and what is wrong, Unimplemented for a
  // newer format. Every part of a result names a file that is there, and the parts of a tensor make
  // it up, once.
  static absl::StatusOr<CheckpointIndex> FromJson(const std::string& text, const std::string& name);
};

// The part as what AssembleShard takes. InvalidArgument for a cut that the tensor does not allow.
absl::StatusOr<VariableShard> ShardOf(const CheckpointTensor& tensor, const CheckpointPart& part);

}  // namespace weft

#endif  // WEFT_TRAINING_CHECKPOINT_CHECKPOINT_INDEX_H_
