#include "graph/plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace weft {

std::vector<RankId> Mesh::Group(RankId rank, MeshAxis axis) const {
  Coordinate at = CoordinateOf(rank);
  int* position = nullptr;
  int members = 0;
  switch (axis) {
    case MeshAxis::kData:
      position = &at.data;
      members = data;
      break;
    case MeshAxis::kTensor:
      position = &at.tensor;
      members = tensor;
      break;
    case MeshAxis::kPipeline:
      position = &at.pipeline;
      members = pipeline;
      break;
  }
  std::vector<RankId> group;
  for (*position = 0; *position < members; ++*position) group.push_back(RankOf(at));
  return group;
}

std::string Mesh::ToString() const {
  return absl::StrCat("dp=", data, " x tp=", tensor, " x pp=", pipeline);
}

int Plan::FirstMicroBatch(int replica, int total) const {
  const auto part = [&](int64_t before, int64_t all) {
    return static_cast<int>(int64_t{total} * before / all);
  };
  if (shares.empty()) return part(replica, mesh.data);
  return part(std::accumulate(shares.begin(), shares.begin() + replica, int64_t{0}),
              std::accumulate(shares.begin(), shares.end(), int64_t{0}));
}

std::vector<int64_t> Plan::HostsOf(const std::vector<RankId>& group) const {
  std::vector<int64_t> result;
  for (const RankId rank : group) {
    if (rank.value >= static_cast<int>(hosts.size())) return {};
    result.push_back(hosts[rank.value]);
  }
  const bool shared = std::all_of(result.begin(), result.end(),
                                  [&](int64_t host) { return host == result.front(); });
  return shared ? std::vector<int64_t>() : result;
}

bool IsHostOp(const std::vector<std::string>& host_ops, std::string_view op) {
  return std::any_of(host_ops.begin(), host_ops.end(),
                     [op](const std::string& known) { return known == op || known == "*"; });
}

}  // namespace weft
