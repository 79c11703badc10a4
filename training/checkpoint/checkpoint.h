// Checkpoint: an existing checkpoint, verified and read.
#ifndef WEFT_TRAINING_CHECKPOINT_CHECKPOINT_H_
#define WEFT_TRAINING_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/variables/safetensors.h"
#include "graph/policy/file_verifier.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "training/checkpoint/checkpoint_index.h"

namespace weft {

// Maps the files; holds no tensor. Immutable, so thread-safe. What it reads nobody needs to trust.
class Checkpoint {
 public:
  // Reads index and headers, and checks that they agree with each other and with the files' sizes.
  // Cheap. NotFound when there is none at `folder`; DataLoss naming file and tensor. Where the
  // process has a verifier (graph/policy/file_verifier.h), it reads all files first:
  // PermissionDenied for one that nobody answers for.
  static absl::StatusOr<Checkpoint> Open(FileSystem& files, const std::string& folder);

  const std::string& folder() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }

  // Reads everything once, in order, and compares the checksums: those of files and those of
  // tensors on a thread each. DataLoss naming file and tensor.
  absl::Status Verify() const;
  // The whole tensor, put together from its parts: a copy, made by several threads where it is
  // large. NotFound for an unknown name.
  absl::StatusOr<Tensor> Read(const std::string& name) const;

 private:
  struct File {
    std::shared_ptr<const MappedFile> bytes;
    std::map<std::string, SafetensorsEntry> tensors;  // by name
    std::vector<SafetensorsEntry> in_order;           // of their bytes, which leave no gap
  };
  // What a file's bytes give.
  struct Sums {
    uint64_t file = 0;
    std::map<std::string, uint64_t> tensors;  // by name
  };

  Checkpoint() = default;
  std::string PathOf(int file) const;
  // `manifest` may be null.
  absl::Status OpenFile(FileSystem& files, const CheckpointFile& file,
                        const FileManifest* manifest);
  // Whether the file has the part that the index says.
  absl::Status CheckPart(const CheckpointTensor& tensor, const CheckpointPart& part) const;
  static Sums SumsOf(const File& file);
  // Puts the part's bytes where they belong.
  absl::Status Place(const CheckpointTensor& tensor, const CheckpointPart& part,
                     Tensor& whole) const;
  std::span<const std::byte> BytesOf(const CheckpointTensor& tensor,
                                     const CheckpointPart& part) const;

  std::string folder_;
  CheckpointIndex index_;
  std::vector<File> files_;  // as in the index
};

}  // namespace weft

#endif  // WEFT_TRAINING_CHECKPOINT_CHECKPOINT_H_
