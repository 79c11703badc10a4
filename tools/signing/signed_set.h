// The files that belong together and are signed as one: a checkpoint, a model with its external
// data, or any single file.
#ifndef WEFT_TOOLS_SIGNING_SIGNED_SET_H_
#define WEFT_TOOLS_SIGNING_SIGNED_SET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "tools/signing/ed25519_key.h"
#include "tools/signing/signature.h"

namespace weft {

// A signature that was written.
struct WrittenSignature {
  std::string path;
  std::vector<SignedFile> files;
};

// The files of what lies at `path`, each read from end to end. A checkpoint's folder: its index,
// and the files that the index has, after every checksum was compared. A model (*.onnx): itself,
// and the files that its tensors are in. Any other file: itself. What Checkpoint, ModelFile and
// FileSystem say; where the process has a verifier (graph/policy/file_verifier.h), its word too.
absl::StatusOr<std::vector<SignedFile>> FilesToSign(FileSystem& files, const std::string& path);

// Signs FilesToSign, and writes or replaces the signature beside the first of them.
absl::StatusOr<WrittenSignature> SignPath(FileSystem& files, const std::string& path,
                                          const SigningKey& key);

}  // namespace weft

#endif  // WEFT_TOOLS_SIGNING_SIGNED_SET_H_
