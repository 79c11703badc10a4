#include "graph/plan.h"

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

}  // namespace weft
