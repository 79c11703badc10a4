// ai.onnx.ml: its numbers are float32.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

GradientCase InFloat32(OpCase op_case) {
  op_case.domain = "ai.onnx.ml";
  GradientCase result = CaseOf(std::move(op_case));
  result.single = true;
  return result;
}

GradientCase ScalerCase(CaseRandom& random) {
  return InFloat32({.op = "Scaler",
                    .attributes = {{"offset", std::vector<float>{0.5f}},
                                   {"scale", std::vector<float>{2, -1, 0.5f}}},
                    .inputs = {random.Values({2, 3})}});
}

GradientCase NormalizerCase(CaseRandom& random) {
  const std::string norm = random.OneOf<std::string>({"MAX", "L1", "L2"});
  Tensor x = random.Values({2, 3}, 0.5, 1);
  for (int64_t row = 0; row < 2; ++row) x.mutable_data<float>()[3 * row + 1] = 2;
  return InFloat32({.op = "Normalizer", .attributes = {{"norm", norm}}, .inputs = {x}});
}

GradientCase FeatureVectorizerCase(CaseRandom& random) {
  Attributes attributes;
  if (random.Coin()) attributes.Set("inputdimensions", std::vector<int64_t>{2, 3});
  return InFloat32({.op = "FeatureVectorizer",
                    .attributes = std::move(attributes),
                    .inputs = {random.Values({2, 3}), random.Values({2, 2})}});
}

GradientCase LinearRegressorCase(CaseRandom& random) {
  return InFloat32({.op = "LinearRegressor",
                    .attributes = {{"coefficients", std::vector<float>{1, 2, 3, -1, 0.5f, 2}},
                                   {"intercepts", std::vector<float>{1, -1}},
                                   {"targets", int64_t{2}}},
                    .inputs = {random.Values(random.Coin() ? Shape{4, 3} : Shape{3})}});
}

}  // namespace

void AddFeatureGradients(GradientGenerators& g) {
  g["ai.onnx.ml::Scaler"].push_back(ScalerCase);
  g["ai.onnx.ml::Normalizer"].push_back(NormalizerCase);
  g["ai.onnx.ml::FeatureVectorizer"].push_back(FeatureVectorizerCase);
  g["ai.onnx.ml::LinearRegressor"].push_back(LinearRegressorCase);
}

}  // namespace weft::testing
