#include "training/calibration/link_probe.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/node_class.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/timing/copy_line.h"

namespace weft {
namespace {

// Floats of a message there, and of each answer.
constexpr int64_t kMessageElements[] = {16, 4096, 65'536, 524'288};
constexpr int64_t kAnswerElements = 16;
constexpr int64_t kExchangedElements[] = {4096, 65'536, 524'288};
constexpr int kRounds = 4;  // of messages, or exchanges, in a step
// A step of the next larger size may take so many times what a size is given: on a slow link the
// smaller ones say enough.
constexpr double kSizePatience = 10;

std::string MessageProgram(int64_t elements) {
  return absl::StrCat("calibrate/messages/", elements);
}
std::string ExchangeProgram(int64_t elements) {
  return absl::StrCat("calibrate/exchange/", elements);
}

// The part of one rank.
class RankProgram {
 public:
  RankProgram(int size, int rank) : rank_(rank) {
    partition_.mesh.data = size;
    partition_.rank = RankId(rank);
    partition_.global_batch = 1;
    partition_.actions = {{Action::Kind::kUpdate, 0}};
  }

  ValueId Zeros(int64_t elements) {
    const Shape shape{elements};
    VariableShard shard;
    shard.name = absl::StrCat("calibrate", shape.ToString());
    shard.dtype = DType::kFloat32;
    shard.global_shape = shard.local_shape = shape;
    shard.is_primary = true;
    partition_.variables.push_back(shard);
    return partition_.end.AddVariable(shard.name, {ValueKind::kTensor, DType::kFloat32, shape},
                                      Tensor(), /*trainable=*/false);
  }

  // This rank's end of channel `id`. A sender sends `value`; a receiver returns what comes.
  ValueId Pass(int id, int from, int to, ValueId value, int64_t elements) {
    if (rank_ != from && rank_ != to) return kNoValue;
    Channel channel;
    channel.id = ChannelId(id);
    channel.from = RankId(from);
    channel.to = RankId(to);
    channel.value = absl::StrCat("message", id);
    channel.dtype = DType::kFloat32;
    channel.shape = Shape{elements};
    channel.per_micro_batch = false;
    partition_.channels.push_back(channel);
    GraphBuilder builder(partition_.end);
    builder.set_phase(Phase::kUpdate);
    if (rank_ == from) {
      builder.Ops(std::string(kWeftDomain), "Send", {value}, {{"channel", int64_t{id}}}, {});
      status_.Update(builder.status());
      return kNoValue;
    }
    const ValueId received = builder.WeftOp("Recv", {},
                                            {{"channel", int64_t{id}},
                                             {"dtype", static_cast<int64_t>(DType::kFloat32)},
                                             {"shape", std::vector<int64_t>{elements}}});
    status_.Update(builder.status());
    return received;
  }

  ValueId AllReduce(int a, int b, ValueId value) {
    GraphBuilder builder(partition_.end);
    builder.set_phase(Phase::kUpdate);
    const ValueId sum = builder.WeftOp("AllReduce", {value},
                                       {{"axis", std::string("data")},
                                        {"group", std::vector<int64_t>{a, b}},
                                        {"algorithm", std::string("auto")}});
    status_.Update(builder.status());
    return sum;
  }

  absl::StatusOr<Partition> Finish(ValueId output) {
    WEFT_RETURN_IF_ERROR(Annotate(status_, "building what calibrates links"));
    if (output.valid()) partition_.end.AddOutput(output);
    return std::move(partition_);
  }

 private:
  const int rank_;
  Partition partition_;
  absl::Status status_;
};

// Messages of `elements` there and short ones back, one after the other.
absl::StatusOr<ProbeProgram> Messages(int size, int from, int to, int64_t elements) {
  ProbeProgram program{MessageProgram(elements), {}};
  for (int rank = 0; rank < size; ++rank) {
    RankProgram part(size, rank);
    ValueId request = rank == from ? part.Zeros(elements) : kNoValue;
    ValueId back = rank == to ? part.Zeros(kAnswerElements) : kNoValue;
    ValueId last = kNoValue;
    for (int i = 0; i < kRounds; ++i) {
      const ValueId came = part.Pass(2 * i, from, to, request, elements);
      const ValueId answer = part.Pass(2 * i + 1, to, from, back, kAnswerElements);
      if (came.valid()) last = came;
      if (answer.valid()) last = answer;
    }
    WEFT_ASSIGN_OR_RETURN(Partition partition, part.Finish(last));
    program.partitions.push_back(std::move(partition));
  }
  return program;
}

absl::StatusOr<ProbeProgram> Exchanges(int size, int a, int b, int64_t elements) {
  ProbeProgram program{ExchangeProgram(elements), {}};
  for (int rank = 0; rank < size; ++rank) {
    RankProgram part(size, rank);
    ValueId sum = kNoValue;
    if (rank == a || rank == b) {
      sum = part.Zeros(elements);
      for (int i = 0; i < kRounds; ++i) sum = part.AllReduce(a, b, sum);
    }
    WEFT_ASSIGN_OR_RETURN(Partition partition, part.Finish(sum));
    program.partitions.push_back(std::move(partition));
  }
  return program;
}

double Bytes(int64_t elements) { return 4.0 * static_cast<double>(elements); }

// Whether a step with messages of `elements` takes too long, by what the last size took.
bool TakesTooLong(const std::vector<TimedCopy>& samples, int64_t elements, double seconds) {
  if (samples.size() < 2) return false;
  return kRounds * samples.back().seconds * Bytes(elements) / samples.back().bytes >
         kSizePatience * seconds;
}

// Seconds in the Send nodes of what a rank ran, for each of them.
double MeanOfSends(const ProbeTimes& times, const Partition& partition) {
  double sum = 0;
  int count = 0;
  for (const NodeId id : partition.end.node_ids()) {
    const Node& node = partition.end.node(id);
    const auto time = times.node_seconds.find(node.name);
    if (KindOf(node) != CommunicationKind::kSend || time == times.node_seconds.end()) continue;
    sum += time->second;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace

absl::StatusOr<LinkProfile> ProbeLink(ProbeSession& session, int from, int to,
                                      const DeviceProfile& device, double seconds) {
  std::vector<ProbeProgram> programs;
  for (const int64_t elements : kMessageElements) {
    WEFT_ASSIGN_OR_RETURN(ProbeProgram program, Messages(session.size(), from, to, elements));
    programs.push_back(std::move(program));
  }
  for (const int64_t elements : kExchangedElements) {
    WEFT_ASSIGN_OR_RETURN(ProbeProgram program, Exchanges(session.size(), from, to, elements));
    programs.push_back(std::move(program));
  }
  WEFT_RETURN_IF_ERROR(session.Begin(programs, "", {}));
  const double each = seconds / static_cast<double>(programs.size());
  LinkProfile link;
  link.source = "measured";
  std::vector<TimedCopy> samples;
  double answer = 0;  // what a short message takes, which every round has one of
  for (size_t i = 0; i < std::size(kMessageElements); ++i) {
    const int64_t elements = kMessageElements[i];
    if (TakesTooLong(samples, elements, each)) break;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ProbeTimes> times,
                          session.Measure(MessageProgram(elements), each, {}));
    const double round = times[from].step_seconds / kRounds;
    if (elements == kAnswerElements) {
      answer = round / 2;
      link.send_seconds = MeanOfSends(times[from], programs[i].partitions[from]);
    }
    samples.push_back({Bytes(elements), std::max(round - answer, 1e-9)});
  }
  const FittedLine line = FitLine(samples);
  link.receive_seconds = link.send_seconds;
  link.latency_seconds = std::max(0.0, line.seconds - link.send_seconds - link.receive_seconds);
  link.bytes_per_second = 1 / std::max(line.seconds_per_byte, 1e-13);
  std::vector<TimedCopy> exchanges;
  for (const int64_t elements : kExchangedElements) {
    if (TakesTooLong(exchanges, elements, each)) break;
    WEFT_ASSIGN_OR_RETURN(const std::vector<ProbeTimes> times,
                          session.Measure(ExchangeProgram(elements), each, {}));
    const double sum = 3 * Bytes(elements);  // two are read, one is written
    exchanges.push_back(
        {Bytes(elements),
         std::max(times[from].step_seconds / kRounds - sum / device.elementwise.At(sum), 1e-9)});
  }
  link.exchange_bytes_per_second = 1 / std::max(FitLine(exchanges).seconds_per_byte, 1e-13);
  return link;
}

}  // namespace weft
