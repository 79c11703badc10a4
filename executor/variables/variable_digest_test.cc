#include "executor/variables/variable_digest.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "platform/checksum.h"
#include "platform/random.h"
#include "tensor/testing/test_device.h"

namespace weft {
namespace {

constexpr char kBits[] = "bits";
constexpr int64_t kPieceElements = int64_t{1} << 20;  // of 4 bytes

// On each device of tensor/testing/test_device.h.
class VariableDigestTest : public ::testing::TestWithParam<int> {
 protected:
  VariableDigestTest() : store_(*device_) {}

  // Random bits, the same for the same seed.
  void AddVariable(const std::string& name, int64_t elements, uint64_t seed) {
    VariableShard shard;
    shard.name = name;
    shard.dtype = DType::kFloat32;
    shard.global_shape = shard.local_shape = Shape({elements});
    ASSERT_TRUE(store_.Add({shard}).ok());
    std::vector<uint32_t> bits(static_cast<size_t>(elements));
    RandomSequence random(RandomKey(seed, kBits));
    for (uint32_t& one : bits) one = static_cast<uint32_t>(random.Next());
    ASSERT_TRUE(store_.WritePart(name, 0, std::as_bytes(std::span(bits))).ok());
  }

  void Flip(const std::string& name, int64_t byte, int bit) {
    std::byte one{};
    ASSERT_TRUE(store_.ReadPart(name, byte, std::span(&one, 1)).ok());
    one ^= std::byte{1} << bit;
    ASSERT_TRUE(store_.WritePart(name, byte, std::span(&one, 1)).ok());
  }

  uint64_t Digest(const std::string& name) {
    const auto digests = DigestVariables(*device_, store_, {name});
    EXPECT_TRUE(digests.ok()) << digests.status();
    return digests.ok() ? digests->front() : 0;
  }

  const std::unique_ptr<Device> device_ = testing::NewTestDevice(GetParam());
  VariableStore store_;
};

// Against the bytes as the store gives them, cut by hand.
TEST_P(VariableDigestTest, IsTheChecksumOfThePiecesChecksums) {
  AddVariable("w", 2 * kPieceElements + 3, 1);
  const auto value = store_.Read("w");
  ASSERT_TRUE(value.ok()) << value.status();
  const std::span bytes(static_cast<const std::byte*>(value->raw_data()), value->bytes());
  constexpr size_t kPiece = size_t{4} << 20;
  ASSERT_EQ(bytes.size(), 2 * kPiece + 12);
  const uint64_t pieces[] = {Checksum(bytes.first(kPiece)), Checksum(bytes.subspan(kPiece, kPiece)),
                             Checksum(bytes.last(12))};
  EXPECT_EQ(Digest("w"), Checksum(std::as_bytes(std::span(pieces))));
}

TEST_P(VariableDigestTest, EachFlippedBitIsSeenAndGoesAwayWithIt) {
  AddVariable("w", kPieceElements + 2, 1);
  AddVariable("same", kPieceElements + 2, 1);
  const uint64_t before = Digest("w");
  EXPECT_EQ(Digest("same"), before) << "of other names, equal bits";
  const int64_t last = 4 * (kPieceElements + 2) - 1;
  for (const int64_t byte : {int64_t{0}, 4 * kPieceElements - 1, 4 * kPieceElements, last}) {
    for (const int bit : {0, 7}) {
      Flip("w", byte, bit);
      EXPECT_NE(Digest("w"), before) << byte << " " << bit;
      Flip("w", byte, bit);
      EXPECT_EQ(Digest("w"), before) << byte << " " << bit;
    }
  }
}

TEST_P(VariableDigestTest, AnswersInTheOrderAsked) {
  AddVariable("a", 3, 1);
  AddVariable("b", 3, 2);
  AddVariable("empty", 0, 3);
  const auto digests = DigestVariables(*device_, store_, {"b", "empty", "a", "b"});
  ASSERT_TRUE(digests.ok()) << digests.status();
  EXPECT_EQ(*digests, (std::vector<uint64_t>{Digest("b"), Checksum({}), Digest("a"), Digest("b")}));
  EXPECT_NE(Digest("a"), Digest("b"));
  EXPECT_TRUE(absl::IsNotFound(DigestVariables(*device_, store_, {"a", "c"}).status()));
}

INSTANTIATE_TEST_SUITE_P(Devices, VariableDigestTest,
                         ::testing::Values(testing::kOnCpu, testing::kLazyOrder, 3),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

}  // namespace
}  // namespace weft
