#include "tools/signing/ed25519_key.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"
#include "tools/signing/sha256.h"

namespace weft {
namespace {

// Key files have some hundred bytes.
constexpr int64_t kMaxKeyBytes = 64 << 10;

using Key = std::shared_ptr<EVP_PKEY>;

// For OpenSSL: there is no password, and nobody is asked for one.
int NoPassword(char*, int, int, void*) { return -1; }

std::string NamedFile(const std::string& path) {
  return absl::StrCat("key file \"", absl::Utf8SafeCEscape(path), "\"");
}

// The key of a PEM text, by the function that reads the wanted kind.
template <typename ReadFunction>
absl::StatusOr<Key> KeyOf(const std::string& text, const std::string& path, const char* wanted,
                          ReadFunction read) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  if (bio == nullptr) return absl::ResourceExhaustedError("OpenSSL has no memory for a key");
  Key key(read(bio.get(), nullptr, &NoPassword, nullptr), &EVP_PKEY_free);
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(NamedFile(path), ": it has no ", wanted, " in PEM form, without a password"));
  }
  if (EVP_PKEY_id(key.get()) == EVP_PKEY_ED25519) return key;
  return absl::InvalidArgumentError(
      absl::StrCat(NamedFile(path),
                   ": its key is of another kind, expected Ed25519; make one with openssl genpkey "
                   "-algorithm ed25519 -out private.pem"));
}

}  // namespace

absl::StatusOr<VerifyingKey> VerifyingKey::Of(Key key, const std::string& path) {
  unsigned char* der = nullptr;
  const int bytes = i2d_PUBKEY(key.get(), &der);
  if (bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(NamedFile(path), ": its key has no public part"));
  }
  VerifyingKey verifying;
  verifying.id_ = Sha256Hex(std::as_bytes(std::span(der, static_cast<size_t>(bytes))));
  verifying.key_ = std::move(key);
  OPENSSL_free(der);
  return verifying;
}

absl::StatusOr<VerifyingKey> VerifyingKey::Read(FileSystem& files, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, files.ReadFileUpTo(path, kMaxKeyBytes));
  WEFT_ASSIGN_OR_RETURN(Key key, KeyOf(text, path, "PUBLIC KEY", &PEM_read_bio_PUBKEY));
  return Of(std::move(key), path);
}

bool VerifyingKey::Verifies(std::string_view message, std::string_view signature) const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  };
  const bool verified =
      context != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
      EVP_DigestVerify(context.get(), bytes(signature), signature.size(), bytes(message),
                       message.size()) == 1;
  ERR_clear_error();
  return verified;
}

absl::StatusOr<SigningKey> SigningKey::Read(const std::string& path) {
  std::error_code error;
  const std::filesystem::perms mode = std::filesystem::status(path, error).permissions();
  if (error) return SystemError(error.value(), "examine", path);
  constexpr auto kOthers = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
  if ((mode & kOthers) != std::filesystem::perms::none) {
    return absl::PermissionDeniedError(
        absl::StrCat(NamedFile(path),
                     ": others than its owner may use it; chmod 600 it, or make "
                     "a new one if others may have read it"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string text, RealFileSystem().ReadFileUpTo(path, kMaxKeyBytes));
  WEFT_ASSIGN_OR_RETURN(Key key, KeyOf(text, path, "PRIVATE KEY", &PEM_read_bio_PrivateKey));
  SigningKey signing;
  WEFT_ASSIGN_OR_RETURN(signing.verifying_key_, VerifyingKey::Of(std::move(key), path));
  return signing;
}

absl::StatusOr<std::string> SigningKey::Sign(std::string_view message) const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  std::string signature(64, '\0');
  size_t bytes = signature.size();
  EVP_PKEY* const key = verifying_key_.key_.get();
  const bool is_signed =
      context != nullptr &&
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key) == 1 &&
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &bytes,
                     reinterpret_cast<const unsigned char*>(message.data()), message.size()) == 1;
  ERR_clear_error();
  if (is_signed && bytes == signature.size()) return signature;
  return absl::InternalError("OpenSSL could not sign with the key");
}

}  // namespace weft
