// On each device of tensor/testing/test_device.h: what is sent is what the stream had made by then.
#include "executor/program/deferred_sends.h"

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/lowering/lowered_instruction.h"
#include "executor/program/host_staging.h"
#include "executor/program/instruction.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kSends = 4;
constexpr absl::Duration kPatient = absl::Seconds(30);

// A stream that makes numbers in one place of the device, each of which is sent before the next.
class Sender {
 public:
  explicit Sender(Device& device) : device_(device) {
    stream_ = *device_.NewStream("compute");
    memory_ = *device_.Allocate(sizeof(int64_t));
    for (int i = 0; i < kSends; ++i) {
      Instruction& instruction = instructions_.emplace_back();
      instruction.work = bound::Send{&what_, memory_->data()};
      instruction.micro_batch = i;
      instruction.staging = std::make_unique<HostStaging>();
      EXPECT_TRUE(instruction.staging->Allocate(device_, {sizeof(int64_t)}).ok());
    }
    EXPECT_TRUE(sends_.Prepare(device_, kSends).ok());
  }
  ~Sender() { stream_.reset(); }  // before the numbers that it makes

  // The i-th send of the step, of this number.
  void Add(int i, int64_t number) {
    numbers_.push_back({static_cast<int64_t*>(memory_->data()), number});
    ASSERT_TRUE(stream_->Enqueue({&Number::Make, &numbers_.back()}).ok());
    ASSERT_TRUE(sends_.Add(instructions_[static_cast<size_t>(i)], device_, *stream_).ok());
  }
  void Flush(bool wait) {
    const absl::Status status = sends_.Flush(wait, [this](Instruction& instruction) {
      sent.push_back(*static_cast<const int64_t*>(instruction.staging->address(0)));
      places.push_back(instruction.micro_batch);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  void EndStep() {
    EXPECT_TRUE(stream_->Synchronize(kPatient).ok());
    sends_.Clear();
  }
  DeferredSends& sends() { return sends_; }

  std::vector<int64_t> sent;
  std::vector<int> places;

 private:
  struct Number {
    int64_t* place;
    int64_t value;
    static absl::Status Make(void* argument, Stream&) {
      const Number& number = *static_cast<const Number*>(argument);
      *number.place = number.value;
      return absl::OkStatus();
    }
  };

  Device& device_;
  const lowered::Send what_ = {.channel = 3};
  std::list<Number> numbers_;
  std::shared_ptr<Buffer> memory_;
  std::vector<Instruction> instructions_;
  std::unique_ptr<Stream> stream_;
  DeferredSends sends_;
};

class DeferredSendsTest : public ::testing::TestWithParam<int> {
 protected:
  const std::unique_ptr<Device> device_ = testing::NewTestDevice(GetParam());
};

TEST_P(DeferredSendsTest, EachSendHasTheNumberOfItsTime) {
  {
    Sender sender(*device_);
    for (int64_t step = 1; step <= 3; ++step) {
      sender.sent.clear();
      for (int i = 0; i < kSends; ++i) sender.Add(i, 10 * step + i);
      EXPECT_FALSE(sender.sends().empty());
      sender.Flush(/*wait=*/true);
      EXPECT_TRUE(sender.sends().empty());
      EXPECT_THAT(sender.sent, ElementsAre(10 * step, 10 * step + 1, 10 * step + 2, 10 * step + 3));
      sender.EndStep();
    }
    EXPECT_THAT(sender.places, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  }
  const absl::Status status = testing::VerifyTestDevice(*device_);
  EXPECT_TRUE(status.ok()) << status;
}

// What is not there is not sent, and nothing behind it.
TEST_P(DeferredSendsTest, WithoutAWaitOnlyWhatIsThereIsSent) {
  Sender sender(*device_);
  for (int i = 0; i < kSends; ++i) {
    sender.Add(i, 5 + i);
    sender.Flush(/*wait=*/false);
    for (size_t k = 0; k < sender.sent.size(); ++k) {
      EXPECT_EQ(sender.sent[k], 5 + static_cast<int64_t>(k));
    }
  }
  if (GetParam() == testing::kLazyOrder) {
    EXPECT_THAT(sender.sent, IsEmpty());
  }
  if (GetParam() == testing::kOnCpu) {
    EXPECT_EQ(sender.sent.size(), 4u);
  }
  sender.Flush(/*wait=*/true);
  EXPECT_THAT(sender.sent, ElementsAre(5, 6, 7, 8));
}

TEST_P(DeferredSendsTest, AnErrorOfASendEndsTheFlush) {
  Sender sender(*device_);
  for (int i = 0; i < kSends; ++i) sender.Add(i, i);
  int calls = 0;
  const absl::Status status = sender.sends().Flush(/*wait=*/true, [&](Instruction&) {
    return ++calls == 2 ? absl::UnavailableError("a peer is lost") : absl::OkStatus();
  });
  EXPECT_EQ(status, absl::UnavailableError("a peer is lost"));
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(sender.sends().empty());
}

INSTANTIATE_TEST_SUITE_P(Devices, DeferredSendsTest,
                         ::testing::Values(testing::kOnCpu, testing::kLazyOrder, 1, 2, 3),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

// Each recording behind a copy is needed: without it, what was there before is sent.
TEST(DeferredSendsOrderTest, AMissingEventIsSeen) {
  for (int without = -1; without < kSends; ++without) {
    const std::unique_ptr<Device> lazy = testing::NewTestDevice(testing::kLazyOrder);
    testing::WatchedDeviceOptions options;
    if (without >= 0) {
      options.without = testing::OrderingPlace{"compute", testing::OrderingCall::kRecord, without};
    }
    testing::WatchedDevice device(*lazy, options);
    Sender sender(device);
    for (int i = 0; i < kSends; ++i) sender.Add(i, 20 + i);
    sender.Flush(/*wait=*/true);
    const bool is_right = sender.sent == std::vector<int64_t>{20, 21, 22, 23};
    EXPECT_EQ(is_right, without < 0) << "without recording " << without;
  }
}

}  // namespace
}  // namespace weft
