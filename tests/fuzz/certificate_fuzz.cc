// Arbitrary text as the files of a folder of keys: a certificate, those of authorities, and a
// private key with its certificate.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "distributed/keys/certificate.h"
#include "distributed/keys/key_folder.h"

namespace weft {
namespace {

void TakeKeys(const std::string& text) {
  const absl::Time now = absl::FromUnixSeconds(1800000000);
  const auto certificate = ParseCertificate(text);
  if (certificate.ok()) {
    (void)CheckServer(*certificate, "a");
    (void)certificate->IsFor("127.0.0.1");
    (void)certificate->HostsText();
    (void)ExpiryNote(*certificate, now);
  }
  (void)VerifyCertificate(text, text, Purpose::kServer, now);
  KeySet keys;
  keys.identity_pem = text;
  keys.authority_pem = text;
  if (certificate.ok()) keys.certificate = *certificate;
  (void)CheckKeySet(keys, now);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::TakeKeys(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
