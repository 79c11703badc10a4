#include "placement/rules/sum_groups.h"

#include <utility>

namespace weft {
namespace {

std::vector<SumGroup> Group(std::span<const RankSum> sums, int begin, int64_t bucket_bytes) {
  std::vector<SumGroup> groups;
  SumGroup bucket;
  DType dtype = DType::kFloat32;
  int64_t bytes = 0;
  const auto close = [&] {
    if (!bucket.sums.empty()) groups.push_back(std::exchange(bucket, {}));
    bytes = 0;
  };
  for (size_t i = 0; i < sums.size(); ++i) {
    const int index = begin + static_cast<int>(i);
    if (sums[i].is_scattered) {
      groups.push_back({{index}, true});
      continue;
    }
    if (bytes + sums[i].bytes > bucket_bytes || sums[i].dtype != dtype) close();
    dtype = sums[i].dtype;
    bytes += sums[i].bytes;
    bucket.sums.push_back(index);
  }
  close();
  return groups;
}

// Scattered ones count too: where they are, the others are few.
bool FitOneBucket(std::span<const RankSum> first, std::span<const RankSum> later,
                  int64_t bucket_bytes) {
  int64_t bytes = 0;
  for (const std::span<const RankSum> sums : {first, later}) {
    for (const RankSum& sum : sums) {
      const RankSum& any = first.empty() ? later.front() : first.front();
      bytes += sum.bytes;
      if (sum.dtype != any.dtype || bytes > bucket_bytes) return false;
    }
  }
  return true;
}

}  // namespace

SumGroups GroupSums(std::span<const RankSum> first, std::span<const RankSum> later,
                    int64_t bucket_bytes) {
  if (!FitOneBucket(first, later, bucket_bytes)) {
    return {Group(first, 0, bucket_bytes),
            Group(later, static_cast<int>(first.size()), bucket_bytes)};
  }
  std::vector<RankSum> all(first.begin(), first.end());
  all.insert(all.end(), later.begin(), later.end());
  return {Group(all, 0, bucket_bytes), {}};
}

int64_t BytesOf(const SumGroup& group, std::span<const RankSum> sums) {
  int64_t bytes = 0;
  for (const int sum : group.sums) bytes += sums[sum].bytes;
  return bytes;
}

}  // namespace weft
