// Collectives of several ranks, each a thread with a program of its own, on the CPU and on fake
// devices: every rank ends with the numbers that the definition gives.
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/communicator.h"
#include "executor/lowering/lowering.h"
#include "executor/program/compile_step.h"
#include "executor/program/memory_operations.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "gtest/gtest.h"
#include "tensor/testing/test_device.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// Messages between the ranks of a test.
class Mailboxes {
 public:
  using Key = std::tuple<int, int, int>;  // collective, from, to
  void Put(Key key, std::vector<char> message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    boxes_[key].push_back(std::move(message));
    changed_.notify_all();
  }
  std::vector<char> Take(Key key) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !boxes_[key].empty(); });
    std::vector<char> message = std::move(boxes_[key].front());
    boxes_[key].pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::deque<std::vector<char>>> boxes_;
};

class MailboxCommunicator final : public Communicator {
 public:
  MailboxCommunicator(Mailboxes& mailboxes, int rank) : mailboxes_(mailboxes), rank_(rank) {}
  RankId rank() const override { return rank_; }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel&) override { return 0; }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override {
    specs.push_back(spec);
    return static_cast<CollectiveHandle>(specs.size()) - 1;
  }
  absl::Status Send(ChannelHandle, MessageKey, const void*) override { return absl::OkStatus(); }
  absl::Status WaitSent(ChannelHandle) override { return absl::OkStatus(); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return absl::OkStatus(); }
  absl::Status RunCollective(CollectiveHandle handle, MessageKey, void* const* buffers) override {
    const CollectiveSpec& spec = specs[handle];
    for (const CollectiveStep& step : spec.schedule.steps) {
      const auto at = [&](const BufferRange& range) {
        return static_cast<char*>(buffers[range.buffer]) + DTypeBytes(spec.dtype, range.first);
      };
      const auto bytes = [&](const BufferRange& range) {
        return static_cast<size_t>(DTypeBytes(spec.dtype, range.count));
      };
      const int peer = step.peer < 0 ? -1 : spec.group[step.peer].value;
      if (step.kind == CollectiveStep::Kind::kSend) {
        const char* data = at(step.source);
        sent_bytes += static_cast<int64_t>(bytes(step.source));
        mailboxes_.Put({handle, rank_.value, peer}, {data, data + bytes(step.source)});
      } else if (step.kind == CollectiveStep::Kind::kReceive) {
        const std::vector<char> message = mailboxes_.Take({handle, peer, rank_.value});
        EXPECT_EQ(message.size(), bytes(step.target));
        std::copy(message.begin(), message.end(), at(step.target));
      } else if (step.kind == CollectiveStep::Kind::kReduce) {
        EXPECT_TRUE(AddInto(spec.dtype, step.target.count, at(step.source), at(step.target)).ok());
      } else {
        std::copy_n(at(step.source), bytes(step.source), at(step.target));
      }
    }
    return absl::OkStatus();
  }
  void Abort(const absl::Status&) override {}

  std::vector<CollectiveSpec> specs;
  int64_t sent_bytes = 0;

 private:
  Mailboxes& mailboxes_;
  const RankId rank_;
};

class NoInput final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput&, int64_t, int64_t, void*) override {
    return absl::InternalError("there is no input");
  }
};

// An axis cut over the ranks: as blocks x rest, rest in `sizes`.
struct Cut {
  int axis = 0;
  int64_t blocks = 1;
  Ints sizes;
  int64_t rest() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
};

// The first ranks have one row more.
Cut CutOf(const Shape& whole, int axis, int64_t blocks, int ranks) {
  Cut cut{axis, blocks, {}};
  const int64_t rest = whole.dim(axis) / blocks;
  for (int rank = 0; rank < ranks; ++rank) {
    cut.sizes.push_back(rest / ranks + (rank < rest % ranks ? 1 : 0));
  }
  return cut;
}

// A tensor whose elements all differ.
Tensor Counting(const Shape& shape, float scale = 1) {
  std::vector<float> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(i + 1);
  return Tensor::Of<float>(shape, values);
}

// The rank's shard, element by element.
Tensor ShardOf(const Tensor& whole, const Cut& cut, int rank) {
  std::vector<int64_t> dims(whole.shape().dims().begin(), whole.shape().dims().end());
  dims[cut.axis] = cut.blocks * cut.sizes[rank];
  const Shape local(dims);
  int64_t first = 0;
  for (int r = 0; r < rank; ++r) first += cut.sizes[r];
  const int64_t inner = local.ProductOf(cut.axis + 1, local.rank());
  std::vector<float> values;
  for (int64_t outer = 0; outer < local.ProductOf(0, cut.axis); ++outer) {
    for (int64_t block = 0; block < cut.blocks; ++block) {
      for (int64_t row = 0; row < cut.sizes[rank]; ++row) {
        for (int64_t i = 0; i < inner; ++i) {
          const int64_t at = block * cut.rest() + first + row;
          values.push_back(
              whole.data<float>()[(outer * whole.shape().dim(cut.axis) + at) * inner + i]);
        }
      }
    }
  }
  return Tensor::Of<float>(local, values);
}

// One collective node on one rank.
struct RankNode {
  std::string op;
  Attributes attributes;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;  // expected
};

// The node in the graph of two micro-batches; the sums of its outputs over them are reported.
Partition PartitionOf(const RankNode& node, int rank) {
  constexpr int kMicroBatches = 2;
  Partition partition;
  partition.rank = RankId(rank);
  partition.global_batch = partition.total_micro_batches = kMicroBatches;
  Graph micro;
  GraphBuilder builder(micro);
  std::vector<ValueId> inputs;
  for (const Tensor& input : node.inputs) inputs.push_back(builder.Constant(input));
  const std::vector<ValueId> results =
      builder.Ops(std::string(kWeftDomain), node.op, inputs, node.attributes,
                  std::vector<bool>(node.outputs.size(), true));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string name = absl::StrCat("y", i);
    const ValueId scaled = builder.WeftOp("Scale", {results[i], builder.Float(1)});
    builder.Name(scaled, name);
    micro.AddOutput(scaled);
    const ValueId sum = partition.end.AddInput("sum_" + name, micro.value(scaled).type);
    const ValueId got = end.WeftOp("Scale", {sum, end.Float(0.5f)});
    end.Name(got, "got_" + name);
    partition.end.AddOutput(got);
    partition.reports.push_back("got_" + name);
    partition.accumulations.push_back({name, {{"sum_" + name, 0, kMicroBatches}}, false});
  }
  EXPECT_TRUE(end.status().ok()) << end.status();
  partition.micro.push_back(std::move(micro));
  for (int i = 0; i < kMicroBatches; ++i) {
    partition.micro_batches.push_back({i, i, 1, 0});
    partition.actions.push_back({Action::Kind::kForward, i});
    partition.actions.push_back({Action::Kind::kBackward, i});
  }
  partition.actions.push_back({Action::Kind::kUpdate, 0});
  return partition;
}

// By seed of the fake device; below 0: the CPU.
class CollectiveLoweringTest : public ::testing::TestWithParam<int> {
 protected:
  static std::unique_ptr<Device> NewDevice() { return testing::NewTestDevice(GetParam()); }

  // Runs two steps on all ranks; every rank must make its expected outputs. Returns the bytes that
  // each rank sent in a run of the collective.
  static std::vector<int64_t> ExpectOutputs(const std::vector<RankNode>& ranks) {
    Mailboxes mailboxes;
    std::vector<int64_t> sent(ranks.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      threads.emplace_back([&, rank] {
        MailboxCommunicator communicator(mailboxes, static_cast<int>(rank));
        RunRank(ranks[rank], static_cast<int>(rank), communicator);
        sent[rank] = communicator.sent_bytes / 4;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sent;
  }

  static Attributes Group(int ranks) {
    Ints group(ranks);
    std::iota(group.begin(), group.end(), 0);
    return {{"axis", std::string("tensor")}, {"group", group}};
  }

  static Attributes Along(const Cut& cut, int rank) {
    Attributes attributes = Group(static_cast<int>(cut.sizes.size()));
    attributes.Set("dim", int64_t{cut.axis});
    attributes.Set("blocks", cut.blocks);
    attributes.Set("sizes", cut.sizes);
    attributes.Set("index", int64_t{rank});
    return attributes;
  }

 private:
  static void RunRank(const RankNode& node, int rank, MailboxCommunicator& communicator) {
    const std::unique_ptr<Device> device = NewDevice();
    VariableStore variables(*device);
    NoInput input;
    const Partition partition = PartitionOf(node, rank);
    auto program = CompileStep(
        partition, {device.get(), &variables, &communicator, &input, &RealClock(), nullptr});
    ASSERT_TRUE(program.ok()) << program.status();
    for (int step = 0; step < 2; ++step) {
      const auto result = (*program)->Run({});
      ASSERT_TRUE(result.ok()) << result.status();
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        const Tensor& got = result->reports.at(absl::StrCat("got_y", i));
        EXPECT_EQ(got.shape(), node.outputs[i].shape());
        const auto actual = got.data<float>();
        const auto expected = node.outputs[i].data<float>();
        EXPECT_EQ(std::vector<float>(actual.begin(), actual.end()),
                  std::vector<float>(expected.begin(), expected.end()))
            << node.op << ", rank " << rank << ", output " << i;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(CpuAndFake, CollectiveLoweringTest, ::testing::Values(-1, 0, 1, 2),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

struct ShardedCase {
  Shape whole;
  int axis;
  int64_t blocks;
};

const std::vector<ShardedCase> kShardedCases = {{{7, 5}, 0, 1},  {{5, 7}, 1, 1}, {{2, 6, 3}, 1, 2},
                                                {{21, 2}, 0, 3}, {{2, 2}, 1, 1}, {{3, 11}, 1, 1}};

TEST_P(CollectiveLoweringTest, AllGatherGivesEveryRankTheWhole) {
  for (const int ranks : {1, 2, 3}) {
    for (const ShardedCase& sharded : kShardedCases) {
      const Cut cut = CutOf(sharded.whole, sharded.axis, sharded.blocks, ranks);
      const Tensor whole = Counting(sharded.whole);
      std::vector<RankNode> nodes;
      for (int rank = 0; rank < ranks; ++rank) {
        nodes.push_back({"AllGather", Along(cut, rank), {ShardOf(whole, cut, rank)}, {whole}});
      }
      ExpectOutputs(nodes);
    }
  }
}

TEST_P(CollectiveLoweringTest, ReduceScatterGivesEachRankItsShardOfTheSum) {
  for (const int ranks : {1, 2, 3}) {
    for (const ShardedCase& sharded : kShardedCases) {
      const Cut cut = CutOf(sharded.whole, sharded.axis, sharded.blocks, ranks);
      const Tensor sum = Counting(sharded.whole, static_cast<float>(ranks * (ranks + 1) / 2));
      std::vector<RankNode> nodes;
      for (int rank = 0; rank < ranks; ++rank) {
        nodes.push_back({"ReduceScatter",
                         Along(cut, rank),
                         {Counting(sharded.whole, static_cast<float>(rank + 1))},
                         {ShardOf(sum, cut, rank)}});
      }
      ExpectOutputs(nodes);
    }
  }
}

struct RegroupCase {
  Shape whole;
  int from;
  int64_t from_blocks;
  int to;
  int64_t to_blocks;
};

TEST_P(CollectiveLoweringTest, AllToAllTurnsShardsOfOneAxisIntoShardsOfAnother) {
  const std::vector<RegroupCase> kCases = {{{7, 5}, 0, 1, 1, 1},           {{7, 5}, 1, 1, 0, 1},
                                           {{6, 3, 11}, 0, 2, 2, 1},       {{3, 2, 15}, 0, 1, 2, 3},
                                           {{2, 13, 2, 7, 3}, 3, 1, 1, 1}, {{2, 2}, 0, 1, 1, 1}};
  for (const int ranks : {1, 2, 3}) {
    for (const RegroupCase& regroup : kCases) {
      const Cut from = CutOf(regroup.whole, regroup.from, regroup.from_blocks, ranks);
      const Cut to = CutOf(regroup.whole, regroup.to, regroup.to_blocks, ranks);
      const Tensor whole = Counting(regroup.whole);
      std::vector<RankNode> nodes;
      for (int rank = 0; rank < ranks; ++rank) {
        Attributes attributes = Along(from, rank);
        attributes.Set("split_dim", int64_t{to.axis});
        attributes.Set("split_blocks", to.blocks);
        attributes.Set("split_sizes", to.sizes);
        nodes.push_back(
            {"AllToAll", attributes, {ShardOf(whole, from, rank)}, {ShardOf(whole, to, rank)}});
      }
      const std::vector<int64_t> sent = ExpectOutputs(nodes);
      for (int rank = 0; rank < ranks; ++rank) {  // all but what stays
        const int64_t kept = regroup.whole.num_elements() / from.rest() / to.rest() *
                             from.sizes[rank] * to.sizes[rank];
        EXPECT_EQ(sent[rank], 4 * (nodes[rank].inputs[0].shape().num_elements() - kept));
      }
    }
  }
}

TEST_P(CollectiveLoweringTest, BroadcastGivesAllTheRootsValueAndOthersNeedNone) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (int root = 0; root < ranks; ++root) {
      const Tensor value = Counting({3, 7});
      std::vector<RankNode> nodes;
      for (int rank = 0; rank < ranks; ++rank) {
        RankNode node{"Broadcast", Group(ranks), {}, {value}};
        node.attributes.Set("root", int64_t{root});
        node.attributes.Set("dtype", static_cast<int64_t>(DType::kFloat32));
        node.attributes.Set("shape", Ints{3, 7});
        if (rank == root) node.inputs = {value};
        nodes.push_back(std::move(node));
      }
      ExpectOutputs(nodes);
    }
  }
}

TEST_P(CollectiveLoweringTest, EveryAllReduceGivesAllTheSumsOfAllTensors) {
  for (const std::string algorithm :
       {"auto", "ring", "recursive_doubling", "halving_doubling", "tree", "hierarchical"}) {
    for (const int ranks : {2, 3, 4, 5}) {
      SCOPED_TRACE(absl::StrCat(algorithm, " of ", ranks));
      const float factor = static_cast<float>(ranks * (ranks + 1) / 2);
      std::vector<RankNode> nodes;
      for (int rank = 0; rank < ranks; ++rank) {
        const float own = static_cast<float>(rank + 1);
        RankNode node{"AllReduce",
                      Group(ranks),
                      {Counting({5, 7}, own), Counting({13}, own)},
                      {Counting({5, 7}, factor), Counting({13}, factor)}};
        node.attributes.Set("algorithm", algorithm);
        Ints hosts;
        for (int other = 0; other < ranks; ++other) hosts.push_back(other * 2 / ranks);
        node.attributes.Set("hosts", hosts);
        nodes.push_back(std::move(node));
      }
      ExpectOutputs(nodes);
    }
  }
}

TEST_P(CollectiveLoweringTest, ACollectiveOfOthersIsRefused) {
  Mailboxes mailboxes;
  MailboxCommunicator communicator(mailboxes, 7);
  const std::unique_ptr<Device> device = NewDevice();
  VariableStore variables(*device);
  NoInput input;
  RankNode node{"AllReduce", Group(2), {Counting({3})}, {Counting({3})}};
  node.attributes.Set("algorithm", std::string("ring"));
  const Partition partition = PartitionOf(node, 7);
  const auto program = CompileStep(
      partition, {device.get(), &variables, &communicator, &input, &RealClock(), nullptr});
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(program.status().message()),
              HasSubstr("rank 7 runs a collective of a group it is not in"));
}

}  // namespace
}  // namespace weft
