#include "training/records/crc32c.h"

#include <array>
#include <bit>
#include <cstddef>

namespace weft {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1EDC6F41, reflected
constexpr uint32_t kMaskDelta = 0xa282ead8;

// Tables for eight bytes at a time ("slicing by 8": Kounavis and Berry, ISCC 2005): table k is what
// a byte does that k more bytes follow.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  const auto byte = [&bytes](size_t i) { return uint32_t{static_cast<unsigned char>(bytes[i])}; };
  uint32_t crc = 0xffffffff;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    crc ^= byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][(crc >> 8) & 0xff] ^ kTables[5][(crc >> 16) & 0xff] ^
          kTables[4][crc >> 24] ^ kTables[3][byte(i + 4)] ^ kTables[2][byte(i + 5)] ^
          kTables[1][byte(i + 6)] ^ kTables[0][byte(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ kTables[0][(crc ^ byte(i)) & 0xff];
  return crc ^ 0xffffffff;
}

uint32_t MaskedCrc32c(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + kMaskDelta; }

}  // namespace weft
