// ValidateSchedules: runs all members' schedules together without data.
#include <deque>
#include <map>

#include "absl/strings/str_cat.h"
#include "graph/schedule/collective_schedule.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class ScheduleValidator {
 public:
  explicit ScheduleValidator(const std::vector<CollectiveSchedule>& members)
      : members_(members), next_(members.size(), 0) {}

  absl::Status Run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t m = 0; m < members_.size(); ++m) {
        while (next_[m] < members_[m].steps.size()) {
          bool done = false;
          WEFT_RETURN_IF_ERROR(Try(m, members_[m].steps[next_[m]], done));
          if (!done) break;
          ++next_[m];
          moved = true;
        }
      }
    }
    return CheckFinished();
  }

 private:
  absl::Status Error(size_t member, const std::string& message) const {
    return absl::InvalidArgumentError(
        absl::StrCat("member ", member, ", step ", next_[member], ": ", message));
  }

  absl::Status CheckRange(size_t member, const BufferRange& range) const {
    const std::vector<int64_t>& sizes = members_[member].buffer_elements;
    if (range.buffer < 0 || range.buffer >= static_cast<int>(sizes.size())) {
      return Error(member, absl::StrCat("there is no buffer ", range.buffer, "; the schedule has ",
                                        sizes.size()));
    }
    if (range.first < 0 || range.count < 0 || range.first > sizes[range.buffer] - range.count) {
      return Error(
          member, absl::StrCat("elements [", range.first, ",", range.first + range.count,
                               ") are outside buffer ", range.buffer, " of ", sizes[range.buffer]));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPeer(size_t member, int peer) const {
    if (peer < 0 || peer >= static_cast<int>(members_.size()) || peer == static_cast<int>(member)) {
      return Error(member, absl::StrCat("peer ", peer, " is not another of the ", members_.size(),
                                        " members"));
    }
    return absl::OkStatus();
  }

  // `done` stays false for a receive whose message is not there yet.
  absl::Status Try(size_t member, const CollectiveStep& step, bool& done) {
    const int self = static_cast<int>(member);
    if (step.kind != CollectiveStep::Kind::kReceive) {
      WEFT_RETURN_IF_ERROR(CheckRange(member, step.source));
    }
    if (step.kind != CollectiveStep::Kind::kSend) {
      WEFT_RETURN_IF_ERROR(CheckRange(member, step.target));
    }
    done = true;
    if (step.kind == CollectiveStep::Kind::kSend) {
      WEFT_RETURN_IF_ERROR(CheckPeer(member, step.peer));
      messages_[{self, step.peer}].push_back(step.source.count);
      return absl::OkStatus();
    }
    if (step.kind == CollectiveStep::Kind::kReceive) {
      WEFT_RETURN_IF_ERROR(CheckPeer(member, step.peer));
      return TryReceive(member, step, done);
    }
    if (step.source.count != step.target.count) {
      return Error(member, absl::StrCat("source has ", step.source.count, " elements and target ",
                                        step.target.count));
    }
    return absl::OkStatus();
  }

  absl::Status TryReceive(size_t member, const CollectiveStep& step, bool& done) {
    std::deque<int64_t>& queue = messages_[{step.peer, static_cast<int>(member)}];
    done = !queue.empty();
    if (!done) return absl::OkStatus();
    if (queue.front() != step.target.count) {
      return Error(member, absl::StrCat("expects ", step.target.count, " elements from member ",
                                        step.peer, ", which sends ", queue.front()));
    }
    queue.pop_front();
    return absl::OkStatus();
  }

  absl::Status CheckFinished() const {
    for (size_t m = 0; m < members_.size(); ++m) {
      if (next_[m] == members_[m].steps.size()) continue;
      return Error(m, absl::StrCat("waits for ever for a message from member ",
                                   members_[m].steps[next_[m]].peer));
    }
    for (const auto& [ends, queue] : messages_) {
      if (queue.empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat("member ", ends.first, " sends ", queue.size(),
                                                     " messages to member ", ends.second,
                                                     " that nobody receives"));
    }
    return absl::OkStatus();
  }

  const std::vector<CollectiveSchedule>& members_;
  std::vector<size_t> next_;
  std::map<std::pair<int, int>, std::deque<int64_t>> messages_;  // sizes, by (from, to)
};

}  // namespace

absl::Status ValidateSchedules(const std::vector<CollectiveSchedule>& members) {
  return ScheduleValidator(members).Run();
}

}  // namespace weft
