#include "graph/policy/file_verifier.h"

#include <utility>

namespace weft {
namespace {

std::shared_ptr<const FileVerifier>& ProcessVerifier() {
  static auto* const verifier = new std::shared_ptr<const FileVerifier>;
  return *verifier;
}

}  // namespace

void SetFileVerifier(std::shared_ptr<const FileVerifier> verifier) {
  ProcessVerifier() = std::move(verifier);
}

bool HasFileVerifier() { return ProcessVerifier() != nullptr; }

absl::StatusOr<std::shared_ptr<const FileManifest>> VerifyFile(FileSystem& files,
                                                               const std::string& path,
                                                               std::span<const std::byte> bytes) {
  if (ProcessVerifier() == nullptr) return std::shared_ptr<const FileManifest>();
  return ProcessVerifier()->Verify(files, path, bytes);
}

}  // namespace weft
