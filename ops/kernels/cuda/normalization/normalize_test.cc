#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/cuda/normalization/normalize_walk_launch.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft(kWeftDomain);
constexpr DType kHalves[] = {DType::kFloat16, DType::kBfloat16};

Shape NormalizedOf(const Shape& x, int64_t axis) {
  return Shape(x.dims().subspan(static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)));
}

OpCase Layer(const Shape& x, int64_t axis, bool bias, std::vector<bool> outputs = {true},
             DType dtype = DType::kFloat32) {
  const Shape normalized = NormalizedOf(x, axis);
  OpCase layer{
      .op = "LayerNormalization",
      .attributes = {{"axis", axis}, {"epsilon", 1e-3f}},
      .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype), Cast(RandomTensor(normalized, 2), dtype)},
      .outputs = std::move(outputs)};
  if (bias) layer.inputs.push_back(Cast(RandomTensor(normalized, 3), dtype));
  return layer;
}

OpCase LayerGrad(const Shape& x, int64_t axis, std::vector<bool> outputs,
                 DType dtype = DType::kFloat32) {
  Shape statistics = x;
  for (int i = static_cast<int>(axis < 0 ? axis + x.rank() : axis); i < x.rank(); ++i) {
    statistics.set_dim(i, 1);
  }
  const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  return {.domain = kWeft,
          .op = "LayerNormalizationGrad",
          .attributes = {{"axis", axis}},
          .inputs = {Cast(RandomTensor(x, 1), dtype), Cast(RandomTensor(x, 2), dtype),
                     Cast(RandomTensor(NormalizedOf(x, axis), 3), dtype),
                     Cast(RandomTensor(statistics, 4), wide),
                     Cast(RandomTensor(statistics, 5, 0.5, 2), wide)},
          .outputs = std::move(outputs)};
}

TEST(CudaLayerNormalization, RowsOfEveryWidth) {
  for (const int64_t axis : {0, 1, -1}) {
    for (const bool bias : {false, true}) {
      EXPECT_TRUE(CheckOnEmulatedGpu(Layer({3, 5, 37}, axis, bias, {true, true, true})));
    }
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Layer({7, 64}, -1, true, {true, false, true})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Layer({2, 2048}, -1, true), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Layer({1, 8196}, -1, true), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Layer({1, 2051}, -1, true), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Layer({0, 8}, -1, true, {true, true, true})));
}

TEST(CudaLayerNormalization, OtherTypes) {
  for (const DType dtype : kHalves) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Layer({3, 24}, -1, true, {true, true, true}, dtype),
                                   {.of_magnitude = 1e-2}));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Layer({3, 24}, -1, true, {true, true, true}, DType::kFloat64),
                                 {.of_magnitude = 1e-13}));
  OpCase stash = Layer({3, 24}, -1, true, {true, true, true});
  stash.attributes.Set("stash_type", static_cast<int64_t>(DType::kBfloat16));
  EXPECT_TRUE(CheckOnEmulatedGpu(stash, {.of_magnitude = 1e-2}));
}

TEST(CudaLayerNormalizationGrad, RowsAndColumns) {
  for (const std::vector<bool>& outputs : {std::vector<bool>{true, true, true},
                                           {true, false, false},
                                           {false, true, false},
                                           {false, false, true}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({3, 5, 37}, -1, outputs)));
    EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({9, 64}, -1, outputs)));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({3, 5, 7}, 1, {true, true, true})));
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({8, 1}, -1, {true, true, true})));
  // More rows than one chunk, a row that is not kept in registers.
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({301, 8}, -1, {true, true, true})));
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({1, 8196}, -1, {true, true, true}), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({0, 8}, -1, {true, true, true})));
}

// Walkers of 1 to 256 threads, the last ones without a row in their last turn; the longest rows
// that are walked, and the first that are not, with packets and without.
TEST(CudaLayerNormalizationGrad, Walks) {
  const std::vector<bool> all = {true, true, true};
  for (const int64_t columns : {1, 2, 8, 24, 260, 511, 512, 513}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({37, columns}, -1, all), {}, 1)) << columns;
  }
  for (const int64_t columns : {2048, 2052}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({17, columns}, -1, all), {}, 1)) << columns;
    EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({17, columns}, -1, all, DType::kBfloat16),
                                   {.of_magnitude = 1e-2}, 1))
        << columns;
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({29, 72}, -1, {true, true, false}), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({29, 72}, -1, {true, false, true}), {}, 1));
}

// Walkers are as many as fill a GPU: more rows than eight for each of them.
TEST(CudaLayerNormalizationGrad, WalkersTakeManyRows) {
  const auto walk = cuda::NormalizeWalk::Of(32768, 768, 4);
  EXPECT_EQ(walk.walkers, 648);
  EXPECT_EQ(walk.turns, 51);
  EXPECT_EQ(cuda::NormalizeWalk::Of(64, 768, 4).walkers, 8);
  EXPECT_EQ(cuda::NormalizeWalk::Of(5, 768, 4).walkers, 1);
  EXPECT_EQ(cuda::NormalizeWalk::Of(0, 768, 4).walkers, 0);
  EXPECT_EQ(cuda::NormalizeWalk::Of(8, 2052, 4).walkers, 0);
}

TEST(CudaLayerNormalizationGrad, OtherTypes) {
  for (const DType dtype : kHalves) {
    EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({9, 24}, -1, {true, true, true}, dtype),
                                   {.of_magnitude = 1e-2}));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerGrad({9, 24}, -1, {true, true, true}, DType::kFloat64),
                                 {.of_magnitude = 1e-13}));
}

OpCase Rms(const Shape& x, int64_t axis, const Shape& scale, DType dtype = DType::kFloat32,
           DType of_scale = DType::kFloat32) {
  return {
      .op = "RMSNormalization",
      .attributes = {{"axis", axis}, {"epsilon", 1e-3f}},
      .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype), Cast(RandomTensor(scale, 2), of_scale)}};
}

TEST(CudaRmsNormalization, ScalesOfEveryShapeAndType) {
  EXPECT_TRUE(CheckOnEmulatedGpu(Rms({3, 5, 37}, -1, {37})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Rms({3, 5, 8}, 1, {5, 8})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Rms({3, 5, 8}, 1, {5, 1})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Rms({3, 5, 8}, 1, {8})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Rms({3, 5, 8}, 1, {1})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Rms({1, 8196}, -1, {8196}), {}, 1));
  for (const DType dtype : kHalves) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Rms({3, 40}, -1, {40}, dtype, dtype), {.of_magnitude = 1e-2}));
    EXPECT_TRUE(CheckOnEmulatedGpu(Rms({3, 40}, -1, {40}, dtype), {.of_magnitude = 1e-2}));
    EXPECT_TRUE(
        CheckOnEmulatedGpu(Rms({3, 40}, -1, {40}, DType::kFloat32, dtype), {.of_magnitude = 1e-2}));
  }
}

TEST(CudaRmsNormalizationGrad, RowsAndColumns) {
  for (const std::vector<bool>& outputs :
       {std::vector<bool>{true, true}, {true, false}, {false, true}}) {
    for (const Shape& shape : {Shape{9, 37}, Shape{6, 64}, Shape{301, 8}}) {
      EXPECT_TRUE(
          CheckOnEmulatedGpu({.domain = kWeft,
                              .op = "RMSNormalizationGrad",
                              .inputs = {RandomTensor(shape, 1), RandomTensor(shape, 2, -3, 5),
                                         RandomTensor({shape.dim(1)}, 3)},
                              .outputs = outputs},
                             {}, 1));
    }
  }
}

OpCase Groups(const char* op, const Shape& x, int64_t groups, int64_t parameters,
              DType dtype = DType::kFloat32) {
  OpCase op_case{
      .op = op,
      .attributes = {{"epsilon", 1e-3f}},
      .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype), Cast(RandomTensor({parameters}, 2), dtype),
                 Cast(RandomTensor({parameters}, 3), dtype)}};
  if (groups > 0) op_case.attributes.Set("num_groups", groups);
  return op_case;
}

TEST(CudaGroupNormalization, GroupsAndInstances) {
  EXPECT_TRUE(CheckOnEmulatedGpu(Groups("GroupNormalization", {2, 6, 5, 3}, 3, 6)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Groups("GroupNormalization", {2, 6, 4}, 3, 3)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Groups("GroupNormalization", {2, 6}, 2, 6)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Groups("GroupNormalization", {1, 4, 2051}, 2, 4), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Groups("InstanceNormalization", {2, 3, 5, 7}, 0, 3)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Groups("InstanceNormalization", {0, 3, 5}, 0, 3)));
  for (const DType dtype : kHalves) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Groups("InstanceNormalization", {2, 3, 8}, 0, 3, dtype),
                                   {.of_magnitude = 1e-2}));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Groups("GroupNormalization", {2, 6, 4}, 3, 6, DType::kFloat64),
                                 {.of_magnitude = 1e-13}));
}

}  // namespace
}  // namespace weft::testing
