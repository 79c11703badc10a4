#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/communicator.h"
#include "executor/program/memory_operations.h"

namespace weft {
namespace {

// Executes schedules of one member: only additions and copies.
class SoloCommunicator final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }

  absl::StatusOr<ChannelHandle> OpenChannel(const Channel& channel) override {
    return absl::FailedPreconditionError(
        absl::StrCat("channel for '", channel.value, "' was opened, but this rank has no peers"));
  }

  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override {
    if (spec.group.size() != 1) {
      return absl::FailedPreconditionError(absl::StrCat("collective '", spec.name, "' has ",
                                                        spec.group.size(),
                                                        " members, but this rank has no peers"));
    }
    specs_.push_back(spec);
    return static_cast<CollectiveHandle>(specs_.size()) - 1;
  }

  absl::Status Send(ChannelHandle, MessageKey, const void*) override { return NoPeers(); }
  absl::Status WaitSent(ChannelHandle) override { return NoPeers(); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return NoPeers(); }

  absl::Status RunCollective(CollectiveHandle collective, MessageKey,
                             void* const* buffers) override {
    const CollectiveSpec& spec = specs_[collective];
    for (const CollectiveStep& step : spec.schedule.steps) {
      const auto at = [&](const BufferRange& range) {
        return static_cast<char*>(buffers[range.buffer]) + DTypeBytes(spec.dtype, range.first);
      };
      if (step.kind == CollectiveStep::Kind::kReduce) {
        const absl::Status status =
            AddInto(spec.dtype, step.target.count, at(step.source), at(step.target));
        if (!status.ok()) return status;
      } else if (step.kind == CollectiveStep::Kind::kCopy) {
        std::memmove(at(step.target), at(step.source),
                     static_cast<size_t>(DTypeBytes(spec.dtype, step.target.count)));
      } else {
        return NoPeers();
      }
    }
    return absl::OkStatus();
  }

  void Abort(const absl::Status&) override {}

 private:
  static absl::Status NoPeers() {
    return absl::InternalError("a cluster of one has nobody to exchange messages with");
  }
  std::vector<CollectiveSpec> specs_;
};

}  // namespace

std::unique_ptr<Communicator> NewSoloCommunicator() { return std::make_unique<SoloCommunicator>(); }

}  // namespace weft
