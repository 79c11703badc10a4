#include "tensor/testing/watched_device.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

// What a stream was given, to be given to the stream behind one again.
using RecordedItems = std::vector<std::function<absl::Status(Stream&)>>;

class WatchedRecording final : public RecordedWork {
 public:
  WatchedRecording(RecordedItems items, WatchedCalls& calls)
      : items_(std::move(items)), calls_(calls) {}
  absl::Status Run(Stream& stream) override;

 private:
  const RecordedItems items_;
  WatchedCalls& calls_;
};

}  // namespace

class WatchedEvent final : public Event {
 public:
  WatchedEvent(std::unique_ptr<Event> event, const WatchedDevice& device)
      : event_(std::move(event)), device_(device) {}
  bool Done() const override { return !device_.Hangs() && event_->Done(); }
  Event& event() { return *event_; }

 private:
  const std::unique_ptr<Event> event_;
  const WatchedDevice& device_;
};

class WatchedStream final : public Stream {
 public:
  WatchedStream(std::unique_ptr<Stream> stream, std::string name, WatchedDevice& device)
      : stream_(std::move(stream)),
        name_(std::move(name)),
        device_(device),
        waits_(name_ != device.options_.stream_without_waits),
        records_(device.options_.records),
        calls_(device.calls_) {}

  absl::Status Enqueue(Work work) override {
    ++calls_.works;
    return Do([work](Stream& stream) { return stream.Enqueue(work); });
  }
  absl::Status Record(Event& event) override {
    if (!device_.TakesPlace(name_, OrderingCall::kRecord)) return absl::OkStatus();
    return DoWith(event, &Stream::Record);
  }
  absl::Status Wait(Event& event) override {
    ++calls_.waits;
    const bool takes_place = device_.TakesPlace(name_, OrderingCall::kWait);
    if (!waits_ || !takes_place) return absl::OkStatus();
    return DoWith(event, &Stream::Wait);
  }
  absl::Status Synchronize(absl::Duration timeout) override {
    if (is_recording_) return absl::FailedPreconditionError("the stream records");
    ++calls_.synchronizations;
    if (!device_.TakesPlace(name_, OrderingCall::kSynchronize)) {
      held_.clear();
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(DoHeld());
    if (device_.until_it_hangs_.fetch_sub(1) <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("stream ", name_, " of ", device_.info().name, " was told to hang"));
    }
    return stream_->Synchronize(timeout);
  }
  void* native_handle() const override { return stream_->native_handle(); }
  DeviceFault* fault() const override { return stream_->fault(); }

  absl::Status BeginRecording() override {
    if (!records_) return Stream::BeginRecording();
    if (is_recording_) return absl::FailedPreconditionError("the stream records already");
    is_recording_ = true;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<RecordedWork>> EndRecording(
      std::unique_ptr<RecordedWork> former) override {
    if (!records_) return Stream::EndRecording(std::move(former));
    if (!is_recording_) return absl::FailedPreconditionError("the stream does not record");
    is_recording_ = false;
    ++calls_.recordings;
    return std::make_unique<WatchedRecording>(std::exchange(items_, {}), calls_);
  }

  // Now, or in the runs of what is being recorded.
  absl::Status Do(std::function<absl::Status(Stream&)> item) {
    WEFT_RETURN_IF_ERROR(DoHeld());
    if (!is_recording_) return item(*stream_);
    items_.push_back(std::move(item));
    return absl::OkStatus();
  }
  absl::Status DoWith(Event& event, absl::Status (Stream::*call)(Event&)) {
    auto* const own = dynamic_cast<WatchedEvent*>(&event);
    Event& behind = own != nullptr ? own->event() : event;
    return Do([&behind, call](Stream& stream) { return (stream.*call)(behind); });
  }
  // The same for a copy to the host, which waits to see whether it is waited for.
  absl::Status DoCopyToHost(void* host, size_t bytes, std::function<absl::Status(Stream&)> item) {
    if (is_recording_ || !device_.LeavesOutNextSynchronize(name_)) return Do(std::move(item));
    std::memset(host, 0, bytes);
    held_.push_back(std::move(item));
    return absl::OkStatus();
  }
  Stream& stream() { return *stream_; }

 private:
  absl::Status DoHeld() {
    for (const auto& item : std::exchange(held_, {})) WEFT_RETURN_IF_ERROR(item(*stream_));
    return absl::OkStatus();
  }

  const std::unique_ptr<Stream> stream_;
  const std::string name_;
  WatchedDevice& device_;
  const bool waits_;
  const bool records_;
  WatchedCalls& calls_;
  bool is_recording_ = false;
  RecordedItems items_;
  RecordedItems held_;  // copies to the host since the last other call
};

absl::Status WatchedRecording::Run(Stream& stream) {
  ++calls_.recorded_runs;
  for (const auto& item : items_) {
    WEFT_RETURN_IF_ERROR(item(dynamic_cast<WatchedStream&>(stream).stream()));
  }
  return absl::OkStatus();
}

WatchedDevice::WatchedDevice(Device& device, const WatchedDeviceOptions& options)
    : device_(device),
      options_(options),
      info_(options.info != nullptr ? *options.info : device.info()) {}

absl::StatusOr<std::shared_ptr<Buffer>> WatchedDevice::Allocate(size_t bytes) {
  return device_.Allocate(bytes);
}

absl::StatusOr<std::unique_ptr<Stream>> WatchedDevice::NewStream(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_.NewStream(name));
  return std::make_unique<WatchedStream>(std::move(stream), name, *this);
}

std::vector<OrderingPlace> WatchedDevice::ordering() const {
  MutexLock lock(mutex_);
  return ordering_;
}

int64_t WatchedDevice::CallsSoFar(const std::string& stream, OrderingCall call) const {
  return std::count_if(ordering_.begin(), ordering_.end(), [&](const OrderingPlace& place) {
    return place.stream == stream && place.call == call;
  });
}

bool WatchedDevice::TakesPlace(const std::string& stream, OrderingCall call) {
  MutexLock lock(mutex_);
  ordering_.push_back({stream, call, CallsSoFar(stream, call)});
  return !options_.without.has_value() || *options_.without != ordering_.back();
}

bool WatchedDevice::LeavesOutNextSynchronize(const std::string& stream) const {
  if (!options_.without.has_value()) return false;
  MutexLock lock(mutex_);
  const int64_t number = CallsSoFar(stream, OrderingCall::kSynchronize);
  return *options_.without == OrderingPlace{stream, OrderingCall::kSynchronize, number};
}

absl::StatusOr<std::unique_ptr<Event>> WatchedDevice::NewEvent() {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device_.NewEvent());
  return std::make_unique<WatchedEvent>(std::move(event), *this);
}

absl::StatusOr<std::shared_ptr<Buffer>> WatchedDevice::AllocateHostMemory(size_t bytes) {
  return device_.AllocateHostMemory(bytes);
}

absl::Status WatchedDevice::CopyFromHost(Stream& stream, const void* host, void* device,
                                         size_t bytes) {
  return dynamic_cast<WatchedStream&>(stream).Do([=, this](Stream& own) {
    absl::Status status = device_.CopyFromHost(own, host, device, bytes);
    if (!status.ok() || !options_.counts_copies) return status;
    return own.Enqueue({[](void* count, Stream&) {
                          ++*static_cast<std::atomic<int64_t>*>(count);
                          return absl::OkStatus();
                        },
                        &calls_.copies_made});
  });
}

absl::Status WatchedDevice::CopyToHost(Stream& stream, const void* device, void* host,
                                       size_t bytes) {
  return dynamic_cast<WatchedStream&>(stream).DoCopyToHost(
      host, bytes, [=, this](Stream& own) { return device_.CopyToHost(own, device, host, bytes); });
}

absl::Status WatchedDevice::CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) {
  return dynamic_cast<WatchedStream&>(stream).Do(
      [=, this](Stream& own) { return device_.CopyOnDevice(own, from, to, bytes); });
}

}  // namespace weft::testing
