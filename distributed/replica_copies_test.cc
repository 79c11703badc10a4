// Replicas of the sum job, one of which has a bit flipped, and answers by hand.
#include "distributed/replica_copies.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distributed/in_process_cluster.h"
#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kVersion[] = "1";

// The sum job on so many workers, after three steps.
class ReplicaCopiesTest : public ::testing::Test {
 protected:
  void Start(int ranks) {
    cluster_ = std::make_unique<InProcessCluster>(ranks, testing::OpenSumJobInput, kVersion);
    coordinator_ = std::make_unique<Coordinator>(cluster_->clients());
    JobMembership membership;
    membership.job_id = 7;
    membership.version = kVersion;
    ASSERT_TRUE(coordinator_->Join(membership).ok());
    const auto added = coordinator_->AddProgram("train", testing::SumJobPartitions(ranks), "data");
    ASSERT_TRUE(added.ok()) << added.status();
    StepRange range;
    range.program = "train";
    range.count = 3;
    range.scalars = {{"rate", 0.5}};
    const absl::Status ran = coordinator_->RunSteps({range}, nullptr);
    ASSERT_TRUE(ran.ok()) << ran;
    copies_ = FindCopies(*coordinator_, {.data = ranks}, {"w"});
  }

  void FlipBit(int rank) {
    WorkerClient& worker = *cluster_->clients()[static_cast<size_t>(rank)];
    auto value = worker.ReadVariable("w");
    ASSERT_TRUE(value.ok()) << value.status();
    *static_cast<uint8_t*>(value->raw_data()) ^= 1;
    ASSERT_TRUE(worker.WriteVariable("w", *value).ok());
  }

  std::vector<DivergedCopies> Diverged() {
    const auto answers = DigestCopies(*coordinator_, copies_);
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? CompareCopies(copies_, *answers) : std::vector<DivergedCopies>();
  }

  std::unique_ptr<InProcessCluster> cluster_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<VariableCopies> copies_;
};

TEST_F(ReplicaCopiesTest, AFlippedBitNamesItsRankWhereMostAreRight) {
  for (const int ranks : {3, 4}) {
    for (int wrong = 0; wrong < ranks; ++wrong) {
      SCOPED_TRACE(wrong);
      Start(ranks);
      ASSERT_THAT(copies_, SizeIs(1));
      EXPECT_THAT(copies_[0].ranks, SizeIs(ranks));
      EXPECT_THAT(Diverged(), IsEmpty());
      FlipBit(wrong);
      const std::vector<DivergedCopies> diverged = Diverged();
      ASSERT_THAT(diverged, SizeIs(1));
      EXPECT_EQ(diverged[0].variable, "w");
      EXPECT_THAT(diverged[0].wrong, ElementsAre(wrong));
      EXPECT_EQ(diverged[0].right, wrong == 0 ? 1 : 0);
      FlipBit(wrong);
      EXPECT_THAT(Diverged(), IsEmpty());
    }
  }
}

TEST_F(ReplicaCopiesTest, OfTwoNobodyKnowsWhichIsRight) {
  Start(2);
  FlipBit(1);
  const std::vector<DivergedCopies> diverged = Diverged();
  ASSERT_THAT(diverged, SizeIs(1));
  EXPECT_THAT(diverged[0].wrong, ElementsAre(0, 1));
  EXPECT_EQ(diverged[0].right, -1);
}

TEST_F(ReplicaCopiesTest, OneAloneAndOtherVariablesHaveNoCopies) {
  Start(1);
  EXPECT_THAT(copies_, IsEmpty());
  Start(2);
  EXPECT_THAT(FindCopies(*coordinator_, {.data = 2}, {"v"}), IsEmpty());
  // The same two ranks as shards: each has its own way to its bits.
  EXPECT_THAT(FindCopies(*coordinator_, {.data = 1, .tensor = 2}, {"w"}), IsEmpty());
}

// Of two variables on ranks 0 to 3; the second is on the last three alone.
std::vector<DivergedCopies> Compare(const std::vector<std::string>& arithmetic,
                                    const std::vector<std::vector<uint64_t>>& digests) {
  return CompareCopies({{"a", {0, 1, 2, 3}}, {"b", {1, 2, 3}}}, {arithmetic, digests});
}

TEST(CompareCopiesTest, HalfIsNoMajority) {
  const std::vector<std::string> same(4, "cpu");
  const auto halves = Compare(same, {{5, 6, 5, 6}, {1, 1, 1}});
  ASSERT_THAT(halves, SizeIs(1));
  EXPECT_EQ(halves[0].right, -1);
  EXPECT_THAT(halves[0].wrong, ElementsAre(0, 1, 2, 3));
  const auto each = Compare(same, {{5, 5, 5, 5}, {1, 2, 3}});
  ASSERT_THAT(each, SizeIs(1));
  EXPECT_EQ(each[0].variable, "b");
  EXPECT_EQ(each[0].right, -1);
  EXPECT_THAT(each[0].wrong, ElementsAre(1, 2, 3));
  const auto two = Compare(same, {{6, 5, 5, 5}, {1, 2, 1}});
  ASSERT_THAT(two, SizeIs(2));
  EXPECT_THAT(two[0].wrong, ElementsAre(0));
  EXPECT_EQ(two[0].right, 1);
  EXPECT_THAT(two[1].wrong, ElementsAre(2));
  EXPECT_EQ(two[1].right, 1);
}

// A card and a processor round otherwise, and so do two numbers of threads.
TEST(CompareCopiesTest, OtherArithmeticMayHaveOtherBits) {
  const std::vector<std::string> mixed = {"cpu", "cuda", "cpu", "cuda"};
  EXPECT_THAT(Compare(mixed, {{5, 6, 5, 6}, {1, 2, 1}}), IsEmpty());
  const auto one = Compare(mixed, {{5, 6, 5, 7}, {1, 2, 1}});
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_THAT(one[0].ranks, ElementsAre(1, 3));
  EXPECT_EQ(one[0].right, -1);
  const auto mixed_cards = Compare({"cpu", "cpu", "cuda", "cpu"}, {{5, 5, 9, 4}, {1, 1, 1}});
  ASSERT_THAT(mixed_cards, SizeIs(1));
  EXPECT_THAT(mixed_cards[0].ranks, ElementsAre(0, 1, 3));
  EXPECT_THAT(mixed_cards[0].wrong, ElementsAre(3));
  EXPECT_EQ(mixed_cards[0].right, 0);
}

// A client that gives one answer too few.
class ShortClient final : public WorkerClient {
 public:
  explicit ShortClient(WorkerClient& worker) : worker_(worker) {}
  std::string name() const override { return worker_.name(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    return worker_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    return worker_.AddProgram(program, partition, data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    return worker_.WriteVariable(name, local);
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    return worker_.ReadVariable(name);
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    return worker_.RunSteps(ranges, report);
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    absl::StatusOr<ControlReply> reply = worker_.Answer(request);
    if (!reply.ok()) return reply;
    auto* const digests = std::get_if<VariableDigests>(&*reply);
    if (digests != nullptr) digests->digests.pop_back();
    return reply;
  }
  void Abort(const absl::Status& reason) override { worker_.Abort(reason); }

 private:
  WorkerClient& worker_;
};

TEST_F(ReplicaCopiesTest, AnAnswerOfAnotherLengthIsRefused) {
  Start(2);
  ShortClient short_client(*cluster_->clients()[1]);
  Coordinator coordinator({cluster_->clients()[0], &short_client});
  const auto answers = DigestCopies(coordinator, copies_);
  EXPECT_TRUE(absl::IsDataLoss(answers.status())) << answers.status();
}

}  // namespace
}  // namespace weft
