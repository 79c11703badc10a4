#include "tools/jobs/phase_dump.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "executor/lowering/lowering.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "platform/status_macros.h"
#include "platform/testing/fake_file_system.h"
#include "tools/console/exit_code.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PhaseDumpTest : public ::testing::Test {
 protected:
  PhaseDump Create(DumpRequest request) {
    auto dump = PhaseDump::Create(files_, std::move(request));
    EXPECT_TRUE(dump.ok()) << dump.status();
    return *std::move(dump);
  }
  std::string Refusal(DumpRequest request) {
    const auto dump = PhaseDump::Create(files_, std::move(request));
    EXPECT_EQ(ExitCodeOf(dump.status()), ExitCode::kUsage);
    return std::string(dump.status().message());
  }
  // As `plan` makes a step.
  absl::Status MakeGraphs(PhaseDump& dump, const Graph& graph) {
    WEFT_RETURN_IF_ERROR(dump.Finish(StepPhase::kImport, graph));
    const GraphObserver observe = dump.observer();
    for (const char* const pass : {"fold_constants", "infer_shapes"}) {
      WEFT_RETURN_IF_ERROR(observe(pass, graph));
    }
    WEFT_RETURN_IF_ERROR(dump.Finish(StepPhase::kSimplify, graph));
    for (const std::string& pass : TrainingGraphPasses()) {
      WEFT_RETURN_IF_ERROR(observe(pass, graph));
    }
    WEFT_RETURN_IF_ERROR(dump.Finish(StepPhase::kDifferentiate, graph));
    return dump.FinishPlan(Plan());
  }
  absl::Status MakeStep(PhaseDump& dump) {
    WEFT_RETURN_IF_ERROR(MakeGraphs(dump, graph_));
    StoredPrograms programs;
    programs.programs.push_back({"train/8", {8, 0}, {}});
    WEFT_RETURN_IF_ERROR(dump.FinishPartition(programs));
    return dump.Lower(programs, ClusterSpec::Local(1, 1));
  }
  std::vector<std::string> Names(const std::string& folder) {
    return files_.ListDirectory(folder).value();
  }

  testing::FakeFileSystem files_;
  Graph graph_;
};

TEST_F(PhaseDumpTest, AWrongNameIsRefusedWithTheListAndTheNearest) {
  EXPECT_THAT(Refusal({.until = "diferentiate"}),
              AllOf(HasSubstr("--until diferentiate"), HasSubstr("did you mean 'differentiate'?"),
                    HasSubstr("there are import, simplify, expand")));
  EXPECT_THAT(Refusal({.folder = "/d", .after = {"add_los"}}),
              AllOf(HasSubstr("did you mean 'add_loss'?"), HasSubstr("lower_precision"),
                    HasSubstr(LoweringPassNames().back())));
}

TEST_F(PhaseDumpTest, NamesNeedAFolderAndComeBeforeTheEnd) {
  EXPECT_THAT(Refusal({.after = {"expand"}}), HasSubstr("--dump DIR"));
  EXPECT_THAT(Refusal({.folder = "/d", .until = "expand", .after = {"add_loss"}}),
              HasSubstr("--dump-after add_loss comes after --until expand"));
}

TEST_F(PhaseDumpTest, AllGraphsAreNumberedInTheirOrder) {
  PhaseDump dump = Create({.folder = "/d", .after = {"all"}});
  ASSERT_TRUE(MakeGraphs(dump, graph_).ok());
  EXPECT_THAT(Names("/d"), ElementsAre("01-import.onnx", "02-simplify", "02-simplify.onnx",
                                       "03-expand", "03-expand.onnx", "04-differentiate",
                                       "04-differentiate.onnx", "05-plan.yaml"));
  EXPECT_THAT(Names("/d/02-simplify"),
              ElementsAre("01-fold_constants.onnx", "02-infer_shapes.onnx"));
  EXPECT_THAT(Names("/d/03-expand"),
              ElementsAre("01-rewrite_patterns.onnx", "02-expand_functions.onnx"));
  EXPECT_THAT(Names("/d/04-differentiate"),
              ElementsAre("01-enter_training.onnx", "02-add_loss.onnx", "03-lower_precision.onnx",
                          "04-add_gradients.onnx", "05-add_updates.onnx"));
  EXPECT_EQ(dump.Summary(), "14 files written to /d");
  EXPECT_FALSE(dump.has_ended());
}

TEST_F(PhaseDumpTest, GraphsCanBeReadAgain) {
  graph_.AddOutput(graph_.AddConstant("c", Tensor::Of<float>(Shape{2}, {1, 2})));
  PhaseDump dump = Create({.folder = "/d", .after = {"import"}});
  ASSERT_TRUE(dump.Finish(StepPhase::kImport, graph_).ok());
  const auto back = GraphFromOnnx(files_.ReadFile("/d/01-import.onnx").value());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->DebugString(), graph_.DebugString());
}

TEST_F(PhaseDumpTest, UntilEndsThereAndDumpsThatPhase) {
  PhaseDump dump = Create({.folder = "/d", .until = "expand"});
  EXPECT_TRUE(dump.Needs(StepPhase::kExpand));
  EXPECT_FALSE(dump.Needs(StepPhase::kDifferentiate));
  EXPECT_TRUE(absl::IsCancelled(MakeGraphs(dump, graph_)));
  EXPECT_TRUE(dump.has_ended());
  EXPECT_EQ(dump.end(), "ended after expand: 0 nodes, 0 variables");
  EXPECT_THAT(Names("/d"), ElementsAre("03-expand.onnx"));
}

TEST_F(PhaseDumpTest, EveryPhaseCanBeTheEnd) {
  const std::vector<std::string> phases = PhaseDump::PhaseNames();
  ASSERT_EQ(static_cast<size_t>(StepPhase::kLowering) + 1, phases.size());
  for (size_t i = 0; i < phases.size(); ++i) {
    SCOPED_TRACE(phases[i]);
    PhaseDump dump = Create({.until = phases[i]});
    const absl::Status ended = MakeStep(dump);
    EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
    EXPECT_TRUE(dump.has_ended());
    EXPECT_THAT(dump.end(), StartsWith(absl::StrCat("ended after ", phases[i], ": ")));
    for (size_t k = 0; k < phases.size(); ++k) {
      EXPECT_EQ(dump.Needs(static_cast<StepPhase>(k)), k <= i) << phases[k];
    }
    EXPECT_EQ(dump.Summary(), "");
  }
}

TEST_F(PhaseDumpTest, WithoutAnEndTheStepIsMadeToItsEnd) {
  PhaseDump dump = Create({});
  EXPECT_TRUE(MakeStep(dump).ok());
  EXPECT_FALSE(dump.has_ended());
  EXPECT_EQ(dump.end(), "");
}

TEST_F(PhaseDumpTest, APassThatChangedNothingIsNamed) {
  PhaseDump dump = Create({.folder = "/d", .after = {"import", "rewrite_patterns", "add_loss"}});
  ASSERT_TRUE(dump.Finish(StepPhase::kImport, graph_).ok());
  ASSERT_TRUE(dump.observer()("add_loss", graph_).ok());
  EXPECT_EQ(dump.Summary(),
            "2 files written to /d; none for rewrite_patterns, which changed nothing or did not "
            "run here");
}

TEST_F(PhaseDumpTest, WithoutDataItsShapesCannotBeAskedFor) {
  EXPECT_TRUE(Create({.folder = "/d", .after = {"all"}}).CheckWithoutData().ok());
  for (const char* const pass : {"infer_shapes", "fold_constants"}) {
    const absl::Status refused = Create({.folder = "/d", .after = {pass}}).CheckWithoutData();
    EXPECT_EQ(ExitCodeOf(refused), ExitCode::kUsage);
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(pass), HasSubstr("give --data")));
  }
}

TEST_F(PhaseDumpTest, WithoutAWordNothingIsNeeded) {
  PhaseDump dump = Create({});
  EXPECT_TRUE(MakeGraphs(dump, graph_).ok());
  EXPECT_FALSE(dump.Needs(StepPhase::kPartition));
  EXPECT_EQ(dump.Summary(), "");
}

TEST_F(PhaseDumpTest, AFolderAloneIsForThePartitions) {
  const PhaseDump dump = Create({.folder = "/d"});
  EXPECT_TRUE(dump.Needs(StepPhase::kPartition));
  EXPECT_FALSE(dump.Needs(StepPhase::kLowering));
  EXPECT_TRUE(
      Create({.folder = "/d", .after = {LoweringPassNames().front()}}).Needs(StepPhase::kLowering));
}

TEST_F(PhaseDumpTest, AFullDiskIsAnErrorOfTheDisk) {
  files_.InjectError(testing::FakeFileSystem::Operation::kWrite, ENOSPC);
  PhaseDump dump = Create({.folder = "/d", .after = {"import"}});
  EXPECT_EQ(ExitCodeOf(dump.Finish(StepPhase::kImport, graph_)), ExitCode::kDisk);
}

}  // namespace
}  // namespace weft
