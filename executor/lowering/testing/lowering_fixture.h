// What runs a hand-made partition, as rank 0 with images of itself for peers.
#ifndef WEFT_EXECUTOR_LOWERING_TESTING_LOWERING_FIXTURE_H_
#define WEFT_EXECUTOR_LOWERING_TESTING_LOWERING_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/interfaces/input_source.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/testing/mirror_communicator.h"
#include "executor/program/step_program.h"
#include "executor/variables/variable_store.h"
#include "graph/partition.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "tensor/device.h"

namespace weft::testing {

// Sample i of every step is (i + 1) x (1, 10).
class CountingSource final : public InputSource {
 public:
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override;
};

// As NewTestDevice (tensor/testing/test_device.h).
inline auto LoweringDevices() { return ::testing::Values(-1, 0, 1, 2, 3); }
std::string LoweringDeviceName(const ::testing::TestParamInfo<int>& info);

class LoweringFixture : public ::testing::TestWithParam<int> {
 protected:
  LoweringFixture();

  // A variable [1,2] of the partition's end graph.
  void AddVariable(Partition& partition, const std::string& name, std::vector<float> initial);
  ExecutorEnvironment Environment();
  // Compiles the partition into program_ and runs its first step.
  absl::StatusOr<StepResult> Run(const Partition& partition);
  std::vector<float> Variable(const std::string& name);
  static std::vector<float> Report(const absl::StatusOr<StepResult>& result,
                                   const std::string& name);

  std::unique_ptr<Device> device_;
  std::unique_ptr<VariableStore> variables_;
  MirrorCommunicator communicator_;
  CountingSource source_;
  const KernelRegistry* kernels_ = nullptr;
  std::unique_ptr<StepProgram> program_;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_LOWERING_TESTING_LOWERING_FIXTURE_H_
