// `plan` takes what `train` is given, and plans what that runs.
//
// WEFT_RUNNER: graph_runner, whose workers are processes.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/command_run.h"
#include "tools/command_line/command_line.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;
// The heading of such flags in --help=all.
constexpr char kWithoutEffect[] = "without effect here, taken as train has them";

// The groups of a command's options, by their long names.
std::map<std::string, std::string> GroupsOf(const std::string& name) {
  std::map<std::string, std::string> groups;
  for (const std::unique_ptr<Command>& command : AllCommands()) {
    if (command->name() != name) continue;
    CLI::App app;
    app.set_help_flag();
    command->AddOptions(app);
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_lnames().empty()) groups[option->get_lnames().front()] = option->get_group();
    }
  }
  return groups;
}

std::set<std::string> WithoutEffect(const std::string& command) {
  std::set<std::string> names;
  for (const auto& [name, group] : GroupsOf(command)) {
    if (group == kWithoutEffect) names.insert(name);
  }
  return names;
}

// Flags of train that change nothing of a step, with the reason. A flag that is not here must be
// one of plan: the next test says which is missing.
const std::map<std::string, std::string>& OfRuns() {
  static const auto* const flags = new std::map<std::string, std::string>{
      {"checkpoint-every", "when the state is written"},
      {"keep", "which states stay"},
      {"resume", "where the run begins"},
      {"patience", "when the run ends"},
      {"best", "a result"},
      {"rebalance", "moves micro-batches between steps"},
      {"on-loss", "what a lost worker ends"},
      {"replicate", "where copies of the state are"},
      {"digest-every", "when replicas are compared"},
      {"on-divergence", "what replicas that differ end"},
      {"wait", "when a job goes on after a loss"},
      {"detect", "when a worker is lost"},
      {"listen", "who may join the run"},
      {"check-numerics", "looks at values"},
      {"noise-scale", "programs of their own for the steps that measure"},
      {"ema-out", "a result"},
      {"adapters-out", "a result"},
      {"export-mode", "how the result is written"},
      {"metrics", "a result"},
      {"tensorboard", "a result"},
      {"save-gradients", "a program of the first step alone"},
      {"save-programs", "a result"}};
  return *flags;
}

TEST(PlannedFlags, EachFlagOfTrainIsOneOfPlanOrHasAReasonNotToMatter) {
  std::set<std::string> of_runs;
  for (const auto& [name, reason] : OfRuns()) of_runs.insert(name);
  EXPECT_EQ(WithoutEffect("plan"), of_runs);
  const auto plan = GroupsOf("plan");
  for (const auto& [name, group] : GroupsOf("train")) {
    // Partitions are planned already, and a sweep is many jobs.
    EXPECT_EQ(plan.contains(name), name != "partitions" && group != "sweep") << name;
  }
}

TEST(PlannedFlags, SimulateVerifyAndCheckTakeThemToo) {
  for (const char* const command : {"simulate", "verify", "check"}) {
    SCOPED_TRACE(command);
    const auto known = GroupsOf(command);
    const bool is_simulate = command == std::string("simulate");
    for (const auto& [name, group] : GroupsOf("train")) {
      const bool is_other = group == "sweep" || (name == "partitions" && is_simulate);
      EXPECT_EQ(known.contains(name), !is_other) << name;
    }
    const std::set<std::string> unused = WithoutEffect(command);
    for (const auto& [name, reason] : OfRuns()) EXPECT_TRUE(unused.contains(name)) << name;
    EXPECT_TRUE(unused.contains("eval-every"));
    EXPECT_EQ(unused.contains("parallel"), command == std::string("check"));
  }
}

class PlannedJob : public ::testing::Test {
 protected:
  PlannedJob() { std::filesystem::remove_all(folder_); }

  Arguments Job() const { return job_.files() + Arguments{"--batch", "16", "--optimizer", "adam"}; }
  // The instructions of each worker of `train` are those that `plan` dumps with the very same
  // arguments; and so is the memory.
  void ExpectPlanned(const Arguments& flags) const {
    SCOPED_TRACE(absl::StrJoin(flags, " "));
    std::filesystem::remove_all(folder_);
    const Arguments arguments =
        Job() + Arguments{"--output", "json", "--save-programs", programs_} + flags;
    const CommandResult train = RunProgram(Arguments{"train"} + arguments);
    ASSERT_EQ(train.exit_code, 0) << train.err;
    const CommandResult plan =
        RunCommand(Arguments{"plan", "--dump", folder_, "--dump-after", "lowering"} + arguments);
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    EXPECT_THAT(plan.err, HasSubstr("note: without effect here: --save-programs\n"));
    const auto memory = nlohmann::json::parse(train.out)["memory"];
    const auto ranks = nlohmann::json::parse(plan.out)["ranks"];
    ASSERT_EQ(memory.size(), ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank]["variable_bytes"], memory[rank]["variable_bytes"]) << rank;
      EXPECT_EQ(ranks[rank]["arena_bytes"], memory[rank]["arena_bytes"]) << rank;
      for (const char* const shape : {"train-16", "train-8"}) {
        const std::string ran =
            ReadTestFile(absl::StrCat(programs_, "/worker-", rank, ".", shape, ".txt"));
        ASSERT_THAT(Instructions(ran), SizeIs(Gt(10)));
        EXPECT_EQ(
            Instructions(LastOf(absl::StrCat(folder_, "/07-lowering/", shape, "/rank-", rank))),
            Instructions(ran));
      }
    }
  }
  // A line for each, without the buffers that dumps have behind them and the numbers of streams, in
  // which a worker counts those of its other programs, too.
  static Arguments Instructions(const std::string& program) {
    Arguments lines;
    for (const absl::string_view line : absl::StrSplit(program, '\n', absl::SkipEmpty())) {
      if (line == "buffers:") break;
      lines.emplace_back(line.substr(0, std::min(line.find(": "), line.find(" #"))));
    }
    return lines;
  }
  // The only file of a folder.
  static std::string LastOf(const std::string& folder) {
    std::string path;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      EXPECT_EQ(path, "");
      path = entry.path().string();
    }
    return ReadTestFile(path);
  }

  const MlpJob job_{40};  // the third batch is short
  const std::string folder_ = TestPath("dump");
  const std::string programs_ = TestPath("programs");
};

TEST_F(PlannedJob, IsWhatTrainRunsInOneProcess) {
  for (const Arguments& flags :
       std::vector<Arguments>{{"--lora", "rank=4"},
                              {"--freeze", "*/weight", "--clip-norm", "1"},
                              {"--precision", "bf16", "--micro-batches", "4"},
                              {"--precision", "fp16", "--ema", "0.99"},
                              {"--parallel", "dp=1,recompute=2"},
                              {"--schedule", "cosine", "--warmup", "2"}}) {
    ExpectPlanned(flags + Arguments{"--epochs", "1"});
  }
}

TEST_F(PlannedJob, IsWhatTrainRunsOnWorkers) {
  for (const Arguments& flags :
       std::vector<Arguments>{{},
                              {"--parallel", "dp=2,zero=1"},
                              {"--parallel", "dp=2,zero=3"},
                              {"--parallel", "pp=2", "--micro-batches", "4"},
                              {"--strict", "--no-shuffle"}}) {
    ExpectPlanned(flags + Arguments{"--steps", "3", "--local", "2"});
  }
}

TEST_F(PlannedJob, TakesAJobFileOfTrainAndSaysWhichKeysDoNotMatter) {
  const std::string file = TestPath("job.yaml");
  const std::string trained = TestPath("trained.onnx");
  WriteTestFile(file, absl::StrCat("model: ", job_.model, "\ndata: {x: ", job_.images,
                                   "}\nlabels: ", job_.labels,
                                   "\nbatch: 16\noptimizer: adam\nlora: rank=4\nepochs: 2\n"
                                   "schedule: cosine\nuntil: loss<=0.01\neval-every: 1e\n"
                                   "eval-data: {x: ",
                                   job_.images, "}\neval-labels: ", job_.labels,
                                   "\nmetrics: m.csv\nout: ", trained, "\n"));
  const CommandResult plan = RunCommand({"plan", "--config", file, "--output", "json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(
      plan.err,
      AllOf(HasSubstr("note: without effect here: --metrics\n"),
            HasSubstr(absl::StrCat("note: nothing is written to ", trained, ": it names a model")),
            HasSubstr("note: without effect here: --until loss<=0.01, which")));
  EXPECT_FALSE(std::filesystem::exists(trained));
  const CommandResult flags = RunCommand(
      Arguments{"plan"} + Job() +
      Arguments{"--lora", "rank=4", "--epochs", "2", "--schedule", "cosine", "--output", "json"});
  ASSERT_EQ(flags.exit_code, 0) << flags.err;
  EXPECT_EQ(flags.err, "");
  EXPECT_EQ(plan.out, flags.out);
  const CommandResult simulated = RunCommand({"simulate", "--config", file});
  EXPECT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_THAT(simulated.err, HasSubstr("without effect here: "));
  const CommandResult checked = RunCommand({"check", "--config", file, "--trainable"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("it runs and trains"));
  const CommandResult verified = RunCommand({"verify", "--config", file, "--local", "2"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
}

// A plan is bound to its graph, of which the schedule is a part.
TEST_F(PlannedJob, APlanOfAScheduleFitsTheRunThatItWasMadeFor) {
  const std::string path = TestPath("p.yaml");
  const Arguments job = Job() + Arguments{"--schedule", "cosine", "--epochs", "1"};
  ASSERT_EQ(RunCommand(Arguments{"plan", "-o", path} + job).exit_code, 0);
  const CommandResult train = RunCommand(Arguments{"train", "--plan", path} + job);
  EXPECT_EQ(train.exit_code, 0) << train.err;
}

TEST_F(PlannedJob, AScheduleOverAllStepsWantsTheirNumber) {
  for (const char* const command : {"plan", "simulate"}) {
    const CommandResult open =
        RunCommand(Arguments{command} + Job() + Arguments{"--schedule", "cosine"});
    EXPECT_EQ(open.exit_code, 2);
    EXPECT_THAT(open.err, HasSubstr("--schedule cosine runs over all steps of the run: give "));
  }
}

TEST_F(PlannedJob, WhatTrainRefusesPlanRefuses) {
  const CommandResult plan =
      RunCommand(Arguments{"plan"} + Job() + Arguments{"--ema-out", "a.onnx"});
  EXPECT_EQ(plan.exit_code, 2);
  EXPECT_THAT(plan.err, HasSubstr("--ema-out needs --ema DECAY"));
  EXPECT_THAT(RunCommand({"plan", job_.model, "--partitions", "x"}).err,
              HasSubstr("unknown option '--partitions'"));
}

// The copy that a checkpoint is written from takes memory: with it, less fits.
TEST_F(PlannedJob, CheckpointsCountForTheSearch) {
  const Arguments search = Job() + Arguments{"--local", "1", "--parallel", "auto"};
  const auto fits = [&](int mebibytes, const Arguments& more) {
    return RunCommand(Arguments{"plan", "--memory-per-worker", absl::StrCat(mebibytes, "MiB")} +
                      search + more)
               .exit_code == 0;
  };
  int smallest = 1;
  while (smallest < 100 && !fits(smallest, {})) ++smallest;
  ASSERT_LT(smallest, 100);
  EXPECT_FALSE(fits(smallest, {"--checkpoint", TestPath("saved")}));
  EXPECT_TRUE(fits(smallest + 4, {"--checkpoint", TestPath("saved")}));
  EXPECT_FALSE(std::filesystem::exists(TestPath("saved")));
}

}  // namespace
}  // namespace weft::testing
