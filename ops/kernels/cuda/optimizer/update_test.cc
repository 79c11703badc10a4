// Updates of optimizers on the emulated GPU.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr int64_t kCounts[] = {0, 3, 8, 1031};
const DType kParameterTypes[] = {DType::kFloat32, DType::kFloat64};

Tensor Number(double value, DType dtype) { return Cast(Tensor::Scalar<double>(value), dtype); }
Tensor StepNumber(int64_t step) { return Tensor::Scalar<int64_t>(step); }

// w, g and the rest; states are not negative.
struct UpdateInputs {
  int64_t count;
  DType dtype;

  Tensor W() const { return Cast(RandomTensor({count}, 1), dtype); }
  Tensor G() const { return Cast(RandomTensor({count}, 2), dtype); }
  Tensor State(uint64_t seed) const { return Cast(RandomTensor({count}, seed, 0.01, 1), dtype); }
};

void CheckUpdate(OpCase op_case) {
  op_case.domain = "ai.weft";
  EXPECT_TRUE(CheckOnEmulatedGpu(op_case, {.of_magnitude = 2e-6, .of_element = 1e-5}));
}

template <typename Make>
void ForEachUpdate(Make make) {
  for (const DType dtype : kParameterTypes) {
    for (const int64_t count : kCounts) CheckUpdate(make(UpdateInputs{count, dtype}));
  }
}

TEST(GpuSgdUpdateTest, WithMomentumScaleAndFirstStep) {
  ForEachUpdate([](const UpdateInputs& in) -> OpCase {
    return {.op = "SgdUpdate", .inputs = {in.W(), in.G(), Number(0.1, in.dtype)}};
  });
  for (const int64_t nesterov : {0, 1}) {
    for (const int64_t step : {1, 2}) {
      ForEachUpdate([&](const UpdateInputs& in) -> OpCase {
        return {.op = "SgdUpdate",
                .attributes = {{"momentum", 0.9f},
                               {"dampening", nesterov != 0 ? 0.0f : 0.2f},
                               {"weight_decay", 0.01f},
                               {"nesterov", nesterov}},
                .inputs = {in.W(), in.G(), Number(0.1, DType::kFloat32), in.State(3),
                           Number(0.5, DType::kFloat32), StepNumber(step)},
                .outputs = {true, true}};
      });
    }
  }
}

TEST(GpuAdamUpdateTest, AllVariants) {
  for (const int64_t decoupled : {0, 1}) {
    for (const bool keeps_largest : {false, true}) {
      for (const int64_t step : {1, 2, 1000, 12345678}) {
        ForEachUpdate([&](const UpdateInputs& in) -> OpCase {
          OpCase op_case{.op = "AdamUpdate",
                         .attributes = {{"beta1", 0.9f},
                                        {"beta2", 0.999f},
                                        {"epsilon", 1e-8f},
                                        {"weight_decay", 0.01f},
                                        {"decoupled", decoupled}},
                         .inputs = {in.W(), in.G(), Number(0.001, DType::kFloat32),
                                    StepNumber(step), in.State(3), in.State(4)},
                         .outputs = {true, true, true}};
          if (keeps_largest) {
            op_case.inputs.push_back(in.State(5));
            op_case.outputs.push_back(true);
          }
          return op_case;
        });
      }
    }
  }
}

TEST(GpuAdamUpdateTest, ReportsAWrongStep) {
  const UpdateInputs in{5, DType::kFloat32};
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.domain = "ai.weft",
       .op = "AdamUpdate",
       .attributes = {{"beta1", 0.9f}, {"beta2", 0.999f}, {"epsilon", 1e-8f}},
       .inputs = {in.W(), in.G(), Number(0.1, DType::kFloat32), StepNumber(0), in.State(3),
                  in.State(4)},
       .outputs = {true, true, true}},
      absl::StatusCode::kInvalidArgument, {"AdamUpdate", "step", "0"}));
}

TEST(GpuUpdateTest, LionAdadeltaAdagradRadam) {
  ForEachUpdate([](const UpdateInputs& in) -> OpCase {
    return {.op = "LionUpdate",
            .attributes = {{"beta1", 0.9f}, {"beta2", 0.99f}, {"weight_decay", 0.1f}},
            .inputs = {in.W(), in.G(), Number(0.01, in.dtype), in.State(3)},
            .outputs = {true, true}};
  });
  ForEachUpdate([](const UpdateInputs& in) -> OpCase {
    return {.op = "AdadeltaUpdate",
            .attributes = {{"rho", 0.9f}, {"epsilon", 1e-6f}, {"weight_decay", 0.1f}},
            .inputs = {in.W(), in.G(), Number(0.5, in.dtype), in.State(3), in.State(4)},
            .outputs = {true, true, true}};
  });
  ForEachUpdate([](const UpdateInputs& in) -> OpCase {
    return {.op = "AdagradUpdate",
            .attributes = {{"rate_decay", 0.1f}, {"epsilon", 1e-10f}, {"weight_decay", 0.1f}},
            .inputs = {in.W(), in.G(), Number(0.01, in.dtype), StepNumber(7), in.State(3)},
            .outputs = {true, true}};
  });
  for (const int64_t step : {1, 5, 6, 300}) {
    ForEachUpdate([&](const UpdateInputs& in) -> OpCase {
      return {.op = "RadamUpdate",
              .attributes = {{"beta1", 0.9f},
                             {"beta2", 0.999f},
                             {"epsilon", 1e-8f},
                             {"weight_decay", 0.1f}},
              .inputs = {in.W(), in.G(), Number(0.01, in.dtype), StepNumber(step), in.State(3),
                         in.State(4)},
              .outputs = {true, true, true}};
    });
  }
}

TEST(GpuRmspropUpdateTest, WithMeanAndMomentum) {
  for (const bool has_mean : {false, true}) {
    for (const bool has_momentum : {false, true}) {
      ForEachUpdate([&](const UpdateInputs& in) -> OpCase {
        OpCase op_case{
            .op = "RmspropUpdate",
            .attributes = {{"alpha", 0.9f},
                           {"epsilon", 1e-3f},
                           {"weight_decay", 0.01f},
                           {"momentum", has_momentum ? 0.9f : 0.0f}},
            .inputs = {in.W(), in.G(), Number(0.01, in.dtype), in.State(3), Tensor(), Tensor()},
            .outputs = {true, true, has_mean, has_momentum}};
        // The spread is square - mean^2: it must not be near zero.
        if (has_mean) op_case.inputs[3] = Cast(RandomTensor({in.count}, 3, 1, 2), in.dtype);
        if (has_mean) op_case.inputs[4] = Cast(RandomTensor({in.count}, 4, 0, 0.1), in.dtype);
        if (has_momentum) op_case.inputs[5] = in.State(5);
        return op_case;
      });
    }
  }
}

TEST(GpuUpdateTest, LambDirectionAndEma) {
  ForEachUpdate([](const UpdateInputs& in) -> OpCase {
    return {.op = "LambDirection",
            .attributes = {{"beta1", 0.9f},
                           {"beta2", 0.999f},
                           {"epsilon", 1e-6f},
                           {"weight_decay", 0.01f}},
            .inputs = {in.W(), in.G(), StepNumber(3), in.State(3), in.State(4)},
            .outputs = {true, true, true}};
  });
  ForEachUpdate([](const UpdateInputs& in) -> OpCase {
    return {.op = "EmaUpdate", .attributes = {{"decay", 0.99f}}, .inputs = {in.W(), in.G()}};
  });
}

}  // namespace
}  // namespace weft::testing
