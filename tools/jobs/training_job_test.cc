// The third of `train` before its first step: from flags to a job that is ready, what is said of
// it, and its workers. The flags name files of this test's own folder.
#include "tools/jobs/training_job.h"

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "tools/console/exit_code.h"
#include "tools/models/example_models.h"
#include "training/data/data_file.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kSamples = 24;
// 784 x 256 + 256, 256 x 128 + 128, 128 x 10 + 10.
constexpr int64_t kParameters = 235146;

class TrainingJobTest : public ::testing::Test {
 protected:
  TrainingJobTest()
      : folder_(absl::StrCat(::testing::TempDir(), "/training_job_",
                             ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("m.onnx", ExampleModelFile("mlp", 1).value());
    Write("x.npy", ToNpy(testing::RandomTensor({kSamples, 1, 28, 28}, 3)).value());
    Write("y.npy", ToNpy(testing::RandomTensor({kSamples}, 2, 0, 10, DType::kInt64)).value());
    console_ = {&out_, &err_, /*animated=*/false};
  }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  void Write(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(RealFileSystem().WriteFileAtomically(Path(name), bytes).ok());
  }
  // Of three steps of eight samples, and more.
  absl::StatusOr<std::unique_ptr<TrainingJob>> Prepare(const std::vector<std::string>& more = {}) {
    flags_.Add(app_);
    std::vector<std::string> arguments = {
        Path("m.onnx"), "--data", absl::StrCat("x=", Path("x.npy")), "--labels", Path("y.npy"),
        "--batch",      "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    app_.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    return PrepareTrainingJob(flags_, LoopFlags::GivenFlags(app_), loop_, console_);
  }
  absl::Status Refusal(const std::vector<std::string>& more) {
    const absl::Status status = Prepare(more).status();
    EXPECT_FALSE(status.ok());
    return status;
  }
  std::string Description(const std::vector<std::string>& more) {
    const auto job = Prepare(more);
    EXPECT_TRUE(job.ok()) << job.status();
    if (!job.ok()) return "";
    DescribeTrainingJob(**job, flags_, console_);
    return err_.str();
  }

  const std::string folder_;
  CLI::App app_;
  TrainFlags flags_;
  std::ostringstream out_, err_;
  Console console_;
  JobLoop loop_{flags_.loop(), console_};
};

TEST_F(TrainingJobTest, HasAProgramForEachKindOfStepAndTheFlagsValues) {
  Write("x.npy", ToNpy(testing::RandomTensor({20, 1, 28, 28}, 3)).value());
  Write("y.npy", ToNpy(testing::RandomTensor({20}, 2, 0, 10, DType::kInt64)).value());
  const auto job = Prepare({"--epochs", "4", "--lr", "0.5"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ((*job)->steps, 12);  // 20 samples are three steps: 8, 8, 4
  EXPECT_EQ((*job)->training.schedule.total, 12);
  EXPECT_EQ((*job)->job.learning_rate, 0.5);
  EXPECT_EQ((*job)->export_mode, ExportMode::kAsImported);
  EXPECT_THAT((*job)->decisions, SizeIs(6));
  std::vector<std::string> names;
  for (const JobProgram& program : (*job)->job.programs) {
    names.push_back(program.name);
    EXPECT_THAT(program.partitions, SizeIs(1));
  }
  EXPECT_THAT(names, ::testing::ElementsAre("train/8", "train/4"));
  EXPECT_EQ(loop_.evaluation(), nullptr);
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(TrainingJobTest, AnEvaluationWithinTheJobIsPrepared) {
  const auto job = Prepare({"--steps", "3", "--eval-every", "2", "--validation-split", "0.25"});
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_NE(loop_.evaluation(), nullptr);
  EXPECT_THAT(loop_.evaluation()->programs.front().name, StartsWith("evaluate/"));
  DescribeTrainingJob(**job, flags_, console_);
  EXPECT_THAT(err_.str(), HasSubstr("share  without what --validation-split 0.25 holds out\n"));
}

// While it lives, this process has a kernel for CUDA, of MatMul alone.
class KernelsOfMatMulAlone {
 public:
  KernelsOfMatMulAlone() {
    EXPECT_TRUE(
        KernelRegistry::Global()
            .Register("", "MatMul", DeviceKind::kCuda,
                      [](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                        return context.Unimplemented("nothing runs here");
                      })
            .ok());
  }
  KernelsOfMatMulAlone(const KernelsOfMatMulAlone&) = delete;
  KernelsOfMatMulAlone& operator=(const KernelsOfMatMulAlone&) = delete;
  ~KernelsOfMatMulAlone() { KernelRegistry::Global() = before_; }

 private:
  const KernelRegistry before_ = KernelRegistry::Global();
};

// An accuracy has operators of its own. Those that training has said are not said again.
TEST_F(TrainingJobTest, SaysWhatItsEvaluationsRunOnTheHostOfAGpu) {
  Write("c.yaml",
        "hosts:\n  - name: far\n    workers:\n"
        "      - {address: 'unix:/nowhere', threads: 1, device: 'cuda:0', model: A100-80GB}\n");
  if (KernelRegistry::Global().Count(DeviceKind::kCuda) > 0) {
    GTEST_SKIP() << "this build has kernels of CUDA, for all of the model";
  }
  const KernelsOfMatMulAlone kernels;
  const std::string text =
      Description({"--steps", "3", "--eval-every", "2", "--validation-split", "0.25", "--cluster",
                   Path("c.yaml"), "--cpu-fallback", "allow"});
  const std::string said = "run on the CPU of a GPU's worker, with copies: ";
  ASSERT_THAT(text, HasSubstr(absl::StrCat("note   ", said)));
  ASSERT_THAT(text, HasSubstr(absl::StrCat("note   evaluation: ", said)));
  const auto line_of = [&text](const std::string& begin) {
    const size_t at = text.find(begin);
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_THAT(line_of(absl::StrCat("note   ", said)), HasSubstr("Relu (node '"));
  EXPECT_THAT(line_of("note   evaluation: "),
              AllOf(HasSubstr("CountCorrect"), Not(HasSubstr("Relu"))));
}

// A job may yet be refused: nothing is left behind.
TEST_F(TrainingJobTest, WritesNoFile) {
  const auto job = Prepare({"--steps", "3", "--metrics", Path("m.csv"), "--checkpoint",
                            Path("saved"), "-o", Path("o.onnx")});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE((*job)->spec.checkpoints);
  EXPECT_THAT(RealFileSystem().ListDirectory(folder_).value(),
              ::testing::UnorderedElementsAre("m.onnx", "x.npy", "y.npy"));
}

TEST_F(TrainingJobTest, IsDescribedInALineEach) {
  const std::string text = Description({"--steps", "3"});
  EXPECT_THAT(text, StartsWith(absl::StrCat("train  ", Path("m.onnx"),
                                            ": 6 parameters, 235 k numbers\n"
                                            "trains all 6 tensors (235 k numbers)\n"
                                            "data   24 samples, 3 steps of 8 per epoch, shuffled\n"
                                            "loss   softmax_cross_entropy, sgd, learning rate "
                                            "0.01, fp32\n"
                                            "plan   dp=1 x tp=1 x pp=1, 1 micro-batches, ")));
  EXPECT_THAT(text, Not(HasSubstr("--rebalance")));
  EXPECT_EQ(out_.str(), "");  // results alone go there
}

TEST_F(TrainingJobTest, WhatAFlagCannotDoIsSaidBefore) {
  EXPECT_THAT(Description({"--steps", "3", "--rebalance", "--no-shuffle"}),
              AllOf(HasSubstr(" per epoch, in the order of the files\n"),
                    HasSubstr("note   --rebalance can do nothing: the plan has one replica")));
}

TEST_F(TrainingJobTest, AFileThatIsNoModelIsOneOfTheModel) {
  Write("m.onnx", "no model");
  const absl::Status status = Refusal({"--steps", "3"});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kModel) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("m.onnx"));
}

// A plan that does not fit comes after: it may take long to look for one.
TEST_F(TrainingJobTest, DataThatDoesNotFitIsToldBeforeAPlanThatDoesNot) {
  Write("x.npy", ToNpy(testing::RandomTensor({kSamples, 3, 28, 28}, 3)).value());
  const absl::Status status = Refusal({"--steps", "3", "--parallel", "dp=2"});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("'x'"));
}

TEST_F(TrainingJobTest, APlanForOtherWorkersIsOneOfThePlan) {
  const absl::Status status = Refusal({"--steps", "3", "--parallel", "dp=2"});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kPlan) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 2 workers, but the cluster has 1"));
}

TEST_F(TrainingJobTest, AdaptersThatThereAreNotAreAUsageError) {
  const absl::Status status = Refusal({"--steps", "3", "--adapters-out", Path("a.safetensors")});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--lora"));
}

TEST_F(TrainingJobTest, StartsAWorkerThatHasTheJob) {
  const auto job = Prepare({"--steps", "3"});
  ASSERT_TRUE(job.ok()) << job.status();
  const auto workers = StartTrainingJob(**job, flags_, loop_, console_);
  ASSERT_TRUE(workers.ok()) << workers.status();
  EXPECT_EQ((*workers)->coordinator().size(), 1);
  EXPECT_THAT((*workers)->addresses(), IsEmpty());  // it runs in this process
  ASSERT_THAT((*workers)->coordinator().memory(), SizeIs(1));
  EXPECT_GE((*workers)->coordinator().memory()[0].requirement.variable_bytes, 4 * kParameters);
}

TEST_F(TrainingJobTest, AJobThatDoesNotFitStartsNothing) {
  const auto job = Prepare({"--steps", "3", "--memory-per-worker", "1MiB"});
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status refused = StartTrainingJob(**job, flags_, loop_, console_).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kMemory) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("may have 1 MiB of memory and needs at least"),
                    HasSubstr("the job was refused before anything was started")));
}

}  // namespace
}  // namespace weft
