// Arbitrary text as a signature, as the list of files that a right key has signed, and as a key.
// The first byte says which.
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/testing/fake_file_system.h"
#include "tools/signing/ed25519_key.h"
#include "tools/signing/signature.h"

namespace weft {
namespace {

// Test 2 of RFC 8032, section 7.1: known to all.
constexpr char kKnownKey[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
    "-----END PRIVATE KEY-----\n";
constexpr char kPayloadType[] = "application/vnd.in-toto+json";

const SigningKey& KnownKey() {
  static const SigningKey* const key = [] {
    const std::string path = absl::StrCat(std::filesystem::temp_directory_path().string(),
                                          "/weft-fuzz-key-", getpid(), ".pem");
    std::ofstream(path, std::ios::binary) << kKnownKey;
    chmod(path.c_str(), 0600);
    auto read = SigningKey::Read(path);
    std::filesystem::remove(path);
    if (!read.ok()) {
      std::fprintf(stderr, "%s\n", read.status().ToString().c_str());
      std::abort();
    }
    return new SigningKey(*std::move(read));
  }();
  return *key;
}

// An envelope (DSSE 1.0) whose signature is right.
std::string Signed(const std::string& payload) {
  const std::string message = absl::StrCat("DSSEv1 ", sizeof(kPayloadType) - 1, " ", kPayloadType,
                                           " ", payload.size(), " ", payload);
  const auto signature = KnownKey().Sign(message);
  return absl::StrCat("{\"payloadType\": \"", kPayloadType, "\", \"payload\": \"",
                      absl::Base64Escape(payload), "\", \"signatures\": [{\"sig\": \"",
                      absl::Base64Escape(signature.value_or("")), "\"}]}");
}

void Take(uint8_t kind, const std::string& text) {
  const std::vector<VerifyingKey> keys = {KnownKey().verifying_key()};
  if (kind % 3 == 0) {
    (void)VerifySignature(text, keys);
  } else if (kind % 3 == 1) {
    (void)VerifySignature(Signed(text), keys);
  } else {
    testing::FakeFileSystem files;
    (void)files.CreateDirectories("keys");
    (void)files.WriteFileAtomically("keys/key.pem", text);
    (void)VerifyingKey::Read(files, "keys/key.pem");
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weft::Take(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
