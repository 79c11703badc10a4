#include "placement/rules/sum_groups.h"

#include <utility>

namespace weft {
namespace {

// Reports, or all others.
std::vector<SumGroup> Group(std::span<const RankSum> sums, int begin, int64_t bucket_bytes,
                            bool reports = false) {
  std::vector<SumGroup> groups;
  SumGroup bucket;
  DType dtype = DType::kFloat32;
  int64_t bytes = 0;
  const auto close = [&] {
    if (!bucket.sums.empty()) groups.push_back(std::exchange(bucket, {}));
    bytes = 0;
  };
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].is_report != reports) continue;
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
  const RankSum* any = nullptr;
  for (const std::span<const RankSum> sums : {first, later}) {
    for (const RankSum& sum : sums) {
      if (sum.is_report) continue;
      if (any == nullptr) any = &sum;
      bytes += sum.bytes;
      if (sum.dtype != any->dtype || bytes > bucket_bytes) return false;
    }
  }
  return true;
}

}  // namespace

SumGroups GroupSums(std::span<const RankSum> first, std::span<const RankSum> later,
                    int64_t bucket_bytes) {
  const int begin = static_cast<int>(first.size());
  SumGroups groups;
  if (FitOneBucket(first, later, bucket_bytes)) {
    std::vector<RankSum> all(first.begin(), first.end());
    all.insert(all.end(), later.begin(), later.end());
    groups.first = Group(all, 0, bucket_bytes);
  } else {
    groups = {Group(first, 0, bucket_bytes), Group(later, begin, bucket_bytes)};
  }
  for (SumGroup& group : Group(later, begin, bucket_bytes, /*reports=*/true)) {
    groups.later.push_back(std::move(group));
  }
  return groups;
}

int64_t BytesOf(const SumGroup& group, std::span<const RankSum> sums) {
  int64_t bytes = 0;
  for (const int sum : group.sums) bytes += sums[sum].bytes;
  return bytes;
}

}  // namespace weft
