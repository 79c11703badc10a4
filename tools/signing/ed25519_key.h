// Keys that sign files, and keys that their signatures are verified with.
#ifndef WEFT_TOOLS_SIGNING_ED25519_KEY_H_
#define WEFT_TOOLS_SIGNING_ED25519_KEY_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/file_system.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace weft {

// Verifies Ed25519 signatures (RFC 8032). Immutable, so thread-safe; copies share the key.
class VerifyingKey {
 public:
  // A PEM file "PUBLIC KEY", as `openssl pkey -pubout` writes it. What FileSystem says;
  // InvalidArgument, naming the file, for what is no Ed25519 key.
  static absl::StatusOr<VerifyingKey> Read(FileSystem& files, const std::string& path);

  // SHA-256 of the key in DER form, 64 hexadecimal digits.
  const std::string& id() const { return id_; }
  // False for any signature that is not of this message by this key, of any length.
  bool Verifies(std::string_view message, std::string_view signature) const;

 private:
  friend class SigningKey;
  static absl::StatusOr<VerifyingKey> Of(std::shared_ptr<evp_pkey_st> key, const std::string& path);

  std::shared_ptr<evp_pkey_st> key_;
  std::string id_;
};

// Signs. Immutable, so thread-safe; copies share the key.
class SigningKey {
 public:
  // A PEM file "PRIVATE KEY" without a password, as `openssl genpkey -algorithm ed25519` writes it,
  // of the machine's files. PermissionDenied where others than its owner may read or write it;
  // other errors as VerifyingKey::Read.
  static absl::StatusOr<SigningKey> Read(const std::string& path);

  // Its id is this key's.
  const VerifyingKey& verifying_key() const { return verifying_key_; }
  // 64 bytes. Internal where OpenSSL fails.
  absl::StatusOr<std::string> Sign(std::string_view message) const;

 private:
  VerifyingKey verifying_key_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_SIGNING_ED25519_KEY_H_
