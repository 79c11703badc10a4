// SHA-256, the digest of files that are signed.
#ifndef WEFT_TOOLS_SIGNING_SHA256_H_
#define WEFT_TOOLS_SIGNING_SHA256_H_

#include <cstddef>
#include <span>
#include <string>

namespace weft {

// 64 hexadecimal digits (FIPS 180-4). Of a mapped file in windows, so that little of it is in
// memory at a time. "" where OpenSSL has no memory: the digest of no file.
std::string Sha256Hex(std::span<const std::byte> bytes);

}  // namespace weft

#endif  // WEFT_TOOLS_SIGNING_SHA256_H_
