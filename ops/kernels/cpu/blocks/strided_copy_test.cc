#include "ops/kernels/cpu/blocks/strided_copy.h"

#include <cstring>
#include <random>

#include "gtest/gtest.h"

namespace weft::cpu {
namespace {

// A copy between two buffers of numbered bytes, and what it should do, one element at a time.
class CopyTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 1 << 21;

  CopyTest() : from_(kBytes) {
    std::mt19937 random(1);
    for (char& byte : from_) byte = static_cast<char>(random());
  }

  std::vector<char> Expected(const std::vector<CopyAxis>& axes, int width, int64_t from_offset,
                             int64_t to_offset) const {
    std::vector<char> to(kBytes, 'x');
    int64_t count = 1;
    for (const CopyAxis& axis : axes) count *= axis.size;
    for (int64_t flat = 0; flat < count; ++flat) {
      int64_t from = from_offset, target = to_offset, rest = flat;
      for (size_t a = axes.size(); a-- > 0;) {
        from += rest % axes[a].size * axes[a].from_stride;
        target += rest % axes[a].size * axes[a].to_stride;
        rest /= axes[a].size;
      }
      std::memcpy(&to[target * width], &from_[from * width], width);
    }
    return to;
  }

  void Check(const std::vector<CopyAxis>& axes, int width, int64_t from_offset = 0,
             int64_t to_offset = 0) const {
    const std::vector<char> expected = Expected(axes, width, from_offset, to_offset);
    const StridedCopy copy(axes, width, from_offset, to_offset);
    for (const int threads : {1, 3}) {
      std::vector<char> to(kBytes, 'x');
      copy.Run(from_.data(), to.data(), threads);
      EXPECT_TRUE(to == expected) << "width " << width << ", " << threads << " threads, "
                                  << axes.size() << " axes";
    }
  }

  std::vector<char> from_;
};

TEST_F(CopyTest, NothingAndSingleElements) {
  Check({{3, 1, 1}, {0, 1, 1}}, 4);
  Check({}, 8, 5, 7);
  Check({{1, 9, 9}, {1, 0, 0}}, 2, 1, 2);
}

TEST_F(CopyTest, OneLongRunIsSharedByThreads) { Check({{1 << 20, 1, 1}}, 1, 17, 3); }

TEST_F(CopyTest, RunsOfEveryLength) {
  for (const int64_t run : {1, 2, 3, 4, 5, 8, 16, 33}) {
    for (const int width : {1, 2, 4, 8, 16}) Check({{50, run + 1, run}, {run, 1, 1}}, width, 1);
  }
}

TEST_F(CopyTest, TransposesWithLargePowersOfTwo) {
  Check({{64, 1, 512}, {512, 64, 1}}, 4);
  Check({{512, 1, 64}, {64, 512, 1}}, 4);
  Check({{33, 1, 70}, {70, 33, 1}}, 16);
}

TEST_F(CopyTest, NegativeAndZeroStridesOfTheSource) {
  Check({{10, -20, 20}, {20, -1, 1}}, 4, 199);
  Check({{10, 0, 20}, {20, 1, 1}}, 4);
  Check({{10, 1, 20}, {20, 0, 1}}, 8);
}

// Random axes in a random order: a permutation of a sliced source into a sliced target.
TEST_F(CopyTest, RandomAxes) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const int rank = 1 + static_cast<int>(random() % 5);
    std::vector<CopyAxis> axes(rank);
    int64_t to_stride = 1 + random() % 2;
    for (int a = rank - 1; a >= 0; --a) {
      axes[a].size = 1 + random() % 9;
      axes[a].to_stride = to_stride;
      to_stride *= axes[a].size + random() % 2;
    }
    std::vector<int> order(rank);
    for (int a = 0; a < rank; ++a) order[a] = a;
    std::shuffle(order.begin(), order.end(), random);
    int64_t from_stride = 1;
    int64_t from_offset = 0;
    for (const int a : order) {
      axes[a].from_stride = from_stride;
      from_stride *= axes[a].size;
      if (random() % 4 == 0) {
        from_offset += (axes[a].size - 1) * axes[a].from_stride;
        axes[a].from_stride = -axes[a].from_stride;
      }
    }
    const int widths[] = {1, 2, 4, 8};
    Check(axes, widths[random() % 4], from_offset);
  }
}

}  // namespace
}  // namespace weft::cpu
