// What `plan --dump` writes, `train` and `verify` run: the same bits as without, and edits count.
//
// WEFT_RUNNER: graph_runner, whose workers are processes.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "executor/lowering/lowering.h"
#include "gmock/gmock.h"
#include "graph/graph.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx_import/graph_wire.h"
#include "ops/kernel.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "tools/jobs/phase_dump.h"
#include "training/checkpoint/flag_record.h"
#include "training/data/data_file.h"
#include "training/job/partition_folder.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// What lies in a folder, sorted.
Arguments Names(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return {names.begin(), names.end()};
}

bool HasBackwardNodes(const Graph& graph) {
  const std::vector<NodeId> ids = graph.node_ids();
  return std::any_of(ids.begin(), ids.end(),
                     [&](NodeId id) { return graph.node(id).phase == Phase::kBackward; });
}

// The first word of each line of a program that is indented.
std::set<std::string> FirstWords(const std::string& program) {
  std::set<std::string> words;
  const std::vector<std::string> lines = absl::StrSplit(program, '\n');
  for (const std::string& line : lines) {
    if (absl::StartsWith(line, "  ")) words.insert(line.substr(2, line.find_first_of(" :", 2) - 2));
  }
  return words;
}

// Buffers of the arena that a program names.
int64_t CountBuffers(const std::string& program) {
  const std::set<std::string> words = FirstWords(program);
  return std::count_if(words.begin(), words.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == 'b' && word[1] >= '0' && word[1] <= '9';
  });
}

class Dump : public ::testing::Test {
 protected:
  Dump() { std::filesystem::remove_all(folder_); }

  Arguments Job() const { return job_.files() + Arguments{"--batch", "16", "--optimizer", "adam"}; }
  // In this process, with one worker.
  CommandResult Plan(const Arguments& more) const {
    return RunCommand(Arguments{"plan"} + Job() + more);
  }
  CommandResult Train(const Arguments& more) const {
    return RunCommand(Arguments{"train"} + Job() + Arguments{"--steps", "5"} + more);
  }
  // With worker processes.
  CommandResult Run(const std::string& command, const Arguments& more) const {
    return RunProgram(Arguments{command} + Job() + more);
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

  const MlpJob job_{40};  // the third batch is short
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

// Neither times nor paths are in what it says; the tiny tolerance shows the size of a difference.
TEST_F(Dump, VerifySaysTheSameOfDumpedPartitionsToTheLastDigit) {
  for (const char* const plan : {"tp=2", "pp=2,micro=4", "dp=2,zero=3"}) {
    DumpPartitions({"--local", "2", "--parallel", plan});
    for (const char* const tolerance : {"1e-4", "1e-30"}) {
      SCOPED_TRACE(absl::StrCat(plan, " within ", tolerance));
      const auto verify = [&](const Arguments& more) {
        return RunCommand(Arguments{"verify"} + Job() +
                          Arguments{"--local", "2", "--tolerance", tolerance, "--output", "json"} +
                          more);
      };
      const CommandResult plain = verify({"--parallel", plan});
      const CommandResult stored = verify({"--partitions", partitions_});
      EXPECT_EQ(stored.exit_code, plain.exit_code) << stored.err;
      EXPECT_EQ(stored.out, plain.out);
      const auto json = nlohmann::json::parse(stored.out, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(json.is_discarded()) << stored.out << stored.err;
      EXPECT_GT(json["compared"], 10);
    }
  }
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
  WriteTestFile(job_.images, ToNpy(RandomTensor({21, 1, 28, 28}, 1)).value());
  WriteTestFile(job_.labels, ToNpy(RandomTensor({21}, 2, 0, 10, DType::kInt64)).value());
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

TEST_F(Dump, PartitionsSayWhatDevicesMayDo) {
  const std::string file = "/06-partition/train-8/rank-0/partition.textproto";
  for (const char* const choice : {"off", "on"}) {
    const std::string folder = TestPath(absl::StrCat("cudnn_", choice));
    const CommandResult plan = Plan({"--dump", folder, "--dump-after", "all", "--cudnn", choice,
                                     "--fuse", choice == std::string("on") ? "auto" : "off"});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const std::string text = ReadTestFile(folder + file);
    for (const char* const field : {"uses_cudnn: true", "fuses_nodes: true"}) {
      EXPECT_EQ(absl::StrContains(text, field), choice == std::string("on")) << field;
    }
  }
}

// A program that does not know the kernels of GPUs cannot say which operators have none.
TEST_F(Dump, PartitionsForGpusOfOtherMachinesLeaveItToThemWhatRunsOnHosts) {
  if (KernelRegistry::Global().Count(DeviceKind::kCuda) > 0) {
    GTEST_SKIP() << "this program knows what a card has kernels for";
  }
  const std::string cluster = TestPath("far.yaml");
  for (const char* const device : {"cpu", "cuda"}) {
    WriteTestFile(cluster, absl::StrCat("hosts:\n  - name: far\n    workers: [{address: \"",
                                        "far:4000\", device: ", device, "}]\n"));
    const std::string folder = TestPath(absl::StrCat("far_", device));
    const CommandResult plan = Plan({"--dump", folder, "--cluster", cluster});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const std::string text =
        ReadTestFile(folder + "/06-partition/train-8/rank-0/partition.textproto");
    EXPECT_EQ(absl::StrContains(text, "host_ops: \"*\""), device == std::string("cuda")) << text;
  }
}

// Scores, mask, softmax and product of a file become one operator that cuDNN computes, and another
// for its gradient, where a card is to compute them.
TEST_F(Dump, AttentionIsOneOperatorWhereCudnnComputesIt) {
  const std::string model = TestPath("gpt.onnx");
  const CommandResult made =
      RunCommand({"example", "gpt", "-o", model, "--layers", "1", "--width", "16", "--heads", "2",
                  "--sequence", "4", "--vocabulary", "16"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string cluster = TestPath("far_gpt.yaml");
  for (const char* const device : {"cpu", "cuda"}) {
    WriteTestFile(cluster, absl::StrCat("hosts:\n  - name: far\n    workers: [{address: \"",
                                        "far:4000\", device: ", device, "}]\n"));
    const std::string folder = TestPath(absl::StrCat("gpt_", device));
    const CommandResult plan =
        RunCommand({"plan", model, "--loss", "sequence_cross_entropy", "--optimizer", "adam",
                    "--batch", "4", "--cluster", cluster, "--precision", "bf16", "--cudnn", "on",
                    "--dump", folder, "--dump-after", "differentiate,partition"});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const auto graph = GraphFromOnnx(ReadTestFile(folder + "/04-differentiate.onnx"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const std::vector<NodeId> ids = graph->node_ids();
    const auto attentions = std::count_if(ids.begin(), ids.end(), [&graph](NodeId id) {
      const Node& node = graph->node(id);
      return node.op == "Attention" && node.attributes.Int("is_causal", 0) == 1;
    });
    EXPECT_EQ(attentions, device == std::string("cuda") ? 2 : 0) << plan.err;
    const auto flags = ReadPartitionFlags(RealFileSystem(), folder + "/06-partition");
    ASSERT_TRUE(flags.ok()) << flags.status();
    EXPECT_EQ(TextOfFlag(*flags, "--cudnn"), "on");
  }
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
    return HasBackwardNodes(*graph);
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

// --until partition and lowering ended nothing, and a report followed.
TEST_F(Dump, UntilEndsAfterAnyPhase) {
  const std::vector<std::string> phases = PhaseDump::PhaseNames();
  std::map<std::string, std::string> ends;
  int graphs = 0;
  for (size_t i = 0; i < phases.size(); ++i) {
    SCOPED_TRACE(phases[i]);
    std::filesystem::remove_all(folder_);
    const CommandResult plan =
        Plan({"--local", "2", "--parallel", "dp=2", "--until", phases[i], "--dump", folder_});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const std::string begin = absl::StrCat("ended after ", phases[i], ": ");
    ASSERT_THAT(plan.out, StartsWith(begin));
    ASSERT_EQ(plan.out.find('\n'), plan.out.size() - 1) << "a report follows: " << plan.out;
    ends[phases[i]] = plan.out.substr(begin.size());
    const Arguments written = Names(folder_);
    ASSERT_THAT(written, SizeIs(1));
    EXPECT_THAT(written[0], StartsWith(absl::StrFormat("%02d-%s", i + 1, phases[i])));
    if (!absl::EndsWith(written[0], ".onnx")) continue;
    ++graphs;
    const auto graph = GraphFromOnnx(ReadTestFile(absl::StrCat(folder_, "/", written[0])));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(ends[phases[i]], absl::StrCat(graph->num_nodes(), " nodes, ",
                                            graph->variables().size(), " variables\n"));
    EXPECT_EQ(HasBackwardNodes(*graph), phases[i] == "differentiate");
  }
  EXPECT_EQ(graphs, 4);
  EXPECT_EQ(ends["plan"], "dp=2 x tp=1 x pp=1\n");
  EXPECT_EQ(ends["partition"], "train/16, train/8 for 2 workers\n");
  EXPECT_EQ(ends["lowering"], "train/16, train/8 for 2 workers\n");
}

// A phase ends the plan without a folder, too, and leaves the plan that -o asks for.
TEST_F(Dump, UntilWithoutAFolderStillWritesThePlan) {
  const std::string path = TestPath("p.yaml");
  for (const char* const phase : {"plan", "partition", "lowering"}) {
    std::filesystem::remove(path);
    const CommandResult plan = Plan({"--until", phase, "-o", path});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    EXPECT_THAT(plan.out, StartsWith(absl::StrCat("ended after ", phase, ": ")));
    EXPECT_THAT(ReadTestFile(path), HasSubstr("mesh")) << phase;
  }
}

// Two micro-batches on each of two ranks, so that there is something to add and to reduce. What a
// pass makes and removes is what its header says.
TEST_F(Dump, EachLoweringPassWritesWhatItChanges) {
  const std::vector<std::string> passes = LoweringPassNames();
  std::map<std::string, std::string> texts;  // of rank 0
  for (size_t i = 0; i < passes.size(); ++i) {
    SCOPED_TRACE(passes[i]);
    std::filesystem::remove_all(folder_);
    const CommandResult plan = Plan({"--local", "2", "--parallel", "dp=2,micro=4", "--dump-after",
                                     passes[i], "--dump", folder_});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    ASSERT_THAT(Names(folder_), ElementsAre("07-lowering"));
    const std::string file = absl::StrFormat("%02d-%s.txt", i + 1, passes[i]);
    for (const char* const program : {"train-8/rank-1", "train-8/rank-0", "train-16/rank-1"}) {
      EXPECT_THAT(Names(absl::StrCat(folder_, "/07-lowering/", program)), ElementsAre(file));
    }
    texts[passes[i]] = ReadTestFile(absl::StrCat(folder_, "/07-lowering/train-16/rank-0/", file));
  }
  const auto expect = [&](const std::string& pass, const Arguments& made, const Arguments& gone) {
    const std::set<std::string> words = FirstWords(texts[pass]);
    for (const std::string& word : made) EXPECT_TRUE(words.contains(word)) << pass << " " << word;
    for (const std::string& word : gone) EXPECT_FALSE(words.contains(word)) << pass << " " << word;
  };
  expect("schedule", {"node"}, {"kernel", "leaf"});
  expect("bind", {"kernel", "leaf", "collective_node"}, {"node", "collective", "add"});
  expect("values", {"leaf", "collective_node"}, {"load"});
  expect("collectives", {"collective", "leaf"}, {"collective_node", "add"});
  expect("sums", {"add", "sum_ready"}, {"leaf", "signal"});
  expect("overlap", {"signal", "await"}, {"sum_ready"});
  EXPECT_LT(CountBuffers(texts["in_place"]), CountBuffers(texts["overlap"]));
  EXPECT_THAT(texts["overlap"], Not(HasSubstr("..")));
  EXPECT_THAT(texts["lifetimes"], HasSubstr(".."));
}

// It wrote no file, said so and ended with 0.
TEST_F(Dump, PassesOverTheShapesOfDataNeedData) {
  for (const char* const pass : {"infer_shapes", "fold_constants"}) {
    const CommandResult plan =
        RunCommand({"plan", job_.model, "--batch", "16", "--dump-after", pass, "--dump", folder_});
    EXPECT_EQ(plan.exit_code, static_cast<int>(ExitCode::kUsage)) << plan.err;
    EXPECT_THAT(plan.err, AllOf(HasSubstr(absl::StrCat("--dump-after ", pass, ": ")),
                                HasSubstr("give --data")));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_));
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
