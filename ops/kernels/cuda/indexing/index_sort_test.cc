#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/cuda/indexing/index_sort_launch.h"
#include "ops/testing/emulator/body_runner.h"

namespace weft::testing {
namespace {

// Sorts `count` random keys below `limit`, and compares with the C++ library's stable sort.
void CheckSort(int64_t count, int64_t limit, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> keys(static_cast<size_t>(count));
  for (uint32_t& key : keys) {
    key = static_cast<uint32_t>(random() % static_cast<uint64_t>(limit));
  }
  std::vector<uint32_t> expected(keys.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });

  BodyRunner runner(seed);
  const cuda::IndexSort sort{count, limit};
  const auto size = static_cast<size_t>(count);
  uint32_t* const sorted_keys = runner.Memory<uint32_t>(size);
  uint32_t* const order = runner.Memory<uint32_t>(size);
  void* const workspace = runner.Memory<uint64_t>(sort.workspace_bytes() / 8 + 1);
  uint32_t* const given = sort.Keys(sorted_keys, workspace);
  Stream& stream = runner.stream();
  ASSERT_TRUE(runner.device().CopyFromHost(stream, keys.data(), given, size * 4).ok());
  ASSERT_EQ(sort.Launch({stream.native_handle()}, sorted_keys, order, workspace), 0);
  const absl::Status status = runner.Finish();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(runner.Read(order, size), expected);
  const std::vector<uint32_t> sorted = runner.Read(sorted_keys, size);
  for (size_t i = 0; i < size; ++i) ASSERT_EQ(sorted[i], keys[expected[i]]) << i;
}

TEST(IndexSortTest, FewKeysAreRanked) {
  CheckSort(1, 1, 1);
  CheckSort(31, 5, 2);
  CheckSort(300, int64_t{1} << 32, 3);
}

// One pass, two and four of eight bits: results end in the same arrays.
TEST(IndexSortTest, ManyKeysGoByDigits) {
  CheckSort(cuda::kRankedKeys + 1, 3, 4);
  CheckSort(cuda::kRankedKeys + 2049, 50000, 5);
  CheckSort(cuda::kRankedKeys + 7, int64_t{1} << 32, 6);
  CheckSort(cuda::kRankedKeys + 7, int64_t{1} << 20, 7);
}

}  // namespace
}  // namespace weft::testing
