// CheckpointWriter: a rank's part of a checkpoint: copied between two steps, written while the next
// ones run.
#ifndef WEFT_EXECUTOR_VARIABLES_CHECKPOINT_WRITER_H_
#define WEFT_EXECUTOR_VARIABLES_CHECKPOINT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/variables/safetensors.h"
#include "executor/variables/variable_store.h"
#include "graph/ids.h"
#include "graph/partition.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/mutex.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace weft {

// What became of the newest checkpoint that a rank was asked for.
struct CheckpointWrite {
  enum class State : uint8_t { kNone, kRunning, kDone };
  State state = State::kNone;
  std::string folder;
  // Of kDone. An error concerns this checkpoint alone.
  absl::Status status;
  std::string file;  // its name in the folder; empty when the rank owns nothing that changes
  int64_t bytes = 0;
  uint64_t checksum = 0;                    // XXH3-64 of the file
  std::map<std::string, uint64_t> tensors;  // XXH3-64 of the contents of each, by name
  double pause_seconds = 0;                 // that steps waited
  double write_seconds = 0;
};

// Which variables of a rank a checkpoint holds: those that a step of the partition changes and of
// which this rank has the primary copy.
std::vector<std::string> CheckpointedVariables(const Partition& partition);

// Holds one copy of the rank's part, laid out as the file it becomes, from the first checkpoint to
// the last, and one thread, which sleeps unless it writes. A copy is made by several threads where
// it is large; while its file is written, another thread computes the checksums. Borrows what it is
// given; they outlive it. One thread calls it. The destructor waits for the write under way.
class CheckpointWriter {
 public:
  CheckpointWriter(FileSystem& files, Clock& clock, VariableStore& variables, RankId rank);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Adds variables to what is saved, those that are there already once. NotFound for one that the
  // store does not have; Unimplemented for a dtype that files cannot hold.
  absl::Status Add(const std::vector<std::string>& variables);
  // Bytes of the copy.
  int64_t bytes() const { return layout_.tensors.empty() ? 0 : layout_.file_bytes; }
  // Takes the memory of the copy, so that Save need not. Save does it otherwise.
  absl::Status Prepare();
  // Copies the variables as they are now, and begins to write them to `folder`, which is there.
  // Waits for the write before it. OutOfRange, and nothing is written, where a variable holds an
  // infinity or a NaN: such a state is not worth keeping. Other errors are told by Poll. REQUIRES:
  // no step is running.
  absl::Status Save(const std::string& folder);
  // The newest write; after it has ended, if `wait`.
  CheckpointWrite Poll(bool wait);

 private:
  // A part of a tensor, as it is copied and looked at.
  struct Piece {
    const SafetensorsEntry* entry = nullptr;
    std::shared_ptr<Buffer> source;  // the whole tensor; null: the host does not reach it
    int64_t offset = 0;              // in the tensor
    int64_t bytes = 0;
  };

  // Takes the copy. `finite`: OutOfRange where a variable in it is not.
  absl::Status Copy(absl::Status& finite);
  absl::StatusOr<std::vector<Piece>> Pieces();
  absl::Status CopyPiece(const Piece& piece, absl::Status& finite);
  // Of the writing thread.
  void Run();
  void Write(CheckpointWrite& write);
  void ComputeChecksums(CheckpointWrite& write) const;

  FileSystem& files_;
  Clock& clock_;
  VariableStore& variables_;
  const RankId rank_;
  SafetensorsLayout layout_;
  Tensor image_;  // the file's bytes; the writing thread's while write_ is kRunning

  Mutex mutex_;
  CondVar changed_;
  CheckpointWrite write_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // from the first Save on
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLES_CHECKPOINT_WRITER_H_
