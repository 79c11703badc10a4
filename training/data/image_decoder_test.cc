// Hostile images end in words, soon. Whole ones are tested by training/data/column_reader_test.cc.
#include "training/data/image_decoder.h"

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

std::string Chunk(const std::string& name, const std::string& content) {
  const std::string checked = name + content;
  const uLong crc =
      crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return BigEndian(static_cast<uint32_t>(content.size())) + checked +
         BigEndian(static_cast<uint32_t>(crc));
}

// A PNG of `side` x `side` red pixels, with so many bytes behind them in its data.
std::string Png(int side, size_t behind) {
  std::string rows;
  for (int row = 0; row < side; ++row) {
    rows.push_back('\0');
    for (int column = 0; column < side; ++column) rows += std::string("\xff\0\0", 3);
  }
  rows.append(behind, '\0');
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  EXPECT_EQ(compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                      reinterpret_cast<const Bytef*>(rows.data()), rows.size(), 9),
            Z_OK);
  packed.resize(size);
  const auto length = static_cast<uint32_t>(side);
  return std::string("\x89PNG\r\n\x1a\n") +
         Chunk("IHDR", BigEndian(length) + BigEndian(length) + std::string("\x08\x02\0\0\0", 5)) +
         Chunk("IDAT", packed) + Chunk("IEND", "");
}

TEST(ImageDecoderTest, APngOfOnePixelAndOfMany) {
  for (const int side : {1, 8, 300}) {
    const std::string png = Png(side, 0);
    const auto shape = ReadImageShape(png, "a.png");
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_EQ(*shape, Shape({3, side, side}));
    std::vector<uint8_t> pixels(static_cast<size_t>(shape->num_elements()));
    const absl::Status decoded = DecodeImage(png, *shape, false, "a.png", pixels.data());
    ASSERT_TRUE(decoded.ok()) << decoded;
    EXPECT_EQ(pixels.front(), 255);
    EXPECT_EQ(pixels.back(), 0);
  }
}

// 8 x 8 pixels took 3 s: all that was behind them was unpacked, too.
TEST(ImageDecoderTest, MoreDataThanItsPixelsNeedIsRefused) {
  const std::string png = Png(8, size_t{256} << 20);
  ASSERT_LT(png.size(), 400'000u);
  std::vector<uint8_t> pixels(3 * 8 * 8);
  const absl::Status decoded = DecodeImage(png, Shape({3, 8, 8}), false, "a.png", pixels.data());
  EXPECT_EQ(decoded.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.message()),
              ::testing::HasSubstr("'a.png': has more data than an image of 8 x 8 pixels"));
}

}  // namespace
}  // namespace weft
