// A step of a model of GPT-3's shape on 1,024 devices: right, and soon enough.
#include <chrono>
#include <cstdio>

#include "graph/plan.h"
#include "graph/schedule/action_list.h"
#include "gtest/gtest.h"
#include "placement/simulation/simulator.h"

namespace weft {
namespace {

using Instruction = StepInstruction;

// Brown et al., Language Models are Few-Shot Learners, 2020: 96 layers; 1,536 sequences per step.
constexpr int kLayers = 96;
constexpr int kSequences = 1536;
constexpr Mesh kMesh = {16, 8, 8};
constexpr int kMicroBatches = kSequences / 16;  // of a replica, one sequence each
constexpr double kForward = 1e-3;               // half a layer's, between two all-reduces
constexpr double kSum = 0.25e-3;                // an all-reduce of the tensor axis
constexpr double kBucket = 0.05;                // one of the gradients
constexpr int kBuckets = 4;
constexpr double kLimitSeconds = 60;

// Two all-reduces per layer and pass; the backward pass runs the forward pass again and takes twice
// as long itself.
StepSegment LayersOf(int stage, bool forward) {
  StepSegment segment;
  const bool is_first = stage == 0;
  const bool is_last = stage == kMesh.pipeline - 1;
  // The table: activations in, out; gradients in, out.
  if (forward && !is_first) segment.push_back(Instruction::Receive(0));
  if (!forward && !is_last) segment.push_back(Instruction::Receive(2));
  for (int layer = 0; layer < kLayers / kMesh.pipeline; ++layer) {
    for (int half = 0; half < 2; ++half) {
      segment.push_back(Instruction::Compute(forward ? kForward : 3 * kForward));
      segment.push_back(Instruction::Collective(0));
    }
  }
  if (forward && !is_last) segment.push_back(Instruction::Send(1));
  if (!forward && !is_first) segment.push_back(Instruction::Send(3));
  return segment;
}

void AddRoutines(StepModel& model) {
  for (int stage = 0; stage < kMesh.pipeline; ++stage) {
    const int32_t forward = model.AddSegment(LayersOf(stage, true));
    StepSegment last = LayersOf(stage, false);
    const int32_t backward = model.AddSegment(last);
    for (int bucket = 1; bucket <= kBuckets; ++bucket) last.push_back(Instruction::Signal(bucket));
    const int32_t last_backward = model.AddSegment(last);
    const int32_t update = model.AddSegment({Instruction::Await(kBuckets)});
    StepRoutine routine;
    for (const Action& action :
         OneForwardOneBackwardActions(kMesh.pipeline, stage, kMicroBatches)) {
      int32_t segment = update;
      if (action.kind == Action::Kind::kForward) segment = forward;
      if (action.kind == Action::Kind::kBackward) {
        segment = action.micro_batch == kMicroBatches - 1 ? last_backward : backward;
      }
      if (action.kind != Action::Kind::kBegin) routine.actions.push_back({action, segment});
    }
    for (int bucket = 0; bucket < kBuckets; ++bucket) routine.jobs.push_back({1, bucket + 1});
    model.routines.push_back(routine);
  }
}

// The collective of a rank's group along an axis, made by its first member.
void AddGroup(StepModel& model, RankId rank, MeshAxis axis, double seconds) {
  const std::vector<RankId> group = kMesh.Group(rank, axis);
  if (group.front() == rank) {
    StepCollective collective;
    collective.seconds = seconds;
    for (const RankId member : group) {
      collective.members.push_back(member.value);
      model.ranks[member.value].collectives.push_back(
          static_cast<int32_t>(model.collectives.size()));
    }
    model.collectives.push_back(collective);
  }
}

void AddChannel(StepModel& model, RankId from, RankId to, size_t from_entry, size_t to_entry) {
  StepChannel channel;
  channel.from = from.value;
  channel.to = to.value;
  channel.credits = 8;
  model.ranks[from.value].channels[from_entry] = static_cast<int32_t>(model.channels.size());
  model.ranks[to.value].channels[to_entry] = static_cast<int32_t>(model.channels.size());
  model.channels.push_back(channel);
}

StepModel Gpt() {
  StepModel model;
  AddRoutines(model);
  model.ranks.resize(static_cast<size_t>(kMesh.size()));
  for (int r = 0; r < kMesh.size(); ++r) {
    const int stage = kMesh.CoordinateOf(RankId(r)).pipeline;
    model.ranks[r].worker = r;
    model.ranks[r].stage = stage;
    model.ranks[r].routine = stage;
    model.ranks[r].channels.assign(4, 0);
  }
  for (int r = 0; r < kMesh.size(); ++r) {
    AddGroup(model, RankId(r), MeshAxis::kTensor, kSum);
  }
  for (int r = 0; r < kMesh.size(); ++r) {
    AddGroup(model, RankId(r), MeshAxis::kData, kBucket);
    Mesh::Coordinate at = kMesh.CoordinateOf(RankId(r));
    if (++at.pipeline == kMesh.pipeline) continue;
    AddChannel(model, RankId(r), kMesh.RankOf(at), 1, 0);
    AddChannel(model, kMesh.RankOf(at), RankId(r), 3, 2);
  }
  return model;
}

TEST(SimulatorScaleTest, SimulatesAStepOfGpt3On1024DevicesInTime) {
  const StepModel model = Gpt();
  const auto begin = std::chrono::steady_clock::now();
  const auto simulation = SimulateStep(model, {});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  std::printf("%d ranks, %d layers, %d micro-batches: simulated in %.1f s\n", kMesh.size(), kLayers,
              kMicroBatches, seconds);
  // (m + p - 1) passes of a stage, then what of the buckets nothing hides on the first stage.
  const int halves = 2 * kLayers / kMesh.pipeline;
  const double pass = halves * (4 * kForward + 2 * kSum);
  EXPECT_NEAR(simulation->step_seconds,
              (kMicroBatches + kMesh.pipeline - 1) * pass + kBuckets * kBucket, 1e-6);
  EXPECT_NEAR(simulation->ranks[0].compute, kMicroBatches * halves * 4 * kForward, 1e-6);
  EXPECT_NEAR(simulation->ranks[0].communication,
              kMicroBatches * halves * 2 * kSum + kBuckets * kBucket, 1e-6);
  EXPECT_LE(seconds, kLimitSeconds);
}

}  // namespace
}  // namespace weft
