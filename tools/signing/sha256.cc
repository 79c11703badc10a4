#include "tools/signing/sha256.h"

#include <openssl/evp.h>

#include <memory>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "platform/mapped_pages.h"

namespace weft {

std::string Sha256Hex(std::span<const std::byte> bytes) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  bool good = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  ForEachMappedWindow(bytes, [&](std::span<const std::byte> part) {
    good = good && EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
  });
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  good = good && EVP_DigestFinal_ex(context.get(), digest, &size) == 1;
  if (!good) return "";
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace weft
