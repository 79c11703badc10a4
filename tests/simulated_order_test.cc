// The simulator and the executor do the same in the same order (law 11 of docs/architecture.md):
// for plans drawn by a seed, the instructions of each stream of each rank, and the messages of each
// channel, are those of a run on fake devices.
//
// WEFT_PLANS: how many seeds (24).
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "distributed/in_process_transport.h"
#include "distributed/transport_communicator.h"
#include "executor/interfaces/input_source.h"
#include "executor/lowering/executor_environment.h"
#include "executor/program/compile_step.h"
#include "executor/program/step_program.h"
#include "graph/step_inputs.h"
#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"
#include "placement/files/plan_file.h"
#include "placement/partition/traffic_prediction.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/simulator.h"
#include "platform/file_system.h"
#include "tensor/testing/fake_device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/random_plan.h"
#include "training/data/data_set.h"
#include "training/graph/training_graph.h"
#include "training/job/job.h"

namespace weft::testing {
namespace {

constexpr int64_t kBatch = 13;
constexpr int kSteps = 2;
using Lines = std::vector<std::string>;

// What a rank did, in order.
struct RankRecord {
  Lines compute;                      // messages and collectives of the compute stream, all steps
  Lines communication;                // collectives of the communication stream, all steps
  std::map<int32_t, Lines> sent;      // by channel
  std::map<int32_t, Lines> received;  // by channel
};

std::string MicroBatchText(int micro_batch) {
  return micro_batch >= 0 ? absl::StrCat(" mb", micro_batch) : "";
}

// Writes down what the program asks of the one it wraps. The communication stream's collectives
// come from one thread at a time.
class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(Communicator& wrapped, RankRecord& record)
      : wrapped_(wrapped), record_(record) {}

  RankId rank() const override { return wrapped_.rank(); }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel& channel) override {
    auto handle = wrapped_.OpenChannel(channel);
    if (handle.ok()) channels_[*handle] = channel.id.value;
    return handle;
  }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override {
    auto handle = wrapped_.OpenCollective(spec);
    if (handle.ok()) collectives_[*handle] = {spec.name, spec.beside_compute};
    return handle;
  }
  absl::Status Send(ChannelHandle channel, MessageKey key, const void* data) override {
    const int32_t id = channels_.at(channel);
    record_.compute.push_back(absl::StrCat("send ", id, MicroBatchText(key.micro_batch)));
    record_.sent[id].push_back(MicroBatchText(key.micro_batch));
    return wrapped_.Send(channel, key, data);
  }
  absl::Status WaitSent(ChannelHandle channel) override { return wrapped_.WaitSent(channel); }
  absl::Status Receive(ChannelHandle channel, MessageKey key, void* data) override {
    const int32_t id = channels_.at(channel);
    record_.compute.push_back(absl::StrCat("receive ", id, MicroBatchText(key.micro_batch)));
    record_.received[id].push_back(MicroBatchText(key.micro_batch));
    return wrapped_.Receive(channel, key, data);
  }
  absl::Status RunCollective(CollectiveHandle collective, MessageKey key,
                             void* const* buffers) override {
    const auto& [name, beside] = collectives_.at(collective);
    (beside ? record_.communication : record_.compute)
        .push_back(absl::StrCat("collective ", name, MicroBatchText(key.micro_batch)));
    return wrapped_.RunCollective(collective, key, buffers);
  }
  int64_t unexpected_collective_bytes(RankId peer) const override {
    return wrapped_.unexpected_collective_bytes(peer);
  }
  void Abort(const absl::Status& reason) override { wrapped_.Abort(reason); }

 private:
  Communicator& wrapped_;
  RankRecord& record_;
  std::map<ChannelHandle, int32_t> channels_;
  std::map<CollectiveHandle, std::pair<std::string, bool>> collectives_;
};

class Zeros final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput& input, int64_t, int64_t count,
                    void* target) override {
    const int64_t bytes = DTypeBytes(input.dtype, input.sample_shape.num_elements()) * count;
    std::memset(target, 0, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
};

// A rank's program on a device of its own.
struct Rank {
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<VariableStore> variables;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<TransportCommunicator> transported;
  std::unique_ptr<RecordingCommunicator> communicator;
  Zeros input;
  RankRecord record;
  std::unique_ptr<StepProgram> program;
  absl::Status status;

  absl::Status Compile(const Partition& partition, InProcessHub& hub, uint64_t seed) {
    device = std::make_unique<FakeDevice>(FakeDeviceOptions{.scheduling = {.seed = seed}});
    variables = std::make_unique<VariableStore>(*device);
    if (auto added = variables->Add(partition.variables); !added.ok()) return added;
    transport = hub.NewTransport(partition.rank);
    transported = std::make_unique<TransportCommunicator>(*transport, RealClock(), JobIdentity{},
                                                          absl::Seconds(60));
    communicator = std::make_unique<RecordingCommunicator>(*transported, record);
    ExecutorEnvironment environment;
    environment.device = device.get();
    environment.variables = variables.get();
    environment.communicator = communicator.get();
    environment.input = &input;
    environment.clock = &RealClock();
    auto compiled = CompileStep(partition, environment);
    if (!compiled.ok()) return compiled.status();
    program = *std::move(compiled);
    return absl::OkStatus();
  }
  void Run() {
    for (int step = 0; step < kSteps && status.ok(); ++step) {
      StepOptions options;
      options.step = step;
      options.scalars = {{kLearningRateInput, 0.1}, {kStepInput, 1 + step}};
      status = program->Run(options).status();
    }
  }
};

// The channel of a Send or Recv node of a micro-batch (" mb1"; "": of the step), by its name.
// Graphs of different sizes have nodes of the same names on channels of their own.
int64_t ChannelOf(const Partition& partition, const std::string& node,
                  const std::string& micro_batch) {
  std::vector<const Graph*> graphs = {&partition.begin, &partition.end};
  for (const MicroBatch& rows : partition.micro_batches) {
    if (MicroBatchText(rows.index) == micro_batch) graphs = {&partition.micro[rows.graph]};
  }
  for (const Graph* graph : graphs) {
    const std::optional<NodeId> id = graph->FindNode(node);
    if (id.has_value()) return graph->node(*id).attributes.Int("channel", -1);
  }
  return -1;
}

// The instructions of a program's list ("compute", "communication") that the simulator knows too:
// "kernel NODE mb0", "send 3 mb0", "collective NODE", "signal #1", "await #2".
Lines ProgramLines(const Partition& partition, const std::string& debug, const std::string& list) {
  Lines lines;
  bool is_list = false;
  for (const absl::string_view piece : absl::StrSplit(debug, '\n')) {
    const std::string line(piece);
    if (!line.starts_with("  ")) {
      is_list = line == list + ":";
      continue;
    }
    if (!is_list) continue;
    const std::string text = line.substr(2);
    const std::string code = text.substr(0, text.find(' '));
    const size_t op = text.rfind(" (");
    const std::string node =
        op == std::string::npos ? "" : text.substr(code.size() + 1, op - code.size() - 1);
    std::string micro_batch;
    if (const size_t at = text.find(" mb", op == std::string::npos ? 0 : op);
        at != std::string::npos) {
      micro_batch = text.substr(at, text.find(' ', at + 1) - at);
    }
    const std::string handle = text.substr(text.rfind(' ') + 1);
    if (code == "kernel" || code == "collective") {
      lines.push_back(absl::StrCat(code, " ", node, micro_batch));
    } else if (code == "send" || code == "receive") {
      lines.push_back(
          absl::StrCat(code, " ", ChannelOf(partition, node, micro_batch), micro_batch));
    } else if (code == "signal" || code == "await") {
      lines.push_back(absl::StrCat(code, " ", handle));
    }
  }
  return lines;
}

// What the simulator says that a rank did in a step (all steps: -1).
Lines SimulatedLines(const StepModel& model, const Partition& partition,
                     const std::vector<SimulatedEvent>& events, StreamKind stream, int step) {
  using Kind = StepInstruction::Kind;
  Lines lines;
  for (const SimulatedEvent& event : events) {
    if (event.rank != partition.rank.value || event.stream != stream) continue;
    if (step >= 0 && event.step != step) continue;
    const std::string micro_batch =
        event.micro_batch < 0
            ? ""
            : MicroBatchText(partition.micro_batches[static_cast<size_t>(event.micro_batch)].index);
    const std::string name = event.name >= 0 ? model.names[event.name] : "";
    switch (event.kind) {
      case Kind::kCompute:
        if (!name.empty()) lines.push_back(absl::StrCat("kernel ", name, micro_batch));
        break;
      case Kind::kSend:
        lines.push_back(absl::StrCat("send ", model.channels[event.index].number, micro_batch));
        break;
      case Kind::kReceive:
        lines.push_back(absl::StrCat("receive ", model.channels[event.index].number, micro_batch));
        break;
      case Kind::kCollective:
        lines.push_back(absl::StrCat("collective ", name, micro_batch));
        break;
      case Kind::kSignal:
        lines.push_back(absl::StrCat("signal #", event.index));
        break;
      case Kind::kAwait:
        lines.push_back(absl::StrCat("await #", event.index));
        break;
    }
  }
  return lines;
}

// Of one kind ("send", "receive"), by channel.
std::map<int32_t, Lines> MessagesOf(const Lines& lines, const std::string& kind) {
  std::map<int32_t, Lines> messages;
  for (const std::string& line : lines) {
    if (!line.starts_with(kind + " ")) continue;
    const size_t end = std::min(line.find(' ', kind.size() + 1), line.size());
    const int32_t channel = std::atoi(line.substr(kind.size() + 1).c_str());
    messages[channel].push_back(line.substr(end));
  }
  return messages;
}

Lines WithoutLocal(const Lines& lines) {
  Lines kept;
  for (const std::string& line : lines) {
    const bool is_local =
        line.starts_with("kernel") || line.starts_with("signal") || line.starts_with("await");
    if (!is_local) kept.push_back(line);
  }
  return kept;
}

class SimulatedOrder : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const int seed = GetParam();
    const std::vector<std::string> names = EquivalenceModelNames();
    const std::string& name = names[static_cast<size_t>(seed) % names.size()];
    const auto model = BuildEquivalenceModel(name, kBatch);
    ASSERT_TRUE(model.ok()) << model.status();
    DataSpec data_spec;
    for (const auto& [input, path] : WriteDataFiles(*model, ::testing::TempDir())) {
      data_spec.files.push_back({input, path, 0});
    }
    data_spec.batch = kBatch;
    auto data = DataSet::Open(RealFileSystem(), data_spec);
    ASSERT_TRUE(data.ok()) << data.status();
    TrainingSpec training;
    training.optimizer.kind = "sgd";
    JobSpec spec;
    spec.plan = RandomPlan(model->graph, seed);
    story_ = absl::StrCat("seed ", seed, ", model ", name, ", plan:\n", PlanToYaml(spec.plan));
    spec.cluster = ClusterSpec::Local(spec.plan.mesh.size(), 1);
    auto job = PrepareTraining(model->graph, training, spec, *std::move(data));
    ASSERT_TRUE(job.ok()) << job.status() << "\n" << story_;
    job_ = *std::move(job);
    cluster_ = spec.cluster;
  }
  const std::vector<Partition>& partitions() const { return job_.programs.front().partitions; }

  void RunOnFakeDevices() {
    InProcessHub hub(static_cast<int>(partitions().size()));
    ranks_.clear();
    for (const Partition& partition : partitions()) {
      ranks_.push_back(std::make_unique<Rank>());
      const absl::Status status = ranks_.back()->Compile(partition, hub, GetParam());
      ASSERT_TRUE(status.ok()) << status << "\n" << story_;
    }
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) threads.emplace_back([&rank] { rank->Run(); });
    for (std::thread& thread : threads) thread.join();
    for (auto& rank : ranks_) {
      ASSERT_TRUE(rank->status.ok()) << rank->status << "\n" << story_;
      programs_.push_back(rank->program->DebugString());
      records_.push_back(std::move(rank->record));
      rank->program.reset();
      rank->communicator.reset();
      rank->transported.reset();
      rank->variables.reset();
    }
  }

  void Simulate() {
    const auto costs = CostModel::OfSpec(cluster_);
    ASSERT_TRUE(costs.ok()) << costs.status();
    auto model = ModelOfPartitions(partitions(), job_.plan.workers, *costs, {.per_node = true});
    ASSERT_TRUE(model.ok()) << model.status() << "\n" << story_;
    model_ = *std::move(model);
    SimulationOptions options;
    options.steps = kSteps;
    options.record_events = true;
    auto simulation = SimulateStep(model_, options);
    ASSERT_TRUE(simulation.ok()) << simulation.status() << "\n" << story_;
    simulation_ = *std::move(simulation);
  }
  Lines Simulated(const Partition& partition, StreamKind stream, int step) const {
    return SimulatedLines(model_, partition, simulation_.events, stream, step);
  }

  PreparedJob job_;
  ClusterSpec cluster_;
  std::string story_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::string> programs_;
  std::vector<RankRecord> records_;
  StepModel model_;
  Simulation simulation_;
};

TEST_P(SimulatedOrder, IsThatOfTheExecutor) {
  ASSERT_NO_FATAL_FAILURE(RunOnFakeDevices());
  ASSERT_NO_FATAL_FAILURE(Simulate());
  for (const Partition& partition : partitions()) {
    const auto rank = static_cast<size_t>(partition.rank.value);
    const std::string where = absl::StrCat("rank ", rank, ", ", story_);
    EXPECT_EQ(Simulated(partition, StreamKind::kCompute, 0),
              ProgramLines(partition, programs_[rank], "compute"))
        << where;
    EXPECT_EQ(Simulated(partition, StreamKind::kCommunication, 0),
              ProgramLines(partition, programs_[rank], "communication"))
        << where;
    const Lines simulated = Simulated(partition, StreamKind::kCompute, -1);
    EXPECT_EQ(WithoutLocal(simulated), records_[rank].compute) << where;
    EXPECT_EQ(Simulated(partition, StreamKind::kCommunication, -1), records_[rank].communication)
        << where;
    EXPECT_EQ(MessagesOf(simulated, "send"), records_[rank].sent) << where;
    EXPECT_EQ(MessagesOf(simulated, "receive"), records_[rank].received) << where;
  }
}

TEST_P(SimulatedOrder, CountsTheBytesThatArePredicted) {
  ASSERT_NO_FATAL_FAILURE(Simulate());
  for (const Partition& partition : partitions()) {
    const auto streams = PredictTraffic(partition);
    ASSERT_TRUE(streams.ok()) << streams.status();
    int64_t bytes = 0;
    for (const StreamPrediction& stream : *streams) bytes += stream.bytes;
    EXPECT_EQ(simulation_.sent_bytes[partition.rank.value], bytes)
        << "rank " << partition.rank.value << ", " << story_;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatedOrder,
                         ::testing::Range(1, 1 + (std::getenv("WEFT_PLANS") != nullptr
                                                      ? std::atoi(std::getenv("WEFT_PLANS"))
                                                      : 24)));

}  // namespace
}  // namespace weft::testing
