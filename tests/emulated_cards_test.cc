// Models train on two emulated GPUs that NCCL joins as on one CPU: gradients are summed, and what
// stages send goes, from card to card, in several orders of threads and streams.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/nccl/testing/emulated_card.h"
#include "distributed/nccl/testing/fake_nccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBatch = 8;
constexpr int64_t kUpdates = 3;

// How two cards share a model, and what NCCL is called with then.
struct CardMesh {
  std::string name;
  Mesh mesh;
  std::vector<std::string> calls;
};

class EmulatedCardsTest : public ::testing::TestWithParam<std::tuple<std::string, CardMesh>> {};

INSTANTIATE_TEST_SUITE_P(
    Models, EmulatedCardsTest,
    ::testing::Combine(::testing::Values("lenet", "gpt", "lstm"),
                       ::testing::Values(CardMesh{"dp", {2, 1, 1}, {"AllReduce"}},
                                         CardMesh{"pp", {1, 1, 2}, {"Send", "Receive"}})),
    [](const auto& info) {
      return absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param).name);
    });

TEST_P(EmulatedCardsTest, HaveTheLossesOfOneCpu) {
  const auto& [name, spread] = GetParam();
  auto model = BuildEquivalenceModel(name, kBatch);
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingRun run;
  run.data = WriteDataFiles(*model, ::testing::TempDir());
  run.batch = kBatch;
  run.steps = kUpdates;
  run.optimizer.kind = "adamw";
  run.plan.micro_batches = 2;
  const auto expected = RunGraph(model->graph, run);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(expected->losses.size(), static_cast<size_t>(kUpdates));
  run.workers = 2;
  run.plan.mesh = spread.mesh;
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    FakeNcclWorld world;
    std::vector<std::unique_ptr<EmulatedCard>> cards;
    run.devices.clear();
    run.cards.clear();
    for (int rank = 0; rank < run.workers; ++rank) {
      cards.push_back(
          std::make_unique<EmulatedCard>(world, rank, 10 * seed + static_cast<uint64_t>(rank)));
      run.devices.push_back(cards.back().get());
      run.cards.push_back(cards.back()->card());
    }
    const auto trained = RunGraph(model->graph, run);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_LE(LargestRelativeGap(trained->losses, expected->losses), 1e-5);
    EXPECT_THAT(trained->card_note, HasSubstr("NCCL 2.28.9"));
    EXPECT_THAT(world.violations(), IsEmpty());
    EXPECT_EQ(world.Leaks(), 0);
    std::map<std::string, int> called;
    for (const NcclCall& call : world.calls()) ++called[call.what.substr(0, call.what.find(' '))];
    for (const std::string& call : spread.calls) EXPECT_GT(called[call], 0) << call;
    for (const auto& card : cards) {
      EXPECT_TRUE(card->Verify().ok()) << card->Verify();
      EXPECT_GT(card->launches(), 0U);
    }
  }
}

}  // namespace
}  // namespace weft::testing
