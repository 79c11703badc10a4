// What `plan --dump` writes, `train` and `verify` run: the same bits as without, and edits count.
//
// WEFT_RUNNER: graph_runner, whose workers are processes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "graph/graph.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "ops/testing/test_tensors.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Dump : public ::testing::Test {
 protected:
  Dump() {
    std::filesystem::remove_all(folder_);
    EXPECT_EQ(RunCommand({"example", "mlp", "-o", model_}).exit_code, 0);
    // The third batch is short.
    WriteTestFile(images_, ToNpy(RandomTensor({40, 1, 28, 28}, 1)).value());
    WriteTestFile(labels_, ToNpy(RandomTensor({40}, 2, 0, 10, DType::kInt64)).value());
  }

  Arguments Job() const {
    return {model_,     "--data",      absl::StrCat("x=", images_),
            "--labels", labels_,       "--batch",
            "16",       "--optimizer", "adam"};
  }
  // In this process, with one worker.
  CommandResult Plan(const Arguments& more) const {
    return RunCommand(Arguments{"plan"} + Job() + more);
  }
  CommandResult Train(const Arguments& more) const {
    return RunCommand(Arguments{"train"} + Job() + Arguments{"--steps", "5"} + more);
  }
  // By the program, with worker processes.
  CommandResult Run(const std::string& command, const Arguments& more) const {
    const std::string out = TestPath("out");
    const std::string err = TestPath("err");
    const int status =
        std::system(absl::StrCat(std::getenv("WEFT_RUNNER"), " ", command, " ",
                                 absl::StrJoin(Job() + more, " "), " > ", out, " 2> ", err)
                        .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadTestFile(out), ReadTestFile(err)};
  }
  std::string Trained(const std::string& name, const Arguments& more) const {
    const std::string path = TestPath(name);
    const CommandResult result =
        Run("train", Arguments{"--steps", "5", "--local", "2", "-o", path} + more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadTestFile(path);
  }
  void DumpPartitions(const Arguments& more) const {
    const CommandResult dumped = Plan(Arguments{"--dump", folder_} + more);
    ASSERT_EQ(dumped.exit_code, 0) << dumped.err;
    EXPECT_THAT(dumped.err, HasSubstr(absl::StrCat(" files written to ", folder_)));
  }
  // A job of these flags trains the same weights, to the bit, from its dumped partitions.
  void ExpectSameBits(const Arguments& flags) const {
    DumpPartitions(flags + Arguments{"--local", "2"});
    const std::string stored = Trained("stored.onnx", {"--partitions", partitions_});
    ASSERT_FALSE(stored.empty());
    EXPECT_TRUE(stored == Trained("plain.onnx", flags));
  }
  // Changes what the dumped end graph of rank 0 does.
  template <typename Edit>
  void EditEndGraph(Edit edit) const {
    for (const char* const program : {"train-16", "train-8"}) {
      const std::string path = absl::StrCat(partitions_, "/", program, "/rank-0/end.onnx");
      auto graph = GraphFromOnnx(ReadTestFile(path));
      ASSERT_TRUE(graph.ok()) << graph.status();
      edit(*graph);
      WriteTestFile(path, GraphToOnnx(*graph, {.weights = false}).value());
    }
  }

  const std::string model_ = TestPath("mlp.onnx");
  const std::string images_ = TestPath("x.npy");
  const std::string labels_ = TestPath("y.npy");
  const std::string folder_ = TestPath("dump");
  const std::string partitions_ = TestPath("dump/06-partition");
};

TEST_F(Dump, DataParallelTrainsTheSameBits) { ExpectSameBits({"--parallel", "dp=2"}); }
TEST_F(Dump, TensorParallelTrainsTheSameBits) { ExpectSameBits({"--parallel", "tp=2"}); }
TEST_F(Dump, PipelineParallelTrainsTheSameBits) { ExpectSameBits({"--parallel", "pp=2,micro=4"}); }
TEST_F(Dump, ZeroTrainsTheSameBits) { ExpectSameBits({"--parallel", "dp=2,zero=3"}); }
TEST_F(Dump, StrictTrainsTheSameBits) { ExpectSameBits({"--parallel", "dp=2", "--strict"}); }
TEST_F(Dump, ASearchedPlanTrainsTheSameBits) { ExpectSameBits({"--parallel", "all"}); }
TEST_F(Dump, RecomputationTrainsTheSameBits) { ExpectSameBits({"--parallel", "dp=2,recompute=2"}); }

TEST_F(Dump, OneWorkerTrainsTheSameBits) {
  DumpPartitions({});
  ASSERT_EQ(Train({"-o", TestPath("a.onnx")}).exit_code, 0);
  const CommandResult stored = Train({"-o", TestPath("b.onnx"), "--partitions", partitions_});
  ASSERT_EQ(stored.exit_code, 0) << stored.err;
  EXPECT_TRUE(ReadTestFile(TestPath("a.onnx")) == ReadTestFile(TestPath("b.onnx")));
}

// The losses that the job measures in between, too.
TEST_F(Dump, EvaluationsComeFromTheFolder) {
  const Arguments evaluation = {"--validation-split", "0.2", "--eval-every", "2"};
  DumpPartitions(evaluation);
  const CommandResult plain = Train(evaluation + Arguments{"-o", TestPath("a.onnx")});
  const CommandResult stored =
      Train(evaluation + Arguments{"-o", TestPath("b.onnx"), "--partitions", partitions_});
  ASSERT_EQ(stored.exit_code, 0) << stored.err;
  EXPECT_TRUE(ReadTestFile(TestPath("a.onnx")) == ReadTestFile(TestPath("b.onnx")));
  const auto line = [](const std::string& text) {
    const size_t begin = text.find("eval   step 4");
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_THAT(line(plain.err), HasSubstr("accuracy"));
  EXPECT_EQ(line(stored.err), line(plain.err));
  // It said that the flags were the same.
  const CommandResult other =
      Train(evaluation + Arguments{"--eval-metric", "loss", "--partitions", partitions_});
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kPlan)) << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("another evaluation"), HasSubstr("--eval-metric")));
  // Without it, there are no programs to take.
  DumpPartitions({"--validation-split", "0.2"});
  const CommandResult missing = Train(evaluation + Arguments{"--partitions", partitions_});
  EXPECT_EQ(missing.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_THAT(missing.err, HasSubstr("have no programs of an evaluation"));
}

// A dump of a job with beta1 = 0.9, edited to 0.5, is a job with beta1 = 0.5.
TEST_F(Dump, AnEditedAttributeIsWhatRuns) {
  DumpPartitions({});
  int edited = 0;
  EditEndGraph([&edited](Graph& graph) {
    for (const NodeId id : graph.node_ids()) {
      if (graph.node(id).attributes.Find("beta1") == nullptr) continue;
      graph.node(id).attributes.Set("beta1", 0.5f);
      ++edited;
    }
  });
  ASSERT_GT(edited, 0);
  ASSERT_EQ(Train({"-o", TestPath("flag.onnx"), "--beta1", "0.5"}).exit_code, 0);
  ASSERT_EQ(Train({"-o", TestPath("default.onnx")}).exit_code, 0);
  const CommandResult stored = Train({"-o", TestPath("edited.onnx"), "--partitions", partitions_});
  ASSERT_EQ(stored.exit_code, 0) << stored.err;
  EXPECT_TRUE(ReadTestFile(TestPath("edited.onnx")) == ReadTestFile(TestPath("flag.onnx")));
  EXPECT_FALSE(ReadTestFile(TestPath("edited.onnx")) == ReadTestFile(TestPath("default.onnx")));
}

TEST_F(Dump, VerifyRunsThePartitionsAndNamesWhatWasEdited) {
  DumpPartitions({"--local", "2", "--parallel", "dp=2"});
  const Arguments verify =
      Arguments{"verify"} + Job() + Arguments{"--local", "2", "--partitions", partitions_};
  const CommandResult equal = RunCommand(verify);
  EXPECT_EQ(equal.exit_code, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("equal: "));
  EditEndGraph([](Graph& graph) {
    for (const NodeId id : graph.node_ids()) {
      if (graph.node(id).attributes.Find("beta1") == nullptr) continue;
      graph.node(id).attributes.Set("beta1", 0.5f);
    }
  });
  const CommandResult different = RunCommand(verify);
  EXPECT_EQ(different.exit_code, static_cast<int>(ExitCode::kInternal)) << different.err;
  EXPECT_THAT(different.out, AllOf(HasSubstr("first     AdamUpdate"), HasSubstr("worker    0")));
}

TEST_F(Dump, AnotherJobIsRefusedWithWhatDiffers) {
  DumpPartitions({"--weight-decay", "0.1"});
  const auto refusal = [&](const Arguments& more) {
    const CommandResult result = RunCommand(
        Arguments{"train"} + Job() + Arguments{"--steps", "1", "--partitions", partitions_} + more);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(partitions_));
    return result.err;
  };
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("made for another training step"),
                                 HasSubstr("--weight-decay was 0.1, is not given")));
  EXPECT_THAT(refusal({"--weight-decay", "0.2"}), HasSubstr("--weight-decay was 0.1, is 0.2"));
  EXPECT_THAT(refusal({"--weight-decay", "0.1", "--local", "3"}),
              HasSubstr("for a cluster of 1 workers, this one has 3"));
  WriteTestFile(images_, ToNpy(RandomTensor({21, 1, 28, 28}, 1)).value());
  WriteTestFile(labels_, ToNpy(RandomTensor({21}, 2, 0, 10, DType::kInt64)).value());
  EXPECT_THAT(refusal({"--weight-decay", "0.1"}),
              HasSubstr("lack the program train/5 that the data needs (they have train/16, "
                        "train/8)"));
}

TEST_F(Dump, BrokenFoldersAreRefusedByTheNameOfTheFile) {
  DumpPartitions({"--local", "2", "--parallel", "dp=2"});
  const auto refusal = [&] {
    const CommandResult result = Train({"--local", "2", "--partitions", partitions_});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
    return result.err;
  };
  const std::string graph = absl::StrCat(partitions_, "/train-8/rank-1/end.onnx");
  const std::string whole = ReadTestFile(graph);
  WriteTestFile(graph, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(refusal(), HasSubstr(graph));
  WriteTestFile(graph, whole);
  std::filesystem::remove_all(absl::StrCat(partitions_, "/train-8/rank-1"));
  EXPECT_THAT(refusal(), HasSubstr("train-8/rank-1 is missing: the plan dp=2"));
  std::filesystem::remove_all(partitions_);
  EXPECT_THAT(refusal(), HasSubstr("job.json"));
}

// Such a run trained to its end and had no weights to write then, or wrote what the memory was
// before.
TEST_F(Dump, WeightsThatNobodyReadsBackAreRefused) {
  DumpPartitions({"--local", "2", "--parallel", "dp=2"});
  const auto refusal = [&](const std::string& rank, const std::string& old_text,
                           const std::string& new_text) {
    const std::string path = absl::StrCat(partitions_, "/train-8/", rank, "/partition.textproto");
    const std::string whole = ReadTestFile(path);
    EXPECT_THAT(whole, HasSubstr(old_text));
    WriteTestFile(path, absl::StrReplaceAll(whole, {{old_text, new_text}}));
    const CommandResult result = Train({"--local", "2", "--partitions", partitions_});
    WriteTestFile(path, whole);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal("rank-0", "is_primary: true", "is_primary: false"),
              AllOf(HasSubstr("train/8: variable '"), HasSubstr("all of it is read back")));
  EXPECT_THAT(refusal("rank-1", "is_primary: false", "is_primary: true"),
              HasSubstr("two ranks say is_primary of the same part"));
}

TEST_F(Dump, FlagsThatMakePlansGoWithoutIt) {
  const CommandResult both = Train({"--partitions", partitions_, "--parallel", "dp=1"});
  EXPECT_EQ(both.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(both.err, AllOf(HasSubstr("--partitions"), HasSubstr("--parallel")));
}

TEST_F(Dump, AllIsEveryPhaseAndPass) {
  const CommandResult plan = Plan({"--dump", folder_, "--dump-after", "all"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  for (const char* const name :
       {"01-import.onnx", "02-simplify.onnx", "03-expand.onnx", "04-differentiate.onnx",
        "04-differentiate/02-add_loss.onnx", "05-plan.yaml", "06-partition/job.json",
        "06-partition/train-8/rank-0/partition.textproto"}) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(folder_, "/", name))) << name;
  }
  const auto backward = [this](const std::string& name) {
    const auto graph = GraphFromOnnx(ReadTestFile(absl::StrCat(folder_, "/", name)));
    EXPECT_TRUE(graph.ok()) << graph.status();
    const std::vector<NodeId> ids = graph->node_ids();
    return std::any_of(ids.begin(), ids.end(),
                       [&](NodeId id) { return graph->node(id).phase == Phase::kBackward; });
  };
  EXPECT_FALSE(backward("03-expand.onnx"));
  EXPECT_TRUE(backward("04-differentiate.onnx"));
  std::string programs;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_ + "/07-lowering/train-16/rank-0")) {
    programs += ReadTestFile(entry.path().string());
  }
  EXPECT_THAT(programs, HasSubstr("AdamUpdate"));
}

// What cannot be differentiated can be looked at up to there.
TEST_F(Dump, UntilEndsBeforeWhatFails) {
  const Arguments frozen = {"--freeze", "*"};
  const CommandResult whole = Plan(frozen);
  EXPECT_THAT(whole.err, HasSubstr("nothing trains"));
  EXPECT_NE(whole.exit_code, 0);
  const CommandResult early = Plan(frozen + Arguments{"--until", "expand", "--dump", folder_});
  EXPECT_EQ(early.exit_code, 0) << early.err;
  EXPECT_THAT(early.out, HasSubstr("ended after expand: "));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/03-expand.onnx"));
}

}  // namespace
}  // namespace weft::testing
