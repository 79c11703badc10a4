// Plans that travel with a model: ONNX's multi-device annotations, on the command line.
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/testing/annotated_models.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class DeviceAnnotations : public ::testing::Test {
 protected:
  DeviceAnnotations() {
    WriteTestFile(
        TestPath("x.npy"),
        ToNpy(Tensor::Of<float>({4, 4}, {1, 0, 0, 1, 0, 1, 1, 0, -1, 1, 0, 0, 0, 0, 1, 1}))
            .value());
    WriteTestFile(TestPath("y.npy"),
                  ToNpy(Tensor::Of<float>({4, 2}, {1, 0, 0, 1, -1, 2, 3, 0})).value());
  }

  CommandResult Run(const std::string& command, const std::string& model,
                    const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {command,    model,
                                          "--data",   "x=" + TestPath("x.npy"),
                                          "--labels", TestPath("y.npy"),
                                          "--loss",   "mse",
                                          "--batch",  "4"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommand(arguments);
  }

  // "STEP,LOSS" of each of three steps, to six digits.
  std::vector<std::string> Losses(const std::string& model, const std::vector<std::string>& flags) {
    const CommandResult train =
        RunProgram(Arguments{"train", model, "--data", "x=" + TestPath("x.npy"), "--labels",
                             TestPath("y.npy"), "--loss", "mse", "--batch", "4", "--steps", "3",
                             "--metrics", TestPath("metrics.csv")} +
                   flags);
    EXPECT_EQ(train.exit_code, 0) << train.err;
    err_ = train.out + train.err;
    std::vector<std::string> losses;
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(ReadTestFile(TestPath("metrics.csv")), '\n'))) {
      const std::vector<std::string> fields = absl::StrSplit(line, ',');
      double loss = 0;
      if (fields.size() < 2 || !absl::SimpleAtod(fields[1], &loss)) continue;
      losses.push_back(absl::StrFormat("%s,%.6g", fields[0], loss));
    }
    EXPECT_THAT(losses, SizeIs(3)) << err_;
    return losses;
  }

  std::string Write(const std::string& name, const std::string& bytes) {
    WriteTestFile(TestPath(name), bytes);
    return TestPath(name);
  }

  std::string err_;
};

TEST_F(DeviceAnnotations, AModelRunsAsItIsAnnotated) {
  const std::string plain = Write("plain.onnx", TwoLayersBytes());
  const std::string annotated = Write("annotated.onnx", TwoLayersOnFourDevicesBytes());
  const std::vector<std::string> alone = Losses(plain, {});
  EXPECT_EQ(Losses(annotated, {"--local", "4"}), alone);
  EXPECT_THAT(err_, HasSubstr("device configuration 'two by two'"));
  EXPECT_THAT(err_, HasSubstr("dp=1 x tp=2 x pp=2"));
  // Flags are stronger, and another number of workers has another plan.
  EXPECT_EQ(Losses(annotated, {"--local", "4", "--parallel", "dp=4"}), alone);
  EXPECT_THAT(err_, Not(HasSubstr("device configuration")));
  EXPECT_EQ(Losses(annotated, {"--local", "2", "--parallel", "dp=2"}), alone);
}

TEST_F(DeviceAnnotations, AreNotUsedForAnotherNumberOfWorkers) {
  const CommandResult result =
      Run("plan", Write("annotated.onnx", TwoLayersOnFourDevicesBytes()), {"--local", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("annotations are for 4 devices, there are 3 workers: they are not used"));
}

// With a tensor axis along which nothing is split, too, which the annotations cannot say.
TEST_F(DeviceAnnotations, APlanTravelsWithTheModel) {
  const std::string model = Write("plain.onnx", TwoLayersBytes());
  const std::string first = TestPath("first.yaml");
  const std::string second = TestPath("second.yaml");
  const std::string annotated = TestPath("with_plan.onnx");
  const CommandResult written =
      Run("plan", model,
          {"--local", "4", "--parallel", "tp=2,pp=2,micro=4,schedule=1f1b", "-o", first,
           "--annotate-plan", annotated});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const CommandResult read = Run("plan", annotated, {"--local", "4", "-o", second});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(ReadTestFile(second), ReadTestFile(first));
}

// The plan's tf32 and host_ops were once lost where no flag gave them.
TEST_F(DeviceAnnotations, WhatNoFlagSaysStaysAsThePlanHasIt) {
  const std::string given = TestPath("given.yaml");
  const std::string annotated = TestPath("with_plan.onnx");
  const std::string again = TestPath("again.yaml");
  WriteTestFile(given,
                "mesh: {tensor: 2}\nworkers: [0, 1]\n"
                "tf32: true\nhost_ops: [NonMaxSuppression]\n");
  const CommandResult written =
      Run("plan", Write("plain.onnx", TwoLayersBytes()),
          {"--local", "2", "--plan", given, "--annotate-plan", annotated});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const CommandResult read = Run("plan", annotated, {"--local", "2", "-o", again});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_THAT(ReadTestFile(again), AllOf(HasSubstr("tf32: true"), HasSubstr("host_ops: "),
                                         HasSubstr("NonMaxSuppression")));
}

// What kernels may do is the job's choice, whoever made the plan.
TEST_F(DeviceAnnotations, FlagsOfTheJobHoldForItsPlan) {
  const std::string folder = TestPath("dump");
  const CommandResult plan = Run("plan", Write("annotated.onnx", TwoLayersOnFourDevicesBytes()),
                                 {"--local", "4", "--cudnn", "on", "--fuse", "auto", "--tf32",
                                  "--dump", folder, "--dump-after", "partition"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("device configuration 'two by two'"));
  EXPECT_THAT(ReadTestFile(folder + "/06-partition/train-4/rank-0/partition.textproto"),
              AllOf(HasSubstr("uses_cudnn: true"), HasSubstr("fuses_nodes: true"),
                    HasSubstr("tf32: true")));
}

TEST_F(DeviceAnnotations, AWrongOneIsRefusedByNodeAndAxis) {
  const CommandResult result = Run(
      "plan", Write("wrong.onnx", TwoLayersOnFourDevicesBytes(/*up_axis=*/2)), {"--local", "4"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_THAT(result.err, HasSubstr("MatMul"));
  EXPECT_THAT(result.err, HasSubstr("tensor 'up': sharded axis 2 is outside [-2, 2)"));
}

}  // namespace
}  // namespace weft::testing
