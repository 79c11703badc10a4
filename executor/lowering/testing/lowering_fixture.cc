#include "executor/lowering/testing/lowering_fixture.h"

#include <span>
#include <utility>

#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/program/compile_step.h"
#include "platform/clock.h"
#include "tensor/tensor.h"
#include "tensor/testing/test_device.h"

namespace weft::testing {

absl::Status CountingSource::Fill(int64_t, const FeedInput&, int64_t first, int64_t count,
                                  void* target) {
  float* out = static_cast<float*>(target);
  for (int64_t i = 0; i < count; ++i) {
    *out++ = static_cast<float>(first + i + 1);
    *out++ = static_cast<float>(first + i + 1) * 10;
  }
  return absl::OkStatus();
}

std::string LoweringDeviceName(const ::testing::TestParamInfo<int>& info) {
  return TestDeviceName(info.param);
}

LoweringFixture::LoweringFixture()
    : device_(NewTestDevice(GetParam())), variables_(std::make_unique<VariableStore>(*device_)) {}

void LoweringFixture::AddVariable(Partition& partition, const std::string& name,
                                  std::vector<float> initial) {
  VariableShard shard;
  shard.name = name;
  shard.dtype = DType::kFloat32;
  shard.global_shape = shard.local_shape = Shape{1, 2};
  partition.variables.push_back(shard);
  ASSERT_TRUE(variables_->Add({shard}).ok());
  ASSERT_TRUE(variables_->Write(name, Tensor::Of<float>({1, 2}, initial)).ok());
  partition.end.AddVariable(name, FloatType({1, 2}), Tensor(), true);
}

ExecutorEnvironment LoweringFixture::Environment() {
  return {device_.get(), variables_.get(), &communicator_, &source_, &RealClock(), kernels_};
}

absl::StatusOr<StepResult> LoweringFixture::Run(const Partition& partition) {
  auto program = CompileStep(partition, Environment());
  if (!program.ok()) return program.status();
  program_ = *std::move(program);
  auto first = program_->Run({});
  return first;
}

std::vector<float> LoweringFixture::Variable(const std::string& name) {
  const auto read = variables_->Read(name);
  EXPECT_TRUE(read.ok()) << read.status();
  const std::span<const float> data = read->data<float>();
  return {data.begin(), data.end()};
}

std::vector<float> LoweringFixture::Report(const absl::StatusOr<StepResult>& result,
                                           const std::string& name) {
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return {};
  const std::span<const float> data = result->reports.at(name).data<float>();
  return {data.begin(), data.end()};
}

}  // namespace weft::testing
