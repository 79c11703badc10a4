// FileVerifier: who answers for the files that this process takes from elsewhere.
#ifndef WEFT_GRAPH_POLICY_FILE_VERIFIER_H_
#define WEFT_GRAPH_POLICY_FILE_VERIFIER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/file_system.h"

namespace weft {

// Files that somebody answers for, by name and content. Immutable, so thread-safe.
class FileManifest {
 public:
  virtual ~FileManifest() = default;
  // `name` is relative to the folder of the file that the manifest came with. PermissionDenied,
  // naming the file, for one that it does not have, or has with other contents.
  virtual absl::Status Check(const std::string& name, std::span<const std::byte> bytes) const = 0;
};

// Finds the manifest of a file. Thread-safe.
class FileVerifier {
 public:
  virtual ~FileVerifier() = default;
  // The manifest that came with the file at `path`, whose content is `bytes`, and which has it
  // under any name. PermissionDenied, naming the file, where nobody answers for it.
  virtual absl::StatusOr<std::shared_ptr<const FileManifest>> Verify(
      FileSystem& files, const std::string& path, std::span<const std::byte> bytes) const = 0;
};

// The verifier of this process; null, as at the beginning, verifies nothing. Set it once, before
// the first file is loaded and before other threads run. It is asked with the bytes that are used
// then, before anything looks at them, by who loads models and their external data, checkpoints,
// and libraries of operators.
void SetFileVerifier(std::shared_ptr<const FileVerifier> verifier);
bool HasFileVerifier();

// What the process's verifier says; null without one.
absl::StatusOr<std::shared_ptr<const FileManifest>> VerifyFile(FileSystem& files,
                                                               const std::string& path,
                                                               std::span<const std::byte> bytes);

}  // namespace weft

#endif  // WEFT_GRAPH_POLICY_FILE_VERIFIER_H_
