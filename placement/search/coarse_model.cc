#include "placement/search/coarse_model.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/action_list.h"
#include "placement/rules/stage_transfers.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using Kind = Action::Kind;

// More jobs than this overlap no better.
constexpr int64_t kMaxJobs = 8;

// To four binary digits.
int64_t Rounded(int64_t bytes) {
  const int rest = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, bytes))) - 4;
  if (rest <= 0) return std::max<int64_t>(1, bytes);
  const int64_t half = int64_t{1} << (rest - 1);
  return (bytes + half) >> rest << rest;
}

// Replicas that do the same.
struct ReplicaClass {
  std::vector<int> devices;  // of the profile, by place
  int micro_batches = 0;
  int replica = 0;  // one of them
};

class CoarseModelMaker {
 public:
  CoarseModelMaker(const StageCosts& stage_costs, const PlanChoice& choice,
                   const std::vector<int>& begins, const CostModel& cost,
                   CollectiveCosts& collectives, int64_t bucket_bytes)
      : stage_costs_(stage_costs),
        choice_(choice),
        begins_(begins),
        cost_(cost),
        collectives_(collectives),
        sums_(choice.mesh.data == 1
                  ? std::vector<PlaceSums>()
                  : SumsOfPlaces(stage_costs.graph(), {begins, choice.mesh.pipeline},
                                 stage_costs.split(), bucket_bytes)) {}

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
  int PlaceOf(int stage) const { return PlaceOfStage(stage, places()); }
  int RankOf(size_t replica_class, int place) const {
    return static_cast<int>(replica_class) * places() + place;
  }
  StepRank& Rank(size_t replica_class, int place) {
    return model_.ranks[RankOf(replica_class, place)];
  }
  int64_t SplitBytes(int place) const;
  // The workers of all replicas at a place.
  std::vector<int> DataGroup(int place) const;
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
  void AddChannel(const StageMessage& message);
  void AppendReceives(int stage, Phase phase, StepSegment& segment) const;
  void AppendSends(int stage, Phase phase, StepSegment& segment) const;
  StepSegment Begin(int place, const StepSegment& gather) const;
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

  const StageCosts& stage_costs_;
  const PlanChoice& choice_;
  const std::vector<int>& begins_;
  const CostModel& cost_;
  CollectiveCosts& collectives_;
  const std::vector<PlaceSums> sums_;  // by place
  std::vector<ReplicaClass> classes_;
  // Of a stage in a phase: indices in its rank's table.
  std::map<std::pair<int, Phase>, std::vector<int>> receives_;
  std::map<std::pair<int, Phase>, std::vector<int>> sends_;
  std::map<int, std::vector<int>> bucket_jobs_;   // by place: indices in the ranks' tables
  std::map<std::pair<int, double>, int> tensor_;  // (rank, seconds): index in its table
  StepModel model_;
};

// Of a tensor-parallel group, which waits for it.
int CoarseModelMaker::SlowestDevice(int replica, int place) const {
  int slowest = -1;
  for (int shard = 0; shard < choice_.mesh.tensor; ++shard) {
    const int device = cost_.profile().device_of[choice_.WorkerAt(replica, shard, place)];
    const auto seconds = [&](int of) {
      return stage_costs_.Seconds(0, stage_costs_.units(), of).Total();
    };
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

int64_t CoarseModelMaker::SplitBytes(int place) const {
  int64_t bytes = 0;
  for (int stage = place; stage < stages(); stage += places()) {
    bytes += stage_costs_.SplitBytes(begins_[stage], begins_[stage + 1]);
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

StageSeconds CoarseModelMaker::SecondsOf(size_t replica_class, int stage) const {
  const int device = classes_[replica_class].devices[PlaceOf(stage)];
  return stage_costs_.Seconds(begins_[stage], begins_[stage + 1], device);
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

// What the communication stream sums beside the backward pass; few jobs stand for many. All ranks
// of a place have the same table so far.
void CoarseModelMaker::AddDataCollectives() {
  if (choice_.mesh.data == 1) return;
  for (int place = 0; place < places(); ++place) {
    const int64_t buckets = TotalOf(sums_[place], /*is_scattered=*/false).collectives;
    const int64_t jobs = std::min(buckets, kMaxJobs);
    const double all = SecondsOfBuckets(sums_[place], DataGroup(place), collectives_);
    for (int64_t job = 0; job < jobs; ++job) {
      bucket_jobs_[place].push_back(
          AddData(place, "all-reduce of gradients", all / static_cast<double>(jobs)));
    }
  }
}

void CoarseModelMaker::AddChannels() {
  const StagesOfUnits stages_of_units = {begins_, places()};
  for (const StageMessage& message : MessagesOfStages(stage_costs_.graph(), stages_of_units)) {
    AddChannel(message);
  }
}

void CoarseModelMaker::AddChannel(const StageMessage& message) {
  const int from = PlaceOf(message.from);
  const int to = PlaceOf(message.to);
  for (size_t c = 0; c < classes_.size(); ++c) {
    const LinkCost cost = cost_.Link(Rank(c, from).worker, Rank(c, to).worker);
    StepLink link;
    link.name = absl::StrCat(message.from, " -> ", message.to);
    link.latency_seconds = cost.latency_seconds;
    link.bytes_per_second = cost.bytes_per_second;
    model_.links.push_back(std::move(link));
    StepChannel channel;
    channel.name = model_.AddName(message.phase == Phase::kForward    ? "activations"
                                  : message.phase == Phase::kBackward ? "gradients"
                                                                      : "variables");
    channel.from = RankOf(c, from);
    channel.to = RankOf(c, to);
    channel.link = static_cast<int32_t>(model_.links.size()) - 1;
    channel.bytes = message.bytes;
    channel.credits = 0;
    channel.send_seconds = cost.send_seconds;
    channel.receive_seconds = cost.receive_seconds;
    const int32_t index = static_cast<int32_t>(model_.channels.size());
    model_.channels.push_back(channel);
    Rank(c, from).channels.push_back(index);
    Rank(c, to).channels.push_back(index);
    if (c > 0) continue;  // ranks of one place have the same table
    const auto last = [&](int place) {
      return static_cast<int>(Rank(c, place).channels.size()) - 1;
    };
    sends_[{message.from, message.phase}].push_back(last(from));
    receives_[{message.to, message.phase}].push_back(last(to));
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

void CoarseModelMaker::AppendReceives(int stage, Phase phase, StepSegment& segment) const {
  const auto receives = receives_.find({stage, phase});
  if (receives == receives_.end()) return;
  for (const int channel : receives->second) segment.push_back(StepInstruction::Receive(channel));
}

void CoarseModelMaker::AppendSends(int stage, Phase phase, StepSegment& segment) const {
  const auto sends = sends_.find({stage, phase});
  if (sends == sends_.end()) return;
  for (const int channel : sends->second) segment.push_back(StepInstruction::Send(channel));
}

// What other places read of variables; all sends come before all receives, as in begin graphs.
StepSegment CoarseModelMaker::Begin(int place, const StepSegment& gather) const {
  StepSegment segment = gather;
  for (int stage = place; stage < stages(); stage += places()) {
    AppendSends(stage, Phase::kBegin, segment);
  }
  for (int stage = place; stage < stages(); stage += places()) {
    AppendReceives(stage, Phase::kBegin, segment);
  }
  return segment;
}

StepSegment CoarseModelMaker::Forward(size_t replica_class, int stage) {
  const StageSeconds seconds = SecondsOf(replica_class, stage);
  const int place = PlaceOf(stage);
  StepSegment segment;
  AppendReceives(stage, Phase::kForward, segment);
  segment.push_back(StepInstruction::Compute(seconds.forward));
  if (seconds.forward_collectives > 0) {
    segment.push_back(Tensor(replica_class, place, seconds.forward_collectives));
  }
  AppendSends(stage, Phase::kForward, segment);
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
  const StageSeconds seconds = SecondsOf(replica_class, stage);
  const int place = PlaceOf(stage);
  const double again = stage_costs_.RecomputedShare(stage == stages() - 1) * seconds.forward;
  StepSegment segment;
  if (again > 0) segment.push_back(StepInstruction::Compute(again));
  AppendReceives(stage, Phase::kBackward, segment);
  const bool one_stage = stages() == 1;
  // Where nobody waits for it, the backward pass is one run of nodes.
  double rest = seconds.backward - again;
  if (one_stage && with_weights) {
    rest += seconds.weight_gradient;
  } else {
    segment.push_back(StepInstruction::Compute(rest));
    rest = with_weights ? seconds.weight_gradient : 0;
  }
  if (seconds.backward_collectives > 0) {
    segment.push_back(Tensor(replica_class, place, seconds.backward_collectives));
  }
  AppendSends(stage, Phase::kBackward, segment);
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
  int64_t split = 0;  // one collective for each parameter
  for (int stage = place; stage < stages(); stage += places()) {
    split += stage_costs_.SplitParameters(begins_[stage], begins_[stage + 1]);
  }
  const CollectiveTotal scattered = TotalOf(sums_[place], /*is_scattered=*/true);
  if (scattered.collectives > 0) {
    once.scatter = {DataCollective(place, "reduce-scatter of gradients",
                                   CollectiveKind::kGatherOrScatter, scattered.bytes,
                                   scattered.collectives)};
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
      segment = Begin(place, choice_.zero == 3 ? once.gather : StepSegment());
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

double SecondsOfBuckets(const PlaceSums& sums, const std::vector<int>& workers,
                        CollectiveCosts& collectives) {
  double seconds = 0;
  int64_t bytes = -1;  // of the bucket before: most are alike
  double each = 0;
  for (const std::vector<SumGroup>* groups : {&sums.groups.first, &sums.groups.later}) {
    for (const SumGroup& group : *groups) {
      if (group.is_scattered) continue;
      const int64_t own = Rounded(BytesOf(group, sums.sums));
      if (own != bytes) each = collectives.Seconds({CollectiveKind::kAllReduce, own}, workers);
      bytes = own;
      seconds += each;
    }
  }
  return seconds;
}

absl::StatusOr<StepModel> MakeCoarseModel(const StageCosts& stage_costs, const PlanChoice& choice,
                                          const std::vector<int>& begins, const CostModel& cost,
                                          CollectiveCosts& collectives, int64_t bucket_bytes) {
  return CoarseModelMaker(stage_costs, choice, begins, cost, collectives, bucket_bytes).Run();
}

}  // namespace weft
