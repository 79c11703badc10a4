#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

// A convolution: what its three ops need.
struct Convolution {
  Shape x;
  Shape w;
  Shape y;
  Attributes attributes;
};

Convolution RandomConvolution(CaseRandom& random) {
  const int64_t groups = random.OneOf<int64_t>({1, 1, 1, 2, 3, 6});
  const int64_t kernel = random.Between(1, 3);
  const int64_t stride = random.Between(1, 2);
  const int64_t pad = random.Between(0, kernel / 2);
  const int64_t outputs = groups * random.SmallSize();
  Convolution c;
  c.x = {random.Size(), groups * random.Between(1, 5), random.Between(4, 6), random.Between(4, 6)};
  c.w = {outputs, c.x.dim(1) / groups, kernel, kernel};
  const auto side = [&](int64_t size) { return (size + 2 * pad - kernel) / stride + 1; };
  c.y = {c.x.dim(0), outputs, side(c.x.dim(2)), side(c.x.dim(3))};
  c.attributes = {{"kernel_shape", Ints{kernel, kernel}},
                  {"strides", Ints{stride, stride}},
                  {"pads", Ints{pad, pad, pad, pad}},
                  {"group", groups}};
  return c;
}

OpCase ConvCase(CaseRandom& random) {
  const Convolution c = RandomConvolution(random);
  OpCase op_case{
      .op = "Conv", .attributes = c.attributes, .inputs = {random.Values(c.x), random.Values(c.w)}};
  if (random.Coin()) op_case.inputs.push_back(random.Values({c.w.dim(0)}));
  return op_case;
}

OpCase ConvGradInputCase(CaseRandom& random) {
  const Convolution c = RandomConvolution(random);
  return {.domain = "ai.weft",
          .op = "ConvGradInput",
          .attributes = c.attributes,
          .inputs = {random.Values(c.y), random.Values(c.w), Int64s(DimsOf(c.x))}};
}

OpCase ConvGradWeightsCase(CaseRandom& random) {
  const Convolution c = RandomConvolution(random);
  return {.domain = "ai.weft",
          .op = "ConvGradWeights",
          .attributes = c.attributes,
          .inputs = {random.Values(c.x), random.Values(c.y)},
          .outputs = {true, random.Coin()}};
}

Shape ImageShape(CaseRandom& random) {
  return {random.Size(), random.Size(), random.Between(3, 6), random.Between(3, 6)};
}

Attributes Window(CaseRandom& random) {
  const int64_t kernel = random.Between(1, 3);
  const int64_t pad = random.Between(0, kernel / 2);
  return {{"kernel_shape", Ints{kernel, kernel}},
          {"strides", Ints{random.Between(1, 2), random.Between(1, 2)}},
          {"pads", Ints{pad, pad, pad, pad}}};
}

OpCase MaxPoolCase(CaseRandom& random) {
  return {.op = "MaxPool",
          .attributes = Window(random),
          .inputs = {RandomDistinct(ImageShape(random), random.Between(1, 1000))},
          .outputs = {true, random.Coin()}};
}

Tensor OutputOf(const OpCase& op_case) { return RunOp(op_case, Kernels::kReference)->front(); }

OpCase MaxPoolGradCase(CaseRandom& random) {
  OpCase forward = MaxPoolCase(random);
  forward.outputs = {true};
  const Tensor y = OutputOf(forward);
  return {.domain = "ai.weft",
          .op = "MaxPoolGrad",
          .attributes = forward.attributes,
          .inputs = {forward.inputs[0], y, random.Values(y.shape())}};
}

OpCase AveragePoolCase(CaseRandom& random) {
  OpCase op_case{.op = "AveragePool",
                 .attributes = Window(random),
                 .inputs = {random.Values(ImageShape(random))}};
  op_case.attributes.Set("count_include_pad", int64_t{random.Coin()});
  return op_case;
}

OpCase AveragePoolGradCase(CaseRandom& random) {
  const OpCase forward = AveragePoolCase(random);
  return {.domain = "ai.weft",
          .op = "AveragePoolGrad",
          .attributes = forward.attributes,
          .inputs = {random.Values(OutputOf(forward).shape()),
                     Int64s(DimsOf(forward.inputs[0].shape()))}};
}

OpCase GlobalAveragePoolCase(CaseRandom& random) {
  return {.op = "GlobalAveragePool", .inputs = {random.Values(ImageShape(random))}};
}

OpCase GlobalAveragePoolGradCase(CaseRandom& random) {
  const Shape x = ImageShape(random);
  return {.domain = "ai.weft",
          .op = "GlobalAveragePoolGrad",
          .inputs = {random.Values({x.dim(0), x.dim(1), 1, 1}), Int64s(DimsOf(x))}};
}

}  // namespace

void AddImageCases(CaseGenerators& generators) {
  generators["Conv"] = {ConvCase};
  generators["ai.weft::ConvGradInput"] = {ConvGradInputCase};
  generators["ai.weft::ConvGradWeights"] = {ConvGradWeightsCase};
  generators["MaxPool"] = {MaxPoolCase, /*only_moves=*/true};
  generators["ai.weft::MaxPoolGrad"] = {MaxPoolGradCase};
  generators["AveragePool"] = {AveragePoolCase};
  generators["ai.weft::AveragePoolGrad"] = {AveragePoolGradCase};
  generators["GlobalAveragePool"] = {GlobalAveragePoolCase};
  generators["ai.weft::GlobalAveragePoolGrad"] = {GlobalAveragePoolGradCase};
}

}  // namespace weft::testing
