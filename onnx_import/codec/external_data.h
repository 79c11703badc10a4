// Tensor payloads that lie in files beside the model (ONNX's external data).
#ifndef WEFT_ONNX_IMPORT_CODEC_EXTERNAL_DATA_H_
#define WEFT_ONNX_IMPORT_CODEC_EXTERNAL_DATA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "graph/policy/file_verifier.h"
#include "platform/file_system.h"
#include "tensor/buffer.h"

namespace weft {

namespace onnx {
class TensorProto;
}

// The folder that the `location` entries of one model are relative to. Every file is mapped once
// and nothing outside the folder can be named (FileSystem::MapFileBeneath). Not thread-safe.
class ExternalData {
 public:
  // Borrows the file system for its lifetime.
  ExternalData(FileSystem& file_system, std::string folder)
      : file_system_(file_system), folder_(std::move(folder)) {}

  // The model's own file, for payloads that were left in it (left_payloads.h).
  void SetOwnFile(std::shared_ptr<const MappedFile> file) { own_file_ = std::move(file); }
  // `bytes` at `offset` of the model's own file, not copied and perhaps not aligned.
  // InvalidArgument where it has no such bytes.
  absl::StatusOr<std::shared_ptr<Buffer>> MapOwn(uint64_t offset, size_t bytes) const;
  // Who answers for the files that are mapped from now on (graph/policy/file_verifier.h); null:
  // nobody is asked.
  void SetManifest(std::shared_ptr<const FileManifest> manifest) {
    manifest_ = std::move(manifest);
  }
  // What a location means from now on, whatever lies in the folder.
  void Provide(const std::string& location, std::shared_ptr<const MappedFile> file) {
    files_[location] = std::move(file);
  }

  // The mapped bytes of a tensor with data_location EXTERNAL, not copied and perhaps not aligned.
  // `bytes` is what dtype and dims ask for. InvalidArgument when location, offset or length are
  // missing, malformed, outside the file, or disagree with `bytes`; NotFound when there is no file;
  // PermissionDenied for a file that the manifest does not have so.
  absl::StatusOr<std::shared_ptr<Buffer>> Map(const onnx::TensorProto& tensor, size_t bytes);

 private:
  FileSystem& file_system_;
  const std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
  std::shared_ptr<const MappedFile> own_file_;
  std::shared_ptr<const FileManifest> manifest_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_EXTERNAL_DATA_H_
