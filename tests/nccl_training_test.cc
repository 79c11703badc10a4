// Ranks whose cards NCCL joins train as one process does, in several orders of their streams; a
// strict job keeps its own order of sums, and a rank that fails ends all others.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/nccl/testing/emulated_card.h"
#include "distributed/nccl/testing/fake_card.h"
#include "distributed/nccl/testing/fake_nccl.h"
#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/watched_device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSamples = 8;
// The last stage sends the loss after its guard, and the first has it before: so that channel goes
// through the host, and it alone.
constexpr char kAllButTheLoss[] =
    "sends of 2 pairs of GPUs: NCCL 2.28.9; some sends of GPUs go through the host: worker:0 "
    "receives in another order than worker:1 sends";
constexpr int64_t kLossBytes = sizeof(float);

// What ranks have sent to others by NCCL, without the byte that each pair connects with.
int64_t SentByNccl(const FakeNcclWorld& world) {
  constexpr char kSend[] = "Send ";
  int64_t sent = 0;
  for (const NcclCall& call : world.calls()) {
    if (call.what.rfind(kSend, 0) != 0) continue;
    const int64_t bytes = std::stoll(call.what.substr(sizeof(kSend) - 1));
    if (bytes > 1) sent += bytes;
  }
  return sent;
}

int64_t SentInAll(const TrainingOutcome& training) {
  int64_t sent = 0;
  for (const RankTraffic& rank : training.traffic) sent += rank.measured_bytes;
  return sent;
}

class NcclTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = BuildEquivalenceModel("gpt", kSamples);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    files_ = WriteDataFiles(model_, ::testing::TempDir());
  }

  TrainingRun RunOf(const Mesh& mesh, int zero = 0) const {
    TrainingRun run;
    run.data = files_;
    run.batch = kSamples;
    run.steps = 4;
    run.optimizer.kind = "momentum";
    run.optimizer.learning_rate = 0.05;
    run.workers = mesh.size();
    run.plan.mesh = mesh;
    run.plan.micro_batches = 4;
    run.plan.zero = zero;
    run.stall_timeout_seconds = 60;
    if (mesh.tensor > 1) {
      run.plan.tensor_shardings = {{"*.qkv.weight", AxisSharding::Split(1, 3)},
                                   {"*.up.weight", AxisSharding::Split(1)},
                                   {"*.out.weight", AxisSharding::Split(0)},
                                   {"*.down.weight", AxisSharding::Split(0)}};
    }
    return run;
  }

  struct Outcome {
    TrainingOutcome training;
    size_t calls = 0;  // of NCCL
    int64_t sent = 0;  // by it, from one rank to another
    std::vector<std::string> violations;
  };
  // On fake cards; `one_card`: all of them are the same.
  Outcome OnCards(TrainingRun run, uint64_t seed, bool one_card = false) const {
    FakeNcclWorld world;
    std::vector<std::unique_ptr<FakeCard>> cards;
    for (int rank = 0; rank < run.workers; ++rank) {
      cards.push_back(
          std::make_unique<FakeCard>(world, rank, 10 * seed + static_cast<uint64_t>(rank)));
      run.devices.push_back(cards.back().get());
      run.cards.push_back(cards.back()->card());
      if (one_card) run.cards.back().name = "machine/0";
    }
    auto trained = RunGraph(model_.graph, run);
    EXPECT_TRUE(trained.ok()) << trained.status();
    for (const auto& card : cards) EXPECT_TRUE(card->Verify().ok()) << card->Verify();
    EXPECT_EQ(world.Leaks(), 0);
    Outcome outcome;
    if (trained.ok()) outcome.training = *std::move(trained);
    outcome.calls = world.calls().size();
    outcome.sent = SentByNccl(world);
    outcome.violations = world.violations();
    return outcome;
  }

  EquivalenceModel model_;
  std::map<std::string, std::string> files_;
};

TEST_F(NcclTrainingTest, HasTheLossesOfOneProcess) {
  const auto single = RunGraph(model_.graph, RunOf({1, 1, 1}));
  ASSERT_TRUE(single.ok()) << single.status();
  struct Row {
    Mesh mesh;
    int zero;
  };
  const std::vector<Row> rows = {{{2, 1, 1}, 0}, {{4, 1, 1}, 0}, {{2, 1, 1}, 1}, {{4, 1, 1}, 2},
                                 {{2, 1, 1}, 3}, {{1, 2, 1}, 0}, {{2, 2, 1}, 0}};
  for (const Row& row : rows) {
    for (const uint64_t seed : {1, 2}) {
      SCOPED_TRACE(absl::StrCat("data ", row.mesh.data, ", tensor ", row.mesh.tensor, ", zero ",
                                row.zero, ", seed ", seed));
      const Outcome outcome = OnCards(RunOf(row.mesh, row.zero), seed);
      EXPECT_LE(LargestRelativeGap(outcome.training.losses, single->losses), 1e-4);
      EXPECT_THAT(outcome.violations, IsEmpty());
      EXPECT_GT(outcome.calls, 0U);
      EXPECT_EQ(outcome.training.card_note,
                absl::StrCat("collectives of ", row.mesh.size(), " GPUs: NCCL 2.28.9"));
      for (const RankTraffic& rank : outcome.training.traffic) {
        EXPECT_EQ(rank.measured_bytes, rank.predicted_bytes);
        EXPECT_GT(rank.measured_bytes, 0);
      }
    }
  }
}

// What stages send goes from card to card, in each direction on a stream of its own.
TEST_F(NcclTrainingTest, PipelinesHaveTheLossesOfOneProcess) {
  const auto single = RunGraph(model_.graph, RunOf({1, 1, 1}));
  ASSERT_TRUE(single.ok()) << single.status();
  struct Row {
    Mesh mesh;
    const char* schedule;
    const char* note;
  };
  const std::vector<Row> rows = {
      {{1, 1, 2}, "gpipe", kAllButTheLoss},
      {{1, 1, 2}, "1f1b", kAllButTheLoss},
      {{2, 1, 2},
       "1f1b",
       "collectives of 4 GPUs, sends of 4 pairs: NCCL 2.28.9; some sends of GPUs go through the "
       "host: worker:0 receives in another order than worker:2 sends"},
  };
  for (const Row& row : rows) {
    for (const uint64_t seed : {1, 2}) {
      SCOPED_TRACE(absl::StrCat("data ", row.mesh.data, ", ", row.schedule, ", seed ", seed));
      TrainingRun run = RunOf(row.mesh);
      run.plan.schedule = row.schedule;
      const Outcome outcome = OnCards(run, seed);
      EXPECT_LE(LargestRelativeGap(outcome.training.losses, single->losses), 1e-4);
      EXPECT_THAT(outcome.violations, IsEmpty());
      EXPECT_GT(outcome.calls, 0U);
      EXPECT_EQ(outcome.training.card_note, row.note);
      if (row.mesh.data == 1) {
        EXPECT_EQ(SentInAll(outcome.training) - outcome.sent, run.steps * kLossBytes);
      }
      for (const RankTraffic& rank : outcome.training.traffic) {
        EXPECT_EQ(rank.measured_bytes, rank.predicted_bytes);
        EXPECT_GT(rank.measured_bytes, 0);
      }
    }
  }
}

// Two cards and a CPU, one stage each: the last one is reached through the host.
TEST_F(NcclTrainingTest, APipelineOfCardsMayEndOnACpu) {
  const auto single = RunGraph(model_.graph, RunOf({1, 1, 1}));
  ASSERT_TRUE(single.ok()) << single.status();
  FakeNcclWorld world;
  FakeCard first(world, 0, /*seed=*/3);
  FakeCard second(world, 1, /*seed=*/4);
  TrainingRun run = RunOf({1, 1, 3});
  run.devices = {&first, &second, &CpuDevice()};
  run.cards = {first.card(), second.card(), WorkerCard()};
  const auto trained = RunGraph(model_.graph, run);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_LE(LargestRelativeGap(trained->losses, single->losses), 1e-4);
  EXPECT_THAT(world.violations(), IsEmpty());
  EXPECT_EQ(trained->card_note, "sends of 2 pairs of GPUs: NCCL 2.28.9");
  EXPECT_TRUE(first.Verify().ok()) << first.Verify();
  EXPECT_TRUE(second.Verify().ok()) << second.Verify();
}

TEST_F(NcclTrainingTest, AStrictJobKeepsTheOrderedTree) {
  TrainingRun run = RunOf({2, 1, 1});
  run.plan.strict = true;
  const auto on_cpus = RunGraph(model_.graph, run);
  ASSERT_TRUE(on_cpus.ok()) << on_cpus.status();
  const Outcome outcome = OnCards(run, 1);
  EXPECT_EQ(outcome.calls, 0U);
  EXPECT_EQ(outcome.training.losses, on_cpus->losses);  // bit for bit
  EXPECT_THAT(outcome.training.card_note, HasSubstr("strict"));
}

TEST_F(NcclTrainingTest, TwoRanksOnOneCardGoThroughTheHost) {
  const auto single = RunGraph(model_.graph, RunOf({1, 1, 1}));
  ASSERT_TRUE(single.ok()) << single.status();
  const Outcome outcome = OnCards(RunOf({2, 1, 1}), 1, /*one_card=*/true);
  EXPECT_EQ(outcome.calls, 0U);
  EXPECT_LE(LargestRelativeGap(outcome.training.losses, single->losses), 1e-4);
  EXPECT_THAT(outcome.training.card_note,
              AllOf(HasSubstr("through the host"), HasSubstr("shares its card")));
}

TEST_F(NcclTrainingTest, SharesMayBeUnequal) {
  const auto single = RunGraph(model_.graph, RunOf({1, 1, 1}));
  ASSERT_TRUE(single.ok()) << single.status();
  TrainingRun run = RunOf({2, 1, 1});
  run.plan.shares = {3, 1};
  const Outcome outcome = OnCards(run, 1);
  EXPECT_LE(LargestRelativeGap(outcome.training.losses, single->losses), 1e-4);
  EXPECT_THAT(outcome.violations, IsEmpty());
  EXPECT_GT(outcome.calls, 0U);
}

// A card that runs three times what the CPU runs.
TEST_F(NcclTrainingTest, ACardAndACpuMeetInTheHost) {
  const auto single = RunGraph(model_.graph, RunOf({1, 1, 1}));
  ASSERT_TRUE(single.ok()) << single.status();
  FakeNcclWorld world;
  FakeCard card(world, 0, /*seed=*/3);
  TrainingRun run = RunOf({2, 1, 1});
  run.plan.shares = {3, 1};
  run.devices = {&card, &CpuDevice()};
  run.cards = {card.card(), WorkerCard()};
  const auto trained = RunGraph(model_.graph, run);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_LE(LargestRelativeGap(trained->losses, single->losses), 1e-4);
  EXPECT_THAT(world.calls(), IsEmpty());
  EXPECT_THAT(trained->card_note, IsEmpty());
  EXPECT_TRUE(card.Verify().ok()) << card.Verify();
}

// Cards that launch, as GPUs do, with recorded segments and without.
TEST(EmulatedNcclTest, TrainsAsOneProcessDoes) {
  auto model = BuildEquivalenceModel("mlp", kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingRun run;
  run.data = WriteDataFiles(*model, ::testing::TempDir());
  run.batch = kSamples;
  run.steps = 4;
  run.optimizer.kind = "momentum";
  run.plan.micro_batches = 4;
  const auto single = RunGraph(model->graph, run);
  ASSERT_TRUE(single.ok()) << single.status();
  run.workers = 2;
  struct Row {
    Mesh mesh;
    int zero;
    const char* note;
  };
  const std::vector<Row> rows = {
      {{2, 1, 1}, 0, "collectives of 2 GPUs: NCCL 2.28.9"},
      {{2, 1, 1}, 1, "collectives of 2 GPUs: NCCL 2.28.9"},
      {{1, 1, 2}, 0, kAllButTheLoss},
  };
  for (const bool records : {false, true}) {
    for (const Row& row : rows) {
      SCOPED_TRACE(absl::StrCat("records ", records, ", zero ", row.zero, ", ", row.note));
      run.plan.mesh = row.mesh;
      run.plan.zero = row.zero;
      FakeNcclWorld world;
      std::vector<std::unique_ptr<EmulatedCard>> cards;
      std::vector<std::unique_ptr<WatchedDevice>> watched;
      run.devices.clear();
      run.cards.clear();
      for (int rank = 0; rank < run.workers; ++rank) {
        cards.push_back(std::make_unique<EmulatedCard>(world, rank, 5 + rank));
        watched.push_back(std::make_unique<WatchedDevice>(
            *cards.back(), WatchedDeviceOptions{.records = records}));
        run.devices.push_back(watched.back().get());
        run.cards.push_back(cards.back()->card());
      }
      const auto trained = RunGraph(model->graph, run);
      ASSERT_TRUE(trained.ok()) << trained.status();
      EXPECT_LE(LargestRelativeGap(trained->losses, single->losses), 1e-5);
      EXPECT_EQ(trained->card_note, row.note);
      EXPECT_THAT(world.violations(), IsEmpty());
      EXPECT_FALSE(world.calls().empty());
      if (row.mesh.pipeline > 1) {
        EXPECT_EQ(SentInAll(*trained) - SentByNccl(world), run.steps * kLossBytes);
      }
      EXPECT_EQ(world.Leaks(), 0);
      for (size_t rank = 0; rank < cards.size(); ++rank) {
        EXPECT_TRUE(cards[rank]->Verify().ok()) << cards[rank]->Verify();
        EXPECT_GT(cards[rank]->launches(), 0U);
        EXPECT_EQ(watched[rank]->calls().recorded_runs > 0, records);
      }
    }
  }
}

// The samples of the sum job; rank 1 has none in step 2.
class FailingSource final : public InputSource {
 public:
  explicit FailingSource(std::unique_ptr<InputSource> source) : source_(std::move(source)) {}
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    if (step == 2 && first == 1) return absl::DataLossError("record 5 is damaged");
    return source_->Fill(step, input, first, count, target);
  }

 private:
  const std::unique_ptr<InputSource> source_;
};

TEST(NcclJobTest, ARankThatFailsEndsTheOthersWaits) {
  FakeNcclWorld world;
  std::vector<std::unique_ptr<FakeCard>> cards;
  std::vector<Device*> devices;
  std::vector<WorkerCard> names;
  for (int rank = 0; rank < 3; ++rank) {
    cards.push_back(std::make_unique<FakeCard>(world, rank, static_cast<uint64_t>(rank)));
    devices.push_back(cards.back().get());
    names.push_back(cards.back()->card());
  }
  const auto open_input =
      [](const std::string& data) -> absl::StatusOr<std::unique_ptr<InputSource>> {
    auto source = OpenSumJobInput(data);
    if (!source.ok()) return source.status();
    return std::make_unique<FailingSource>(*std::move(source));
  };
  InProcessCluster cluster(devices, open_input, "1", names);
  Coordinator coordinator(cluster.clients());
  JobMembership membership;
  membership.job_id = 7;
  membership.version = "1";
  membership.stall_timeout_seconds = 600;
  ASSERT_TRUE(coordinator.Join(membership).ok());
  const auto added = coordinator.AddProgram("train", SumJobPartitions(3), "data");
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(coordinator.card_note(), "collectives of 3 GPUs: NCCL 2.28.9");
  StepRange range;
  range.program = "train";
  range.count = 5;
  range.scalars = {{"rate", 0.5}};
  std::vector<double> losses;
  const absl::Time begin = absl::Now();
  const absl::Status status = coordinator.RunSteps({range}, [&](const StepReport& report) {
    losses.push_back(report.values.at("loss").data<float>()[0]);
  });
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));  // not the stall timeout
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("worker:1"), HasSubstr("record 5")));
  // Rank 1 reads step 2 while its GPU may still be in step 1: the end of the job can overtake step
  // 1's report, and then on a slow machine step 0's.
  EXPECT_LE(losses.size(), 2U);
  EXPECT_THAT(losses, Each(12));  // 3 (3 + 1)
  EXPECT_THAT(world.violations(), IsEmpty());
  EXPECT_EQ(world.aborts(), 3);
}

TEST(NcclJobTest, ARankThatCannotJoinEndsAllWithItsText) {
  FakeNcclWorld world;
  world.RefuseToJoin(1);
  std::vector<std::unique_ptr<FakeCard>> cards;
  std::vector<Device*> devices;
  std::vector<WorkerCard> names;
  for (int rank = 0; rank < 3; ++rank) {
    cards.push_back(std::make_unique<FakeCard>(world, rank, static_cast<uint64_t>(rank)));
    devices.push_back(cards.back().get());
    names.push_back(cards.back()->card());
  }
  InProcessCluster cluster(devices, OpenSumJobInput, "1", names);
  Coordinator coordinator(cluster.clients());
  JobMembership membership;
  membership.job_id = 8;
  membership.version = "1";
  membership.stall_timeout_seconds = 600;
  ASSERT_TRUE(coordinator.Join(membership).ok());
  const absl::Time begin = absl::Now();
  const auto added = coordinator.AddProgram("train", SumJobPartitions(3), "data");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));  // not the stall timeout
  EXPECT_THAT(std::string(added.status().message()),
              AllOf(HasSubstr("worker:1"), HasSubstr("joining the cards"),
                    HasSubstr("fake error 2"), HasSubstr("NCCL_DEBUG")));
  EXPECT_THAT(world.violations(), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
