#include "platform/checksum.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "platform/mapped_pages.h"

namespace weft {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Checksum, IsXxh3) {
  // Of the reference tool: `printf 'TEXT' | xxhsum -H3`.
  EXPECT_EQ(Checksum({}), 0x2d06800538d394c2u);
  EXPECT_EQ(Checksum(Bytes("a")), 0xe6c632b61e964e1fu);
  EXPECT_EQ(Checksum(Bytes("abc")), 0x78af5f94892f3950u);
}

TEST(Checksum, ChangesWithEveryBit) {
  std::vector<std::byte> bytes(300, std::byte{0x5a});
  const uint64_t before = Checksum(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(Checksum(bytes), before) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Checksum, OfWindowsIsThatOfTheWhole) {
  std::vector<std::byte> bytes(3 * kMappedWindow + 1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  for (const size_t size :
       {size_t{0}, size_t{1}, kMappedWindow - 1, kMappedWindow, kMappedWindow + 1, bytes.size()}) {
    const std::span<const std::byte> part = std::span(bytes).first(size);
    EXPECT_EQ(MappedChecksum(part), Checksum(part)) << size;
  }
}

TEST(Checksum, OfPartsIsThatOfTheWhole) {
  std::vector<std::byte> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 5);
  RunningChecksum checksum;
  EXPECT_EQ(checksum.Value(), Checksum({}));
  size_t done = 0;
  for (size_t part = 0; done + part <= bytes.size(); ++part) {
    checksum.Add(std::span(bytes).subspan(done, part));
    done += part;
    EXPECT_EQ(checksum.Value(), Checksum(std::span(bytes).first(done))) << done;
  }
  checksum.Reset();
  checksum.Add(Bytes("abc"));
  EXPECT_EQ(checksum.Value(), Checksum(Bytes("abc")));
}

}  // namespace
}  // namespace weft
