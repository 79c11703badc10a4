// Does everything that a plan can say go together? Trains under every combination and compares the
// outcomes with the tables of docs/composition.md, line by line.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "graph/sharding.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

constexpr char kPage[] = "docs/composition.md";
constexpr int64_t kBatch = 13;

struct Row {
  Mesh mesh;
  std::string schedule;
  int chunks = 1;
  std::string ToString() const {
    return absl::StrCat("| ", mesh.ToString(),
                        mesh.pipeline > 1 ? absl::StrCat(", ", schedule) : "", " |");
  }
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  for (const int pipeline : {1, 2}) {
    for (const int tensor : {1, 2}) {
      for (const int data : {1, 2}) {
        const Mesh mesh{data, tensor, pipeline};
        if (pipeline == 1) {
          rows.push_back({mesh, "gpipe"});
          continue;
        }
        for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"}) {
          rows.push_back({mesh, schedule});
        }
        rows.push_back({mesh, "interleaved", 2});
      }
    }
  }
  return rows;
}

class CompositionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = BuildEquivalenceModel("gpt", 3 * kBatch);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    files_ = WriteDataFiles(model_, ::testing::TempDir());
    for (const int tensor : {1, 2}) {
      const auto strict = RunGraph(model_.graph, MakeRun({{1, tensor, 1}, "gpipe"}, 0, 0, true));
      ASSERT_TRUE(strict.ok()) << strict.status();
      strict_[tensor] = *strict;
    }
    const auto single = RunGraph(model_.graph, MakeRun({{1, 1, 1}, "gpipe"}, 0, 0, false));
    ASSERT_TRUE(single.ok()) << single.status();
    single_ = *single;
  }

  TrainingRun MakeRun(const Row& row, int zero, int segments, bool strict) const {
    TrainingRun run;
    run.data = files_;
    run.batch = kBatch;
    run.steps = 3;
    run.optimizer.kind = "momentum";
    run.optimizer.learning_rate = 0.05;
    run.workers = row.mesh.size();
    run.plan.mesh = row.mesh;
    run.plan.schedule = row.schedule;
    run.plan.chunks = row.chunks;
    run.plan.micro_batches = 4;
    run.plan.zero = zero;
    run.plan.recompute_segments = segments;
    run.plan.strict = strict;
    if (row.mesh.tensor > 1) {
      run.plan.tensor_shardings = {{"*.qkv.weight", AxisSharding::Split(1, 3)},
                                   {"*.up.weight", AxisSharding::Split(1)},
                                   {"*.out.weight", AxisSharding::Split(0)},
                                   {"*.down.weight", AxisSharding::Split(0)}};
    }
    return run;
  }

  // "=", "≡", or the number of the reason why the plan is refused.
  std::string Cell(const Row& row, int zero, int segments, bool strict) {
    const auto outcome = RunGraph(model_.graph, MakeRun(row, zero, segments, strict));
    const std::string story =
        absl::StrCat(row.ToString(), " zero=", zero, " recompute=", segments, " strict=", strict);
    if (!outcome.ok()) {
      EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument)
          << story << ": " << outcome.status();
      return NumberOf(std::string(outcome.status().message()));
    }
    EXPECT_LE(LargestRelativeGap(outcome->losses, single_.losses), 1e-5) << story;
    const TrainingOutcome& same = strict_[row.mesh.tensor];
    bool same_bits = outcome->losses == same.losses;
    for (const auto& [name, value] : same.parameters) {
      same_bits &= BitwiseEqual(outcome->parameters.at(name), value);
    }
    return strict && same_bits ? "≡" : "=";
  }

  std::string NumberOf(const std::string& reason) {
    for (size_t i = 0; i < reasons_.size(); ++i) {
      if (reasons_[i] == reason) return absl::StrCat(i + 1);
    }
    reasons_.push_back(reason);
    return absl::StrCat(reasons_.size());
  }

  void AddTable(int segments, std::vector<std::string>& lines) {
    lines.push_back(absl::StrCat("| ", segments == 0 ? "" : absl::StrCat("recompute=", segments),
                                 " | zero=0 | zero=1 | zero=2 | zero=3 |"));
    lines.push_back("|---|---|---|---|---|");
    for (const Row& row : Rows()) {
      std::string line = row.ToString();
      for (const int zero : {0, 1, 2, 3}) {
        absl::StrAppend(&line, " ", Cell(row, zero, segments, false), " ",
                        Cell(row, zero, segments, true), " |");
      }
      lines.push_back(line);
    }
    lines.push_back("");
  }

  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    for (const int segments : {0, 2}) AddTable(segments, lines);
    for (size_t i = 0; i < reasons_.size(); ++i) {
      lines.push_back(absl::StrCat(i + 1, ". ", reasons_[i]));
    }
    return lines;
  }

  EquivalenceModel model_;
  std::map<std::string, std::string> files_;
  TrainingOutcome single_;                 // one process
  std::map<int, TrainingOutcome> strict_;  // one replica, one stage; by the mesh's tensor
  std::vector<std::string> reasons_;
};

TEST_F(CompositionTest, EveryCellIsAsThePageSays) {
  const auto page = RealFileSystem().ReadFile(kPage);
  ASSERT_TRUE(page.ok()) << page.status();
  std::vector<std::string> written;
  bool inside = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(*page, '\n'))) {
    if (line == "<!-- end of what tests/composition_test.cc compares -->") inside = false;
    if (inside) written.push_back(line);
    if (line == "<!-- compared by tests/composition_test.cc -->") inside = true;
  }
  const std::vector<std::string> lines = Lines();
  EXPECT_EQ(written, lines) << kPage << " should say\n" << absl::StrJoin(lines, "\n");
}

}  // namespace
}  // namespace weft::testing
