// A communicator whose peers are images of this rank: for tests of what is sent and summed.
#ifndef WEFT_EXECUTOR_LOWERING_TESTING_MIRROR_COMMUNICATOR_H_
#define WEFT_EXECUTOR_LOWERING_TESTING_MIRROR_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "executor/interfaces/communicator.h"
#include "platform/testing/fake_clock.h"

namespace weft::testing {

// What a peer sends: two numbers, which tell the message.
inline float ReceivedValue(MessageKey key) {
  return static_cast<float>(100 + key.micro_batch + 1000 * key.step);
}

// Every other member of a group holds what this one holds, so a sum is a product. Channels lead to
// nobody. Remembers what was asked of it.
class MirrorCommunicator final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel& channel) override {
    return static_cast<ChannelHandle>(channel.id.value);
  }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override {
    specs_.push_back(spec);
    return static_cast<CollectiveHandle>(specs_.size()) - 1;
  }
  absl::Status Send(ChannelHandle channel, MessageKey key, const void* data) override {
    const float value = *static_cast<const float*>(data);
    calls.push_back(absl::StrCat("send ", channel, " mb", key.micro_batch, " ", value));
    if (clock != nullptr) clock->Advance(absl::Seconds(10));
    return absl::OkStatus();
  }
  absl::Status WaitSent(ChannelHandle channel) override {
    calls.push_back(absl::StrCat("wait ", channel));
    return absl::OkStatus();
  }
  absl::Status Receive(ChannelHandle, MessageKey key, void* data) override {
    float* values = static_cast<float*>(data);
    values[0] = values[1] = ReceivedValue(key);
    return absl::OkStatus();
  }
  absl::Status RunCollective(CollectiveHandle handle, MessageKey, void* const* buffers) override {
    const CollectiveSpec& spec = specs_[handle];
    float* data = static_cast<float*>(buffers[0]);
    for (int64_t i = 0; i < spec.schedule.buffer_elements[0]; ++i) {
      data[i] *= static_cast<float>(spec.group.size());
    }
    ++collectives_run;
    if (after_collective != nullptr) after_collective();
    return absl::OkStatus();
  }
  void Abort(const absl::Status& reason) override { aborted = reason; }

  std::vector<std::string> calls;
  FakeClock* clock = nullptr;  // turned by ten seconds in every send
  std::atomic<int> collectives_run{0};
  std::function<void()> after_collective;  // in the thread that ran it
  absl::Status aborted;

 private:
  std::vector<CollectiveSpec> specs_;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_LOWERING_TESTING_MIRROR_COMMUNICATOR_H_
