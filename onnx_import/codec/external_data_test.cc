#include "onnx_import/codec/external_data.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class MapOwnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_.WriteFileAtomically("/m.onnx", "0123456789").ok());
    data_.SetOwnFile(files_.MapFile("/m.onnx").value());
  }
  std::string Error(uint64_t offset, size_t bytes) const {
    const auto mapped = data_.MapOwn(offset, bytes);
    EXPECT_EQ(mapped.status().code(), absl::StatusCode::kInvalidArgument) << mapped.status();
    return std::string(mapped.status().message());
  }

  testing::FakeFileSystem files_;
  ExternalData data_{files_, "/"};
};

TEST_F(MapOwnTest, GivesBytesOfTheFile) {
  for (const auto& [offset, expected] :
       {std::pair<uint64_t, std::string>{0, "0123456789"}, {6, "6789"}, {3, "345"}}) {
    const auto mapped = data_.MapOwn(offset, expected.size());
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(std::memcmp((*mapped)->data(), expected.data(), expected.size()), 0) << offset;
  }
}

TEST_F(MapOwnTest, RefusesWhatIsNotInTheFile) {
  EXPECT_THAT(Error(7, 4), HasSubstr("its 4 bytes are said to be at 7 of the model's file"));
  Error(11, 1);
  Error(std::numeric_limits<uint64_t>::max(), 2);
  Error(uint64_t{1} << 63, 8);
}

}  // namespace
}  // namespace weft
