#include "placement/simulation/testing/pipeline_model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

using Kind = Action::Kind;

class PipelineWriter {
 public:
  PipelineWriter(const std::vector<ActionList>& lists, const ScheduleOptions& options,
                 int64_t bytes, double bytes_per_second)
      : lists_(lists), options_(options), bytes_(bytes), bytes_per_second_(bytes_per_second) {
    int chunks = 1;
    for (const ActionList& list : lists) chunks = std::max(chunks, ChunksOf(list));
    stages_ = chunks * static_cast<int>(lists.size());
    model_.ranks.resize(lists.size());
  }

  StepModel Write() && {
    for (int stage = 0; stage + 1 < stages_; ++stage) {
      AddChannel("activation", stage, stage + 1);
      AddChannel("gradient", stage + 1, stage);
    }
    for (size_t rank = 0; rank < lists_.size(); ++rank) {
      StepRoutine routine;
      for (const Action& action : lists_[rank]) {
        routine.actions.push_back(
            {action, model_.AddSegment(SegmentOf(static_cast<int>(rank), action))});
      }
      model_.ranks[rank].stage = static_cast<int32_t>(rank);
      model_.ranks[rank].worker = static_cast<int32_t>(rank);
      model_.ranks[rank].routine = static_cast<int32_t>(model_.routines.size());
      model_.routines.push_back(std::move(routine));
    }
    return std::move(model_);
  }

 private:
  int RankOf(int stage) const { return stage % static_cast<int>(lists_.size()); }

  void AddChannel(const std::string& name, int from, int to) {
    StepLink link;
    link.name = absl::StrCat("stage ", from, " -> ", to);
    link.latency_seconds = options_.latency;
    link.bytes_per_second = bytes_per_second_;
    StepChannel channel;
    channel.name = model_.AddName(name);
    channel.from = RankOf(from);
    channel.to = RankOf(to);
    channel.link = static_cast<int32_t>(model_.links.size());
    channel.bytes = bytes_;
    channel.credits = options_.credits;
    model_.links.push_back(std::move(link));
    const auto index = static_cast<int32_t>(model_.channels.size());
    model_.channels.push_back(channel);
    for (const int rank : {RankOf(from), RankOf(to)}) {
      entries_[{from, to, rank}] = static_cast<int32_t>(model_.ranks[rank].channels.size());
      model_.ranks[rank].channels.push_back(index);
      if (RankOf(from) == RankOf(to)) break;
    }
  }

  double CostOf(int rank, const Action& action) const {
    const int stage = action.chunk * static_cast<int>(lists_.size()) + rank;
    const StageDurations costs =
        options_.costs.empty() ? StageDurations() : options_.costs[static_cast<size_t>(stage)];
    switch (action.kind) {
      case Kind::kBegin:
        return costs.begin;
      case Kind::kForward:
        return costs.forward;
      case Kind::kBackward:
        return costs.backward + (SplitsBackward(lists_[rank]) ? 0 : costs.weight_gradient);
      case Kind::kWeightGradient:
        return costs.weight_gradient;
      case Kind::kUpdate:
        return costs.update;
    }
    return 0;
  }

  StepSegment SegmentOf(int rank, const Action& action) {
    const int stage = action.chunk * static_cast<int>(lists_.size()) + rank;
    StepSegment segment;
    const bool forward = action.kind == Kind::kForward;
    const bool backward = action.kind == Kind::kBackward;
    const int before = forward ? stage - 1 : stage + 1;
    const int after = forward ? stage + 1 : stage - 1;
    if ((forward || backward) && before >= 0 && before < stages_) {
      segment.push_back(StepInstruction::Receive(entries_.at({before, stage, rank})));
    }
    segment.push_back(StepInstruction::Compute(CostOf(rank, action)));
    if ((forward || backward) && after >= 0 && after < stages_) {
      segment.push_back(StepInstruction::Send(entries_.at({stage, after, rank})));
    }
    return segment;
  }

  const std::vector<ActionList>& lists_;
  const ScheduleOptions& options_;
  const int64_t bytes_;
  const double bytes_per_second_;
  int stages_ = 0;
  std::map<std::vector<int>, int32_t> entries_;  // from, to, rank -> the rank's table
  StepModel model_;
};

}  // namespace

StepModel PipelineModel(const std::vector<ActionList>& lists, const ScheduleOptions& options,
                        int64_t bytes, double bytes_per_second) {
  return PipelineWriter(lists, options, bytes, bytes_per_second).Write();
}

std::vector<ActionList> PipelineLists(const std::string& schedule, int ranks, int micro_batches,
                                      int chunks) {
  std::vector<ActionList> lists;
  for (int rank = 0; rank < ranks; ++rank) {
    lists.push_back(*MakeActions(schedule, ranks, rank, micro_batches, /*training=*/true, chunks));
  }
  return lists;
}

}  // namespace weft::testing
