// Holds the CUDA kernel of an op against the reference kernel, on the emulated GPU.
//
//   EXPECT_TRUE(CheckOnEmulatedGpu({.op = "Relu", .inputs = {RandomTensor({7, 10}, 1)}}));
#ifndef WEFT_OPS_TESTING_EMULATOR_GPU_OP_TESTER_H_
#define WEFT_OPS_TESTING_EMULATOR_GPU_OP_TESTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/kernel.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/op_case.h"
#include "tensor/tensor.h"

namespace weft::testing {

// How RunOnEmulatedGpu runs a case.
struct EmulatedRunOptions {
  uint64_t seed = 1;  // of the order of blocks, warps and threads
  // Runs of the one prepared kernel; the outputs are those of the last.
  int runs = 1;
  // Launches say what their warps ask of memory.
  bool counts_traffic = false;
  // Where the operands lie in their global tensors; empty: nothing is sharded.
  std::vector<OperandSlice> input_slices = {};
  std::vector<OperandSlice> output_slices = {};
  // Where the kernel is looked up.
  const KernelRegistry* registry = &KernelRegistry::Global();
  bool uses_cudnn = false;
};

// What the kernel for kCuda gives, one tensor on the host per output (an invalid one where it is
// not wanted). Each operand is an allocation of its own, "input 0", "output 0", "workspace";
// kernels must not write inputs, and find outputs and workspace poisoned. NotFound without such a
// kernel; Internal with the first report of the emulator; the errors of inference, preparation and
// running come through. `launches`, where not null, gets what was launched.
absl::StatusOr<std::vector<Tensor>> RunOnEmulatedGpu(
    const OpCase& op_case, const EmulatedRunOptions& options = {},
    std::vector<EmulatedLaunchRecord>* launches = nullptr);

// True where these functions use a real GPU instead: the one that the variable WEFT_TEST_DEVICE
// names, "cuda:0", with the kernels of a build with CUDA. What asks the emulator more is then
// skipped.
bool TestsOnARealGpu();

// The kernel for kCuda, in `seeds` orders of its threads, agrees with the reference kernel on
// float64 copies of the floating inputs, as CheckKernelAgainstReference says; all orders give the
// same bits, a second run of a prepared kernel too; and the emulator reports nothing. Fails where
// there is no such kernel.
::testing::AssertionResult CheckOnEmulatedGpu(
    const OpCase& op_case, const Tolerance& tolerance = {}, int seeds = 2,
    const KernelRegistry& registry = KernelRegistry::Global(), bool uses_cudnn = false);

// Preparing or running the kernel for kCuda fails with this code, and the message contains each of
// the texts; no launch does anything that the emulator reports.
::testing::AssertionResult ExpectErrorOnEmulatedGpu(
    const OpCase& op_case, absl::StatusCode code, const std::vector<std::string>& texts,
    const KernelRegistry& registry = KernelRegistry::Global());

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_GPU_OP_TESTER_H_
