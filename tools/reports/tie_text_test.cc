#include "tools/reports/tie_text.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ValueType Vector() { return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape{2})}; }

void AddVector(Graph& graph, const std::string& name, bool trainable) {
  const Tensor initial = Tensor::Of<float>({2}, std::vector<float>{1, 2});
  graph.AddVariable(name, Vector(), initial, trainable);
}

TEST(TieText, SumsUpWhatWasDone) {
  TieReport report;
  EXPECT_EQ(TieSummary(report), "");
  report.untied = {{"a.bias", "b.bias", "a (Gemm)"}, {"c.bias", "b.bias", "c (Gemm)"}};
  report.kept = {{"wte.weight", {"lm_head"}}};
  EXPECT_EQ(TieSummary(report),
            "untied 2 tensors that the exporter had merged (all elements equal); kept 1 tie: "
            "wte.weight shared with lm_head");
  report.untied.push_back({"n.running_mean", "b.bias", "n", true});
  report.tied = {{"wte", "head", true, true}};
  EXPECT_EQ(
      TieSummary(report),
      "untied 3 tensors that the exporter had merged (all elements equal, or running "
      "statistics); tied by --tie: head reads wte transposed; kept 1 tie: wte.weight shared with "
      "lm_head");
  report.untied = {{"head", "wte", "y (MatMul)", false, true}};
  report.tied.clear();
  report.kept.assign(5, {"t", {"u", "v"}});
  EXPECT_EQ(TieSummary(report),
            "untied 1 tensor by --untie; kept 5 ties: t shared with u and v, t shared with u and "
            "v, t shared with u and v; 2 more");
}

TEST(TieText, SaysWhatTheFileTells) {
  TieReport report;
  report.untied = {{"layers.1.w", "layers.0.w", "y (MatMul)", false, false, true},
                   {"c.bias", "b.bias", "c (Gemm)"}};
  report.tied = {{"wte", "val_3", true}};
  report.restored = {"head.bias"};
  EXPECT_EQ(TieSummary(report),
            "untied 2 tensors that the exporter had merged (all elements equal, or parameters of "
            "other names); tied copies of one parameter: val_3 reads wte transposed; restored 1 "
            "bias of zeros that the exporter had left out");
}

TEST(TieText, NamesAFewOfManyTiedCopies) {
  TieReport report;
  for (int i = 0; i < 40; ++i) report.tied.push_back({"w", "val_" + std::to_string(i)});
  EXPECT_EQ(
      TieSummary(report),
      "tied copies of one parameter: val_0 reads w, val_1 reads w, val_2 reads w and 37 more");
}

// "untied 3 tensors, some by --untie" left open how many, and why the others.
TEST(TieText, CountsWhatWasAskedForApart) {
  TieReport report;
  report.untied = {{"head", "wte", "y (MatMul)", false, true},
                   {"n.running_mean", "b.bias", "n", true},
                   {"n.running_var", "b.bias", "n", true}};
  EXPECT_EQ(TieSummary(report),
            "untied 1 tensor by --untie and 2 that the exporter had merged (running statistics)");
}

// The list said of all tensors that the exporter had merged them.
TEST(TieText, ListsWhoAskedForWhat) {
  Graph graph;
  AddVector(graph, "wte", true);
  TieReport report;
  report.untied = {{"head", "wte", "y (MatMul)", false, true}, {"c.bias", "b.bias", "c (Gemm)"}};
  report.kept = {{"wte", {"z"}}};
  report.tied = {{"wte", "copy", true, true}};
  EXPECT_EQ(TieList(report, graph),
            "untied: 2 new tensors, each a copy of a shared one\n"
            "  head, a copy of wte, for y (MatMul) (by --untie)\n"
            "  c.bias, a copy of b.bias, for c (Gemm)\n"
            "tied:\n"
            "  wte shared with z\n"
            "  copy reads wte transposed (by --tie)\n");
}

TEST(TieText, LeavesOutWhatDoesNotTrain) {
  Graph graph;
  AddVector(graph, "wte", true);
  AddVector(graph, "head", true);
  AddVector(graph, "table", false);
  TieReport report;
  report.kept = {{"table", {"x"}}, {"gone", {"y"}}, {"wte", {"z"}}};
  report.copies = {{"wte", "head", true}, {"wte", "table", false}};
  const TieReport trains = TiesThatTrain(report, graph);
  ASSERT_THAT(trains.kept, SizeIs(1));
  EXPECT_EQ(trains.kept[0].tensor, "wte");
  EXPECT_THAT(CopyTexts(trains), ElementsAre("wte and head hold the same numbers, transposed"));
  EXPECT_EQ(TiesText(report, graph),
            "ties   kept 1 tie: wte shared with z\n"
            "note   wte and head hold the same numbers, transposed; --tie auto "
            "trains them as one\n");
  EXPECT_EQ(TiesText({}, graph), "");
}

TEST(TieText, NamesTheWayOutOfTrainingMode) {
  EXPECT_THAT(TrainingModeText({}), IsEmpty());
  EXPECT_EQ(TrainingModeText({3, 2}),
            "note   the file is in training mode: 3 BatchNormalization, 2 Dropout; --export-mode "
            "inference writes it for inference\n");
}

}  // namespace
}  // namespace weft
