#include "graph/plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(MeshTest, RanksAndCoordinatesAreInverse) {
  const Mesh mesh{.data = 3, .tensor = 2, .pipeline = 4};
  for (int rank = 0; rank < mesh.size(); ++rank) {
    EXPECT_EQ(mesh.RankOf(mesh.CoordinateOf(RankId(rank))), RankId(rank));
  }
}

TEST(MeshTest, TensorNeighboursAreNextToEachOther) {
  const Mesh mesh{.data = 2, .tensor = 2, .pipeline = 2};
  EXPECT_THAT(mesh.Group(RankId(3), MeshAxis::kTensor), ElementsAre(RankId(2), RankId(3)));
  EXPECT_THAT(mesh.Group(RankId(3), MeshAxis::kData), ElementsAre(RankId(1), RankId(3)));
  EXPECT_THAT(mesh.Group(RankId(3), MeshAxis::kPipeline), ElementsAre(RankId(3), RankId(7)));
}

TEST(MeshTest, PrintsItsAxes) {
  EXPECT_EQ((Mesh{.data = 2, .tensor = 1, .pipeline = 3}.ToString()), "dp=2 x tp=1 x pp=3");
}

}  // namespace
}  // namespace weft
