#include "placement/search/coarse_model.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/action_list.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Kind = Action::Kind;

// More buckets than this overlap no better.
constexpr int kMaxBuckets = 8;

// Replicas that do the same.
struct ReplicaClass {
  std::vector<int> devices;  // of the profile, by place
  int micro_batches = 0;
  int replica = 0;  // one of them
};

class CoarseModelMaker {
 public:
  CoarseModelMaker(const StageCosts& figures, const PlanChoice& choice,
                   const std::vector<int>& begins, const CostModel& cost,
                   CollectiveCosts& collectives, int64_t bucket_bytes)
      : figures_(figures),
        choice_(choice),
        begins_(begins),
        cost_(cost),
        collectives_(collectives),
        bucket_bytes_(std::max<int64_t>(1, bucket_bytes)) {}

  absl::StatusOr<StepModel> Run() {
    FindClasses();
    AddRanks();
    AddDataCollectives();
    AddChannels();
    for (int place = 0; place < places(); ++place) WEFT_RETURN_IF_ERROR(AddRoutines(place));
    return std::move(model_);
  }

 private:
  int places() const { return choice_.mesh.pipeline; }
  int stages() const { return choice_.num_stages(); }
  int RankOf(size_t replica_class, int place) const {
    return static_cast<int>(replica_class) * places() + place;
  }
  StepRank& Rank(size_t replica_class, int place) {
    return model_.ranks[RankOf(replica_class, place)];
  }
  int64_t GradientBytes(int place) const;
  int64_t SplitBytes(int place) const;
  // The workers of all replicas at a place.
  std::vector<int> DataGroup(int place) const;
  int Buckets(int place) const;
  StageSeconds SecondsOf(size_t replica_class, int stage) const;
  // A collective of the tensor axis, of which the model has one member.
  StepInstruction Tensor(size_t replica_class, int place, double seconds);
  // A collective of the data axis at a place: its index in the ranks' tables.
  int AddData(int place, const std::string& name, double seconds);
  StepInstruction DataCollective(int place, const std::string& name, CollectiveKind kind,
                                 int64_t bytes, int64_t parameters);

  int SlowestDevice(int replica, int place) const;
  void FindClasses();
  void AddRanks();
  void AddDataCollectives();
  void AddChannels();
  void AddChannel(int from_stage, int to_stage, int64_t bytes, bool forward);
  // Empty where there is none.
  struct StepCollectives {
    StepSegment scatter;
    StepSegment gather;
  };
  StepCollectives AddStepCollectives(int place);
  // Whether gradients become final in the action.
  bool Signals(size_t replica_class, const Action& action, bool splits) const;
  StepSegment SegmentOf(size_t replica_class, int place, const Action& action, bool splits,
                        const StepCollectives& once);
  absl::Status AddRoutines(int place);
  StepSegment Forward(size_t replica_class, int stage);
  StepSegment Backward(size_t replica_class, int stage, bool with_weights, bool signals);
  void AppendInParts(double seconds, int place, bool signals, StepSegment& segment) const;
  StepSegment Update(size_t replica_class, int place);

  const StageCosts& figures_;
  const PlanChoice& choice_;
  const std::vector<int>& begins_;
  const CostModel& cost_;
  CollectiveCosts& collectives_;
  const int64_t bucket_bytes_;
  std::vector<ReplicaClass> classes_;
  std::map<std::pair<int, bool>, int> receives_;  // of a stage, forward or not: index in the table
  std::map<std::pair<int, bool>, int> sends_;
  std::map<int, std::vector<int>> bucket_jobs_;   // by place: indices in the ranks' tables
  std::map<std::pair<int, double>, int> tensor_;  // (rank, seconds): index in its table
  StepModel model_;
};

// Of a tensor-parallel group, which waits for it.
int CoarseModelMaker::SlowestDevice(int replica, int place) const {
  int slowest = -1;
  for (int shard = 0; shard < choice_.mesh.tensor; ++shard) {
    const int device = cost_.profile().device_of[choice_.WorkerAt(replica, shard, place)];
    const auto seconds = [&](int of) { return figures_.Seconds(0, figures_.units(), of).Total(); };
    if (slowest < 0 || (device != slowest && seconds(device) > seconds(slowest))) slowest = device;
  }
  return slowest;
}

void CoarseModelMaker::FindClasses() {
  for (int replica = 0; replica < choice_.mesh.data; ++replica) {
    ReplicaClass wanted;
    wanted.micro_batches = choice_.MicroBatchesOf(replica);
    wanted.replica = replica;
    for (int place = 0; place < places(); ++place) {
      wanted.devices.push_back(SlowestDevice(replica, place));
    }
    const bool known = std::any_of(classes_.begin(), classes_.end(), [&](const ReplicaClass& c) {
      return c.devices == wanted.devices && c.micro_batches == wanted.micro_batches;
    });
    if (!known) classes_.push_back(std::move(wanted));
  }
}

void CoarseModelMaker::AddRanks() {
  for (const ReplicaClass& replica_class : classes_) {
    for (int place = 0; place < places(); ++place) {
      StepRank rank;
      rank.worker = choice_.WorkerAt(replica_class.replica, 0, place);
      rank.stage = place;
      rank.overhead_seconds = cost_.step_seconds(rank.worker);
      model_.ranks.push_back(std::move(rank));
    }
  }
}

int64_t CoarseModelMaker::GradientBytes(int place) const {
  int64_t bytes = 0;
  for (int stage = place; stage < stages(); stage += places()) {
    bytes += figures_.GradientBytes(begins_[stage], begins_[stage + 1]);
  }
  return bytes;
}

int64_t CoarseModelMaker::SplitBytes(int place) const {
  int64_t bytes = 0;
  for (int stage = place; stage < stages(); stage += places()) {
    bytes += figures_.SplitBytes(begins_[stage], begins_[stage + 1]);
  }
  return bytes;
}

std::vector<int> CoarseModelMaker::DataGroup(int place) const {
  std::vector<int> group;
  for (int replica = 0; replica < choice_.mesh.data; ++replica) {
    group.push_back(choice_.WorkerAt(replica, 0, place));
  }
  return group;
}

int CoarseModelMaker::Buckets(int place) const {
  const int64_t bytes = GradientBytes(place);
  return static_cast<int>(
      std::clamp<int64_t>((bytes + bucket_bytes_ - 1) / bucket_bytes_, 1, kMaxBuckets));
}

StageSeconds CoarseModelMaker::SecondsOf(size_t replica_class, int stage) const {
  const int device = classes_[replica_class].devices[stage % places()];
  return figures_.Seconds(begins_[stage], begins_[stage + 1], device);
}

int CoarseModelMaker::AddData(int place, const std::string& name, double seconds) {
  StepCollective collective;
  collective.name = model_.AddName(name);
  collective.seconds = seconds;
  const int32_t index = static_cast<int32_t>(model_.collectives.size());
  int at = 0;
  for (size_t c = 0; c < classes_.size(); ++c) {
    collective.members.push_back(RankOf(c, place));
    Rank(c, place).collectives.push_back(index);
    at = static_cast<int>(Rank(c, place).collectives.size()) - 1;
  }
  model_.collectives.push_back(std::move(collective));
  return at;
}

// What the communication stream sums beside the backward pass. All ranks of a place have the same
// table so far.
void CoarseModelMaker::AddDataCollectives() {
  if (choice_.mesh.data == 1 || choice_.zero >= 2) return;
  for (int place = 0; place < places(); ++place) {
    const int64_t bytes = GradientBytes(place);
    if (bytes == 0) continue;
    const int buckets = Buckets(place);
    // Real buckets may be smaller: their overhead counts as often as there are.
    const int64_t real = std::max<int64_t>(1, (bytes + bucket_bytes_ - 1) / bucket_bytes_);
    const double each =
        collectives_.Seconds({CollectiveKind::kAllReduce, bytes / real}, DataGroup(place));
    for (int b = 0; b < buckets; ++b) {
      const double seconds = each * static_cast<double>(real) / buckets;
      bucket_jobs_[place].push_back(AddData(place, "all-reduce of gradients", seconds));
    }
  }
}

void CoarseModelMaker::AddChannels() {
  for (int stage = 0; stage + 1 < stages(); ++stage) {
    const PlanningCut& cut = figures_.Cut(begins_[stage + 1]);
    AddChannel(stage, stage + 1, cut.forward_bytes, /*forward=*/true);
    AddChannel(stage + 1, stage, cut.backward_bytes, /*forward=*/false);
  }
}

void CoarseModelMaker::AddChannel(int from_stage, int to_stage, int64_t bytes, bool forward) {
  const int from = from_stage % places();
  const int to = to_stage % places();
  if (from == to) return;
  for (size_t c = 0; c < classes_.size(); ++c) {
    const LinkCost cost = cost_.Link(Rank(c, from).worker, Rank(c, to).worker);
    StepLink link;
    link.name = absl::StrCat(from_stage, " -> ", to_stage);
    link.latency_seconds = cost.latency_seconds;
    link.bytes_per_second = cost.bytes_per_second;
    model_.links.push_back(std::move(link));
    StepChannel channel;
    channel.name = model_.AddName(forward ? "activations" : "gradients");
    channel.from = RankOf(c, from);
    channel.to = RankOf(c, to);
    channel.link = static_cast<int32_t>(model_.links.size()) - 1;
    channel.bytes = bytes;
    channel.credits = 0;
    channel.send_seconds = cost.send_seconds;
    channel.receive_seconds = cost.receive_seconds;
    const int32_t index = static_cast<int32_t>(model_.channels.size());
    model_.channels.push_back(channel);
    Rank(c, from).channels.push_back(index);
    sends_[{from_stage, forward}] = static_cast<int>(Rank(c, from).channels.size()) - 1;
    Rank(c, to).channels.push_back(index);
    receives_[{to_stage, forward}] = static_cast<int>(Rank(c, to).channels.size()) - 1;
  }
}

StepInstruction CoarseModelMaker::Tensor(size_t replica_class, int place, double seconds) {
  const int rank = RankOf(replica_class, place);
  const auto [known, is_new] = tensor_.try_emplace({rank, seconds}, 0);
  if (is_new) {
    StepCollective collective;
    collective.name = model_.AddName("collectives of the tensor axis");
    collective.members = {rank};
    collective.seconds = seconds;
    model_.ranks[rank].collectives.push_back(static_cast<int32_t>(model_.collectives.size()));
    model_.collectives.push_back(std::move(collective));
    known->second = static_cast<int>(model_.ranks[rank].collectives.size()) - 1;
  }
  return StepInstruction::Collective(known->second);
}

StepInstruction CoarseModelMaker::DataCollective(int place, const std::string& name,
                                                 CollectiveKind kind, int64_t bytes,
                                                 int64_t parameters) {
  parameters = std::max<int64_t>(1, parameters);
  const double seconds = static_cast<double>(parameters) *
                         collectives_.Seconds({kind, bytes / parameters}, DataGroup(place));
  return StepInstruction::Collective(AddData(place, name, seconds));
}

StepSegment CoarseModelMaker::Forward(size_t replica_class, int stage) {
  const StageSeconds figure = SecondsOf(replica_class, stage);
  const int place = stage % places();
  StepSegment segment;
  if (const auto receive = receives_.find({stage, true}); receive != receives_.end()) {
    segment.push_back(StepInstruction::Receive(receive->second));
  }
  segment.push_back(StepInstruction::Compute(figure.forward));
  if (figure.forward_collectives > 0) {
    segment.push_back(Tensor(replica_class, place, figure.forward_collectives));
  }
  if (const auto send = sends_.find({stage, true}); send != sends_.end()) {
    segment.push_back(StepInstruction::Send(send->second));
  }
  return segment;
}

// The sums of gradients may begin as the parts of the last backward pass end.
void CoarseModelMaker::AppendInParts(double seconds, int place, bool signals,
                                     StepSegment& segment) const {
  const auto jobs = bucket_jobs_.find(place);
  const int parts =
      signals && jobs != bucket_jobs_.end() ? static_cast<int>(jobs->second.size()) : 1;
  for (int part = 0; part < parts; ++part) {
    segment.push_back(StepInstruction::Compute(seconds / parts));
    if (signals) segment.push_back(StepInstruction::Signal(part + 1));
  }
}

StepSegment CoarseModelMaker::Backward(size_t replica_class, int stage, bool with_weights,
                                       bool signals) {
  const StageSeconds figure = SecondsOf(replica_class, stage);
  const int place = stage % places();
  const double again = figures_.RecomputedShare(stage == stages() - 1) * figure.forward;
  StepSegment segment;
  if (again > 0) segment.push_back(StepInstruction::Compute(again));
  if (const auto receive = receives_.find({stage, false}); receive != receives_.end()) {
    segment.push_back(StepInstruction::Receive(receive->second));
  }
  const bool one_stage = stages() == 1;
  // Where nobody waits for it, the backward pass is one run of nodes.
  double rest = figure.backward - again;
  if (one_stage && with_weights) {
    rest += figure.weight_gradient;
  } else {
    segment.push_back(StepInstruction::Compute(rest));
    rest = with_weights ? figure.weight_gradient : 0;
  }
  if (figure.backward_collectives > 0) {
    segment.push_back(Tensor(replica_class, place, figure.backward_collectives));
  }
  if (const auto send = sends_.find({stage, false}); send != sends_.end()) {
    segment.push_back(StepInstruction::Send(send->second));
  }
  if (with_weights) AppendInParts(rest, place, signals, segment);
  return segment;
}

StepSegment CoarseModelMaker::Update(size_t replica_class, int place) {
  StepSegment segment;
  const auto jobs = bucket_jobs_.find(place);
  if (jobs != bucket_jobs_.end()) {
    segment.push_back(StepInstruction::Await(static_cast<int32_t>(jobs->second.size())));
  }
  double update = 0;
  for (int stage = place; stage < stages(); stage += places()) {
    update += SecondsOf(replica_class, stage).update;
  }
  segment.push_back(StepInstruction::Compute(update));
  return segment;
}

// What the compute stream itself sums and gathers over the data axis, once per step.
CoarseModelMaker::StepCollectives CoarseModelMaker::AddStepCollectives(int place) {
  StepCollectives once;
  if (choice_.mesh.data == 1) return once;
  // One collective for each parameter.
  int64_t parameters = 0;
  int64_t split = 0;
  for (int stage = place; stage < stages(); stage += places()) {
    parameters += figures_.Parameters(begins_[stage], begins_[stage + 1]);
    split += figures_.SplitParameters(begins_[stage], begins_[stage + 1]);
  }
  if (choice_.zero >= 2 && GradientBytes(place) > 0) {
    once.scatter = {DataCollective(place, "reduce-scatter of gradients",
                                   CollectiveKind::kGatherOrScatter, GradientBytes(place),
                                   parameters)};
  }
  if (choice_.zero >= 1 && SplitBytes(place) > 0) {
    once.gather = {DataCollective(place, "all-gather of parameters",
                                  CollectiveKind::kGatherOrScatter, SplitBytes(place), split)};
  }
  return once;
}

// Of several chunks the first one's backward pass is the last.
bool CoarseModelMaker::Signals(size_t replica_class, const Action& action, bool splits) const {
  const Kind last_kind = splits ? Kind::kWeightGradient : Kind::kBackward;
  return action.kind == last_kind && action.chunk == 0 &&
         action.micro_batch == classes_[replica_class].micro_batches - 1;
}

StepSegment CoarseModelMaker::SegmentOf(size_t replica_class, int place, const Action& action,
                                        bool splits, const StepCollectives& once) {
  const int stage = action.chunk * places() + place;
  const bool signals = Signals(replica_class, action, splits);
  StepSegment segment;
  switch (action.kind) {
    case Kind::kBegin:
      if (choice_.zero == 3) segment = once.gather;
      break;
    case Kind::kForward:
      segment = Forward(replica_class, stage);
      break;
    case Kind::kBackward:
      segment = Backward(replica_class, stage, !splits, signals);
      break;
    case Kind::kWeightGradient:
      AppendInParts(SecondsOf(replica_class, stage).weight_gradient, place, signals, segment);
      break;
    case Kind::kUpdate:
      segment = once.scatter;
      for (const StepInstruction& one : Update(replica_class, place)) segment.push_back(one);
      if (choice_.zero < 3) segment.insert(segment.end(), once.gather.begin(), once.gather.end());
      break;
  }
  return segment;
}

absl::Status CoarseModelMaker::AddRoutines(int place) {
  const StepCollectives once = AddStepCollectives(place);
  for (size_t c = 0; c < classes_.size(); ++c) {
    WEFT_ASSIGN_OR_RETURN(const ActionList actions,
                          MakeActions(choice_.schedule, places(), place, classes_[c].micro_batches,
                                      /*training=*/true, choice_.chunks));
    const bool splits = SplitsBackward(actions);
    StepRoutine routine;
    // Micro-batches do the same, but for the last one's sums.
    std::map<std::tuple<Kind, int, bool>, int32_t> known;
    for (const Action& action : actions) {
      const bool signals = Signals(c, action, splits);
      const auto [segment, is_new] = known.try_emplace({action.kind, action.chunk, signals}, 0);
      if (is_new) {
        segment->second = model_.AddSegment(SegmentOf(c, place, action, splits, once));
      }
      routine.actions.push_back({action, segment->second});
    }
    if (const auto jobs = bucket_jobs_.find(place); jobs != bucket_jobs_.end()) {
      int given = 0;
      for (const int job : jobs->second) routine.jobs.push_back({job, ++given});
    }
    Rank(c, place).routine = static_cast<int32_t>(model_.routines.size());
    model_.routines.push_back(std::move(routine));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepModel> MakeCoarseModel(const StageCosts& figures, const PlanChoice& choice,
                                          const std::vector<int>& begins, const CostModel& cost,
                                          CollectiveCosts& collectives, int64_t bucket_bytes) {
  return CoarseModelMaker(figures, choice, begins, cost, collectives, bucket_bytes).Run();
}

}  // namespace weft
