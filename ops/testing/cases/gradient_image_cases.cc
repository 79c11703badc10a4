// Pools, resizing, grids and regions.
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

Attributes WindowOf(CaseRandom& random) {
  return {{"kernel_shape", Ints{2, 3}},
          {"pads", Ints{1, 0, 0, random.Between(0, 2)}},
          {"strides", Ints{random.Between(1, 2), random.Between(1, 2)}},
          {"ceil_mode", random.Between(0, 1)}};
}

Operands AveragePoolCase(CaseRandom& random) {
  Attributes attributes = WindowOf(random);
  attributes.Set("count_include_pad", random.Between(0, 1));
  return {.attributes = attributes, .inputs = {random.Values({1, 2, 4, 4})}};
}

Operands MaxPoolCase(CaseRandom& random) {
  return {.attributes = WindowOf(random),
          .inputs = {Distinct(random, Shape{1, 2, 4, 4})},
          .outputs = {true, random.Coin()}};
}

Operands LpPoolCase(CaseRandom& random) {
  Attributes attributes = WindowOf(random);
  attributes.Set("p", random.Between(1, 3));
  if (random.Coin()) attributes.Set("dilations", Ints{2, 1});
  return {.attributes = attributes, .inputs = {BetweenKinks(random, {1, 2, 4, 4})}};
}

Operands GlobalLpPoolCase(CaseRandom& random) {
  return {.attributes = {{"p", random.Between(1, 3)}},
          .inputs = {BetweenKinks(random, {2, 2, 2, 3})}};
}

// Grows one axis and shrinks the other.
Operands ResizeCase(CaseRandom& random, const std::string& mode) {
  Operands operands{
      .attributes = {{"mode", mode},
                     {"coordinate_transformation_mode",
                      random.OneOf<std::string>({"half_pixel", "half_pixel_symmetric",
                                                 "pytorch_half_pixel", "align_corners",
                                                 "asymmetric"})},
                     {"nearest_mode", random.OneOf<std::string>({"round_prefer_floor", "floor",
                                                                 "round_prefer_ceil", "ceil"})}},
      .inputs = {random.Values({1, 2, 3, 5}), Tensor()}};
  if (mode != "nearest") {
    operands.attributes.Set("antialias", random.Between(0, 1));
    operands.attributes.Set("exclude_outside", random.Between(0, 1));
  }
  if (random.Coin()) {
    operands.inputs.push_back(Tensor::Of<float>({4}, std::vector<float>{1, 1, 1.7f, 0.55f}));
  } else {
    operands.attributes.Set("axes", Ints{-1, 1});
    operands.inputs.push_back(Tensor());
    operands.inputs.push_back(Int64s({random.Between(1, 8), random.Between(1, 4)}));
  }
  return operands;
}

// A region that lies in part outside of the image.
Operands CropAndResizeCase(CaseRandom& random) {
  return {.attributes = {{"mode", random.OneOf<std::string>({"nearest", "linear"})},
                         {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
                         {"extrapolation_value", 10.0f},
                         {"axes", Ints{2, 3}}},
          .inputs = {random.Values({1, 1, 4, 4}),
                     Tensor::Of<float>({4}, std::vector<float>{0.4f, 0.6f, 1.2f, 1.2f}), Tensor(),
                     Int64s({3, 4})}};
}

// Points at least a tenth of a pixel away from those between pixels, where slopes jump.
Tensor GridPoints(CaseRandom& random, const Shape& grid, int64_t size, bool align) {
  std::vector<float> points(grid.num_elements());
  for (float& point : points) {
    // A cell is half a pixel: borders of pixels and of the image are multiples.
    const double cell = static_cast<double>(random.Between(-3, 2 * size));
    const double pixel = 0.5 * (cell + static_cast<double>(random.Between(25, 75)) / 100);
    const double n = static_cast<double>(size);
    point = static_cast<float>(align ? 2 * pixel / (n - 1) - 1 : (2 * pixel + 1) / n - 1);
  }
  return Tensor::Of<float>(grid, points);
}

Operands GridSampleCase(CaseRandom& random, const std::string& mode) {
  const bool align = random.Coin();
  Operands operands{.attributes = {{"mode", mode},
                                   {"align_corners", int64_t{align}},
                                   {"padding_mode",
                                    random.OneOf<std::string>({"zeros", "border", "reflection"})}}};
  if (mode != "cubic" && random.Coin()) {
    operands.inputs = {random.Values({1, 2, 3, 3, 3}),
                       GridPoints(random, {1, 2, 1, 2, 3}, 3, align)};
  } else {
    operands.inputs = {random.Values({2, 2, 4, 4}), GridPoints(random, {2, 2, 2, 2}, 4, align)};
  }
  return operands;
}

Operands AffineGridCase(CaseRandom& random) {
  const bool deep = random.Coin();
  return {.attributes = {{"align_corners", random.Between(0, 1)}},
          .inputs = {random.Values(deep ? Shape{2, 3, 4} : Shape{2, 2, 3}),
                     deep ? Int64s({2, 1, 2, 3, 2}) : Int64s({2, 1, 3, 4})}};
}

GradientCase RoiAlignCase(CaseRandom& random, const std::string& mode) {
  std::vector<float> rois;
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 4; ++i) {
      // Never a whole number of pixels large, where one more sample is taken.
      const int64_t low = i < 2 ? 0 : 3;
      const float part = 1e-5f * static_cast<float>(random.Between(0, 9999));
      rois.push_back(static_cast<float>(random.Between(low, low + 2)) + (i < 2 ? 0.13f : 0.33f) +
                     part);
    }
  }
  OpCase op_case{.op = "RoiAlign",
                 .attributes = {{"mode", mode},
                                {"coordinate_transformation_mode",
                                 std::string(random.Coin() ? "half_pixel" : "output_half_pixel")},
                                {"output_height", int64_t{2}},
                                {"output_width", int64_t{2}},
                                {"sampling_ratio", random.Between(0, 2)},
                                {"spatial_scale", random.Coin() ? 1.0f : 0.75f}},
                 .inputs = {Distinct(random, Shape{2, 2, 5, 5}), Tensor::Of<float>({2, 4}, rois),
                            Indices(random, {2}, 0, 1)}};
  GradientCase result = CaseOf(std::move(op_case));
  // Samples must not move over a pixel, and the largest weighted pixel must stay the largest.
  result.step = 1e-5;
  return result;
}

GradientCase MaxRoiPoolCase(CaseRandom& random) {
  std::vector<float> rois;
  for (int r = 0; r < 3; ++r) {
    rois.push_back(static_cast<float>(random.Between(0, 1)));
    for (int i = 0; i < 4; ++i) rois.push_back(static_cast<float>(random.Between(0, 5)));
  }
  OpCase op_case{.op = "MaxRoiPool",
                 .attributes = {{"pooled_shape", Ints{2, 3}}, {"spatial_scale", 0.8f}},
                 .inputs = {Distinct(random, Shape{2, 2, 5, 5}), Tensor::Of<float>({3, 5}, rois)}};
  GradientCase result = CaseOf(std::move(op_case));
  result.checked = {0};  // the corners are rounded, and may lie at a half
  return result;
}

}  // namespace

void AddImageGradients(GradientGenerators& g) {
  AddCase(g, "AveragePool", AveragePoolCase);
  AddCase(g, "MaxPool", MaxPoolCase);
  AddCase(g, "LpPool", LpPoolCase);
  AddCase(g, "GlobalAveragePool", [](CaseRandom& random) {
    return Operands{.inputs = {random.Values({2, 2, 3, 2})}};
  });
  AddCase(g, "GlobalMaxPool", [](CaseRandom& random) {
    return Operands{.inputs = {Distinct(random, Shape{2, 2, 3, 2})}};
  });
  AddCase(g, "GlobalLpPool", GlobalLpPoolCase);
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    AddCase(g, "Resize", [mode](CaseRandom& random) { return ResizeCase(random, mode); });
    AddCase(g, "GridSample", [mode](CaseRandom& random) { return GridSampleCase(random, mode); });
  }
  AddCase(g, "Resize", CropAndResizeCase);
  AddCase(g, "AffineGrid", AffineGridCase);
  for (const char* mode : {"avg", "max"}) {
    g["RoiAlign"].push_back([mode](CaseRandom& random) { return RoiAlignCase(random, mode); });
  }
  g["MaxRoiPool"].push_back(MaxRoiPoolCase);
}

}  // namespace weft::testing
