// Broken set-ups: each is refused with what was found, what was needed, and what to do.
#include "tensor/cuda/cuda_setup.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_status.h"
#include "tensor/testing/fake_cuda_runtime.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status StatusOf(CudaRuntime& runtime, CudaCard card = {0, "cuda:0", {}}) {
  return SetUpCudaCard(runtime, card).status();
}

// The error of cuda:0, which has the code.
std::string Refusal(CudaRuntime& runtime, absl::StatusCode code) {
  const absl::Status status = StatusOf(runtime);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0"));
  return std::string(status.message());
}

TEST(CudaSetup, AGoodOneIsTaken) {
  FakeCudaRuntime runtime;
  const auto properties = CheckCudaCard(runtime, {0, "cuda:0", {}});
  ASSERT_TRUE(properties.ok()) << properties.status();
  EXPECT_EQ(properties->name, "Fake GPU");
}

// Whoever only prices a plan takes no memory of the card.
TEST(CudaSetup, LookingAtACardDoesNotUseIt) {
  FakeCudaRuntime runtime;
  EXPECT_TRUE(CheckCudaCard(runtime, {0, "cuda:0", {}}).ok());
  EXPECT_EQ(runtime.Calls("SetDevice"), 0);
  EXPECT_TRUE(StatusOf(runtime).ok());
  EXPECT_EQ(runtime.Calls("SetDevice"), 1);
}

TEST(CudaSetup, WithoutADriverItsLibraryIsNamed) {
  FakeCudaRuntime runtime({.driver_version = 0});
  EXPECT_THAT(Refusal(runtime, absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("libcuda.so.1 was not found"), HasSubstr("install the driver"),
                    HasSubstr("580")));
}

TEST(CudaSetup, AnOldDriverIsRefusedWithBothVersions) {
  FakeCudaRuntime runtime({.driver_version = 12040});
  EXPECT_THAT(Refusal(runtime, absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("made for CUDA 12.4"), HasSubstr("needs 13.0"),
                    HasSubstr("install a newer driver (580 or later)")));
}

// CUDA's own promise: any driver of the same major version will do.
TEST(CudaSetup, AnOlderDriverOfTheSameMajorVersionIsTaken) {
  FakeCudaRuntime runtime({.driver_version = 13000, .runtime_version = 13020});
  EXPECT_TRUE(StatusOf(runtime).ok()) << StatusOf(runtime);
}

TEST(CudaSetup, ADriverThatCallsItselfTooOldIsBelieved) {
  FakeCudaRuntime runtime;
  runtime.Fail("DeviceCount", CudaCode::kInsufficientDriver);
  EXPECT_THAT(Refusal(runtime, absl::StatusCode::kFailedPrecondition),
              HasSubstr("install a newer driver"));
}

TEST(CudaSetup, WithoutACardTheVariableThatHidesThemIsNamed) {
  FakeCudaRuntime runtime({.cards = {}});
  EXPECT_THAT(Refusal(runtime, absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("no card"), HasSubstr("CUDA_VISIBLE_DEVICES is not set")));
  const absl::Status hidden = StatusOf(runtime, {0, "cuda:0", "7"});
  EXPECT_EQ(hidden.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(hidden.message()), HasSubstr("CUDA_VISIBLE_DEVICES is '7'"));
}

TEST(CudaSetup, ANumberBeyondTheLastCardIsRefusedWithTheirNumber) {
  FakeCudaRuntime runtime({.cards = std::vector<FakeCudaCard>(2)});
  EXPECT_TRUE(StatusOf(runtime, {1, "cuda:1", {}}).ok());
  const absl::Status status = StatusOf(runtime, {2, "cuda:2", "0,1"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuda:2 is not there"), HasSubstr("2 cards, cuda:0 to cuda:1"),
                    HasSubstr("'0,1'")));
}

TEST(CudaSetup, AnOldArchitectureIsRefusedWithWhatIsNeeded) {
  FakeCudaOptions options;
  options.cards[0].properties.major = 7;
  options.cards[0].properties.minor = 5;
  FakeCudaRuntime runtime(options);
  EXPECT_THAT(Refusal(runtime, absl::StatusCode::kUnimplemented),
              AllOf(HasSubstr("Fake GPU"), HasSubstr("compute capability 7.5"),
                    HasSubstr("8.0 and later")));
}

TEST(CudaSetup, ComputeModesThatForbidUseAreNamed) {
  FakeCudaOptions options;
  options.cards[0].properties.compute_mode = 2;
  FakeCudaRuntime prohibited(options);
  EXPECT_THAT(Refusal(prohibited, absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("'prohibited'"), HasSubstr("nvidia-smi -i 0 -c 0")));
  options.cards[0].properties.compute_mode = 3;
  FakeCudaRuntime exclusive(options);
  EXPECT_TRUE(StatusOf(exclusive).ok());
  exclusive.Fail("SetDevice", CudaCode::kDevicesUnavailable);
  EXPECT_THAT(Refusal(exclusive, absl::StatusCode::kUnavailable),
              AllOf(HasSubstr("'exclusive process'"), HasSubstr("another process has it")));
}

TEST(CudaSetup, ACardWithoutRoomForCudaItselfSaysWhatIsFree) {
  FakeCudaOptions options;
  options.cards[0].used_by_others = (size_t{1} << 30) - 4096;
  FakeCudaRuntime runtime(options);
  runtime.Fail("SetDevice", CudaCode::kMemoryAllocation);
  EXPECT_THAT(Refusal(runtime, absl::StatusCode::kResourceExhausted),
              HasSubstr("4096 of 1073741824 bytes are free"));
}

TEST(CudaSetup, AFailedCardIsUnavailable) {
  FakeCudaRuntime runtime;
  runtime.Fail("SetDevice", CudaCode::kEccUncorrectable);
  EXPECT_THAT(Refusal(runtime, absl::StatusCode::kUnavailable),
              AllOf(HasSubstr("(214)"), HasSubstr("the card failed"), HasSubstr("nvidia-smi -q")));
}

TEST(CudaSetup, ABuildWithoutCudaSaysSo) {
  const auto runtime = SystemCudaRuntime();
  if (runtime.ok()) GTEST_SKIP() << "this build has CUDA";
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(runtime.status().message()),
              HasSubstr("this build has no CUDA: it was made without --config=cuda"));
  EXPECT_EQ(FindCudaDevice(0).status(), runtime.status());
}

// On a machine without a driver, CUDA's own runtime says so; nothing is loaded before.
TEST(CudaSetup, TheRealRuntimeAnswersWithoutADriver) {
  const auto runtime = SystemCudaRuntime();
  if (!runtime.ok()) GTEST_SKIP() << "this build has no CUDA";
  int version = 0;
  EXPECT_EQ((*runtime)->RuntimeVersion(&version), CudaCode::kSuccess);
  EXPECT_GE(version, 12000);
  const absl::Status status = StatusOf(**runtime);
  if (status.ok()) GTEST_SKIP() << "this machine has a card";
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0"));
}

TEST(CudaStatus, TellsWhoMayGoOnFromWhoMayNot) {
  FakeCudaRuntime runtime;
  EXPECT_TRUE(CudaStatus(runtime, CudaCode::kSuccess, "cuda:0", "copy").ok());
  EXPECT_EQ(CudaStatus(runtime, CudaCode::kMemoryAllocation, "cuda:0", "copy").code(),
            absl::StatusCode::kResourceExhausted);
  const absl::Status fault = CudaStatus(runtime, CudaCode::kIllegalAddress, "cuda:0", "copy");
  EXPECT_EQ(fault.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(fault.message()).find("cuda:0 cannot copy: CUDA says cudaError700 (700)"),
            0u);
  for (const int code : {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 911}) {
    EXPECT_TRUE(EndsTheDevice(static_cast<CudaCode>(code))) << code;
  }
  for (const int code : {0, 1, 2, 100, 600, 704, 711, 712, 713, 720, 900, 910}) {
    EXPECT_FALSE(EndsTheDevice(static_cast<CudaCode>(code))) << code;
  }
}

}  // namespace
}  // namespace weft::testing
