#include "training/recovery/prepared_programs.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

Plan PlanOf(int data) {
  Plan plan;
  plan.mesh.data = data;
  plan.micro_batches = 8;
  return plan;
}

// A program for each rank, of `nodes` nodes each, called by the plan.
std::vector<JobProgram> ProgramsOf(const Plan& plan, int nodes) {
  JobProgram program;
  program.name = plan.mesh.ToString();
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    Partition& partition = program.partitions.emplace_back();
    Graph& graph = partition.micro.emplace_back();
    ValueId value = graph.AddInput(
        "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::vector<Dim>{Dim(4)})});
    GraphBuilder builder(graph);
    for (int i = 0; i < nodes; ++i) value = builder.Op("Tanh", {value});
    EXPECT_TRUE(builder.status().ok()) << builder.status();
  }
  std::vector<JobProgram> programs;
  programs.push_back(std::move(program));
  return programs;
}

// Makes programs when it is let, and counts.
class Maker {
 public:
  PreparedPrograms::Repartition Repartition(int nodes = 1) {
    return [this, nodes](const Plan& plan) -> absl::StatusOr<std::vector<JobProgram>> {
      std::unique_lock<std::mutex> lock(mutex_);
      begun_.push_back(plan.mesh.data);
      changed_.notify_all();
      changed_.wait(lock, [this] { return allowed_ > 0; });
      --allowed_;
      if (plan.mesh.data == refused_) return absl::InvalidArgumentError("no such plan");
      return ProgramsOf(plan, nodes);
    };
  }
  void Allow(int count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allowed_ += count;
    changed_.notify_all();
  }
  void AwaitBegun(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return begun_.size() >= count; });
  }
  std::vector<int> begun() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return begun_;
  }
  void Refuse(int data) { refused_ = data; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0;
  int refused_ = 0;
  std::vector<int> begun_;  // replicas of the plans
};

void AwaitSettled(PreparedPrograms& prepared, const Plan& plan) {
  while (!prepared.IsSettled(plan)) std::this_thread::yield();
}

TEST(PreparedPrograms, AreThereWhenTheyAreWanted) {
  Maker maker;
  maker.Allow(100);
  PreparedPrograms prepared(maker.Repartition());
  EXPECT_FALSE(prepared.Take(PlanOf(3)).has_value()) << "nobody has asked for them";
  prepared.Expect({PlanOf(3), PlanOf(2)});
  AwaitSettled(prepared, PlanOf(2));
  EXPECT_EQ(prepared.ready(), 2);
  const auto programs = prepared.Take(PlanOf(3));
  ASSERT_TRUE(programs.has_value());
  ASSERT_THAT(*programs, SizeIs(1));
  EXPECT_EQ(programs->front().name, PlanOf(3).mesh.ToString());
  EXPECT_THAT(programs->front().partitions, SizeIs(3));
  EXPECT_FALSE(prepared.Take(PlanOf(3)).has_value()) << "they are somebody's";
}

// Whichever of four equal replicas is lost, the same programs follow.
TEST(PreparedPrograms, EqualOnesAreMadeOnce) {
  Maker maker;
  maker.Allow(100);
  PreparedPrograms prepared(maker.Repartition());
  std::vector<Plan> plans;
  for (int lost = 0; lost < 4; ++lost) {
    plans.push_back(PlanOf(3));
    for (int worker = 0; worker < 4; ++worker) {
      if (worker != lost) plans.back().workers.push_back(worker);
    }
  }
  plans.push_back(PlanOf(3));
  plans.back().hosts = {0, 0, 1};
  prepared.Expect(plans);
  AwaitSettled(prepared, plans.back());
  EXPECT_EQ(prepared.ready(), 2);
  EXPECT_THAT(maker.begun(), SizeIs(2)) << "hosts make others";
}

TEST(PreparedPrograms, WhatIsExpectedNoMoreIsGivenUp) {
  Maker maker;
  PreparedPrograms prepared(maker.Repartition());
  prepared.Expect({PlanOf(3), PlanOf(4)});
  maker.AwaitBegun(1);
  prepared.Expect({PlanOf(2)});  // 3 is under way, 4 waits
  maker.Allow(100);
  AwaitSettled(prepared, PlanOf(2));
  EXPECT_THAT(maker.begun(), ElementsAre(3, 2));
  EXPECT_FALSE(prepared.Take(PlanOf(3)).has_value());
  EXPECT_TRUE(prepared.Take(PlanOf(2)).has_value());
}

// The same key means other programs then, so that what is under way must not be taken for them.
TEST(PreparedPrograms, WhatIsForgottenBelongsToNobody) {
  Maker maker;
  PreparedPrograms prepared(maker.Repartition());
  prepared.Expect({PlanOf(3)});
  maker.AwaitBegun(1);
  prepared.ForgetAll();
  prepared.Expect({PlanOf(3)});
  maker.Allow(100);
  AwaitSettled(prepared, PlanOf(3));
  EXPECT_THAT(maker.begun(), ElementsAre(3, 3));
  EXPECT_EQ(prepared.ready(), 1);
}

TEST(PreparedPrograms, OneInAHurryGoesBeforeOthers) {
  Maker maker;
  PreparedPrograms prepared(maker.Repartition());
  prepared.Expect({PlanOf(2), PlanOf(3), PlanOf(4)});
  maker.AwaitBegun(1);
  prepared.Hurry(PlanOf(5));
  prepared.Hurry(PlanOf(4));
  maker.Allow(100);
  AwaitSettled(prepared, PlanOf(3));
  EXPECT_THAT(maker.begun(), ElementsAre(2, 4, 5, 3));
}

TEST(PreparedPrograms, WhatCannotBeMadeIsSettled) {
  Maker maker;
  maker.Refuse(3);
  maker.Allow(100);
  PreparedPrograms prepared(maker.Repartition());
  prepared.Expect({PlanOf(3)});
  AwaitSettled(prepared, PlanOf(3));
  EXPECT_FALSE(prepared.Take(PlanOf(3)).has_value());
}

TEST(PreparedPrograms, MemoryIsBounded) {
  Maker maker;
  maker.Allow(100);
  PreparedPrograms prepared(maker.Repartition(/*nodes=*/10), {.plans = 3, .nodes = 55});
  // 20, 30 and 40 nodes, of which the last are too many; the fourth plan is one too many.
  prepared.Expect({PlanOf(2), PlanOf(3), PlanOf(4), PlanOf(5)});
  AwaitSettled(prepared, PlanOf(4));
  EXPECT_EQ(prepared.ready(), 2);
  EXPECT_FALSE(prepared.Take(PlanOf(4)).has_value());
  EXPECT_FALSE(prepared.IsSettled(PlanOf(5)));
}

TEST(PreparedPrograms, EndsWhileOneIsMade) {
  Maker maker;
  PreparedPrograms prepared(maker.Repartition());
  prepared.Expect({PlanOf(2), PlanOf(3)});
  maker.AwaitBegun(1);
  maker.Allow(1);
}

}  // namespace
}  // namespace weft
