// Signatures of files: who answers for which contents.
#ifndef WEFT_TOOLS_SIGNING_SIGNATURE_H_
#define WEFT_TOOLS_SIGNING_SIGNATURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/policy/file_verifier.h"
#include "platform/file_system.h"
#include "tools/signing/ed25519_key.h"

namespace weft {

// Where the signature of the file at `path`, and of the files that belong to it, lies: beside it.
std::string SignaturePath(const std::string& path);

// A file as a signature has it.
struct SignedFile {
  std::string name;  // relative to the folder of the signature
  std::string sha256;
  friend bool operator==(const SignedFile&, const SignedFile&) = default;
};
// REQUIRES: `bytes` is all of the file.
SignedFile DescribeSignedFile(const std::string& name, std::span<const std::byte> bytes);

// The text of a signature: a DSSE envelope (version 1) with an in-toto Statement (version 1), whose
// subjects are the files by name and SHA-256. Equal files and keys give equal texts. Internal where
// OpenSSL fails.
absl::StatusOr<std::string> SignatureText(const std::vector<SignedFile>& files,
                                          const SigningKey& key);

// The files of a text that one of `keys` has signed. The text may come from anywhere: nothing of it
// but the envelope is looked at before the signature is verified. PermissionDenied, saying what is
// wrong; the text does not name the file.
absl::StatusOr<std::vector<SignedFile>> VerifySignature(std::string_view text,
                                                        const std::vector<VerifyingKey>& keys);

// Answers for what one of the keys has signed. Reads the signature at SignaturePath of each file
// that it is asked for.
class SignatureVerifier final : public FileVerifier {
 public:
  explicit SignatureVerifier(std::vector<VerifyingKey> keys) : keys_(std::move(keys)) {}

  absl::StatusOr<std::shared_ptr<const FileManifest>> Verify(
      FileSystem& files, const std::string& path, std::span<const std::byte> bytes) const override;

 private:
  const std::vector<VerifyingKey> keys_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_SIGNING_SIGNATURE_H_
