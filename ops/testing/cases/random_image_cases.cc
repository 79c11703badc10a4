#include <utility>

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

OpCase ConvTransposeCase(CaseRandom& random) {
  const int64_t groups = random.OneOf<int64_t>({1, 1, 2, 3, 6});
  const int64_t kernel = random.Between(1, 3);
  const int64_t stride = random.Between(1, 2);
  const int64_t outputs_of_group = random.SmallSize();
  const int64_t inputs = groups * random.Between(1, 5);
  const Shape x = {random.Size(), inputs, random.Between(3, 4), random.Between(3, 4)};
  OpCase op_case{
      .op = "ConvTranspose",
      .attributes = {{"kernel_shape", Ints{kernel, kernel}},
                     {"strides", Ints{stride, stride}},
                     {"pads", Ints{0, kernel / 2, 0, kernel / 2}},
                     {"group", groups}},
      .inputs = {random.Values(x), random.Values({inputs, outputs_of_group, kernel, kernel})}};
  if (random.Coin()) op_case.inputs.push_back(random.Values({groups * outputs_of_group}));
  return op_case;
}

// Grows or shrinks the image axes, by factors or to sizes, for all axes or those two.
OpCase ResizeCase(CaseRandom& random) {
  const Shape x = ImageShape(random);
  const bool image_only = random.Coin();
  OpCase op_case{
      .op = "Resize",
      .attributes = {{"mode", random.OneOf<std::string>({"nearest", "linear", "cubic"})},
                     {"coordinate_transformation_mode",
                      random.OneOf<std::string>({"half_pixel", "align_corners", "asymmetric"})}},
      .inputs = {random.Values(x), Tensor()}};
  if (image_only) op_case.attributes.Set("axes", Ints{2, 3});
  if (random.Coin()) {
    std::vector<float> factors = {1, 1, 2, 0.5};
    if (image_only) factors = {2, 1.5};
    op_case.inputs.push_back(Tensor::Of<float>({static_cast<int64_t>(factors.size())}, factors));
    return op_case;
  }
  Ints sizes = {random.Between(2, 8), random.Between(2, 8)};
  if (!image_only) sizes.insert(sizes.begin(), {x.dim(0), x.dim(1)});
  op_case.inputs.push_back(Tensor());
  op_case.inputs.push_back(Int64s(sizes));
  return op_case;
}

OpCase ResizeGradCase(CaseRandom& random) {
  OpCase forward = ResizeCase(random);
  std::vector<Tensor> inputs = {random.Values(OutputOf(forward).shape()),
                                Int64s(DimsOf(forward.inputs[0].shape()))};
  inputs.insert(inputs.end(), forward.inputs.begin() + 1, forward.inputs.end());
  return {.domain = "ai.weft",
          .op = "ResizeGrad",
          .attributes = forward.attributes,
          .inputs = std::move(inputs)};
}

CaseGenerator Blocks(const std::string& op, bool to_space) {
  return {[=](CaseRandom& random) {
            const int64_t block = random.Between(1, 3);
            const int64_t channels = random.Size() * (to_space ? block * block : 1);
            const int64_t scale = to_space ? 1 : block;
            const Shape shape = {random.SmallSize(), channels, scale * random.SmallSize(),
                                 scale * random.SmallSize()};
            OpCase op_case{
                .op = op, .attributes = {{"blocksize", block}}, .inputs = {random.Values(shape)}};
            if (to_space && random.Coin()) op_case.attributes.Set("mode", std::string("CRD"));
            return op_case;
          },
          /*only_moves=*/true};
}

OpCase GlobalMaxPoolCase(CaseRandom& random) {
  return {.op = "GlobalMaxPool",
          .inputs = {RandomDistinct(ImageShape(random), random.Between(1, 1000))}};
}

}  // namespace

void AddImageCases(CaseGenerators& generators) {
  generators["Conv"] = {ConvCase};
  generators["ai.weft::ConvGradInput"] = {ConvGradInputCase};
  generators["ai.weft::ConvGradWeights"] = {ConvGradWeightsCase};
  generators["ConvTranspose"] = {ConvTransposeCase};
  generators["Resize"] = {ResizeCase};
  generators["ai.weft::ResizeGrad"] = {ResizeGradCase};
  generators["DepthToSpace"] = Blocks("DepthToSpace", true);
  generators["SpaceToDepth"] = Blocks("SpaceToDepth", false);
  generators["GlobalMaxPool"] = {GlobalMaxPoolCase, /*only_moves=*/true};
  generators["MaxPool"] = {MaxPoolCase, /*only_moves=*/true};
  generators["ai.weft::MaxPoolGrad"] = {MaxPoolGradCase};
  generators["AveragePool"] = {AveragePoolCase};
  generators["ai.weft::AveragePoolGrad"] = {AveragePoolGradCase};
  generators["GlobalAveragePool"] = {GlobalAveragePoolCase};
  generators["ai.weft::GlobalAveragePoolGrad"] = {GlobalAveragePoolGradCase};
}

}  // namespace weft::testing
