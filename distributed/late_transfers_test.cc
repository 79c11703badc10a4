// A transport that lets go of a message some time after the job has ended: the worker's memory
// stays until then.
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "distributed/in_process_transport.h"
#include "distributed/testing/sum_job.h"
#include "distributed/worker.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {
namespace {

constexpr char kTestVersion[] = "test";

// Of messages that a transport has, and of memory that goes back meanwhile.
struct LateNotes {
  std::atomic<int> messages{0};  // that were sent, ever
  std::atomic<int> held{0};
  std::atomic<int> freed_too_early{0};
  std::atomic<bool> may_let_go{false};

  void LetGo() {
    may_let_go = true;
    may_let_go.notify_all();
  }
  void MemoryEnds() {
    if (held.load() > 0) ++freed_too_early;
  }
};

// Sends nothing. After an abort, when the test lets it, it reads what it was given once more, as a
// network does that is at it, and tells the end.
class LateTransport final : public Transport {
 public:
  LateTransport(std::unique_ptr<Transport> inner, LateNotes& notes)
      : inner_(std::move(inner)), notes_(notes) {}
  ~LateTransport() override {
    if (thread_.joinable()) thread_.join();
  }

  RankId rank() const override { return inner_->rank(); }
  void Send(RankId, const MessageHeader& header, const void* data,
            TransferObserver& observer) override {
    MutexLock lock(mutex_);
    if (thread_.joinable()) return observer.Done(absl::AbortedError("the job has ended"));
    ++notes_.messages;
    ++notes_.held;
    sends_.push_back({static_cast<const std::byte*>(data), header.bytes, &observer});
  }
  void Receive(RankId peer, const MessageHeader& header, void* data,
               TransferObserver& observer) override {
    inner_->Receive(peer, header, data, observer);
  }
  void Abort(const absl::Status& reason) override {
    inner_->Abort(reason);
    MutexLock lock(mutex_);
    if (thread_.joinable()) return;
    thread_ = std::thread([this, sends = std::move(sends_)] {
      notes_.may_let_go.wait(false);
      for (const LateSend& send : sends) {
        for (size_t i = 0; i < send.bytes; ++i) sum_ += static_cast<int>(send.data[i]);
        --notes_.held;
        send.observer->Done(absl::AbortedError("the job has ended"));
      }
    });
  }
  int64_t bytes_sent() const override { return 0; }

 private:
  struct LateSend {
    const std::byte* data;
    size_t bytes;
    TransferObserver* observer;
  };
  const std::unique_ptr<Transport> inner_;
  LateNotes& notes_;
  Mutex mutex_;
  std::vector<LateSend> sends_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> sum_{0};
};

// Notes when memory of its own goes back, and of the host that stages for it.
class LateDevice final : public FakeDevice {
 public:
  explicit LateDevice(LateNotes& notes) : notes_(notes) {}
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t bytes) override {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory, FakeDevice::AllocateHostMemory(bytes));
    return std::make_shared<LateBuffer>(std::move(memory), notes_);
  }

 protected:
  void OnFree(void*) override { notes_.MemoryEnds(); }

 private:
  class LateBuffer final : public Buffer {
   public:
    LateBuffer(std::shared_ptr<Buffer> memory, LateNotes& notes)
        : Buffer(memory->device(), memory->data(), memory->size()),
          memory_(std::move(memory)),
          notes_(notes) {}
    ~LateBuffer() override { notes_.MemoryEnds(); }

   private:
    const std::shared_ptr<Buffer> memory_;
    LateNotes& notes_;
  };

  LateNotes& notes_;
};

// Rank 0 of a job whose rank 1 never comes.
class LateTransfersTest : public ::testing::Test {
 protected:
  LateTransfersTest() {
    WorkerEnvironment environment;
    environment.device = &device_;
    environment.clock = &RealClock();
    environment.open_input = OpenSumJobInput;
    environment.version = kTestVersion;
    environment.open_transport =
        [this](const JobMembership& job) -> absl::StatusOr<std::unique_ptr<Transport>> {
      hubs_.push_back(std::make_unique<InProcessHub>(2));
      return std::make_unique<LateTransport>(hubs_.back()->NewTransport(job.rank), notes_);
    };
    worker_ = NewWorker(std::move(environment));
    Join(7);
  }

  ~LateTransfersTest() override {
    notes_.LetGo();
    if (letting_go_.joinable()) letting_go_.join();
  }

  void Join(uint64_t job_id) {
    JobMembership membership;
    membership.job_id = job_id;
    membership.rank = RankId(0);
    membership.addresses = {"first", "second"};
    membership.version = kTestVersion;
    membership.stall_timeout_seconds = 0.2;
    const auto joined = worker_->Join(membership);
    ASSERT_TRUE(joined.ok()) << joined.status();
  }
  void FailInAStep() {
    const auto added = worker_->AddProgram("train", SumJobPartitions(2)[0], "data");
    ASSERT_TRUE(added.ok()) << added.status();
    const absl::Status status = worker_->RunSteps({{"train", 0, 1, {{"rate", 0.5}}}}, nullptr);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_GT(notes_.messages, 0);
    EXPECT_GT(notes_.held, 0);
    letting_go_ = std::thread([this] {
      absl::SleepFor(absl::Milliseconds(50));
      notes_.LetGo();
    });
  }
  void ExpectAllInTime() const {
    EXPECT_EQ(notes_.held, 0);
    EXPECT_EQ(notes_.freed_too_early, 0);
  }

  LateNotes notes_;
  LateDevice device_{notes_};
  std::vector<std::unique_ptr<InProcessHub>> hubs_;
  std::thread letting_go_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(LateTransfersTest, TheEndOfAWorkerWaitsForTheTransport) {
  FailInAStep();
  worker_.reset();
  ExpectAllInTime();
}

TEST_F(LateTransfersTest, TheNextJobWaitsForTheTransportOfTheLastOne) {
  FailInAStep();
  Join(8);
  ExpectAllInTime();
}

// Reading a variable gives the arena back first.
TEST_F(LateTransfersTest, AVariableIsReadWhenTheTransportIsThrough) {
  FailInAStep();
  EXPECT_TRUE(worker_->ReadVariable("w").ok());
  ExpectAllInTime();
}

}  // namespace
}  // namespace weft::testing
