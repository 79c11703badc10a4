#include <algorithm>

#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

// One to all axes, in order.
Ints Axes(CaseRandom& random, int rank) {
  Ints axes = random.Permutation(rank);
  axes.resize(static_cast<size_t>(random.Between(1, rank)));
  std::sort(axes.begin(), axes.end());
  return axes;
}

Shape Reduced(const Shape& shape, const Ints& axes, bool keepdims) {
  Shape reduced;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool is_reduced = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (!is_reduced) reduced.AddDim(shape.dim(axis));
    if (is_reduced && keepdims) reduced.AddDim(1);
  }
  return reduced;
}

CaseGenerator Reduction(const std::string& op, double low = -1, double high = 1) {
  return {[=](CaseRandom& random) {
    const Shape shape = random.OfRank(random.Between(1, 3));
    OpCase op_case{.op = op,
                   .attributes = {{"keepdims", int64_t{random.Coin()}}},
                   .inputs = {random.Values(shape, low, high)}};
    if (random.Between(0, 3) != 0) op_case.inputs.push_back(Int64s(Axes(random, shape.rank())));
    return op_case;
  }};
}

CaseGenerator Cumulation(const std::string& op, bool backward) {
  const auto make = [=](CaseRandom& random) {
    const Shape shape = random.OfRank(3);
    OpCase op_case{
        .domain = backward ? "ai.weft" : "",
        .op = op,
        .attributes = {{"exclusive", int64_t{random.Coin()}}, {"reverse", int64_t{random.Coin()}}},
        .inputs = {random.Values(shape)}};
    if (backward) op_case.inputs.push_back(random.Values(shape));
    op_case.inputs.push_back(Int64s({random.Between(-3, 2)}));
    return op_case;
  };
  return {.make = make, .constants = {backward ? 2 : 1}};
}

OpCase TopKCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  const int axis = static_cast<int>(random.Between(0, 2));
  return {.op = "TopK",
          .attributes = {{"axis", int64_t{random.Coin() ? axis : axis - 3}},
                         {"largest", int64_t{random.Coin()}}},
          .inputs = {RandomDistinct(shape, random.Between(1, 1000)),
                     Int64s({random.Between(1, shape.dim(axis))})},
          .outputs = {true, true}};
}

OpCase BroadcastReducedCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  const Ints axes = Axes(random, 3);
  const bool keepdims = random.Coin();
  return {.domain = "ai.weft",
          .op = "BroadcastReduced",
          .attributes = {{"keepdims", int64_t{keepdims}}, {"mean", int64_t{random.Coin()}}},
          .inputs = {random.Values(Reduced(shape, axes, keepdims)), Int64s(DimsOf(shape)),
                     Int64s(axes)}};
}

OpCase SumToShapeCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  Ints to;
  for (int axis = static_cast<int>(random.Between(0, 3)); axis < 3; ++axis) {
    to.push_back(random.Coin() ? 1 : shape.dim(axis));
  }
  return {.domain = "ai.weft", .op = "SumToShape", .inputs = {random.Values(shape), Int64s(to)}};
}

OpCase ElementCountCase(CaseRandom& random) {
  return {.domain = "ai.weft",
          .op = "ElementCount",
          .inputs = {random.Values(random.OfRank(random.Between(1, 3)))}};
}

CaseGenerator Softmax(const std::string& op, bool backward) {
  return {[=](CaseRandom& random) {
    const Shape shape = random.OfRank(3);
    OpCase op_case{.domain = backward ? "ai.weft" : "",
                   .op = op,
                   .attributes = {{"axis", random.Between(-3, 2)}},
                   .inputs = {random.Values(shape, -2, 2)}};
    if (backward) op_case.inputs.push_back(random.Values(shape, -2, 0));
    return op_case;
  }};
}

OpCase LayerNormalizationCase(CaseRandom& random) {
  const Shape x = random.OfRank(3);
  const int64_t axis = random.Between(0, 2);
  const Shape scale(x.dims().subspan(axis));
  OpCase op_case{.op = "LayerNormalization",
                 .attributes = {{"axis", axis}, {"epsilon", 1e-2f}},
                 .inputs = {random.Values(x, -3, 3), random.Values(scale)},
                 .outputs = {true, random.Coin(), random.Coin()}};
  if (random.Coin()) op_case.inputs.push_back(random.Values(scale));
  return op_case;
}

OpCase LayerNormalizationGradCase(CaseRandom& random) {
  const Shape x = random.OfRank(3);
  const int64_t axis = random.Between(0, 2);
  Shape statistics = x;
  for (int i = static_cast<int>(axis); i < 3; ++i) statistics.set_dim(i, 1);
  return {
      .domain = "ai.weft",
      .op = "LayerNormalizationGrad",
      .attributes = {{"axis", axis}},
      .inputs = {random.Values(x), random.Values(x), random.Values(Shape(x.dims().subspan(axis))),
                 random.Values(statistics), random.Values(statistics, 0.5, 2)},
      .outputs = {true, random.Coin(), random.Coin()}};
}

OpCase RmsNormalizationCase(CaseRandom& random) {
  const Shape x = random.OfRank(3);
  const int64_t axis = random.Between(0, 2);
  Shape scale(x.dims().subspan(axis));
  // Broadcast along one of its axes, at times.
  if (random.Coin()) scale.set_dim(0, 1);
  return {.op = "RMSNormalization",
          .attributes = {{"axis", axis}, {"epsilon", 1e-2f}},
          .inputs = {random.Values(x, -3, 3), random.Values(scale)}};
}

OpCase RmsNormalizationGradCase(CaseRandom& random) {
  const Shape x = random.OfRank(3);
  const int64_t axis = random.Between(0, 2);
  const bool dscale = random.Coin();
  return {.domain = "ai.weft",
          .op = "RMSNormalizationGrad",
          .attributes = {{"axis", axis}, {"epsilon", 1e-2f}},
          .inputs = {random.Values(x), random.Values(x, -3, 3),
                     random.Values(Shape(x.dims().subspan(axis)))},
          .outputs = {true, dscale}};
}

OpCase BatchNormalizationCase(CaseRandom& random) {
  const Shape x = random.OfRank(static_cast<int>(random.Between(2, 4)));
  const Shape channels{x.dim(1)};
  const bool training = random.Coin();
  return {.op = "BatchNormalization",
          .attributes = {{"epsilon", 1e-2f}, {"training_mode", int64_t{training}}},
          .inputs = {random.Values(x, -3, 3), random.Values(channels), random.Values(channels),
                     random.Values(channels), random.Values(channels, 0.5, 2)},
          .outputs = training ? std::vector<bool>{true, true, true} : std::vector<bool>{true}};
}

OpCase BatchNormalizationGradCase(CaseRandom& random) {
  const Shape x = random.OfRank(static_cast<int>(random.Between(2, 4)));
  const Shape channels{x.dim(1)};
  const bool training = random.Coin();
  OpCase op_case{.domain = "ai.weft",
                 .op = "BatchNormalizationGrad",
                 .attributes = {{"epsilon", 1e-2f}, {"training_mode", int64_t{training}}},
                 .inputs = {random.Values(x), random.Values(x, -3, 3), random.Values(channels)},
                 .outputs = {true, random.Coin(), random.Coin()}};
  if (!training) {
    op_case.inputs.push_back(random.Values(channels));
    op_case.inputs.push_back(random.Values(channels, 0.5, 2));
  }
  return op_case;
}

}  // namespace

void AddReductionCases(CaseGenerators& generators) {
  generators["CumSum"] = Cumulation("CumSum", false);
  generators["CumProd"] = Cumulation("CumProd", false);
  generators["ai.weft::CumProdGrad"] = Cumulation("CumProdGrad", true);
  generators["TopK"] = {TopKCase, /*only_moves=*/true};
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
                         "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"}) {
    generators[op] = Reduction(op);
  }
  generators["ReduceLogSum"] = Reduction("ReduceLogSum", 0.5, 2);
  generators["ai.weft::BroadcastReduced"] = {BroadcastReducedCase};
  generators["ai.weft::SumToShape"] = {SumToShapeCase};
  generators["ai.weft::ElementCount"] = {ElementCountCase};
  generators["Softmax"] = Softmax("Softmax", false);
  generators["LogSoftmax"] = Softmax("LogSoftmax", false);
  generators["ai.weft::SoftmaxGrad"] = Softmax("SoftmaxGrad", true);
  generators["ai.weft::LogSoftmaxGrad"] = Softmax("LogSoftmaxGrad", true);
  generators["LayerNormalization"] = {LayerNormalizationCase};
  generators["ai.weft::LayerNormalizationGrad"] = {LayerNormalizationGradCase};
  generators["RMSNormalization"] = {RmsNormalizationCase};
  generators["ai.weft::RMSNormalizationGrad"] = {RmsNormalizationGradCase};
  generators["BatchNormalization"] = {BatchNormalizationCase};
  generators["ai.weft::BatchNormalizationGrad"] = {BatchNormalizationGradCase};
}

}  // namespace weft::testing
