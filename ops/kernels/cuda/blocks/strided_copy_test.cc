// Copies with indices of 64 bits, which only tensors of 2^30 elements and more need: the same
// plans, widened, on small tensors.
#include "ops/kernels/cuda/blocks/strided_copy.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/body_runner.h"
#include "ops/testing/emulator/gpu_op_tester.h"

namespace weft::cuda {
namespace {

CopyPlan Widened(CopyPlan plan) {
  plan.has_small_indices = false;
  plan.large.axes = plan.small.axes;
  for (int d = 0; d < plan.small.axes; ++d) {
    plan.large.sizes[d] = FastDivisor<int64_t>(plan.small.sizes[d].divisor());
    for (int k = 0; k < 2; ++k) plan.large.strides[d][k] = plan.small.strides[d][k];
  }
  return plan;
}

// Copies `axes` from 0, 1, 2, ... and compares each element with where the axes say it comes from.
template <typename T>
void ExpectWideCopy(const std::vector<CopyAxis>& axes, int64_t from_size, CopyWay way, int pack) {
  const auto plan = PlanCopy(axes, sizeof(T), 0, 0, 16);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->way, way);
  ASSERT_EQ(plan->pack, pack);
  ASSERT_TRUE(plan->has_small_indices);
  std::vector<T> source(static_cast<size_t>(from_size));
  std::iota(source.begin(), source.end(), T{0});
  int64_t count = 1;
  for (const CopyAxis& axis : axes) count *= axis.size;
  testing::BodyRunner runner(3);
  const T* const from = runner.Input(source);
  T* const to = runner.Memory<T>(static_cast<size_t>(count));
  ASSERT_EQ(LaunchCopy({runner.stream().native_handle()}, Widened(*plan), from, to), 0);
  ASSERT_EQ(runner.Finish(), absl::OkStatus());
  const std::vector<T> result = runner.Read(to, static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    int64_t place = 0;
    int64_t target = 0;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      place += rest % axis->size * axis->from_stride;
      target += rest % axis->size * axis->to_stride;
      rest /= axis->size;
    }
    ASSERT_EQ(result[static_cast<size_t>(target)], source[static_cast<size_t>(place)]) << i;
  }
}

// A launch of a build with CUDA goes to no emulated stream.
class WideCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::TestsOnARealGpu()) GTEST_SKIP() << "runs on the emulator";
  }
};

TEST_F(WideCopyTest, TransposesBySquaresOfPackets) {
  // [2, 68, 72] and its matrices the other way round.
  const std::vector<CopyAxis> axes = {{2, 68 * 72, 68 * 72}, {72, 1, 68}, {68, 72, 1}};
  ExpectWideCopy<uint16_t>(axes, 2 * 68 * 72, CopyWay::kTransposes, 4);
  ExpectWideCopy<uint32_t>(axes, 2 * 68 * 72, CopyWay::kTransposes, 4);
  ExpectWideCopy<uint64_t>(axes, 2 * 68 * 72, CopyWay::kTransposes, 2);
  ExpectWideCopy<uint16_t>({{136, 1, 128}, {128, 136, 1}}, 128 * 136, CopyWay::kTransposes, 8);
}

TEST_F(WideCopyTest, TransposesByElements) {
  ExpectWideCopy<uint32_t>({{35, 1, 67}, {67, 35, 1}}, 35 * 67, CopyWay::kTransposes, 1);
  ExpectWideCopy<uint16_t>({{36, 1, 20}, {20, 36, 1}}, 36 * 20, CopyWay::kTransposes, 2);
}

TEST_F(WideCopyTest, MovesUnitsAndRepeatsThem) {
  ExpectWideCopy<uint32_t>({{3, 5, 35}, {7, 15, 5}, {5, 1, 1}}, 105, CopyWay::kUnits, 1);
  ExpectWideCopy<uint32_t>({{7, 1, 16}, {16, 0, 1}}, 7, CopyWay::kRepeats, 1);
}

TEST(WideDivisorTest, DividesBeyond32Bits) {
  for (const int64_t divisor : {int64_t{1}, int64_t{3}, int64_t{50257}, (int64_t{1} << 33) + 1}) {
    const FastDivisor<int64_t> by(divisor);
    for (const int64_t n : {int64_t{0}, int64_t{7}, (int64_t{1} << 40) + 12345, INT64_MAX}) {
      const Division<int64_t> division = by.Divide(n);
      EXPECT_EQ(division.quotient, n / divisor);
      EXPECT_EQ(division.rest, n % divisor);
    }
  }
}

}  // namespace
}  // namespace weft::cuda
