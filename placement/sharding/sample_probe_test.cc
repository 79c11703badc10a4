#include "placement/sharding/sample_probe.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

using Kind = BatchPlace::Kind;

constexpr int64_t kSize = 3;  // of both axes: samples, and what each has

// Gives the diagonal of its operand back, and zeros beside it. So a sample changes one element,
// which is as far along axis 0 as along axis 1.
class DiagonalOnly final : public NodeEvaluator {
 public:
  absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph&, const Node&,
                                               const std::vector<Tensor>& inputs) override {
    const std::vector<double> x = *ToDoubles(inputs[0]);
    std::vector<float> y(x.size(), 0.0f);
    for (size_t i = 0; i < x.size(); i += kSize + 1) y[i] = static_cast<float>(x[i]);
    return std::vector<Tensor>{Tensor::Of<float>({kSize, kSize}, y)};
  }
};

// The place in the output of a node whose operand has the samples on axis 0.
BatchPlace Probed(const BatchPlace& grown) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x =
      graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape({kSize, kSize})});
  const ValueId y = b.Op("LpNormalization", {x});
  EXPECT_TRUE(b.status().ok()) << b.status();
  DiagonalOnly evaluator;
  const auto places = ProbeSamples(graph, graph.node(graph.value(y).producer),
                                   {BatchPlace::Split(0)}, {grown}, kSize, evaluator);
  EXPECT_TRUE(places.has_value());
  return places.has_value() ? places->front() : BatchPlace::Of(Kind::kOther);
}

TEST(SampleProbeTest, ThePlaceOfTheInputIsTakenWhereSizesSayNothing) {
  const BatchPlace place = Probed(BatchPlace::Of(Kind::kLost));
  EXPECT_TRUE(place.is(Kind::kSplit));
  EXPECT_EQ(place.axis, 0);
}

// Both axes explain what changes, and the wrong one was taken: nodes that pair the samples of this
// output with those of others were not seen then.
TEST(SampleProbeTest, TheAxisThatGrowsWithTheSamplesHoldsThem) {
  const BatchPlace place = Probed(BatchPlace::Split(1));
  EXPECT_TRUE(place.is(Kind::kSplit));
  EXPECT_EQ(place.axis, 1);
}

TEST(SampleProbeTest, AnOutputOfOneSizeForAnyNumberOfSamplesHoldsNone) {
  EXPECT_TRUE(Probed(BatchPlace()).is(Kind::kLost));
}

}  // namespace
}  // namespace weft
