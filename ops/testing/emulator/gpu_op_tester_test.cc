#include "ops/testing/emulator/gpu_op_tester.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/emulator/emulated_launch.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// What a kernel of this test does wrong.
enum class Mistake {
  kNone,
  kLastElement,
  kWrongValue,
  kWritesInput,
  kOrder,
  kUnwrittenWorkspace,
  kOnlyOnce,
  kFault,
};

// y = max(x, 0); `counter` lies in the workspace.
struct ReluOfTest {
  float* x;
  float* y;
  int32_t* counter;
  DeviceFault* fault;
  const char* source;
  int64_t count;
  int64_t written;
  Mistake mistake;

  template <class Gpu>
  void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < written; i += gpu.stride()) {
      float value = i < count ? static_cast<float>(gpu.Global(x)[i]) : 0.0F;
      value = value > 0 ? value : 0;
      if (mistake == Mistake::kWrongValue && i == 5) value += 0.25F;
      if (mistake == Mistake::kWritesInput && i == 5) gpu.Global(x)[i] = value;
      if (mistake == Mistake::kOrder && gpu.AtomicAdd(gpu.Global(counter), 0, 1) == 3) {
        value += 1e-7F;
      }
      if (mistake == Mistake::kFault && i == 5) {
        gpu.Global(&fault->value)[0] = 99;
        continue;
      }
      gpu.Global(y)[i] = value;
    }
    if (gpu.index() != 0) return;
    if (mistake == Mistake::kUnwrittenWorkspace) gpu.AtomicAdd(gpu.Global(counter), 0, 1);
    if (mistake == Mistake::kFault) {
      gpu.Global(&fault->source)[0] = source;
      gpu.AtomicExchange(gpu.Global(&fault->is_set), 0, 1);
    }
  }
};

absl::Status RunReluOfTest(const KernelContext& context, int64_t count, Mistake mistake,
                           int& runs) {
  ReluOfTest body{};
  body.x = static_cast<float*>(const_cast<void*>(context.inputs[0]));
  body.y = static_cast<float*>(context.outputs[0]);
  body.counter = static_cast<int32_t*>(context.workspace);
  body.fault = context.stream->fault();
  body.source = "Relu of a test: element";
  body.count = count;
  body.written = count - (mistake == Mistake::kLastElement ? 1 : 0);
  body.mistake = mistake;
  void* const stream = context.stream->native_handle();
  if (mistake == Mistake::kOrder) {
    int32_t* const counter = body.counter;
    EmulateLaunch(stream, {.threads = 1}, 32, [counter](auto& gpu) { gpu.Global(counter)[0] = 0; });
  }
  if (mistake == Mistake::kOnlyOnce && ++runs > 1) return absl::OkStatus();
  const int code = EmulateLaunch(stream, {.blocks = 2, .threads = 32}, 32, body);
  return code == 0 ? absl::OkStatus() : absl::InternalError("refused");
}

// A registry whose Relu makes the mistake.
std::unique_ptr<KernelRegistry> With(Mistake mistake) {
  auto registry = std::make_unique<KernelRegistry>();
  const auto factory =
      [mistake](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    if (context.InputDType(0) != DType::kFloat32) return context.Unimplemented("float32 alone");
    const int64_t count = context.InputShape(0).num_elements();
    auto run = [count, mistake, runs = 0](const KernelContext& run_context) mutable {
      return RunReluOfTest(run_context, count, mistake, runs);
    };
    return MakeKernel(std::move(run), /*workspace_bytes=*/4);
  };
  EXPECT_TRUE(registry->Register("", "Relu", DeviceKind::kCuda, factory).ok());
  return registry;
}

OpCase ReluCase() { return {.op = "Relu", .inputs = {RandomTensor({7, 19}, 1)}}; }

std::string FailureOf(Mistake mistake) {
  const ::testing::AssertionResult result = CheckOnEmulatedGpu(ReluCase(), {}, 2, *With(mistake));
  return result ? "" : result.message();
}

TEST(GpuOpTesterTest, AcceptsAKernelThatIsRight) { EXPECT_EQ(FailureOf(Mistake::kNone), ""); }

TEST(GpuOpTesterTest, ZeroElements) {
  EXPECT_TRUE(CheckOnEmulatedGpu({.op = "Relu", .inputs = {RandomTensor({0, 3}, 1)}}, {}, 2,
                                 *With(Mistake::kNone)));
}

TEST(GpuOpTesterTest, FindsAWrongElement) {
  EXPECT_THAT(FailureOf(Mistake::kWrongValue), HasSubstr("output 0 element 5 of float32[7,19]"));
}

TEST(GpuOpTesterTest, FindsElementsThatNobodyWrote) {
  EXPECT_THAT(FailureOf(Mistake::kLastElement), HasSubstr("nobody has written output 0 + 528"));
}

TEST(GpuOpTesterTest, FindsWritesToAnInput) {
  EXPECT_THAT(FailureOf(Mistake::kWritesInput),
              HasSubstr("writes 4 bytes at input 0 + 20, which may only be read"));
}

TEST(GpuOpTesterTest, FindsBitsThatDependOnTheOrder) {
  EXPECT_THAT(FailureOf(Mistake::kOrder), HasSubstr("has other bits than with seed 1"));
}

TEST(GpuOpTesterTest, FindsUseOfAnUnwrittenWorkspace) {
  EXPECT_THAT(FailureOf(Mistake::kUnwrittenWorkspace),
              HasSubstr("workspace + 0, which nobody has written"));
}

TEST(GpuOpTesterTest, FindsAKernelThatRunsOnce) {
  EXPECT_THAT(FailureOf(Mistake::kOnlyOnce), HasSubstr("nobody has written output 0 + 0"));
}

TEST(GpuOpTesterTest, AKernelHasToBeRegistered) {
  const ::testing::AssertionResult result = CheckOnEmulatedGpu(ReluCase(), {}, 2, KernelRegistry());
  EXPECT_FALSE(result);
  EXPECT_THAT(std::string(result.message()),
              HasSubstr("no kernel of Relu(float32[7,19]) is registered for CUDA"));
}

TEST(GpuOpTesterTest, ExpectsErrorsOfFactoriesAndFaults) {
  const OpCase doubles{.op = "Relu", .inputs = {RandomTensor({3}, 1, -1, 1, DType::kFloat64)}};
  const auto right = With(Mistake::kNone);
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(doubles, absl::StatusCode::kUnimplemented,
                                       {"float32 alone", "cuda:0"}, *right));
  EXPECT_FALSE(ExpectErrorOnEmulatedGpu(ReluCase(), absl::StatusCode::kUnimplemented, {}, *right));
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(ReluCase(), absl::StatusCode::kInvalidArgument,
                                       {"Relu of a test: element is 99"}, *With(Mistake::kFault)));
  EXPECT_FALSE(ExpectErrorOnEmulatedGpu(ReluCase(), absl::StatusCode::kInvalidArgument,
                                        {"another text"}, *With(Mistake::kFault)));
}

TEST(GpuOpTesterTest, TellsWhatWasLaunched) {
  const auto registry = With(Mistake::kNone);
  EmulatedRunOptions options;
  options.registry = registry.get();
  std::vector<EmulatedLaunchRecord> launches;
  ASSERT_TRUE(RunOnEmulatedGpu(ReluCase(), options, &launches).ok());
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_THAT(launches[0].body, HasSubstr("ReluOfTest"));
  EXPECT_EQ(launches[0].bytes_read, 7 * 19 * 4);
  EXPECT_EQ(launches[0].bytes_written, 7 * 19 * 4);
}

}  // namespace
}  // namespace weft::testing
