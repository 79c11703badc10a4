#include "tests/attacks/hostile_files.h"

#include <zlib.h>

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

constexpr int kAliasLevels = 12;

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  return text;
}

// Without the frame of zlib.
std::string Deflate(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::vector<Bytef> packed(size);
  EXPECT_EQ(compress2(packed.data(), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                      static_cast<uLong>(bytes.size()), 1),
            Z_OK);
  const std::string all(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
  return all.substr(2, all.size() - 6);
}

uint32_t CheckOf(std::string_view bytes) {
  return static_cast<uint32_t>(crc32(crc32(0, nullptr, 0),
                                     reinterpret_cast<const Bytef*>(bytes.data()),
                                     static_cast<uInt>(bytes.size())));
}

}  // namespace

std::string AliasBomb(const std::string& key) {
  std::string text = absl::StrCat(key, ":\n  - &a0 [x, x, x, x, x, x, x, x, x, x]\n");
  for (int level = 1; level < kAliasLevels; ++level) {
    const std::string before = absl::StrCat("*a", level - 1);
    absl::StrAppend(&text, "  - &a", level, " [", before);
    for (int i = 1; i < 10; ++i) absl::StrAppend(&text, ", ", before);
    absl::StrAppend(&text, "]\n");
  }
  return text;
}

std::string NpyOf(const std::string& header, std::string_view data) {
  std::string text = header;
  text.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + LittleEndian(118, 2) + text + "\n" +
         std::string(data);
}

std::string SmallNpy() {
  return NpyOf("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }",
               std::string(16, '\0'));
}

std::string Gzip(std::string_view bytes, bool damaged) {
  const uint32_t check = CheckOf(bytes) ^ (damaged ? 1u : 0u);
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) + Deflate(bytes) + LittleEndian(check, 4) +
         LittleEndian(bytes.size(), 4);
}

std::string Zip64Field(uint64_t bytes, uint64_t packed_bytes, uint16_t length) {
  const std::string sizes = LittleEndian(bytes, 8) + LittleEndian(packed_bytes, 8);
  return LittleEndian(1, 2) + LittleEndian(length, 2) + sizes.substr(0, length);
}

std::string ZipOf(std::string_view content, const ZipLies& lies) {
  const std::string name = "x.npy";
  const std::string data = lies.deflated ? Deflate(content) : std::string(content);
  const uint64_t packed = lies.packed_bytes == 0 ? data.size() : lies.packed_bytes;
  const uint64_t bytes = lies.bytes == 0 ? content.size() : lies.bytes;
  // From the version that is needed on to the length of the name, in both places.
  const std::string shared = LittleEndian(45, 2) + LittleEndian(0, 2) +
                             LittleEndian(lies.deflated ? 8 : 0, 2) + LittleEndian(0, 4) +
                             LittleEndian(CheckOf(content), 4) + LittleEndian(packed, 4) +
                             LittleEndian(bytes, 4) + LittleEndian(name.size(), 2);
  const std::string local = "PK\x03\x04" + shared + LittleEndian(0, 2) + name + data;
  const std::string directory = "PK\x01\x02" + LittleEndian(45, 2) + shared +
                                LittleEndian(lies.extra.size(), 2) + LittleEndian(0, 2) +
                                LittleEndian(0, 2) + LittleEndian(0, 2) + LittleEndian(0, 4) +
                                LittleEndian(0, 4) + name + lies.extra;
  const uint64_t place = lies.directory == 0 ? local.size() : lies.directory;
  std::string archive = local + directory;
  if (lies.members > 0xffff) {
    const uint64_t at = archive.size();
    archive += "PK\x06\x06" + LittleEndian(44, 8) + LittleEndian(45, 2) + LittleEndian(45, 2) +
               LittleEndian(0, 4) + LittleEndian(0, 4) + LittleEndian(lies.members, 8) +
               LittleEndian(lies.members, 8) + LittleEndian(directory.size(), 8) +
               LittleEndian(place, 8);
    archive += "PK\x06\x07" + LittleEndian(0, 4) + LittleEndian(at, 8) + LittleEndian(1, 4);
  }
  const uint64_t members = lies.members > 0xffff ? 0xffff : lies.members;
  return archive + "PK\x05\x06" + LittleEndian(0, 4) + LittleEndian(members, 2) +
         LittleEndian(members, 2) + LittleEndian(directory.size(), 4) + LittleEndian(place, 4) +
         LittleEndian(0, 2);
}

}  // namespace weft::testing
